"""Arguments of exports, and models without a form in C."""

from __future__ import annotations

import numpy as np
import pytest

import pydirect
from pydirect.quantized.quantize import quantize


def test_options_of_floating_point_are_refused_for_integers(tmp_path, small):
    model = quantize(small(small.regressor("linear", basis="raw", rank_inputs=False)), 4, arithmetic="integer")
    with pytest.raises(ValueError, match="dtype must be float64 in integer arithmetic"):
        model.to_onnx(tmp_path / "model.onnx", dtype=np.float32)
    for columns in (["a", "b"], ["a", "b", 3]):
        with pytest.raises(ValueError, match="columns must be 3 names"):
            model.to_c(tmp_path / "model.h", columns=columns)


def test_models_that_c_cannot_express_are_refused_with_a_hint(tmp_path, small):
    path = tmp_path / "model.h"
    with pytest.raises(ValueError, match="features='fourier'"):
        quantize(small(small.regressor("nystroem")), 4).to_c(path)
    model = quantize(small(small.regressor("linear", basis="raw")), 4)
    for prefix in ("1m", "", "a-b", 3):
        with pytest.raises(ValueError, match="prefix must be"):
            model.to_c(path, prefix=prefix)
    with pytest.raises(ValueError, match="level must be"):
        model.to_c(path, level=1.0)
    with pytest.raises(ValueError, match="counts must be None in floating-point arithmetic"):
        model.to_c(path, counts_per_unit=3.0)
    constant = pydirect.DirectRegressor("linear", basis="raw").fit(np.ones((9, 1)), np.arange(9.0))
    with pytest.raises(ValueError, match="must depend on an input"):
        quantize(constant, 4).to_c(path)
    assert not path.exists()
