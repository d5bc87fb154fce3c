"""Posterior samples as integers: a fitted posterior in a few bits a weight, and inference with them."""

from pydirect.quantized.arithmetic import AccumulatorOverflowError, IntegerProgram, RawInputs
from pydirect.quantized.files import load
from pydirect.quantized.models import QuantizedClassifier, QuantizedModel, QuantizedRegressor
from pydirect.quantized.program import IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.quantize import quantize

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
