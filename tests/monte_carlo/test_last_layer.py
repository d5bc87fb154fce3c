"""Linear output layers and logistic likelihoods: against draws, quadrature and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from pydirect import monte_carlo as mc
from pydirect.testing import finite_difference_gradient


@pytest.mark.parametrize("posterior", ["normal", "laplace", "logistic", "radial"])
@pytest.mark.parametrize("n_units", [1, 30])
def test_squared_errors_of_a_linear_output_need_two_means_of_the_draws(posterior, n_units):
    rng = np.random.default_rng(0)
    h, y = rng.standard_normal((20, n_units)), rng.standard_normal(20)
    mu, sigma = rng.standard_normal(n_units), rng.uniform(0.2, 1.0, n_units)
    layer = mc.LinearOutput(posterior, n_units, "independent", 301, seed=6).resample()
    w = mu + sigma * layer.draws().astype(np.longdouble)
    expected = ((y - w @ h.T) ** 2).mean(axis=0).astype(float)
    assert_allclose(layer.squared_errors(h, y, mu, sigma).values, expected, rtol=1e-12)


@pytest.mark.parametrize("mode", ["exact", "independent"])
def test_gradients_of_squared_errors_agree_with_finite_differences(mode):
    rng = np.random.default_rng(1)
    h, y, mu, sigma = rng.standard_normal((6, 4)), rng.standard_normal(6), rng.standard_normal(4), np.full(4, 0.6)
    layer = mc.LinearOutput("radial", 4, mode, 50)
    got = layer.squared_errors(h, y, mu, sigma)
    for gradient, point, place in (
        (got.unit_gradient, h, 0),
        (got.location_gradient, mu, 2),
        (got.scale_gradient, sigma, 3),
    ):
        arguments = [h, y, mu, sigma]

        def total(x, place=place, arguments=arguments):
            return layer.squared_errors(*arguments[:place], x, *arguments[place + 1 :]).values.sum()

        assert_allclose(gradient, finite_difference_gradient(total, point), rtol=1e-7, atol=1e-7)


def test_the_exact_squared_error_is_the_limit_of_many_draws():
    rng = np.random.default_rng(2)
    h, y, mu, sigma = rng.standard_normal((3, 8)), rng.standard_normal(3), rng.standard_normal(8), np.full(8, 0.6)
    exact = mc.LinearOutput("radial", 8).squared_errors(h, y, mu, sigma).values
    layer = mc.LinearOutput("radial", 8, "independent", 1000)
    samples = np.array([layer.resample().squared_errors(h, y, mu, sigma).values for _ in range(40)])
    assert (np.abs(samples.mean(axis=0) - exact) < 4.5 * samples.std(axis=0, ddof=1) / math.sqrt(40)).all()


def test_arguments_of_linear_outputs_are_checked():
    with pytest.raises(ValueError, match="location-scale family"):
        mc.LinearOutput("exponential", 3)
    with pytest.raises(ValueError, match="is infinite"):
        mc.LinearOutput("horseshoe", 3)
    with pytest.raises(ValueError, match="for draws, got 'exact'"):
        mc.LinearOutput("normal", 3).draws()
    with pytest.raises(ValueError, match="n_samples must be below"):
        mc.LinearOutput("normal", 3, "independent", 2**32)
    layer = mc.LinearOutput("normal", 1)
    with pytest.raises(ValueError, match="scale must be positive"):
        layer.squared_errors([[1.0]], [0.0], [0.0], [-1.0])
    with pytest.raises(ValueError, match=r"y must have shape \(1,\)"):
        layer.squared_errors([[1.0]], [[0.0, 1.0]], [0.0], [1.0])


def test_expected_logistic_likelihoods_are_good_for_wide_laws():
    for mean, variance in ((0.0, 10.0), (3.0, 100.0), (-2.0, 200.0), (1.0, 1e-8), (0.5, 0.0)):
        value = mc.expected_logistic_likelihood([1.0], [mean], [variance])[0][0]
        deviation = math.sqrt(variance)
        f = lambda z, m=mean, s=deviation: stats.norm.pdf(z) * -np.logaddexp(0, -(m + s * z))  # noqa: E731
        kink = [-mean / deviation] if 0 < abs(mean) < 9 * deviation else [0.0]
        exact = integrate.quad(f, -12, 12, points=kink, epsabs=1e-14, epsrel=1e-13, limit=500)[0]
        assert value == pytest.approx(exact, abs=2e-12 * max(1.0, deviation))
    with pytest.raises(ValueError, match="variance must not be negative"):
        mc.expected_logistic_likelihood([1.0], [0.0], [-1.0])
    with pytest.raises(ValueError, match="y must hold zeros and ones, got 7"):
        mc.expected_logistic_likelihood([7.0], [0.0], [1.0])


def test_expected_logistic_likelihoods_agree_with_quadrature_and_expansion():
    y, mean, variance = np.array([0.0, 1.0, 1.0]), np.array([0.3, -2.0, 0.1]), np.array([0.5, 4.0, 0.01])
    value, mean_slope, variance_slope = mc.expected_logistic_likelihood(y, mean, variance)
    for i in range(3):
        law = stats.norm(mean[i], math.sqrt(variance[i]))
        f = lambda u, i=i, law=law: law.pdf(u) * (-np.logaddexp(0, -u) - (1 - y[i]) * u)  # noqa: E731
        assert value[i] == pytest.approx(integrate.quad(f, -40, 40, epsabs=1e-11, limit=500)[0], abs=1e-8)
    for gradient, point, function in (
        (mean_slope, mean, lambda m: mc.expected_logistic_likelihood(y, m, variance)[0].sum()),
        (variance_slope, variance, lambda v: mc.expected_logistic_likelihood(y, mean, v)[0].sum()),
    ):
        assert_allclose(gradient, finite_difference_gradient(function, point), rtol=1e-6)
    # log σ(u) − (1 − y) u to fourth order at u = 0.5, y = 1: truth −0.47408
    series = mc.expected_logistic_likelihood([1.0], [0.5], [0.0], "expansion")
    assert series[0][0] == pytest.approx(-np.logaddexp(0, -0.5), abs=1e-5)
    wide = mc.expected_logistic_likelihood([1.0], [0.5], [0.01], "expansion")
    small = [y, np.array([0.2, -0.1, 0.1]), np.full(3, 0.01)]
    for a, b in zip(
        mc.expected_logistic_likelihood(*small), mc.expected_logistic_likelihood(*small, "expansion"), strict=True
    ):
        assert_allclose(a, b, rtol=1e-3)
    for gradient, point, function in (
        (series[1], np.array([0.5]), lambda m: mc.expected_logistic_likelihood([1.0], m, [0.0], "expansion")[0].sum()),
        (wide[2], np.array([0.01]), lambda v: mc.expected_logistic_likelihood([1.0], [0.5], v, "expansion")[0].sum()),
    ):
        assert_allclose(gradient, finite_difference_gradient(function, point), rtol=1e-6)
