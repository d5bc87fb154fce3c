"""Logistic classification with discrete weights (DIRECT for classes)."""

from pydirect.logistic.fit import LogisticFit, fit_logistic, fit_logistic_decorrelated
from pydirect.logistic.predictive import predictive_probability
from pydirect.logistic.rows import LabelledRows

__all__ = [
    "LabelledRows",
    "LogisticFit",
    "fit_logistic",
    "fit_logistic_decorrelated",
    "predictive_probability",
]
