"""Posterior samples as integers: a fitted posterior in a few bits a weight, and inference with them."""

from pydirect.quantized.errors import AccumulatorOverflowError, IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedRegressor
from pydirect.quantized.quantize import quantize
from pydirect.quantized.saving import load

__all__ = [
    "AccumulatorOverflowError",
    "IntegerArithmeticError",
    "IntegerArithmeticWarning",
    "IntegerProgram",
    "QuantizedClassifier",
    "QuantizedModel",
    "QuantizedRegressor",
    "RawInputs",
    "load",
    "quantize",
]
