"""Posteriors of rewards against solutions from all rows at once."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from pydirect.decisions import RewardPosteriors, bandits


def problem(n=75, n_arms=3, b=4, seed=0):
    rng = np.random.default_rng(seed)
    phi, arms = np.hstack([rng.normal(size=(n, b - 1)), np.ones((n, 1))]), rng.integers(n_arms, size=n)
    y = 5 + np.einsum("ij,ij->i", phi, rng.normal(size=(n_arms, b))[arms]) + 0.3 * rng.normal(size=n)
    return phi, arms, y


def learned(phi, arms, y, half_life=None, size=1, n_arms=3):
    posteriors = RewardPosteriors.prior(n_arms, phi.shape[1])
    for begin in range(0, len(phi), size):
        rows = slice(begin, begin + size)
        posteriors.learn(phi[rows], arms[rows], y[rows], half_life)
    return posteriors


def solved(posteriors, phi, arms, y, weight=None):
    """Means and covariances from all rows, at the baseline and precision that were found, and residual variance."""
    weight = np.ones(len(y)) if weight is None else weight
    means, covariances, residual = [], [], 0.0
    for arm in range(posteriors.n_arms):
        own = arms == arm
        x, e, w = phi[own], y[own] - posteriors.baseline, weight[own]
        covariances.append(np.linalg.inv((x.T * w) @ x + posteriors.prior_precision * np.eye(phi.shape[1])))
        means.append(covariances[-1] @ (x.T * w) @ e)
        residual += w @ (e - x @ means[-1]) ** 2 + posteriors.prior_precision * means[-1] @ means[-1]
    return np.array(means), np.array(covariances), residual / weight.sum()


@pytest.mark.parametrize("size", [1, 7, 75])
@pytest.mark.parametrize("n", [64, 75])
def test_posteriors_are_those_of_all_rewards(n, size):
    phi, arms, y = problem(n)
    posteriors = learned(phi, arms, y, size=size)
    means, covariances, residual = solved(posteriors, phi, arms, y)
    np.testing.assert_allclose(posteriors.means, means, rtol=0, atol=1e-11)
    np.testing.assert_allclose(posteriors.covariances, covariances, rtol=0, atol=1e-11)
    np.testing.assert_allclose(posteriors.noise_variance, residual, rtol=1e-9)
    mean, variance = posteriors.moments(phi[:5])
    np.testing.assert_allclose(mean, posteriors.baseline + phi[:5] @ means.T, rtol=1e-11)
    expected = residual * np.einsum("ij,ajk,ik->ia", phi[:5], covariances, phi[:5])
    np.testing.assert_allclose(variance, expected, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("n", [70, 75])
def test_old_rewards_count_less(n, size):
    phi, arms, y = problem(n)
    half_life = 40.0
    posteriors = learned(phi, arms, y, half_life, size)
    weight = 0.5 ** (np.arange(n)[::-1] / half_life) * posteriors.growth
    means, covariances, residual = solved(posteriors, phi, arms, y, weight)
    assert 1 <= posteriors.growth < 2 ** (1 / 8)
    np.testing.assert_allclose(posteriors.sums[:, -2, -2].sum(), weight.sum(), rtol=1e-12)
    np.testing.assert_allclose(posteriors.means, means, rtol=0, atol=1e-11)
    np.testing.assert_allclose(posteriors.covariances, covariances, rtol=0, atol=1e-11)
    np.testing.assert_allclose(posteriors.noise_variance, residual, rtol=1e-9)


def test_baseline_is_the_mean_of_rewards_at_a_refresh():
    phi, arms, y = problem(64)
    assert learned(phi, arms, y).baseline == pytest.approx(y.mean(), rel=1e-12)
    assert learned(phi, arms, y, half_life=8.0).baseline == pytest.approx(
        np.average(y, weights=0.5 ** (np.arange(64)[::-1] / 8)), rel=1e-12
    )


def test_precision_has_the_largest_evidence(monkeypatch):
    phi, arms, y = problem(64)
    posteriors = learned(phi, arms, y, size=64)
    monkeypatch.setattr(bandits, "PRIOR_COUNT", 0.0)
    monkeypatch.setattr(bandits, "PRECISION_STEPS", 300)
    posteriors._refresh(None)
    wide = np.hstack([phi * (arms == arm)[:, None] for arm in range(3)])

    def negative(theta):
        noise, precision = np.exp(theta)
        covariance = noise * (np.eye(64) + wide @ wide.T / precision)
        return -multivariate_normal.logpdf(y - posteriors.baseline, np.zeros(64), covariance)

    best = np.exp(minimize(negative, [0.0, 0.0], tol=1e-10).x)
    np.testing.assert_allclose([posteriors.noise_variance, posteriors.prior_precision], best, rtol=1e-3)
