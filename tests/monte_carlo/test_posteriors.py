"""Posterior families: moments of radial weights, custom families."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

from pydirect import monte_carlo as mc


def test_moments_of_a_radial_weight_depend_on_the_size_of_its_tensor():
    family = mc.PosteriorFamily("radial")
    for d in (1, 2, 7):
        # A coordinate of the direction has the density (1 - u²)^((d - 3) / 2).
        u, weight = special.roots_jacobi(20, (d - 3) / 2, (d - 3) / 2) if d > 1 else (np.array([-1.0, 1.0]), np.ones(2))
        along = [np.dot(weight, u**r) / weight.sum() for r in range(1, 7)]
        expected = [a * stats.norm.moment(r) if r % 2 == 0 else 0.0 for r, a in enumerate(along, 1)]
        assert_allclose([family.moment(r, d) for r in range(1, 7)], expected, rtol=1e-12)
        assert expected[3] == pytest.approx(9 / (d * (d + 2)), rel=1e-12)
    # One radial weight is normal, and so is its divergence.
    values = [mc.MonteCarloDivergence(q).value_and_grad([[0.3], [0.7]])[0] for q in ("radial", "normal")]
    assert values[0] == pytest.approx(values[1], rel=1e-14)


def student(generator, shape):
    return generator.standard_t(9.0, shape)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, True), "sampler must be callable"),
        ((student, 1), "has_location must be True or False"),
        ((student, True, (1.0, 2.0)), "moment_range must hold a power of zero"),
        ((student, True, (-1.0, 9.0), {2.0: math.nan}), r"moments\[2\] must be"),
        ((student, True, (-1.0, 9.0), {}, (), math.nan), "entropy must be"),
        ((student, False), "draws must be positive without a location"),
        ((lambda g, shape: np.ones(3), True), "draws must have shape"),
    ],
)
def test_custom_family_is_checked(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mc.MonteCarloDivergence(mc.CustomFamily(*arguments), ("normal",), "naive", 9).draws()
