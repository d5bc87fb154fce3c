"""Units of y and of X, repeated rows, their order, and threads change what they must and nothing else."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from pydirect import DirectRegressor, Fourier, Sequential

KINDS = {
    "nystroem": DirectRegressor(n_basis_functions=100),
    "landmarks": DirectRegressor(n_basis_functions=20),
    "fourier": DirectRegressor("fourier", n_basis_functions=20),
    "linear": DirectRegressor("linear"),
    "polynomial": DirectRegressor("polynomial"),
    # Rounding can exchange drawn levels: moments without draws, and levels so fine that draws hardly change the bound.
    "raw": DirectRegressor("linear", posterior=Sequential(n_levels=255, keep_factor=True)),
    "raw fourier": DirectRegressor(
        features=Fourier(max_search_rows=100),
        posterior=Sequential(n_levels=255, keep_factor=True),
        n_basis_functions=20,
    ),
    "mean field": DirectRegressor("linear", posterior="mean_field"),
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    X = np.round(rng.standard_normal((50, 3)), 3)  # shifts by powers of ten cost few digits
    y = np.round(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(50), 3)
    return X, y, np.round(rng.standard_normal((20, 3)), 3)


@pytest.fixture(scope="module", params=KINDS)
def plain(request, data):
    return clone(KINDS[request.param]).fit(*data[:2])


def assert_same(a, b, new, rtol, atol, elbo=1e-5):
    """Equal predictions and bound, up to the rounding that hyperparameter searches blow up."""
    (mean, std), (mean0, std0) = a.predict(new, return_std=True), b.predict(new, return_std=True)
    np.testing.assert_allclose(mean, mean0, rtol=rtol, atol=atol)
    np.testing.assert_allclose(std, std0, rtol=rtol)
    assert a.elbo_ == pytest.approx(b.elbo_, abs=elbo * (1 + abs(b.elbo_)))


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (-1.0, 1e3), (1e-6, -5.0)])
def test_units_of_the_targets(plain, data, scale, shift):
    X, y, new = data
    other = clone(plain).fit(X, scale * y + shift)
    (mean0, std0), (mean, std) = plain.predict(new, return_std=True), other.predict(new, return_std=True)
    rtol = 0.03 if shift == -5.0 else 1e-3  # eleven digits are left of y
    np.testing.assert_allclose((mean - shift) / scale, mean0, atol=rtol)
    np.testing.assert_allclose(std / abs(scale), std0, rtol=rtol)
    assert other.noise_variance_ == pytest.approx(scale**2 * plain.noise_variance_, rel=2 * rtol)
    assert other.elbo_ == pytest.approx(plain.elbo_ - len(y) * np.log(abs(scale)), abs=0.05)
    np.testing.assert_allclose(
        other.log_predictive_density(new, scale * mean0 + shift),
        plain.log_predictive_density(new, mean0) - np.log(abs(scale)),
        atol=2 * rtol,
    )


@pytest.mark.parametrize("scale", [1e-12, 1e150])
def test_units_of_the_columns(plain, data, scale):
    X, y, new = data
    factors = np.array([scale, 1.0, 1 / scale])
    other = clone(plain).fit(X * factors, y)
    (mean0, std0), (mean, std) = plain.predict(new, return_std=True), other.predict(new * factors, return_std=True)
    np.testing.assert_allclose(mean, mean0, atol=1e-3)
    np.testing.assert_allclose(std, std0, rtol=1e-3)
    assert other.elbo_ == pytest.approx(plain.elbo_, abs=0.05)


def test_common_offsets_of_the_columns(plain, data):
    X, y, new = data
    shift = np.array([1e9, -1e6, 0.0])
    other = clone(plain).fit(X + shift, y)
    (mean0, std0), (mean, std) = plain.predict(new, return_std=True), other.predict(new + shift, return_std=True)
    np.testing.assert_allclose(mean, mean0, atol=5e-3)
    np.testing.assert_allclose(std, std0, rtol=5e-3)


@pytest.mark.parametrize("posterior", ["gaussian", "sequential"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_units_of_precomputed_features_do_not_matter_as_a_whole(data, posterior, scale):
    X, y, new = data
    plain = DirectRegressor("precomputed", posterior=posterior).fit(X, y)
    other = DirectRegressor("precomputed", posterior=posterior).fit(scale * X, y)
    (mean0, std0), (mean, std) = plain.predict(new, return_std=True), other.predict(scale * new, return_std=True)
    np.testing.assert_allclose(mean, mean0, atol=1e-4)
    np.testing.assert_allclose(std, std0, rtol=1e-4)
    assert other.elbo_ == pytest.approx(plain.elbo_, abs=1e-3)


def weighted_and_repeated(data):
    X, y, _ = data
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    return weight.astype(float), np.repeat(X, weight, axis=0), np.repeat(y, weight)


def test_an_integer_weight_is_so_many_copies_of_a_row(plain, data):
    X, y, new = data
    weight, rows, targets = weighted_and_repeated(data)
    assert_same(clone(plain).fit(X, y, weight), clone(plain).fit(rows, targets), new, 1e-4, 1e-4)


def test_a_uniform_weight_is_so_many_copies_of_the_data(plain, data):
    X, y, new = data
    weighted = clone(plain).fit(X, y, np.full(len(X), 20.0))
    copied = clone(plain).fit(np.tile(X, (20, 1)), np.tile(y, 20))
    assert weighted.total_weight_ == copied.total_weight_ == 1000
    # Interpolation: the noise found is near the smallest that can be told apart, and so are the digits that it has.
    assert_same(weighted, copied, new, 5e-3, 5e-3, 1e-3)
    scalar = clone(plain).fit(X, y, 20.0)
    np.testing.assert_array_equal(scalar.predict(new), weighted.predict(new))


def test_copies_of_fewer_rows_than_weights_are_a_weight_too(data):
    X, y, new = data
    model = DirectRegressor("fourier", n_basis_functions=60)
    weighted, copied = clone(model).fit(X, y, 20.0), clone(model).fit(np.tile(X, (20, 1)), np.tile(y, 20))
    np.testing.assert_allclose(copied.predict(new), weighted.predict(new), rtol=0.01, atol=0.01)


def test_a_row_of_weight_zero_is_not_there(plain, data):
    X, y, new = data
    absurd = np.vstack([X, np.full((2, 3), 1e6)])
    weighted = clone(plain).fit(absurd, np.r_[y, 1e6, -1e6], np.r_[np.ones(len(X)), 0.0, 0.0])
    assert_same(weighted, plain, new, 1e-7, 1e-7)


def test_the_order_of_rows_does_not_matter(plain, data):
    X, y, new = data
    order = np.random.default_rng(1).permutation(len(X))
    assert_same(clone(plain).fit(X[order], y[order]), plain, new, 1e-4, 1e-4)


def all_bits(model, new):
    mean, std = model.predict(new, return_std=True)
    return b"".join(np.ascontiguousarray(a).tobytes() for a in (mean, std, model.coefficients_, model.sample_y(new, 3)))


def test_fits_are_reproducible_and_start_afresh(plain, data):
    X, y, new = data
    assert all_bits(clone(plain).fit(X[::2], -y[::2]).fit(X, y), new) == all_bits(plain, new)


def test_the_seed_chooses_landmarks_frequencies_and_rows(data):
    X, y, new = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for model in (KINDS["landmarks"], KINDS["raw fourier"]):
            a, b, again = (clone(model).set_params(random_state=s).fit(X, y) for s in (1, 2, np.random.RandomState(1)))
            assert all_bits(a, new) != all_bits(b, new)
            assert all_bits(a, new) == all_bits(again, new)


def test_copies_and_weights_do_not_invite_interpolation():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 200))
    X, y = a[:, None], 3 * a + np.sin(5 * b) + 1.2 * rng.normal(size=200)
    alone = DirectRegressor().fit(X, y).noise_variance_
    for weight in (np.full(200, 2.0), rng.uniform(1, 3, 200)):
        assert DirectRegressor().fit(X, y, weight).noise_variance_ == pytest.approx(alone, rel=0.2)
    doubled = DirectRegressor().fit(np.r_[X, X[:100]], np.r_[y, y[:100]])
    assert doubled.noise_variance_ == pytest.approx(alone, rel=0.2)
