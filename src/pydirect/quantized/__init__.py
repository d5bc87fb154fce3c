"""Quantised models: posterior samples in a few bits per weight, and predictions in integer arithmetic."""

from pydirect.quantized.budget.fit_quantized import NoModelError, fit_quantized
from pydirect.quantized.errors import AccumulatorOverflowError, IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.integer.device import FixedPointModel as FixedPointModel
from pydirect.quantized.integer.device import RawInputs as RawInputs
from pydirect.quantized.integer.program import IntegerProgram as IntegerProgram
from pydirect.quantized.loading import load_quantized
from pydirect.quantized.model import QuantizedModel as QuantizedModel
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedRegressor
from pydirect.quantized.quantize import quantize

__all__ = [
    "AccumulatorOverflowError",
    "IntegerArithmeticError",
    "IntegerArithmeticWarning",
    "NoModelError",
    "QuantizedClassifier",
    "QuantizedRegressor",
    "fit_quantized",
    "load_quantized",
    "quantize",
]
