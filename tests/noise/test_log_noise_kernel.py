"""Kernels for log noise variances: the one that many noisy rows speak for."""

import numpy as np

from pydirect.noise.log_noise_kernel import kernel_of_log_noise

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3000, 6))
LOG_SQUARES = np.log(RNG.standard_normal((3000, 1)) ** 2)


def kernel(log_noise):
    y = log_noise[:, None] + LOG_SQUARES
    return kernel_of_log_noise(X, (y - y.mean()) / y.std(), np.ones(3000), 6, np.random.default_rng(1))


def test_columns_of_which_noise_depends_get_short_length_scales():
    found = kernel(np.sin(3 * X[:, 2]))
    assert np.argmin(found.length_scales) == 2
    assert np.sort(found.length_scales)[1] > 5 * found.length_scales[2]


def test_noise_of_all_columns_has_one_length_scale():
    for log_noise in (0.8 * X.sum(axis=1) / np.sqrt(6), np.zeros(3000)):
        assert np.ptp(kernel(log_noise).length_scales) == 0.0


def test_no_columns_screened_still_give_a_kernel():
    few = kernel_of_log_noise(X[:20, :1], LOG_SQUARES[:20], np.ones(20), 1, np.random.default_rng(0))
    assert few.length_scales.shape == (1,) and (few.length_scales > 0).all()
