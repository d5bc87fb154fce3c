"""Posteriors of single weights and the levels that stand for them, against SciPy's quadrature."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp

from pydirect.distributions.priors import DensityPrior, GaussianPrior, LaplacePrior, StudentTPrior
from pydirect.linear.tilted import MOST_LEVELS, check_level_count, gauss_quadrature, tilt


class OwnGaussian(DensityPrior):
    """The Gaussian prior, integrated as any other; its density is not normalised."""

    def log_density(self, w):
        return 5.0 - 0.5 * w**2


PRIORS = [GaussianPrior(0.7), OwnGaussian(), LaplacePrior(), StudentTPrior(3.0, 0.7), StudentTPrior(5.0)]
NAMES = ["gaussian", "own", "laplace", "student_t_3", "student_t_5"]
LEVEL_COUNTS = [2, 3, 4, 5, 7, 15, 31, MOST_LEVELS]
# Information of the data relative to the prior's, and the data's distance from the prior in joint deviations.
INFORMATION, DISTANCE = (a.ravel() for a in np.meshgrid([1e-5, 1e-3, 0.1, 1.0, 10.0, 1e4], [0.0, 1.0, 4.0]))


def likelihoods(prior):
    precision = INFORMATION / prior.variance
    return DISTANCE * np.sqrt(prior.variance + 1 / precision), precision


def integrals(prior, centre, precision):
    """Log evidence, mean and variance of one weight by adaptive quadrature over decades about zero and the peak."""
    sd = 1 / np.sqrt(precision)
    decades = np.sqrt(prior.variance) * 10.0 ** np.arange(-4, 6)
    edges = np.unique(np.concatenate([-decades, [0.0], decades, centre + sd * np.linspace(-10, 10, 21)]))
    normaliser = 5.0 + 0.5 * np.log(2 * np.pi) if isinstance(prior, OwnGaussian) else 0.0

    def integral(f):
        def integrand(w):
            return f(w) * np.exp(prior.log_density(w) - normaliser - 0.5 * precision * (w - centre) ** 2 + shift)

        return sum(quad(integrand, low, high, epsabs=0.0, epsrel=1e-10, limit=200)[0] for low, high in pairwise(edges))

    gap = prior.variance + 1 / precision
    shift = 0.5 * centre**2 / gap  # the Gaussian prior's, so that nothing underflows
    evidence = integral(lambda w: 1.0)
    mean = integral(lambda w: w) / evidence
    return np.log(evidence) - shift, mean, integral(lambda w: (w - mean) ** 2) / evidence


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("prior", PRIORS, ids=NAMES)
def test_evidence_and_moments_are_those_of_adaptive_quadrature(prior):
    centre, precision = likelihoods(prior)
    found = tilt(prior, centre, precision)
    for j in range(len(centre)):
        log_evidence, mean, variance = integrals(prior, centre[j], precision[j])
        assert found.log_evidence[j] == pytest.approx(log_evidence, abs=1e-7)
        assert found.mean[j] == pytest.approx(mean, abs=1e-7 * np.sqrt(variance))
        assert found.variance[j] == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize("n_levels", LEVEL_COUNTS)
@pytest.mark.parametrize("prior", PRIORS, ids=NAMES)
def test_any_number_of_levels_has_the_moments_and_the_evidence(prior, n_levels):
    centre, precision = likelihoods(prior)
    posterior = tilt(prior, centre, precision)
    weights, log_prior = posterior.on_levels(n_levels)
    sd = np.sqrt(posterior.variance)
    np.testing.assert_allclose((weights.mean - posterior.mean) / sd, 0.0, atol=1e-10)
    np.testing.assert_allclose(weights.variance, posterior.variance, rtol=1e-9)
    assert weights.kl(log_prior) == pytest.approx(posterior.kl, abs=1e-8)
    log_joint = log_prior - 0.5 * precision[:, None] * (weights.levels - centre[:, None]) ** 2
    np.testing.assert_allclose(logsumexp(log_joint, axis=1), posterior.log_evidence, atol=1e-9)
    assert (np.exp(log_prior).sum(axis=1) <= 1 + 1e-7).all(), "the levels' masses are a part of the prior"


@pytest.mark.parametrize("prior", [LaplacePrior(), StudentTPrior(5.0)], ids=str)
def test_levels_keep_skewness_and_kurtosis(prior):
    posterior = tilt(prior, *likelihoods(prior))
    weights, _ = posterior.on_levels(3)
    deviations = posterior.nodes - posterior.mean[:, None]
    for order in (3, 4, 5):
        exact = (posterior.mass * deviations**order).sum(axis=1)
        scale = (posterior.mass * np.abs(deviations) ** order).sum(axis=1)
        np.testing.assert_allclose(weights.central_moment(order) / scale, exact / scale, atol=1e-9)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_a_peak_far_from_prior_and_data_is_found():
    # The exponential tail moves the likelihood's peak by √2 × 200² against its deviation of 200.
    prior, precision = LaplacePrior(), np.array([1 / 200.0**2])
    centre = np.sqrt(2) * 200.0**2 + 200.0 * np.array([4.0])
    posterior = tilt(prior, centre, precision)
    log_evidence, mean, variance = integrals(prior, centre[0], precision[0])
    assert posterior.log_evidence[0] == pytest.approx(log_evidence, abs=1e-6)
    assert posterior.mean[0] == pytest.approx(mean, rel=1e-6)
    assert posterior.variance[0] == pytest.approx(variance, rel=1e-5)


def test_panels_about_a_posterior_at_another_precision_serve():
    prior = StudentTPrior(3.0)
    centre, precision = likelihoods(prior)
    fresh, moved = (
        tilt(prior, centre, 3 * precision),
        tilt(prior, centre, 3 * precision, tilt(prior, centre, precision)),
    )
    np.testing.assert_allclose(moved.log_evidence, fresh.log_evidence, atol=1e-7)
    np.testing.assert_allclose(moved.variance, fresh.variance, rtol=1e-6)


def test_gauss_quadrature_integrates_polynomials():
    rng = np.random.default_rng(0)
    points, mass = np.sort(rng.standard_normal((4, 60))), rng.dirichlet(np.ones(60), size=4)
    nodes, weights = gauss_quadrature(points, mass, 6)
    assert (weights > 0).all()
    for order in range(12):
        np.testing.assert_allclose((weights * nodes**order).sum(axis=1), (mass * points**order).sum(axis=1), rtol=1e-9)


def test_more_levels_than_a_density_allows_are_refused():
    check_level_count(256, GaussianPrior())
    check_level_count(MOST_LEVELS, LaplacePrior())
    with pytest.raises(ValueError, match="at most 64 with a prior that is not Gaussian, got 65"):
        check_level_count(65, LaplacePrior())
    with pytest.raises(ValueError, match="at most 256, got 257"):
        check_level_count(257, GaussianPrior())
