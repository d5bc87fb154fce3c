"""Files of quantised models."""

import numpy as np
import pytest

import pydirect
from pydirect import DirectClassifier, DirectRegressor, quantize
from pydirect.persistence.container import KindError
from pydirect.quantized.predictors import load_quantized


def test_saved_models_predict_the_same_bits(data, fit, raw, decorrelated, tmp_path):
    x, y = data()
    classifier = fit(DirectClassifier(n_basis_functions=20), x, np.where(y > 1, "yes", "no"))
    for k, model in enumerate(
        (
            quantize(raw, 8, arithmetic="integer"),
            quantize(decorrelated, 8),
            quantize(fit(DirectRegressor(n_basis_functions=20), x, y), 4),
            quantize(classifier, 4),
            quantize(fit(DirectRegressor(posterior="sequential", features="polynomial"), x, y), 4),
        )
    ):
        path = tmp_path / f"{k}.pydirect"
        model.save(path)
        again = load_quantized(path)
        assert type(again) is type(model) and again.arithmetic == model.arithmetic
        np.testing.assert_array_equal(again.functions(x), model.functions(x))
        if k < 3:
            np.testing.assert_array_equal(again.predict(x, return_std=True), model.predict(x, return_std=True))
        else:
            np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_the_reader_of_other_models_names_this_one(raw, tmp_path):
    quantize(raw, 4).save(tmp_path / "m")
    with pytest.raises(
        KindError, match=r"'pydirect.QuantizedRegressor', which pydirect.quantized.load_quantized reads$"
    ):
        pydirect.load(tmp_path / "m")
