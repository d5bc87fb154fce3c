"""Scalar operations of the integer arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydirect.quantized.integer.arithmetic import ONE, SINE_ERROR, integer_sqrt, round_shift, turn_sine


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(0, 30))
def test_round_shift_rounds_to_nearest_with_halves_away_from_zero(v, shift):
    magnitude, rest = divmod(abs(v), 2**shift)
    expected = magnitude + (2 * rest >= 2**shift and shift > 0)
    assert int(round_shift(np.int64(v), shift)) == (expected if v >= 0 else -expected)


@given(st.integers(0, 2**63 - 1))
def test_integer_square_roots_are_exact(v):
    import math

    for value in (v, math.isqrt(v) ** 2, max(math.isqrt(v) ** 2 - 1, 0)):
        assert int(integer_sqrt(np.array([value], dtype=np.uint64))[0]) == math.isqrt(value)


@pytest.mark.parametrize("bits", [8, 16])
def test_sines_from_the_table_are_within_their_bound_and_symmetric(bits):
    phase = np.concatenate([np.arange(0, 2**32, 65537), 2**30 * np.arange(4), 2**30 * np.arange(1, 5) - 1])
    value = turn_sine(phase, bits)
    assert np.abs(value / ONE[bits] - np.sin(2 * np.pi * phase / 2**32)).max() <= SINE_ERROR[bits]
    np.testing.assert_array_equal(turn_sine(phase + 2**31, bits), -value)
    assert np.abs(value).max() <= ONE[bits]
