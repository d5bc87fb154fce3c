"""EM of Student-t noise: its steps against formulas by simulation and brute force, and its bound."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm, t as student_t

from pydirect.noise.student_t import DEGREES, mean_precision, precision_bound, robust_scale


def test_precision_is_the_posterior_mean_of_the_scale_mixture():
    square, scale = 1.7, 0.4

    def joint(u):
        return gamma.pdf(u, DEGREES / 2, scale=2 / DEGREES) * norm.pdf(np.sqrt(square), 0, np.sqrt(scale / u))

    evidence = quad(joint, 0, 60)[0]
    assert mean_precision(np.array([square]), scale)[0] == pytest.approx(
        quad(lambda u: u * joint(u), 0, 60)[0] / evidence
    )
    # with f known the bound is the density itself
    gaussian = -0.5 * (np.log(2 * np.pi * scale) + mean_precision(np.array([square]), scale)[0] * square / scale)
    bound = gaussian + precision_bound(np.array([square]), scale)[0]
    assert bound == pytest.approx(np.log(evidence))
    assert bound == pytest.approx(student_t.logpdf(np.sqrt(square), DEGREES, 0, np.sqrt(scale)))


def test_scale_from_the_median_ignores_outliers():
    squares = (0.5 * np.random.default_rng(0).standard_t(DEGREES, (20_000, 1))) ** 2
    squares[:2000] *= 1e6
    assert robust_scale(squares)[0] == pytest.approx(0.25, rel=0.35)
    assert robust_scale(np.zeros((3, 2))).min() > 0
