"""Fitted models as frozen data: what predicts, draws and is saved."""

from pydirect.fitted.classification import FittedClassifier as FittedClassifier, FittedCounts as FittedCounts
from pydirect.fitted.functions import DrawnFunction as DrawnFunction, FunctionDraws as FunctionDraws
from pydirect.fitted.predictor import Units as Units
from pydirect.fitted.regression import FittedRegressor as FittedRegressor, Latent as Latent, left_out as left_out
