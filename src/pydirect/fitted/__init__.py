"""Fitted models as frozen data: what predicts, draws and is saved."""

from pydirect.fitted.classification import FittedClassifier, FittedCounts
from pydirect.fitted.functions import DrawnFunction, FunctionDraws
from pydirect.fitted.predictor import Units
from pydirect.fitted.regression import FittedRegressor, Latent, left_out

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
