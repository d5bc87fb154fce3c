"""Quantised models: posterior samples in a few bits per weight, and predictions in integer arithmetic."""

from pydirect.quantized.budget.fit_quantized import fit_quantized
from pydirect.quantized.budget.search import NoModelError
from pydirect.quantized.errors import AccumulatorOverflowError, IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.device import FixedPointModel
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.loading import load_quantized
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedRegressor
from pydirect.quantized.quantize import quantize

__all__ = [
    "AccumulatorOverflowError",
    "FixedPointModel",
    "IntegerArithmeticError",
    "IntegerArithmeticWarning",
    "IntegerProgram",
    "NoModelError",
    "QuantizedClassifier",
    "QuantizedModel",
    "QuantizedRegressor",
    "RawInputs",
    "fit_quantized",
    "load_quantized",
    "quantize",
]
