"""Moments of f at training rows: exact where asked for or leverages are large, else by random signs."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Nystroem
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
def moments(model):
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
