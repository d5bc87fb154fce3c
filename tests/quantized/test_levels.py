"""Levels that weights share, and the integers that stand for them."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, Sequential
from pydirect.distributions.categorical import power_of_two_levels
from pydirect.quantized.codes import shared_levels
from pydirect.quantized.compile import integer_levels

RAW = {"features": Fourier(rank_inputs=False), "posterior": "sequential", "n_basis_functions": 80}


def test_outputs_share_one_table_of_levels():
    table = np.array([-1.0, 1e-15, 1.0])
    np.testing.assert_array_equal(shared_levels([table, table * (1 + 1e-8)]), [-1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="copies of one table"):
        shared_levels([table, table**3 * 1.01])


def test_levels_of_powers_of_two_are_chosen_by_name(data, fit):
    levels = power_of_two_levels(15)
    np.testing.assert_array_equal(levels, -levels[::-1])
    np.testing.assert_array_equal(levels[8:], 3 * 2.0 ** np.arange(-6, 1))
    x, y = data(80)
    model = fit(DirectRegressor(**RAW | {"posterior": Sequential(levels="power_of_two")}), x, y)
    own = model.posterior_.weights.levels
    np.testing.assert_allclose(own, own[:, -1:] / levels[-1] * levels, rtol=1e-12)
    with pytest.raises(ValueError, match="levels must be one of 'even', 'power_of_two'"):
        DirectRegressor(**RAW | {"posterior": Sequential(levels="odd")}).fit(x, y)
    with pytest.raises(ValueError, match="odd"):
        power_of_two_levels(8)


def test_even_and_power_of_two_levels_become_integers_exactly():
    for levels, integers in (
        (0.2 * np.arange(-7, 8), np.arange(-7, 8)),
        (np.linspace(-3, 3, 4), np.array([-3, -1, 1, 3])),
        (power_of_two_levels(9), np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8])),
    ):
        got, step = integer_levels(levels)
        np.testing.assert_array_equal(got, integers)
        np.testing.assert_allclose(step * got, levels, atol=1e-12)
    levels = np.array([-1.0, 0.0, 0.3])
    got, step = integer_levels(levels)
    assert 0 < np.abs(step * got - levels).max() <= 0.5 * step and np.abs(got).max() <= 127


def test_levels_that_are_all_zero_are_zeros():
    for levels in ([0.0], [0.0, 0.0, 0.0]):
        integers, step = integer_levels(np.array(levels))
        assert not integers.any() and step == 1.0
