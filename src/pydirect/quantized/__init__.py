"""Quantised models: posterior samples in a few bits per weight, and predictions in integer arithmetic."""

from pydirect.quantized.device import DeviceModel as DeviceModel, RawInputs as RawInputs
from pydirect.quantized.fit_quantized import NoModelError as NoModelError, fit_quantized as fit_quantized
from pydirect.quantized.model import QuantizedModel as QuantizedModel
from pydirect.quantized.predictors import (
    QuantizedClassifier as QuantizedClassifier,
    QuantizedRegressor as QuantizedRegressor,
    load_quantized as load_quantized,
)
from pydirect.quantized.program import (
    AccumulatorOverflowError as AccumulatorOverflowError,
    IntegerArithmeticError as IntegerArithmeticError,
    IntegerArithmeticWarning as IntegerArithmeticWarning,
    IntegerProgram as IntegerProgram,
)
from pydirect.quantized.quantize import quantize as quantize
