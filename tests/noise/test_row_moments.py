"""Moments of f at training rows: exact where asked for or leverages are large, else by random signs."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, Nystroem
from pydirect.noise import fit
from pydirect.noise.fit import LARGEST_SKETCHED, RowMoments
from pydirect.statistics import collect_statistics, decorrelate

RNG = np.random.default_rng(0)
X = RNG.standard_normal((700, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.standard_normal(700)


@pytest.fixture(scope="module")
def model():
    return DirectRegressor(
        features=Nystroem(length_scale=1.0), n_basis_functions=300, noise="constant", local=False
    ).fit(X, Y)


@pytest.fixture
def moments(model, monkeypatch):
    monkeypatch.setattr(fit, "MOST_EXACT", 0)
    rotated = decorrelate(collect_statistics(model.features_.map, model.features_.inputs(X), Y[:, None]))
    return RowMoments(
        model.features_,
        model.mean_missing_variance_,
        X,
        np.ones(700),
        rotated,
        np.full(1, 0.04),
        np.ones(1),
        np.random.default_rng(1),
        1,
    )


def expected(model, moments):
    return moments.posterior.moments(model.features_.transform(X))


def test_means_are_exact_and_variances_nearly(model, moments):
    rows = np.arange(0, 700, 3)
    mean, variance = moments.at(rows)
    exact_mean, exact_variance = (each[rows] for each in expected(model, moments))
    np.testing.assert_allclose(mean, exact_mean, rtol=1e-6, atol=1e-9)
    relative = variance / exact_variance
    assert np.abs(relative - 1).max() < 0.7 and abs(relative.mean() - 1) < 0.05
    large = 25 * exact_variance[:, 0] > 1.5 * LARGEST_SKETCHED
    assert large.any() and not large.all()
    np.testing.assert_allclose(variance[large], exact_variance[large], rtol=1e-9)


def test_exact_ones_replace_estimates_and_stay(model, moments):
    moments.at(np.arange(700))
    rows = np.array([3, 5, 100])
    found = moments.exactly(rows)
    for one, other, exact in zip(found, moments.at(rows), expected(model, moments), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, exact[rows], rtol=1e-6, atol=1e-9)


def test_rows_are_computed_once(moments, monkeypatch):
    rows = np.arange(50)
    first = moments.at(rows)
    monkeypatch.setattr(moments.posterior.__class__, "moments", None)
    monkeypatch.setattr(RowMoments, "_projection", None)
    for one, other in zip(first, moments.at(rows[::-1]), strict=True):
        np.testing.assert_array_equal(one, other[::-1])


def test_those_of_few_functions_are_all_exact(model, moments, monkeypatch):
    monkeypatch.setattr(fit, "MOST_EXACT", 300)
    for found, exact in zip(moments.at(np.arange(700)), expected(model, moments), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


def test_order_and_signs_of_columns_do_not_move_a_mean_of_random_features():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(300)
    model = DirectRegressor(Fourier(length_scale=3.0), 150, noise="varying", target_transform=None)
    means = [model.fit(own[:200], y[:200]).predict(own[200:]) for own in (x, x[:, [2, 0, 3, 1]], -x)]
    np.testing.assert_allclose(means[1:], [means[0]] * 2, atol=1e-6 * y.std())
