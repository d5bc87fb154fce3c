"""Quantised models: posterior samples in a few bits per weight, and predictions in integer arithmetic."""

from pydirect.quantized.errors import AccumulatorOverflowError, IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.loading import load
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor
from pydirect.quantized.quantize import quantize

__all__ = [
    "AccumulatorOverflowError",
    "IntegerArithmeticError",
    "IntegerArithmeticWarning",
    "IntegerProgram",
    "QuantizedClassifier",
    "QuantizedModel",
    "QuantizedPredictor",
    "QuantizedRegressor",
    "RawInputs",
    "load",
    "quantize",
]
