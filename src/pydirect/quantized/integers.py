"""Scalar operations of the integer arithmetic, and its errors and warnings."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class IntegerArithmeticError(ValueError):
    """A model has no integer-only form; the message names a similar model that has one."""


class IntegerArithmeticWarning(UserWarning):
    """Integer arithmetic clips inputs or changes predictions at rows of X; the message says where and what helps."""


class AccumulatorOverflowError(ValueError):
    """A sum of the integer arithmetic could overflow its type."""


Integers = NDArray[np.int64]
INT32_MAX = 2**31 - 1
QUARTER = 2**30
LARGEST_ROOT = 3_037_000_499  # of an int64
ONE = {8: 127, 16: 32767}
SINE_TABLES: dict[int, NDArray[Any]] = {
    8: np.rint(127 * np.sin((np.arange(64) + 0.5) / 64 * np.pi / 2)).astype(np.int8),
    16: np.rint(32767 * np.sin(np.arange(65) / 64 * np.pi / 2)).astype(np.int16),
}
# Largest error of `turn_sine` against sin, in units of one. int16: linear interpolation, (π/128)²/8; the phase's lowest
# nine bits, which are dropped; rounding of the table and of the interpolation. int8: half an interval, and rounding.
SINE_ERROR = {8: np.pi / 256 + 0.5 / 127, 16: (np.pi / 128) ** 2 / 8 + 2 * np.pi * 2.0**-23 + 1.0 / 32767}


def half_width(level: float) -> float:
    """Half-width of a central Gaussian interval in standard deviations; accurate for levels close to one."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def gaussian_z(level: float) -> int:
    """Half-width of a central Gaussian interval in standard deviations, times 65536 and rounded."""
    return round(2**16 * half_width(level))


def lower_quantile(level: float) -> int:
    """Probability below a central interval, times 65536 and rounded."""
    return round(2**16 * (1 - level) / 2)


def round_shift(v: Any, shift: Any) -> Any:
    """Return v/2^shift rounded to the nearest integer, halves away from zero."""
    return np.sign(v) * ((np.abs(v) + (2**shift >> 1)) >> shift)


def smallest_integers(values: ArrayLike) -> NDArray[Any]:
    """Convert integers to the smallest signed type that holds them all."""
    array = np.asarray(values, dtype=np.int64)
    for dtype in (np.int8, np.int16):
        if np.array_equal(array.astype(dtype), array):
            return array.astype(dtype)
    return array.astype(np.int32)


def entries(table: NDArray[Any], index: Any) -> Any:
    """Return entries of a table; `index` is an array or a value of a graph."""
    return table[index] if isinstance(index, np.ndarray) else index.entries_of(table)


def turn_sine(phase: Any, feature_bits: int) -> Any:
    """Sine of phases in units of 2^-32 turns, in units of 1/ONE, from the quarter-wave table."""
    phase = phase & 0xFFFFFFFF
    quadrant, p = phase >> 30, phase & (QUARTER - 1)
    p = np.where(quadrant & 1, QUARTER - 1 - p, p)
    table, i = SINE_TABLES[feature_bits].astype(np.int64), p >> 24
    value = entries(table, i)
    if feature_bits == 16:
        value = value + ((entries(np.diff(table), i) * ((p >> 9) & 0x7FFF) + 2**14) >> 15)
    return np.where(quadrant & 2, -value, value)


def integer_sqrt(v: Any) -> Any:
    """⌊√v⌋ for int64 v."""
    root = np.minimum(np.floor(np.sqrt(v.astype(np.float64))).astype(np.int64), LARGEST_ROOT)
    root = root - (root * root > v)  # a double holds 53 bits: the root is off by one at most
    return root + (v - root * root > root * 2)
