"""The Gaussian posterior of continuous weights and the step of their prior variance."""

import numpy as np
import pytest
from scipy.linalg import helmert

from pydirect.logistic.ascent import LikelihoodMoments, State
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve, informative_directions
from pydirect.statistics.gaussian import GaussianStatistics

RNG = np.random.default_rng(0)
PHI, Y = RNG.standard_normal((30, 4)), RNG.standard_normal((30, 1))
GRAM = PHI.T @ PHI


def ridge(variance, y=Y):
    return np.linalg.solve(GRAM + np.eye(4) / variance, PHI.T @ y)


def divergence(mean, covariance, variance):
    """KL divergence of N(mean, covariance) from N(0, variance · I)."""
    n = len(mean)
    value = (np.trace(covariance) + mean @ mean) / variance - n + n * np.log(variance)
    return 0.5 * (value - np.linalg.slogdet(covariance)[1])


def test_the_covariance_is_that_of_ridge_regression():
    posterior = FullGaussian.solve(GRAM, ridge(0.5), 0.5)
    covariance = np.linalg.inv(GRAM + 2.0 * np.eye(4))
    np.testing.assert_allclose(posterior.root @ posterior.root.T, covariance, rtol=1e-12, atol=1e-15)
    mean, variance = posterior.latent_moments(PHI)
    np.testing.assert_allclose(mean, PHI @ ridge(0.5), rtol=1e-12)
    np.testing.assert_allclose(variance, np.diag(PHI @ covariance @ PHI.T), rtol=1e-12)
    assert posterior.kl(0.5) == pytest.approx(divergence(ridge(0.5)[:, 0], covariance, 0.5), rel=1e-12)


def test_several_functions_share_a_covariance_but_for_their_mean():
    mean = RNG.standard_normal((4, 3))
    mean -= mean.mean(axis=1, keepdims=True)
    posterior = FullGaussian.solve(GRAM, mean, 0.7)
    contrasts, common = helmert(3).T, np.full((3, 3), 1 / 3)
    own = posterior.root @ posterior.root.T
    covariance = np.kron(contrasts @ contrasts.T, own) + np.kron(common, 0.7 * np.eye(4))
    assert posterior.kl(0.7) == pytest.approx(divergence(mean.T.ravel(), covariance, 0.7), rel=1e-12)
    row_mean, variance = posterior.latent_moments(PHI)
    np.testing.assert_allclose(row_mean, PHI @ mean, rtol=1e-12, atol=1e-14)
    # Differences of two logits have the variance of independent ones.
    difference = np.kron([1.0, -1.0, 0.0], PHI)
    np.testing.assert_allclose(2 * variance, np.diag(difference @ covariance @ difference.T), rtol=1e-11)


@pytest.mark.parametrize("n_functions", [1, 3])
@pytest.mark.parametrize("start", [0.02, 1.0, 50.0])
def test_steps_of_the_prior_variance_reach_the_maximum_of_the_evidence(start, n_functions):
    y = np.hstack([Y, 2 * Y[::-1], Y**2])[:, :n_functions]
    y = y - y.mean(axis=1, keepdims=True) if n_functions > 1 else y
    prior = VariancePrior(1.0, 2.0)
    solve, log_variance = gaussian_solve(prior), np.log(start)
    for _ in range(200):
        log_variance = solve(State(GRAM, ridge(np.exp(log_variance), y), log_variance)).log_variance

    def log_posterior(at):  # of the free contrasts
        covariance = np.eye(30) + np.exp(at) * PHI @ PHI.T
        determinants = max(n_functions - 1, 1) * np.linalg.slogdet(covariance)[1]
        return -0.5 * (determinants + np.vdot(y, np.linalg.solve(covariance, y))) - prior.penalty(np.exp(at))

    assert log_posterior(log_variance) >= max(log_posterior(log_variance + d) for d in (-0.01, 0.01))


def test_better_means_are_taken_over():
    better = LikelihoodMoments(ridge(2.0), PHI @ ridge(2.0), np.ones(30))
    solution = gaussian_solve(VariancePrior(0.7, 0.0), lambda posterior, variance: better)(
        State(GRAM, ridge(0.7), np.log(0.7))
    )
    assert solution.latent is better
    np.testing.assert_array_equal(solution.state.mean, better.mean)
    np.testing.assert_array_equal(solution.posterior.mean, better.mean)
    assert solution.cost == FullGaussian.solve(GRAM, better.mean, 0.7).kl(0.7)


def test_features_that_are_too_large_are_named():
    with pytest.raises(np.linalg.LinAlgError, match="rescale the features"):
        FullGaussian.solve(-np.eye(2), np.zeros((2, 1)), 10.0)


def test_directions_without_information_are_left_out():
    narrow = np.hstack([PHI, 1e-9 * RNG.standard_normal((30, 2))])
    vectors = informative_directions(GaussianStatistics.from_arrays(narrow, Y), 1.0)
    assert vectors.shape == (6, 4)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-12)
    assert informative_directions(GaussianStatistics.from_arrays(1e-9 * PHI, Y), 1.0).shape == (4, 1), "one at least"
