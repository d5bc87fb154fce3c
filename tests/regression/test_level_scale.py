from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from pydirect import GaussianPrior, GaussianStatistics, fit_mean_field, fit_mixture
from pydirect.distributions import FactorizedCategorical
from pydirect.distributions.levels import evenly_spaced_levels
from pydirect.regression import best_level_scale, best_prior_scale, fit_level_scale
from pydirect.regression.mean_field import MeanFieldRegression

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")
LEVELS = evenly_spaced_levels(9, 3.0)
LOG_PRIOR = GaussianPrior().log_mass(LEVELS)
NOISE = [0.05, 0.1, 0.2]


def statistics_of(scale, n=80, b=12, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n, b))
    return GaussianStatistics.from_arrays(phi, phi @ (scale * rng.standard_normal(b)) + 0.3 * rng.standard_normal(n))


@pytest.mark.parametrize("n_components", [1, 3])
def test_the_level_scale_is_where_the_elbo_is_highest(n_components):
    statistics = statistics_of(0.4)
    posterior = fit_mixture(statistics, LEVELS, LOG_PRIOR, NOISE, n_components=n_components)

    def negative(t):
        model = MeanFieldRegression.of(statistics, t * LEVELS[None], LOG_PRIOR[None], np.array(NOISE), np.zeros(3))
        values = [model.elbo(q, posterior.noise.q) for q in posterior.component_q]
        return -posterior.alpha @ values

    best = minimize_scalar(negative, bounds=(0.2, 3.0), method="bounded", options={"xatol": 1e-8}).x
    assert best_level_scale(statistics, posterior) == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("n_components", [1, 2])
def test_a_scale_that_is_known_is_found_from_a_rescaled_start(n_components):
    phi = np.random.default_rng(0).standard_normal((100, 6))
    statistics = GaussianStatistics.from_arrays(phi, phi @ [0.7, 0.0, -0.7, 0.7, 0.0, 0.0])

    def at(levels, start):
        mass = np.log([0.25, 0.5, 0.25])
        return fit_mixture(statistics, levels, mass, [0.01], n_components=n_components, start=start)

    posterior, scale = fit_level_scale(at, statistics, [-1.0, 0.0, 1.0])
    assert scale == pytest.approx(0.7)
    assert posterior.elbo == pytest.approx(at(scale * np.array([-1.0, 0.0, 1.0]), None).elbo)


def test_weights_that_explain_nothing_leave_the_scale():
    statistics = GaussianStatistics.from_arrays(np.eye(3), np.zeros(3))
    assert best_level_scale(statistics, fit_mean_field(statistics, LEVELS, LOG_PRIOR, [1.0])) == 1.0


FITS = {
    "mean field": fit_mean_field,
    "one component": partial(fit_mixture, n_components=1),
    "two components": partial(fit_mixture, n_components=2),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_a_learned_scale_raises_the_elbo(fit, scale):
    statistics = statistics_of(scale)

    def at(levels, start):
        return fit(statistics, levels, LOG_PRIOR, NOISE, start=start)

    posterior, found = fit_level_scale(at, statistics, LEVELS)
    assert posterior.elbo > at(LEVELS[None], None).elbo
    assert scale / 2 < found < scale * 2
    np.testing.assert_allclose(np.ptp(posterior.levels), found * 6.0)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_the_prior_scale_maximises_the_expected_log_prior(scale):
    q = np.exp(GaussianPrior(scale).log_mass(LEVELS))[None] + 0.2 * np.random.default_rng(0).dirichlet(np.ones(9), 7)
    weights = FactorizedCategorical(LEVELS[None], q / q.sum(axis=1, keepdims=True))

    def negative(log_scale):
        return -(weights.q * GaussianPrior(np.exp(log_scale)).log_mass(LEVELS)).sum()

    best = minimize_scalar(negative, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x
    assert np.log(best_prior_scale(weights)) == pytest.approx(best, abs=1e-5)


def test_the_prior_scale_stays_finite_at_the_edges():
    for q in (np.eye(9)[[4]], np.eye(9)[[0]]):
        assert 1e-4 < best_prior_scale(FactorizedCategorical(LEVELS[None], q)) < 1e4


def test_arguments_are_checked():
    statistics, other = statistics_of(1.0), statistics_of(1.0, b=4)
    two = GaussianStatistics(np.tile(statistics.c, 2), np.tile(statistics.yty, 2), 1.0, gram=statistics.A)
    posterior = fit_mean_field(statistics, LEVELS, LOG_PRIOR, NOISE)

    def fit(levels, start):
        return posterior

    for call, error, message in (
        (lambda: best_prior_scale(posterior), TypeError, "weights must be a FactorizedCategorical, got MeanField"),
        (lambda: best_level_scale(None, posterior), TypeError, "statistics must be a TargetStatistics or Gauss"),
        (lambda: best_level_scale(statistics, posterior.weights), TypeError, "posterior must be a MeanFieldPosterior"),
        (lambda: best_level_scale(other, posterior), ValueError, "posterior must have 4 weights, .* got 12"),
        (lambda: best_level_scale(two, posterior), ValueError, r"statistics must be of one target, got 2: .*target\(k"),
        (lambda: fit_level_scale(3, statistics, LEVELS), TypeError, "fit must be callable"),
        (lambda: fit_level_scale(fit, None, LEVELS), TypeError, "statistics must be a TargetStatistics"),
        (lambda: fit_level_scale(fit, two, LEVELS), ValueError, "statistics must be of one target, got 2"),
        (lambda: fit_level_scale(fit, statistics, LEVELS, max_rounds=0), ValueError, "max_rounds must be at least 1"),
        (
            lambda: fit_mixture(statistics, LEVELS, LOG_PRIOR, NOISE, start=3),
            TypeError,
            "start must be a MeanFieldPosterior or MixturePosterior, got int",
        ),
    ):
        with pytest.raises(error, match=message):
            call()


def test_an_interruption_ends_the_search_for_the_level_scale():
    statistics, fits = statistics_of(0.2), []

    def fit(levels, start):
        posterior = fit_mean_field(statistics, levels, LOG_PRIOR, NOISE, start=start)
        fits.append(posterior)
        return replace(posterior, outcome=replace(posterior.outcome, interrupted=start is not None))

    posterior, _ = fit_level_scale(fit, statistics, LEVELS)
    assert len(fits) == 2
    assert posterior.interrupted and not posterior.converged
    assert posterior.elbo == max(p.elbo for p in fits)
