"""The oracles themselves, against sums that fit on a page, and the package against the oracles."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.noise import NoisePosterior
from pydirect.optimize.outcome import Outcome
from pydirect.predictive import PredictiveDistribution
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.testing import (
    enumerate_elbo,
    enumerate_factorized,
    enumerate_hypotheses,
    enumerate_log_evidence,
    enumerate_posterior,
    enumerate_predictive_density,
    enumerate_predictive_moments,
)
from tests.helpers.oracles import monte_carlo_mean

# The oracles against sums by hand


def test_hypotheses_are_all_and_each_once():
    levels = [[0.0, 1.0, 2.0], [10.0, 20.0, 30.0]]
    got = enumerate_hypotheses(levels)
    assert got.tolist() == [[a, b] for a in levels[0] for b in levels[1]]
    assert len({tuple(row) for row in enumerate_hypotheses([0.0, 1.0, 3.0], 5)}) == 3**5


def test_log_evidence_of_one_weight_is_a_mixture_of_gaussians():
    phi, y = np.array([[1.0], [2.0]]), np.array([0.5, -0.3])
    levels, p, noise, p_noise = [-1.0, 0.0, 2.0], np.array([0.2, 0.5, 0.3]), np.array([0.5, 2.0]), np.array([0.4, 0.6])
    expected = sum(
        p[k] * p_noise[s] * norm(phi[:, 0] * levels[k], np.sqrt(noise[s])).pdf(y).prod()
        for k in range(3)
        for s in range(2)
    )
    got = enumerate_log_evidence((phi, y), levels, np.log(p), noise, np.log(p_noise))
    assert got == pytest.approx(np.log(expected), rel=1e-13)


def test_evidence_of_many_fine_levels_tends_to_the_gaussian_integral():
    rng = np.random.default_rng(0)
    phi, levels = rng.standard_normal((5, 2)), np.linspace(-6, 6, 301)
    y = rng.standard_normal(5)
    log_prior = norm.logpdf(levels) + np.log(levels[1] - levels[0])
    expected = multivariate_normal(np.zeros(5), 0.5 * np.eye(5) + phi @ phi.T).logpdf(y)
    assert enumerate_log_evidence((phi, y), levels, log_prior, [0.5]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("per_weight", [False, True])
def test_rows_and_their_statistics_give_the_same_sums(make_problem, per_weight):
    problem = make_problem(per_weight=per_weight)
    q, q_noise = problem.random_posterior()
    rest = problem.oracle_arguments[1:]
    for data in ((problem.phi, problem.y), problem.statistics):
        assert enumerate_log_evidence(data, *rest) == pytest.approx(
            enumerate_log_evidence(*problem.oracle_arguments), rel=1e-12
        )
        assert enumerate_elbo(data, *rest, q, q_noise) == pytest.approx(
            enumerate_elbo(*problem.oracle_arguments, q, q_noise), rel=1e-12
        )


def test_elbo_is_the_evidence_less_the_divergence_from_the_posterior(make_problem):
    problem = make_problem(scale=0.5)
    problem.noise_levels = np.array([0.5, 1.0, 4.0])  # no probability of the posterior underflows
    q, q_noise = problem.random_posterior()
    posterior = enumerate_posterior(*problem.oracle_arguments)
    q_full = enumerate_factorized(problem.levels, q, problem.noise_levels, q_noise)
    np.testing.assert_array_equal(q_full.weights, posterior.weights)
    divergence = (q_full.probability * np.log(q_full.probability / posterior.probability)).sum()
    assert divergence > 0
    expected = enumerate_log_evidence(*problem.oracle_arguments) - divergence
    assert enumerate_elbo(*problem.oracle_arguments, q, q_noise) == pytest.approx(expected, rel=1e-12)


def test_posterior_is_normalised_with_the_marginals_of_its_sums(make_problem):
    posterior = enumerate_posterior(*make_problem().oracle_arguments)
    assert posterior.probability.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(posterior.mean, posterior.weight_probability @ posterior.weights)
    second = np.einsum("h,hi,hj->ij", posterior.weight_probability, posterior.weights, posterior.weights)
    np.testing.assert_allclose(posterior.covariance, second - np.outer(posterior.mean, posterior.mean), atol=1e-13)


def test_a_forbidden_level_has_no_part_in_any_sum(make_problem):
    problem = make_problem(n_levels=3)
    allowed = [0, 2]
    log_prior = np.log([0.3, 0.0, 0.7], where=[True, False, True], out=np.full(3, -np.inf))
    args = (problem.phi, problem.y), problem.levels, log_prior, problem.noise_levels
    short = (problem.phi, problem.y), problem.levels[allowed], log_prior[allowed], problem.noise_levels
    assert enumerate_log_evidence(*args) == pytest.approx(enumerate_log_evidence(*short), rel=1e-13)
    q, q_noise = problem.random_posterior()
    assert enumerate_elbo(*args, q, q_noise) == -np.inf
    q[:, 1] = 0.0
    q /= q.sum(axis=1, keepdims=True)
    assert enumerate_elbo(*args, q, q_noise) == pytest.approx(enumerate_elbo(*short, q[:, allowed], q_noise), rel=1e-13)


def test_predictive_moments_are_integrals_of_the_predictive_density(make_problem):
    posterior = enumerate_posterior(*make_problem(n_noise=2).oracle_arguments)
    phi = np.array([[0.5, -1.0, 0.25, 2.0]])
    moments = [float(m[0]) for m in enumerate_predictive_moments(phi, posterior, noise=True)]

    y = np.linspace(moments[0] - 25, moments[0] + 25, 1501)
    density = enumerate_predictive_density(np.repeat(phi, y.size, axis=0), posterior, y)

    def integral(power):
        return (density * (y - moments[0]) ** power).sum() * (y[1] - y[0])

    assert integral(0) == pytest.approx(1.0)
    assert integral(1) == pytest.approx(0.0, abs=1e-8)
    assert integral(2) == pytest.approx(moments[1])
    assert integral(3) == pytest.approx(moments[2], abs=1e-7)
    assert integral(4) - 3 * integral(2) ** 2 == pytest.approx(moments[3], abs=1e-6)


def test_an_enumeration_beyond_the_limit_is_refused_with_its_size():
    with pytest.raises(ValueError, match=r"at most 2000000 hypotheses .*, got 2.097e\+06"):
        enumerate_hypotheses([0.0, 1.0], 21)
    assert enumerate_hypotheses([0.0, 1.0], 3).shape == (8, 3)
    q = np.full((20, 2), 0.5)
    with pytest.raises(ValueError, match=r"got 3\.146e"):
        enumerate_factorized([0.0, 1.0], q, [1.0, 2.0, 3.0], [0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="hypotheses"):
        enumerate_log_evidence((np.ones((2, 300)), [1.0, 2.0]), [0.0, 1.0], np.log([0.5, 0.5]), [1.0])


# The package against the oracles

SHAPES = [
    {"b": 1, "n_levels": 3},
    {"b": 1, "n_levels": 17, "n": 1},
    {"b": 7, "n_levels": 2},
    {"b": 4, "n_levels": 8, "n_noise": 1},
    {"b": 4, "n_levels": 9, "per_weight": True},
    {"b": 3, "n_levels": 17, "per_weight": True},
    {"b": 6, "n_levels": 4, "n": 3},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_elbo_of_any_posterior_is_the_sum_over_the_hypothesis_space(make_problem, shape, seed):
    problem = make_problem(**shape, seed=seed)
    q, q_noise = problem.random_posterior(seed)
    expected = enumerate_elbo(*problem.oracle_arguments, q, q_noise)
    assert problem.model.elbo(q, q_noise) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")
def test_orthogonal_features_and_known_noise_leave_no_gap_either():
    phi = np.vstack([np.diag([1.0, 2.0, 0.5])] * 2)
    y = phi @ [1.0, -1.0, 0.0] + 0.2 * np.random.default_rng(0).standard_normal(6)
    levels = np.linspace(-2, 2, 9)
    arguments = levels, np.full(9, -np.log(9.0)), [0.04]
    problem = (phi, y), *arguments
    fitted = fit_mean_field(GaussianStatistics.from_arrays(phi, y), *arguments)
    assert fitted.elbo == pytest.approx(enumerate_log_evidence(*problem), abs=1e-4)
    np.testing.assert_allclose(fitted.mean, enumerate_posterior(*problem).mean, atol=1e-3)


# Predictions


@pytest.fixture(params=[False, True], ids=["shared levels", "levels per weight"])
def posterior(request, make_problem):
    """A posterior that no optimiser has touched, skewed and heavy-tailed, beside its enumeration."""
    problem = make_problem(n_levels=4, per_weight=request.param)
    q, q_noise = problem.random_posterior(4)
    made = MeanFieldPosterior(
        FactorizedCategorical(np.atleast_2d(problem.levels), q),
        NoisePosterior(problem.noise_levels, q_noise),
        np.atleast_2d(problem.log_prior),
        Outcome(0.0),
    )
    return made, enumerate_factorized(problem.levels, q, problem.noise_levels, q_noise)


@pytest.fixture
def phi_star():
    return np.random.default_rng(9).standard_normal((6, 4))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_predictive_mean_and_variance_agree_with_enumeration(posterior, phi_star, n_threads, isa_level):
    fitted, full = posterior
    exact = enumerate_predictive_moments(phi_star, full)
    mean, variance = fitted.latent_moments(phi_star, n_threads)
    np.testing.assert_allclose(mean, exact.mean, atol=1e-10)
    np.testing.assert_allclose(variance, exact.variance, atol=1e-10)


def test_noise_adds_to_the_cumulants_what_enumeration_says(posterior, phi_star):
    fitted, full = posterior
    latent, target = (enumerate_predictive_moments(phi_star, full, noise=noise) for noise in (False, True))
    spread = fitted.noise.q @ fitted.noise.levels**2 - fitted.noise.variance**2
    np.testing.assert_allclose(target.variance, latent.variance + fitted.noise.variance, atol=1e-10)
    np.testing.assert_allclose(target.third_cumulant, latent.third_cumulant, atol=1e-10)
    np.testing.assert_allclose(target.fourth_cumulant, latent.fourth_cumulant + 3 * spread, atol=1e-10)


def test_mixture_over_the_noise_grid_has_the_enumerated_mean_and_variance(posterior, phi_star):
    fitted, full = posterior
    mean, variance = fitted.latent_moments(phi_star)
    mixture = PredictiveDistribution(fitted.noise.q, mean[:, None], variance[:, None] + fitted.noise.levels)
    exact = enumerate_predictive_moments(phi_star, full, noise=True)
    np.testing.assert_allclose(mixture.mean, exact.mean, atol=1e-10)
    np.testing.assert_allclose(mixture.variance, exact.variance, atol=1e-10)


def test_sampled_predictions_agree_with_exact_moments_within_their_error(posterior, phi_star):
    fitted, full = posterior
    exact = enumerate_predictive_moments(phi_star, full)
    f = fitted.weights.sample(20_000, 0) @ phi_star.T
    deviation = f - exact.mean
    fourth = exact.fourth_cumulant + 3 * exact.variance**2
    for samples, expected in (
        (f, exact.mean),
        (deviation**2, exact.variance),
        (deviation**3, exact.third_cumulant),
        (deviation**4, fourth),
    ):
        mean, error = monte_carlo_mean(samples)
        assert (np.abs(mean - expected) < 4.5 * error).all()


def test_a_certain_posterior_predicts_without_variance(phi_star):
    q = np.eye(3)[[0, 2, 1, 1]]
    fitted = MeanFieldPosterior(
        FactorizedCategorical(np.array([[-1.0, 0.0, 1.0]]), q),
        NoisePosterior(np.array([0.1]), np.ones(1)),
        np.zeros((1, 3)),
        Outcome(0.0),
    )
    mean, variance = fitted.latent_moments(phi_star)
    np.testing.assert_allclose(mean, phi_star @ [-1.0, 1.0, 0.0, 0.0], rtol=1e-14)
    np.testing.assert_array_equal(variance, 0.0)
