"""The posterior that knows the noise of released sums."""

import numpy as np
import pytest

from pydirect.linear import GramPosterior, RecursivePosterior, correct_noisy_sums
from pydirect.linear.noisy_sums import positive_part
from pydirect.statistics import GaussianStatistics, NoisyStatistics
from pydirect.statistics.noisy import symmetric_noise

B_SIZES = 0.5 ** np.arange(24)
NOISE, N = 0.02, 20_000


def problem(seed, deviation):
    """Rows whose directions matter less and less, weights from the prior, and sums of them with noise."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(B_SIZES)
    phi = rng.uniform(-1.7, 1.7, (500, len(scale))) * scale
    weights = 0.3 * rng.standard_normal(len(scale))
    gram, repetitions = phi.T @ phi, N / 500
    root = np.linalg.cholesky(gram / repetitions + 1e-12 * np.eye(len(scale)))
    noise_of_sum = np.sqrt(NOISE * repetitions) * np.sqrt(repetitions) * root @ rng.standard_normal(len(scale))
    gram = gram * repetitions
    c = gram @ weights + noise_of_sum
    yty = weights @ gram @ weights + 2 * weights @ noise_of_sum + N * NOISE
    noisy = NoisyStatistics(
        gram=gram + symmetric_noise(len(scale), deviation, rng),
        c=c + deviation * rng.standard_normal(len(scale)),
        yty=yty + deviation * rng.standard_normal(),
        n_samples=N,
        gram_variance=deviation**2,
        c_variance=deviation**2,
        yty_variance=deviation**2,
        n_variance=deviation**2,
        norm_bound=2.0,
        y_bounds=(-1.0, 1.0),
        fingerprint="",
        mu=1.0,
    )
    return noisy, GaussianStatistics(c[:, None], np.array([yty]), N, gram=gram), weights, phi


def test_without_noise_the_sums_are_as_they_were():
    noisy, exact, _, phi = problem(0, 1e-7)
    corrected = correct_noisy_sums(noisy, np.diag(B_SIZES))
    assert corrected.converged
    assert corrected.noise_variance == pytest.approx(NOISE, rel=0.02)
    fits = [RecursivePosterior.of(s, NOISE, 0.09).moments(phi) for s in (corrected.statistics, exact)]
    np.testing.assert_allclose(fits[0][0], fits[1][0], atol=1e-4)
    np.testing.assert_allclose(fits[0][1], fits[1][1] * corrected.noise_variance / NOISE, rtol=0.05)


def coverage(noisy, statistics, noise, prior, weights, phi):
    mean, variance = RecursivePosterior.of(statistics, noise, prior).moments(phi)
    return np.mean(np.abs(mean - phi @ weights) < 1.6449 * np.sqrt(variance))


def test_intervals_cover_functions_where_those_that_ignore_the_noise_do_not():
    aware, ignorant = [], []
    for seed in range(40):
        noisy, _, weights, phi = problem(seed, 60.0)
        corrected = correct_noisy_sums(noisy, np.diag(B_SIZES))
        parameters = corrected.noise_variance, corrected.prior_variance
        aware.append(coverage(noisy, corrected.statistics, *parameters, weights, phi))
        plain = GaussianStatistics(noisy.c[:, None], np.array([noisy.yty]), N, gram=positive_part(noisy.gram))
        ignorant.append(coverage(noisy, plain, *parameters, weights, phi))
    assert 0.85 < np.mean(aware) < 0.96
    assert np.mean(ignorant) < 0.7


def test_moments_of_a_product_are_those_of_draws():
    rng = np.random.default_rng(0)
    b, n_draws = 4, 200_000
    uncertain = rng.uniform(0.1, 1, (b, b))
    uncertain = (uncertain + uncertain.T) / 2
    gram = GramPosterior(np.eye(b), np.eye(b), uncertain, 2.0)
    weights = rng.standard_normal(b)
    draws = np.array([symmetric_noise(b, np.sqrt(2.0), rng) for _ in range(n_draws // 10)]) * np.sqrt(uncertain)
    products = draws @ weights
    expected = gram.product_covariance(np.outer(weights, weights))
    found = products.T @ products / len(products)
    np.testing.assert_allclose(found, expected, atol=6 * np.abs(expected).max() / np.sqrt(len(products)))


def test_knowing_where_features_vary_takes_most_of_the_noise_from_their_gram_matrix():
    noisy, exact, _, _ = problem(1, 60.0)
    known = GramPosterior.of(noisy.gram, noisy.gram_variance, np.diag(B_SIZES))
    mean = known.vectors @ known.mean @ known.vectors.T
    assert np.linalg.norm(mean - exact.A) < 0.4 * np.linalg.norm(noisy.gram - exact.A)
    assert np.linalg.eigvalsh(mean)[0] > -1e-8 * np.linalg.norm(mean)


def test_known_noise_stays_and_sums_that_say_nothing_leave_the_prior():
    assert correct_noisy_sums(problem(2, 20.0)[0], np.diag(B_SIZES), 0.123).noise_variance == 0.123
    noisy = problem(3, 1e9)[0]
    assert np.isfinite(correct_noisy_sums(noisy, np.diag(B_SIZES)).statistics.A).all()
    with pytest.raises(ValueError, match="reference must have shape"):
        correct_noisy_sums(noisy, np.eye(3))
