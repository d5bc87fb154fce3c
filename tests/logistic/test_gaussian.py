"""The Gaussian posterior of continuous weights and the step of their prior variance."""

import numpy as np
import pytest

from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve, informative_directions
from pydirect.statistics.gaussian import GaussianStatistics

RNG = np.random.default_rng(0)
PHI, Y = RNG.standard_normal((30, 4)), RNG.standard_normal(30)
STATISTICS = GaussianStatistics.from_arrays(PHI, Y)


def test_the_posterior_is_that_of_ridge_regression():
    posterior = FullGaussian.solve(STATISTICS.A, STATISTICS.c[:, 0], 0.5)
    covariance = np.linalg.inv(PHI.T @ PHI + 2.0 * np.eye(4))
    np.testing.assert_allclose(posterior.root @ posterior.root.T, covariance, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(posterior.mean, covariance @ PHI.T @ Y, rtol=1e-12)
    mean, variance = posterior.latent_moments(PHI)
    np.testing.assert_allclose(mean, PHI @ posterior.mean, rtol=1e-12)
    np.testing.assert_allclose(variance, np.diag(PHI @ covariance @ PHI.T), rtol=1e-12)
    divergence = np.trace(covariance) / 0.5 + posterior.mean @ posterior.mean / 0.5 - 4
    divergence += 4 * np.log(0.5) - np.linalg.slogdet(covariance)[1]
    assert posterior.kl(0.5) == pytest.approx(0.5 * divergence, rel=1e-12)


@pytest.mark.parametrize("start", [0.02, 1.0, 50.0])
def test_steps_of_the_prior_variance_reach_the_maximum_of_the_evidence(start):
    prior = VariancePrior(1.0, 2.0)
    solve, log_variance = gaussian_solve(prior), np.log(start)
    for _ in range(200):
        log_variance = solve(STATISTICS, log_variance).log_variance

    def log_posterior(at):
        covariance = np.eye(30) + np.exp(at) * PHI @ PHI.T
        evidence = -0.5 * (np.linalg.slogdet(covariance)[1] + Y @ np.linalg.solve(covariance, Y))
        return evidence - prior.penalty(np.exp(at))

    assert log_posterior(log_variance) >= max(log_posterior(log_variance + d) for d in (-0.01, 0.01))


def test_a_fixed_prior_variance_stays():
    assert gaussian_solve(VariancePrior(0.7, 0.0))(STATISTICS, np.log(0.7)).log_variance == np.log(0.7)


def test_directions_without_information_are_left_out():
    narrow = np.hstack([PHI, 1e-9 * RNG.standard_normal((30, 2))])
    vectors = informative_directions(GaussianStatistics.from_arrays(narrow, Y), 1.0)
    assert vectors.shape == (6, 4)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), atol=1e-12)
    assert informative_directions(GaussianStatistics.from_arrays(1e-9 * PHI, Y), 1.0).shape == (4, 1), "one at least"
