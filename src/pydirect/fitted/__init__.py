"""Fitted models as frozen data: what predicts, draws and is saved."""

from pydirect.fitted.classification import FittedClassifier, FittedCounts
from pydirect.fitted.functions import DrawnFunction, FunctionDraws
from pydirect.fitted.latent import Latent
from pydirect.fitted.leave_one_out import left_out
from pydirect.fitted.regression import FittedRegressor
from pydirect.fitted.units import Units

__all__ = [
    "DrawnFunction",
    "FittedClassifier",
    "FittedCounts",
    "FittedRegressor",
    "FunctionDraws",
    "Latent",
    "Units",
    "left_out",
]
