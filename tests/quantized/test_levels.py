"""Levels that weights share, and the integers that stand for them."""

import numpy as np
import pytest

from pydirect.quantized.codes import shared_levels
from pydirect.quantized.compile import integer_levels


def test_outputs_share_one_table_of_levels():
    table = np.array([-1.0, 1e-15, 1.0])
    np.testing.assert_array_equal(shared_levels([table, table * (1 + 1e-8)]), [-1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="copies of one table"):
        shared_levels([table, table**3 * 1.01])


def test_levels_that_are_multiples_of_one_number_become_integers_exactly():
    for levels, integers in (
        (0.2 * np.arange(-7, 8), np.arange(-7, 8)),
        (np.linspace(-3, 3, 4), np.array([-3, -1, 1, 3])),
        (0.375 * np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8]), np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8])),
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
