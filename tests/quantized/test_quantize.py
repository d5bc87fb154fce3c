"""Arguments of `quantize`, and models without the form that is asked for."""

import numpy as np
import pytest

from pydirect import DirectRegressor, quantize
from pydirect.quantized.errors import IntegerArithmeticError

RAW = {"basis": "raw", "n_basis_functions": 80, "rank_inputs": False}


def test_models_without_an_integer_form_say_what_to_do(data, fit):
    x, y = data()
    for options, arguments, message in (
        ({"n_basis_functions": 20}, {}, "quantise with levels='even', or fit with basis='raw' and level_scales='own'"),
        (RAW | {"rank_inputs": True}, {}, "fit with rank_inputs=False"),
        ({"basis": "raw", "features": "polynomial"}, {}, "integers need features='fourier', 'linear'"),
        ({"n_basis_functions": 20}, {"levels": "even", "X": x}, "let pydirect.fit_quantized choose"),
    ):
        model = fit(DirectRegressor(**options), x, y)
        with pytest.raises(IntegerArithmeticError, match=message):
            quantize(model, 4, arithmetic="integer", **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"n_samples": 257}, "n_samples must be at most 256"),
        ({"random_state": -1}, "random_state must be a Generator, an integer of at least 0 or None, got -1"),
        ({"levels": "even", "n_levels": 4}, "n_levels must be odd"),
        ({"X": np.zeros((0, 3))}, r"X must have shape .* with n_rows at least 1, got \(0, 3\)"),
        ({"method": "mean"}, "method must be one of"),
        ({"levels": "odd"}, "levels must be one of"),
        ({"levels": "even"}, "X must be given"),
        ({"n_levels": 7}, "n_levels must come with levels="),
        ({"arithmetic": "int"}, "arithmetic must be one of"),
        ({"feature_bits": 4}, "feature_bits must be 8 or 16"),
        ({"frequency_bits": 4}, "frequency_bits must be"),
        ({"X": np.zeros((3, 2))}, "X must have shape"),
    ],
)
def test_arguments_are_checked(raw, options, message):
    with pytest.raises(ValueError, match=message):
        quantize(raw, **options)
