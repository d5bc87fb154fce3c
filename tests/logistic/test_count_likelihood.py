import numpy as np
import pytest
from scipy import integrate, stats

from pydirect.logistic import CountDistribution, CountLikelihood
from pydirect.logistic.count_likelihood import likeliest_dispersion

RNG = np.random.default_rng(0)
Y = np.array([0.0, 1.0, 3.0, 10.0, 0.0, 250.0])
MEAN = np.array([-2.0, 0.5, 1.0, 2.0, 3.0, 5.0])


@pytest.mark.parametrize("dispersion", [0.0, 0.02, 0.7, 5.0])
def test_probabilities_are_those_of_scipy(dispersion):
    mu = np.exp(MEAN)
    expected = stats.poisson(mu) if dispersion == 0 else stats.nbinom(1 / dispersion, 1 / (1 + dispersion * mu))
    found = CountLikelihood(dispersion).log_density(Y, MEAN)
    np.testing.assert_allclose(found, expected.logpmf(Y), rtol=1e-9, atol=1e-11)


def test_the_bound_is_continued_concavely_where_no_optimum_is():
    m = np.linspace(0.0, 40.0, 2001)[:, None]
    terms = CountLikelihood().terms(np.full_like(m, 2.0), m, np.zeros(len(m)))
    h = m[1, 0]
    np.testing.assert_allclose(terms.residual[1:-1, 0], (terms.value[2:] - terms.value[:-2]) / (2 * h), 1e-3, 1e-2)
    assert (np.diff(terms.residual[:, 0]) < 0).all()
    near = m[:, 0] < 10
    np.testing.assert_allclose(terms.value[near], stats.poisson.logpmf(2, np.exp(m[near, 0])), rtol=1e-12)


def test_the_best_dispersion_maximises_the_expected_log_likelihood():
    y = RNG.negative_binomial(2.0, 2.0 / (2.0 + 6.0), 3000).astype(float)[:, None]
    mean, variance, weight = np.full((3000, 1), np.log(6.0)), np.full(3000, 0.01), np.ones(3000)
    best = CountLikelihood(3.0).at_best(y, mean, variance, weight)
    assert best.dispersion == pytest.approx(0.5, rel=0.1)
    values = [weight @ CountLikelihood(best.dispersion * f).terms(y, mean, variance).value for f in (0.97, 1.0, 1.03)]
    assert np.argmax(values) == 1


def test_the_likeliest_dispersion():
    y = RNG.negative_binomial(2.0, 2.0 / (2.0 + 6.0), 20_000).astype(float)
    assert likeliest_dispersion(y, np.full(len(y), np.log(6.0)), np.ones(len(y))) == pytest.approx(0.5, rel=0.1)
    assert likeliest_dispersion(np.full(9, 2.0), np.full(9, np.log(2.0)), np.ones(9)) < 1.1e-4, "none at all"


PREDICTIVE_DISPERSIONS = pytest.mark.parametrize("dispersion", [0.0, 0.05, 2.0])
PREDICTIVE_MEAN = np.array([-3.0, 0.0, 1.0, 3.0, 6.0, 2.0, 1.5])
PREDICTIVE_VARIANCE = np.array([1.0, 0.2, 4.0, 0.01, 0.3, 16.0, 0.0])


def distribution(dispersion=0.0):
    return CountDistribution(PREDICTIVE_MEAN, PREDICTIVE_VARIANCE, dispersion)


def by_summation(function, mean, variance):
    """Sum over a grid far finer than anything that varies on it."""
    z = mean + np.sqrt(variance) * np.linspace(-11, 11, 40_001)
    density = stats.norm.pdf(z, mean, np.sqrt(variance))
    return integrate.trapezoid(function(z) * density, z)


@PREDICTIVE_DISPERSIONS
def test_probabilities_are_integrals_over_the_log_mean(dispersion):
    likelihood = CountLikelihood(dispersion)
    for mean, variance in zip(PREDICTIVE_MEAN[:-1], PREDICTIVE_VARIANCE[:-1], strict=True):
        counts = np.array([0.0, 1.0, 4.0, 30.0, 900.0])
        expected = [by_summation(lambda z, y=y: np.exp(likelihood.log_density(y, z)), mean, variance) for y in counts]
        found = CountDistribution(np.array([mean]), np.array([variance]), dispersion).probability(counts)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


@PREDICTIVE_DISPERSIONS
def test_a_known_mean_has_the_likelihood_itself(dispersion):
    last = CountDistribution(PREDICTIVE_MEAN[-1:], PREDICTIVE_VARIANCE[-1:], dispersion)
    counts = np.arange(12.0)
    expected = CountLikelihood(dispersion).log_density(counts, PREDICTIVE_MEAN[-1])
    np.testing.assert_allclose(np.log(last.probability(counts)[0]), expected, rtol=1e-9)
    np.testing.assert_allclose(last.cdf(counts[None]), np.cumsum(np.exp(expected))[None], rtol=1e-9)


@PREDICTIVE_DISPERSIONS
def test_the_distribution_function_is_the_sum_of_the_probabilities(dispersion):
    found = distribution(dispersion)
    counts = np.arange(2500.0)
    np.testing.assert_allclose(
        found.cdf(np.tile(counts[::50], (found.n_rows, 1))),
        np.cumsum(found.probability(counts), axis=1)[:, ::50],
        atol=1e-9,
    )
    assert (found.cdf(np.full(found.n_rows, -1.0)) == 0).all()


@PREDICTIVE_DISPERSIONS
def test_log_probabilities_stay_finite_far_out(dispersion):
    found = distribution(dispersion).log_probability(np.full(len(PREDICTIVE_MEAN), 1e6))
    assert np.isfinite(found).all()
    assert (found < -8).all()


@PREDICTIVE_DISPERSIONS
def test_moments_agree_with_probabilities(dispersion):
    found = CountDistribution(np.array([0.0, 1.5]), np.array([0.1, 0.3]), dispersion)
    counts = np.arange(6000.0)
    p = found.probability(counts)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(p @ counts, found.mean, rtol=1e-7)
    np.testing.assert_allclose(p @ counts**2 - found.mean**2, found.variance, rtol=1e-5)
    np.testing.assert_allclose(found.std**2, found.variance)


@PREDICTIVE_DISPERSIONS
def test_quantiles_are_the_smallest_counts_that_reach_the_level(dispersion):
    found = distribution(dispersion)
    quantiles = found.quantile([0.05, 0.5, 0.99])
    assert quantiles.shape == (len(PREDICTIVE_MEAN), 3)
    for level, k in zip([0.05, 0.5, 0.99], quantiles.T, strict=True):
        assert (found.cdf(k) >= level).all()
        assert (found.cdf(np.maximum(k - 1, -1)) < level).all()
    lower, upper = found.interval(0.9)
    np.testing.assert_array_equal(lower, found.quantile(0.05))
    np.testing.assert_array_equal(upper, found.quantile(0.95))


@PREDICTIVE_DISPERSIONS
def test_samples_have_the_moments(dispersion):
    found = CountDistribution(np.array([0.5, 2.0]), np.array([0.05, 0.1]), dispersion)
    draws = found.sample(40_000, random_state=1)
    error = found.std / np.sqrt(draws.shape[1])
    assert (np.abs(draws.mean(axis=1) - found.mean) < 4.5 * error).all()
    np.testing.assert_allclose(draws.var(axis=1), found.variance, rtol=0.2)
    np.testing.assert_array_equal(draws, found.sample(40_000, random_state=1))


def test_the_randomised_pit_of_right_distributions_is_uniform():
    found = CountDistribution(np.full(4000, 0.5), np.full(4000, 0.2), 0.3)
    pit = found.randomised_pit(found.sample(random_state=3)[:, 0], random_state=4)
    assert stats.kstest(pit, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.log_probability(np.full(7, -1.0)), "y must hold counts, whole numbers from 0 to .*, got -1"),
        (lambda d: d.log_probability(np.full(7, 0.5)), "y must hold counts, whole numbers from 0 to .*, got 0.5"),
        (lambda d: d.log_probability(np.ones(3)), r"y must have 7 rows, got shape \(3,\)"),
        (lambda d: d.quantile([0.5, 1.0]), "levels must be between 0 and 1"),
        (lambda d: d.interval(1.5), "level must be"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(distribution())
