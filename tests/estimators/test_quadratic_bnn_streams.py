"""Networks of rows that do not fit into memory: the coreset of coresets stands for all rows."""

import numpy as np
import pytest

from pydirect import StreamError, StreamInterrupt
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor
from pydirect.quadratic import NetworkCoreset
from pydirect.quadratic.coreset import MAX_MOMENTS, merged_tree, n_moments

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

N = 1500
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
Y = np.c_[X[:, 0] * X[:, 1] + 0.1 * RNG.standard_normal(N), X[:, 0] + 0.1 * RNG.standard_normal(N)]
WEIGHT = RNG.integers(0, 3, N).astype(float)
FAST = {"hidden_layer_sizes": (4,), "n_restarts": 1, "n_regrids": 1, "max_iter": 300, "n_threads": 1}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("pydirect.estimators.quadratic_bnn.READ_ROWS", 130)


def as_blocks(size=97):
    for i in range(0, N, size):
        yield X[i : i + size], Y[i : i + size, 0], WEIGHT[i : i + size]


def squares_and_products(x, y):
    degrees = [(i, j) for i in range(5) for j in range(5 - i)]
    powers = np.stack([x[:, 0] ** i * x[:, 1] ** j for i, j in degrees], axis=1)
    low = powers[:, [sum(d) <= 2 for d in degrees]]
    return np.concatenate([powers, low * y[:, None], y[:, None] ** 2], axis=1)


@pytest.mark.parametrize("n_parts", [1, 2, 3, 8, 11])
def test_a_tree_of_coresets_has_the_moments_of_all_rows(n_parts):
    cuts = np.array_split(np.arange(N), n_parts)
    total = merged_tree(NetworkCoreset.from_data(X[i], Y[i, 0], 1, sample_weight=WEIGHT[i]) for i in cuts)
    assert len(total.x) <= n_moments(2, 1)
    assert total.n_samples == WEIGHT.sum()
    expected = WEIGHT @ squares_and_products(X, Y[:, 0])
    found = total.weight @ squares_and_products(total.x, total.y)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_stream_is_fitted_as_the_rows_in_memory():
    """A few steps from the same start are the same; many may end in another optimum, as sums are rounded otherwise.

    Principal axes of two standardised columns have equal components, so that rounding decides their signs.
    """
    few = FAST | {"max_iter": 3, "whiten": False}
    batch = QuadraticBNNRegressor(**few, engine="coreset").fit(X, Y[:, 0], WEIGHT)
    stream = QuadraticBNNRegressor(**few).fit_stream(as_blocks())
    assert stream.elbo_ == pytest.approx(batch.elbo_, rel=1e-6)
    np.testing.assert_allclose(stream.predict(X), batch.predict(X), atol=1e-3)
    assert stream.total_weight_ == pytest.approx(WEIGHT.sum())
    assert len(stream.coreset_.x) <= n_moments(2, 1)


def test_errors_of_a_stream_say_where_they_occurred():
    x = X.copy()
    x[1000, 1] = np.nan
    with pytest.raises(StreamError, match="row 1000: column 1 of X must be finite, got nan"):
        QuadraticBNNRegressor(**FAST).fit_stream(x, Y[:, 0])
    assert QuadraticBNNRegressor(**FAST).fit_stream(x, Y[:, 0], drop_missing=True).total_weight_ == pytest.approx(N - 1)

    def interrupted():
        for k, block in enumerate(as_blocks()):
            if k == 6:
                raise KeyboardInterrupt
            yield block

    with pytest.raises(StreamInterrupt, match="interrupted after 520 rows: none of them is kept"):
        QuadraticBNNRegressor(**FAST).fit_stream(interrupted)
    with pytest.raises(StreamError, match="no row with positive weight is left"):
        QuadraticBNNRegressor(**FAST).fit_stream(X, Y[:, 0], np.zeros(N))


def test_too_many_inputs_are_refused_with_their_number_of_moments():
    wide = RNG.standard_normal((5000, 14))
    assert n_moments(14, 1) > MAX_MOMENTS
    with pytest.raises(ValueError, match="depth 1 and 14 inputs must keep"):
        QuadraticBNNRegressor(**FAST).fit_stream([(wide[:3400], wide[:3400, 0]), (wide[3400:], wide[3400:, 0])])
