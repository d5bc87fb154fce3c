"""`DirectRegressor.fit_stream` and statistics of rows that come and go."""

import numpy as np
import pytest
from streamed_rows import LINEAR, as_blocks, fitted, write_parquet
from summed_rows import WEIGHT, N, X, Y

from pydirect import DirectRegressor, Fourier, StreamError
from pydirect.statistics.gaussian import fingerprint

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


KERNEL = {"features": Fourier(max_search_rows=60), "n_basis_functions": 12}


def assert_same_model(first, second, rtol=1e-12):
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=0, atol=rtol * np.abs(Y).max() * 10)
    assert first.elbo_ == pytest.approx(second.elbo_, rel=1e-9)


def test_an_iterator_is_read_once_and_its_first_blocks_fix_the_features():
    model = fitted(as_blocks(90, weight=False), sample_rows=270)
    expected = DirectRegressor(**LINEAR).fit_features(X[:270], Y[:270]).fit_stream(X, Y, keep_features=True)
    assert fingerprint(model.features_.input_map) == fingerprint(expected.features_.input_map)
    assert_same_model(model, expected)
    assert model.total_weight_ == N


def test_features_of_an_earlier_fit_are_kept_on_request():
    model = DirectRegressor(**KERNEL).fit_features(X[:200], Y[:200])
    features = model.features_
    model.fit_stream(X, Y, keep_features=True)
    assert model.features_ is features
    model.fit_stream(X, Y)
    assert model.features_ is not features


def test_rows_with_missing_values_are_left_out_on_request(tmp_path):
    x, y, weight = X.copy(), Y.copy(), WEIGHT.copy()
    x[5, 2] = y[400, 1] = weight[700] = np.nan
    kept = np.delete(np.arange(N), [5, 400, 700])
    model = DirectRegressor(**LINEAR).fit_features(X, Y)
    path = write_parquet(tmp_path / "a.parquet", x, y, weight)
    model.fit_stream(path, ["y0", "y1"], "w", keep_features=True, drop_missing=True)
    expected = DirectRegressor(**LINEAR).fit_features(X, Y)
    expected.fit_statistics(expected.new_statistics(2).update(X[kept], Y[kept], WEIGHT[kept]))
    assert_same_model(model, expected)
    with pytest.raises(StreamError, match=r"a\.parquet, data row 6 \(row group 0, its row 6\): column 'x2' must be"):
        fitted(path, ["y0", "y1"], "w")


def test_statistics_reject_rows_with_other_columns():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    statistics = DirectRegressor("linear").fit_features(frame, Y[:, 0]).new_statistics()
    with pytest.raises(ValueError, match=r"x must have .*4"):
        statistics.update(np.c_[X, X], Y[:, 0])
    with pytest.raises(ValueError, match=r"x must have the columns \['a', 'b', 'c', 'd'\], in this order"):
        statistics.update(frame[["b", "a", "c", "d"]], Y[:, 0])
    assert statistics.n_samples == 0.0
    unnamed = DirectRegressor("linear").fit_features(X, Y[:, 0]).new_statistics()
    assert unnamed.update(frame, Y[:, 0]).fingerprint == statistics.fingerprint


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_rows": 1}, ValueError, "sample_rows must be at least 2"),
        ({"keep_features": 1}, TypeError, "keep_features must be True or False"),
    ],
)
def test_invalid_options_are_rejected_by_name(options, error, message):
    with pytest.raises(error, match=message):
        fitted(X, Y, **options)
