"""Criteria of a search against Monte Carlo, quadrature and finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import ndtr

from pydirect.decisions.criteria import ChebyshevImprovement, Criterion, Feasibility, Improvement
from pydirect.decisions.surrogate import Surrogate
from pydirect.features.kernel import KernelHyperparameters

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.7, 1.7, (15, 2))
KERNEL = KernelHyperparameters(1e-3, 0.8, np.array([0.7, 1.5]), 0.0, 1.0, 0.0, 0, 2.5)
SURROGATES = [Surrogate.of(KERNEL, X, X, y).prepared() for y in (np.sin(2 * X[:, 0]), X[:, 1] - X[:, 0] ** 2)]
NEW = RNG.uniform(-1.7, 1.7, (6, 2))
REFERENCE, DIRECTION = np.array([-1.5, -2.0]), np.array([0.6, 0.8])
TERMS = [
    Improvement(SURROGATES[:1], 0.5),
    Feasibility(SURROGATES[1:], -0.3),
    ChebyshevImprovement(SURROGATES, REFERENCE, DIRECTION, 1.0),
]


@pytest.mark.parametrize("best", [-1.0, 0.3, 2.0, 6.0])
def test_the_scalarised_improvement_is_the_integral_of_probabilities(best):
    term = ChebyshevImprovement(SURROGATES, REFERENCE, DIRECTION, best)
    moments = [(RNG.normal(size=4), np.array([0.01, 0.2, 0.7, 2.0])) for _ in SURROGATES]
    found = np.exp(term.value(moments))
    u = [((m - r) / d, s / d) for (m, s), r, d in zip(moments, REFERENCE, DIRECTION, strict=True)]
    for i in range(4):
        expected = quad(
            lambda t, i=i: np.prod([ndtr((m[i] - t) / s[i]) for m, s in u]),
            best,
            best + 30,
            limit=200,
            points=[best + 1],
        )[0]
        assert_allclose(found[i], expected, rtol=2e-3, atol=1e-12)


def test_one_objective_is_expected_improvement():
    moments = [(RNG.normal(size=50), RNG.uniform(0.1, 2.0, 50))]
    chebyshev = ChebyshevImprovement(SURROGATES[:1], np.zeros(1), np.ones(1), 0.7)
    assert_allclose(chebyshev.value(moments), Improvement(SURROGATES[:1], 0.7).value(moments), atol=1e-4)


@pytest.mark.parametrize("terms", [[term] for term in TERMS] + [TERMS], ids=["ei", "feasible", "chebyshev", "sum"])
def test_gradients_are_finite_differences(terms):
    criterion = Criterion(terms)
    value, gradient = criterion.gradient(NEW)
    assert_allclose(value, criterion.value(NEW))
    for j in range(2):
        step = 1e-5 * np.eye(2)[j]
        slope = (criterion.value(NEW + step) - criterion.value(NEW - step)) / 2e-5
        assert_allclose(gradient[:, j], slope, rtol=2e-3, atol=2e-3)
