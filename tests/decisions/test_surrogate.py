"""Surrogates of expensive functions against the Gaussian process that they stand for, and finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pydirect.decisions.surrogate import Surrogate, fit_kernel
from pydirect.features.kernel import KernelHyperparameters

RNG = np.random.default_rng(0)
KERNEL = KernelHyperparameters(1e-3, 0.8, np.array([0.7, 1.5]), 0.0, 1.0, 0.0, 0, 2.5)
X = RNG.uniform(-1.7, 1.7, (30, 2))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
NEW = RNG.uniform(-1.7, 1.7, (7, 2))


def process(x, y, new):
    """Mean and deviation of the exact process."""
    gain = np.linalg.solve(KERNEL.covariance(x, x) + 1e-3 * np.eye(len(x)), KERNEL.covariance(x, new)).T
    variance = KERNEL.diagonal(new) - np.einsum("ij,ij->i", gain, KERNEL.covariance(new, x))
    return gain @ y, np.sqrt(variance)


@pytest.mark.parametrize("n_first", [30, 20, 1])
def test_rows_that_come_later_give_the_exact_process(n_first):
    surrogate = Surrogate.of(KERNEL, X[:n_first], X[:n_first], Y[:n_first]).learned(X[n_first:], Y[n_first:])
    expected = process(X, Y, NEW)
    assert_allclose(surrogate.moments(NEW), expected, rtol=1e-5, atol=1e-6)


def test_a_row_measured_again_is_no_new_landmark():
    surrogate = Surrogate.of(KERNEL, X, X, Y).learned(X[:3], Y[:3] + 0.5)
    assert surrogate.landmarks.shape == X.shape
    expected = process(np.vstack([X, X[:3]]), np.append(Y, Y[:3] + 0.5), NEW)
    assert_allclose(surrogate.moments(NEW), expected, rtol=1e-5, atol=1e-6)


def test_few_landmarks_leave_the_variance_that_they_miss():
    surrogate = Surrogate.of(KERNEL, X[:10], X, Y)
    far, near = surrogate.moments(X[10:])[1].max(), surrogate.moments(X[:10])[1].max()
    assert near < 0.05 < far
    row = int(np.argmax(surrogate.moments(X)[1]))
    mean, std = surrogate.learned(X[row : row + 1], Y[row : row + 1]).moments(X[row : row + 1])
    assert abs(mean[0] - Y[row]) < 0.1
    assert std[0] < 0.05


def test_gradients_are_finite_differences():
    surrogate = Surrogate.of(KERNEL, X, X, Y)
    mean, std, by_mean, by_std = surrogate.gradients(NEW)
    assert_allclose([mean, std], surrogate.moments(NEW))
    for j in range(2):
        step = 1e-5 * np.eye(2)[j]
        above, below = surrogate.moments(NEW + step), surrogate.moments(NEW - step)
        assert_allclose(by_mean[:, j], (above[0] - below[0]) / 2e-5, rtol=1e-5, atol=1e-5)
        assert_allclose(by_std[:, j], (above[1] - below[1]) / 2e-5, rtol=1e-4, atol=1e-4)


def test_unknown_targets_are_drawn_and_leave_the_original_alone():
    surrogate = Surrogate.of(KERNEL, X[:10], X[:10], Y[:10])
    before = surrogate.moments(NEW)
    means = []
    for seed in range(200):
        copy = surrogate.learned(NEW[:1], np.full(1, np.nan), np.random.default_rng(seed))
        means.append(copy.moments(NEW[:1])[0][0])
    assert_allclose(surrogate.moments(NEW), before)
    assert copy.moments(NEW[:1])[1][0] < 0.1 * before[1][0]
    assert abs(np.mean(means) - before[0][0]) < 4 * before[1][0] / np.sqrt(200)
    assert 0.8 < np.std(means) / before[1][0] < 1.2


def test_the_kernel_learns_which_columns_matter_and_how_much_noise_there_is():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.7, 1.7, (80, 2))
    smooth = np.sin(2 * x[:, 0])
    quiet, theta = fit_kernel(x, smooth, np.arange(2), None)
    assert quiet.length_scales[1] > 3 * quiet.length_scales[0]
    assert quiet.noise_variance < 1e-4
    noisy, _ = fit_kernel(x, smooth + 0.3 * rng.standard_normal(80), np.arange(2), theta)
    assert 0.04 < noisy.noise_variance < 0.2
