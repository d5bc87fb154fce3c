"""Levels that a weight can take: evenly spaced, powers of two, shared or one row per weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pydirect import _core
from pydirect._validation import FloatArray, as_count, as_float_array, as_number


def evenly_spaced_levels(n_levels: int, reach: float = 3.0) -> FloatArray:
    """Levels from ``-reach`` to ``reach``; an odd number of them has zero among them.

    Parameters
    ----------
    n_levels : int
        At least 2, at most 256.
    reach : float, default=3.0
        Largest level; 3 standard deviations of the prior in the paper (section 5.2).

    Returns
    -------
    ndarray of shape (n_levels,)
        Levels in ascending order.

    Examples
    --------
    >>> from pydirect import evenly_spaced_levels
    >>> evenly_spaced_levels(5, reach=2.0).tolist()
    [-2.0, -1.0, 0.0, 1.0, 2.0]
    """
    n_levels = as_level_count(n_levels)
    reach = as_number(reach, "reach", above=0.0)
    levels = np.linspace(-reach, reach, n_levels)
    return (levels - levels[::-1]) / 2  # exactly symmetric, hence exactly zero in the middle


def power_of_two_levels(n_levels: int, reach: float = 3.0) -> FloatArray:
    """Levels 0 and ± powers of two times one number, up to `reach`: a product with one is a shift.

    Parameters
    ----------
    n_levels : int
        Odd, at least 3, at most 61.
    reach : float, default=3.0
        Largest level.

    Returns
    -------
    ndarray of shape (n_levels,)
        Ascending.
    """
    if as_level_count(n_levels) % 2 == 0 or n_levels > 61:
        raise ValueError(f"n_levels must be odd and at most 61 for powers of two, got {n_levels}")
    reach = as_number(reach, "reach", above=0.0)
    positive = np.ldexp(reach, np.arange(-(n_levels // 2) + 1, 1))
    return np.concatenate([-positive[::-1], [0.0], positive])


LEVEL_SHAPES = {"even": evenly_spaced_levels, "power_of_two": power_of_two_levels}


def shared_levels(levels: ArrayLike | str | None, n_levels: int, n_weights: int) -> FloatArray:
    """Return the levels that an estimator is given: by name, as they are, or None for evenly spaced ones."""
    if levels is None or isinstance(levels, str):
        levels = LEVEL_SHAPES["even" if levels is None else levels](n_levels)
    return as_levels(levels, n_weights)


def as_level_count(n_levels: int) -> int:
    """Validate a number of levels: 2 to 256, so that an index fits into a byte."""
    if as_count(n_levels, "n_levels", 2) > 256:
        raise ValueError(f"n_levels must be at most 256, got {n_levels}")
    return int(n_levels)


def as_levels(levels: ArrayLike, n_weights: int | None = None) -> FloatArray:
    """Validate levels, shared (n_levels,), (1, n_levels) or per weight (n_weights, n_levels); returned as a matrix."""
    raw = np.asarray(levels)
    rows: int | str = 1 if raw.ndim == 1 or raw.shape[:-1] == (1,) else (n_weights or "n_weights")
    array = as_float_array(raw[None, :] if raw.ndim == 1 else raw, "levels", (rows, "n_levels"))
    if not 1 <= array.shape[1] <= 256:
        raise ValueError(f"levels must be 1 to 256 per weight, got {array.shape[1]}")
    return array


def pad_levels(levels: FloatArray, log_prior: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pad tables to the kernels' width: extra levels have prior mass zero."""
    extra = -levels.shape[-1] % _core.LEVEL_PADDING
    padding = ((0, 0), (0, extra))
    return np.pad(levels, padding), np.pad(log_prior, padding, constant_values=-np.inf)
