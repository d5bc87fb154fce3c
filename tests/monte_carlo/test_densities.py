"""Prior densities: normalisation, validation, user-defined log-densities."""

import math

import numpy as np
import pytest
from monte_carlo_parameters import log_density_and_slope
from scipy import integrate

from pydirect import monte_carlo as mc
from pydirect.monte_carlo.densities import as_prior


@pytest.mark.parametrize(
    ("log_density", "slope", "message"),
    [
        (lambda w: w.sum(), np.negative, r"log_density\(w\) must have shape"),
        (np.negative, lambda w: -w[0], r"slope\(w\) must have shape"),
        (lambda w: np.full(w.shape, np.nan), np.negative, r"log_density\(w\) must be finite"),
        (lambda w: np.negative(w, out=w), np.negative, "read-only"),
        (3, np.negative, "log_density must be callable"),
    ],
)
def test_user_density_is_checked(log_density, slope, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mc.MonteCarloDivergence("normal", mc.UserDensity(log_density, slope), "naive", 4).value_and_grad([[0.0], [1.0]])


def test_tail_powers_of_a_user_density_are_numbers():
    assert mc.UserDensity(np.negative, np.sign, tail_powers=[2]).tail_powers == (2.0,)
    assert mc.UserDensity(np.negative, np.sign, tail_powers=()).tail_powers == ()
    with pytest.raises(TypeError, match="tail_powers must hold real numbers"):
        mc.UserDensity(np.negative, np.sign, tail_powers=["two"])
    with pytest.raises(ValueError, match="tail_powers must be finite"):
        mc.UserDensity(np.negative, np.sign, tail_powers=[math.inf])


def test_a_huber_density_is_normalised_and_continuous():
    for k in (0.5, 1.345, 4.0):
        prior = as_prior(("huber", 0.3, 0.7, k))
        knots = [0.3 - 0.7 * k, 0.3, 0.3 + 0.7 * k]
        density = lambda w, p=prior: math.exp(p.constant + log_density_and_slope(p, np.array([w]))[0][0])  # noqa: E731
        mass = integrate.quad(density, -40, 40, points=knots, epsabs=1e-12)[0]
        assert mass == pytest.approx(1.0, abs=1e-9)
        for knot in (knots[0], knots[2]):
            assert density(knot - 1e-9) == pytest.approx(density(knot + 1e-9), rel=1e-7)


def test_a_scale_mixture_is_the_mean_over_its_scales():
    kl = mc.MonteCarloDivergence("laplace", ("scale_mixture", 0.3, -0.4, 0.5))
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    values = [
        mc.MonteCarloDivergence("laplace", ("normal", 0.3, math.exp(-0.4 + 0.5 * z))).value_and_grad([[0.1], [0.7]])[0]
        for z in node
    ]
    expected = np.dot(weight, values) / weight.sum()
    assert kl.value_and_grad([[0.1], [0.7]])[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]],), "pieces must be of a degree"),
        (([[0.0, 1.0]], 0.0, [1.0]), "one more than the 1 knots"),
        (([[0.0, 1.0]] * 3, 0.0, [1.0, 0.0]), "knots must ascend"),
        (([[0.0, 1.0]] * 2, 0.0, [math.nan]), "knots must be finite"),
        (([[0.0, 1.0]] * 2, 0.0, ["a"]), "knots must hold real numbers"),
    ],
)
def test_pieces_are_checked(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        as_prior(("polynomial", *arguments))
