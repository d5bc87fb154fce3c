import numpy as np
import pytest
from scipy import stats

from pydirect.logistic import CountLikelihood
from pydirect.logistic.count_likelihood import moment_dispersion

NODES, MASSES = np.polynomial.hermite_e.hermegauss(80)
MASSES = MASSES / MASSES.sum()
RNG = np.random.default_rng(0)
Y = np.array([0.0, 1.0, 3.0, 10.0, 0.0, 250.0])
MEAN = np.array([-2.0, 0.5, 1.0, 2.0, 3.0, 5.0])
VARIANCE = np.array([0.5, 0.1, 1.0, 0.3, 0.8, 0.05])
DISPERSIONS = pytest.mark.parametrize("dispersion", [0.0, 0.02, 0.7, 5.0])


@DISPERSIONS
def test_probabilities_are_those_of_scipy(dispersion):
    mu = np.exp(MEAN)
    expected = stats.poisson(mu) if dispersion == 0 else stats.nbinom(1 / dispersion, 1 / (1 + dispersion * mu))
    found = CountLikelihood(dispersion).log_probability(Y, MEAN)
    np.testing.assert_allclose(found, expected.logpmf(Y), rtol=1e-9, atol=1e-11)


@DISPERSIONS
def test_terms_are_expectations_over_gaussian_log_means(dispersion):
    likelihood = CountLikelihood(dispersion)
    z = MEAN[:, None] + np.sqrt(VARIANCE)[:, None] * NODES
    expected = likelihood.log_probability(Y[:, None], z) @ MASSES
    terms = likelihood.terms(Y[:, None], MEAN[:, None], VARIANCE)
    np.testing.assert_allclose(terms.value, expected, rtol=1e-7, atol=1e-7)


@DISPERSIONS
def test_residual_and_precision_are_the_derivatives_of_the_value(dispersion):
    def value(shift):
        return CountLikelihood(dispersion).terms(Y[:, None], MEAN[:, None] + shift, VARIANCE).value

    h, terms = 1e-3, CountLikelihood(dispersion).terms(Y[:, None], MEAN[:, None], VARIANCE)
    slope = (value(h) - value(-h)) / (2 * h)
    curvature = (value(h) - 2 * value(0.0) + value(-h)) / h**2
    np.testing.assert_allclose(terms.residual[:, 0], slope, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(terms.precision, -curvature, rtol=1e-2, atol=1e-2)


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


def test_the_dispersion_by_moments():
    y = RNG.negative_binomial(2.0, 2.0 / (2.0 + 6.0), 20_000).astype(float)
    assert moment_dispersion(y, np.full(len(y), np.log(6.0)), np.ones(len(y))) == pytest.approx(0.5, rel=0.1)
    assert moment_dispersion(np.full(9, 2.0), np.full(9, np.log(2.0)), np.ones(9)) == 1e-4, "none at all"
