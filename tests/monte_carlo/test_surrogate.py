"""Polynomials in place of log-densities: the error that they report."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pydirect import monte_carlo as mc


def test_a_surrogate_polynomial_reports_its_largest_error():
    location, scale = [0.2, -0.3], [0.2, 0.3]
    errors = []
    for degree in (2, 6, 10):
        surrogate = mc.polynomial_surrogate(mc.LogisticDensity(), location, scale, degree=degree)
        low, high = surrogate.interval
        w = np.linspace(low, high, 5001)
        density = surrogate.density.terms()
        exact = stats.logistic.logpdf(w)
        found = np.abs(density.constant + density.log_density_and_slope(w)[0] - exact).max()
        assert 0.9 * found <= surrogate.max_error <= 1.001 * found + 1e-14
        errors.append(surrogate.max_error)
        kl = mc.MonteCarloDivergence("normal", surrogate.density, group_size=2)
        naive = mc.MonteCarloDivergence("normal", mc.LogisticDensity(), "naive", 40_000, 2)
        difference = kl.value_and_grad([location, scale])[0] - naive.value_and_grad([location, scale])[0]
        assert abs(difference) < 2 * surrogate.max_error + 0.02
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    for degree in range(2, 17, 2):  # every other one would rise
        surrogate = mc.polynomial_surrogate(mc.LogisticDensity(), location, scale, degree=degree)
        (coefficients,) = surrogate.density.pieces
        assert len(coefficients) - 1 == (degree if degree % 4 else degree - 2)
        assert coefficients[-1] < 0
        assert mc.MonteCarloDivergence("normal", surrogate.density).value_and_grad([[0.0], [1e3]])[0] > 0
    assert mc.polynomial_surrogate("normal", location, scale).density.pieces[0][2] == pytest.approx(-0.5, rel=1e-12)
    with pytest.raises(ValueError, match="prior must fall on both sides"):
        mc.polynomial_surrogate(mc.UserDensity(np.square, lambda w: 2 * w), location, scale)
    with pytest.raises(ValueError, match="scale must be positive"):
        mc.polynomial_surrogate(mc.LogisticDensity(), [0.0], [-1.0])
    with pytest.raises(ValueError, match="degree must be even"):
        mc.polynomial_surrogate(mc.LogisticDensity(), location, scale, degree=5)
