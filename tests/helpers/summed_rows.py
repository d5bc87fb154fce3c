"""Rows of two targets with weights, their running statistics, and comparisons of two of these."""

import numpy as np
import pytest

from pydirect import RunningStatistics
from pydirect.features import FourierFeatures

N, D = 900, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
Y = np.c_[np.sin(X[:, 0]) + X[:, 1], X[:, 2] ** 2] + 0.1 * RNG.standard_normal((N, 2))
WEIGHT = RNG.uniform(0.0, 3.0, N) * (RNG.random(N) > 0.1)
FEATURES = FourierFeatures(RNG.standard_normal((D, 12)), np.full(12, 0.3), np.ones(D), 1.0)
B = FEATURES.n_weights
SUMS = ("mean", "y_mean", "scatter", "cross", "y_scatter")


def empty(features=FEATURES, n_outputs=2, **options):
    return RunningStatistics.empty(features, n_outputs, **options)


def of(rows, features=FEATURES):
    return empty(features).update(X[rows], Y[rows], WEIGHT[rows])


def assert_equal_to_rounding(first, second, rtol=1e-12):
    for name in SUMS:
        a, b = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max(), err_msg=name)
    assert first.n_samples == pytest.approx(second.n_samples, rel=1e-13)
    assert first.n_rows == pytest.approx(second.n_rows, rel=1e-13)
    assert first.prior_variance_sum == pytest.approx(second.prior_variance_sum, rel=1e-12, abs=1e-12)


def assert_same_bits(first, second):
    for name in SUMS:
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name
    assert (first.n_samples, first.n_rows) == (second.n_samples, second.n_rows)
