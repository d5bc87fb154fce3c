"""Noise as a mixture over scales: its moments, densities, estimates and kernel against quadrature and simulation."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pydirect.noise.fit import (
    LOG_CHI2_MEAN,
    LOG_CHI2_VARIANCE,
    Candidate,
    _choice,
    estimates_of_log_noise,
    kernel_of_log_noise,
    looks_constant,
    precision_weights,
)
from pydirect.noise.model import CONSTANT, HEAVY_TAILED, NO_TAILS, NODE_WEIGHTS, TAILS, VARYING, LogNoise, Tails


def test_log_chi2_moments_are_those_of_its_density():
    def moment(order):
        return 2 * quad(lambda z: np.log(z * z) ** order * norm.pdf(z), 0, np.inf, points=None)[0]

    assert moment(1) == pytest.approx(LOG_CHI2_MEAN, rel=1e-6)
    assert moment(2) - moment(1) ** 2 == pytest.approx(LOG_CHI2_VARIANCE, rel=1e-6)


@pytest.mark.parametrize("tails", [NO_TAILS, Tails(0.6, -0.15)])
def test_density_and_mean_variance_are_those_of_the_mixture_over_scales(tails):
    log_noise = LogNoise(np.array([-1.0, 0.3]), np.array([0.2, 0.05]))
    residual, latent = np.array([0.4, -1.7]), np.array([0.1, 0.02])
    density = np.exp(log_noise.log_density(residual, latent, tails))
    mean = log_noise.variances(tails) @ NODE_WEIGHTS
    for i in range(2):
        centre = log_noise.mean[i] + tails.shift
        spread = np.sqrt(log_noise.variance[i] + tails.spread**2)

        def conditional(g, i=i, centre=centre, spread=spread):
            return norm.pdf(g, centre, spread) * norm.pdf(residual[i], 0, np.sqrt(latent[i] + np.exp(g)))

        exact = quad(conditional, centre - 8 * spread, centre + 8 * spread, epsabs=1e-12)[0]
        assert density[i] == pytest.approx(exact, rel=2e-4)
        assert mean[i] == pytest.approx(np.exp(centre + spread**2 / 2), rel=1e-6)


def test_without_spread_the_density_is_gaussian():
    flat = LogNoise.constant(0.25, 3)
    residual, latent = np.array([0.0, 0.5, 3.0]), np.array([0.0, 0.1, 1.0])
    expected = norm.logpdf(residual, 0, np.sqrt(latent + 0.25))
    np.testing.assert_allclose(flat.log_density(residual, latent, NO_TAILS), expected, rtol=1e-12)
    assert NO_TAILS not in TAILS


def test_estimates_are_unbiased_and_bounded_below():
    noise = np.array([0.04, 3.0])
    squares = noise * np.random.default_rng(0).standard_normal((200_000, 2)) ** 2
    estimates = estimates_of_log_noise(squares, noise)
    # the bound moves the lowest hundredth up
    np.testing.assert_allclose(estimates.mean(axis=0), np.log(noise), atol=0.03)
    assert np.isfinite(estimates_of_log_noise(np.zeros(3), np.array([1e-10]))).all()


def test_precision_weights_average_to_one_over_all_copies_and_are_bounded():
    log_variance, counts = np.array([-800.0, 0.0, 1.0, 30.0]), np.array([1.0, 2.0, 1.0, 3.0])
    weight = precision_weights(log_variance, counts)
    assert np.average(weight, weights=counts) == pytest.approx(1.0, rel=1e-12)
    assert weight.max() / weight.min() <= 1e6 + 1 and np.isfinite(weight).all()
    gentle = precision_weights(np.array([0.0, 1.0]), np.ones(2))
    assert gentle[0] / gentle[1] == pytest.approx(np.e)


def test_false_alarms_about_constant_noise_are_rare():
    rng = np.random.default_rng(0)
    found = [looks_constant(rng.standard_normal((400, 2)), rng.standard_normal((400, 8))) for _ in range(200)]
    assert np.mean(found) > 0.93


def test_noise_of_other_kinds_does_not_look_constant():
    rng = np.random.default_rng(0)
    x, e = rng.standard_normal((400, 8)), rng.standard_normal((400, 1))
    assert not looks_constant(np.exp(0.3 * x[:, :1]) * e, x)
    assert not looks_constant(np.exp(0.3 * np.abs(x[:, :1])) * e, x)
    assert not looks_constant(rng.standard_t(4, (400, 1)), x)


# --- the kernel of log noise

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


def test_no_columns_screened_still_give_a_kernel():
    few = kernel_of_log_noise(X[:20, :1], LOG_SQUARES[:20], np.ones(20), 1, np.random.default_rng(0))
    assert few.length_scales.shape == (1,) and (few.length_scales > 0).all()


@pytest.mark.parametrize(("most", "expected"), [(15.0, HEAVY_TAILED), (5.0, CONSTANT)])
def test_a_few_rows_tell_of_heavy_tails(most, expected):
    """Their gain has a large standard error: one row makes it."""
    gains = {CONSTANT: np.zeros(300), HEAVY_TAILED: np.full(300, -0.01), VARYING: np.full(300, -0.01)}
    gains[HEAVY_TAILED][7] = most
    candidates = {name: Candidate(None, NO_TAILS, None, gain, np.ones(300)) for name, gain in gains.items()}
    assert _choice(candidates) == expected
    gains[VARYING][:200] = 0.5  # of many rows
    assert _choice(candidates) == VARYING
