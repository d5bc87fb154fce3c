"""Quantised models as data: names of columns, sizes, pickles."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectRegressor, fit_quantized, quantize
from pydirect.quantized.loading import load_quantized

RAW = {"basis": "raw", "n_basis_functions": 80, "rank_inputs": False}


def test_data_frames_must_have_the_columns_of_the_fit_in_their_order(data, fit, tmp_path):
    pandas = pytest.importorskip("pandas")
    x, y = data(60)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = quantize(fit(DirectRegressor(**RAW), frame, y), 4, X=frame)
    model.save(tmp_path / "m")
    for own in (model, model.with_arithmetic("integer"), load_quantized(tmp_path / "m")):
        assert own.feature_names == ("a", "b", "c")
        np.testing.assert_array_equal(own.predict(frame), own.predict(x))
        with pytest.raises(ValueError, match=r"X must have the columns \['a', 'b', 'c'\] in this order, got \['c'"):
            own.predict(frame[["c", "b", "a"]])
    assert fit_quantized(DirectRegressor(), frame, y, max_nonzero=4, n_samples=2).feature_names == ("a", "b", "c")


def test_reports_count_interpolation(raw):
    model = raw.quantize(8)
    wide, narrow = (replace(model, feature_bits=bits).with_arithmetic("integer") for bits in (16, 8))
    f = wide.program.n_frequencies
    assert wide.report()["table_lookups"] == 4 * f
    assert narrow.report()["table_lookups"] == 2 * f
    assert wide.report()["multiplications"] - narrow.report()["multiplications"] == 2 * f


def test_models_are_pickled_after_predictions(data, raw):
    x = data()[0]
    for arithmetic in ("float", "integer"):
        model = quantize(raw, 4, arithmetic=arithmetic)
        expected = model.predict(x)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), expected)
