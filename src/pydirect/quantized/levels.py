"""Tables of levels that all weights share."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray, as_count
from pydirect.distributions.categorical import LEVEL_SHAPES


def unit_levels(name: str, n_levels: int) -> FloatArray:
    """Return symmetric levels from -1 to 1, including zero, by the name of their shape."""
    if as_count(n_levels, "n_levels", 3) > 255 or n_levels % 2 == 0:
        raise ValueError(f"n_levels must be odd and at most 255, got {n_levels}")
    return LEVEL_SHAPES[name](n_levels, 1.0)


def affine_levels(levels: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Express levels (n_weights or 1, n_levels) by one table, with a centre and a spread per weight."""
    if len(levels) == 1:
        return levels[0], np.zeros(1), np.ones(1)
    low, high = levels[:, :1], levels[:, -1:]
    reach = (high - low) / 2
    reach = np.where(reach > 0, reach, 1.0)
    centre = (high + low) / 2
    shapes = (levels - centre) / reach
    table = shapes[np.argmax(np.abs(reach))]
    if np.abs(shapes - table).max() > 1e-6:
        raise ValueError("levels of the weights must be shifted and scaled copies of one table to be quantised")
    return table, centre[:, 0], reach[:, 0]


def shared_levels(tables: list[FloatArray]) -> FloatArray:
    """Return the common table of all outputs, with values that are zero up to rounding set to zero."""
    levels, largest = tables[0], np.abs(tables[0]).max()
    if any(np.abs(table - levels).max() > 1e-6 * largest for table in tables):
        raise ValueError("levels of all outputs must be copies of one table to be quantised")
    return np.where(np.abs(levels) < 1e-12 * largest, 0.0, levels)


def zero_code(levels: FloatArray) -> int:
    """Return the code of the level zero, or -1 when there is none."""
    zero = np.flatnonzero(levels == 0.0)
    return int(zero[0]) if zero.size else -1
