"""Location and scale of the columns of a matrix."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray


def weighted_location_scale(x: FloatArray, sample_weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of columns; the deviation of a column that is constant up to rounding is zero."""
    if x.shape[1] == 0:
        return np.empty(0), np.empty(0)
    if sample_weight is not None:
        x, sample_weight = x[sample_weight > 0], sample_weight[sample_weight > 0]
    # Relative to the first row, so that a large common offset loses no digits, and in units of a power of two, so that
    # squares neither overflow nor underflow and scaling does not round.
    size = np.abs(x).max(axis=0)
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 2, -1000))
    origin = x[0] / unit
    shifted = x / unit - origin
    mean = np.average(shifted, axis=0, weights=sample_weight)
    scale = np.sqrt(np.average((shifted - mean) ** 2, axis=0, weights=sample_weight))
    noise = 10 * np.finfo(float).eps * (size / unit)
    return unit * (origin + mean), np.where(scale > noise, unit * scale, 0.0)
