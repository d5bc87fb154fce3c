"""Quantised models: posterior samples in a few bits per weight, and predictions in integer arithmetic."""

from pydirect.quantized.device import DeviceModel as DeviceModel
from pydirect.quantized.device import RawInputs as RawInputs
from pydirect.quantized.fit_quantized import NoModelError, fit_quantized
from pydirect.quantized.model import QuantizedModel as QuantizedModel
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedRegressor, load_quantized
from pydirect.quantized.program import AccumulatorOverflowError, IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.program import IntegerProgram as IntegerProgram
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
