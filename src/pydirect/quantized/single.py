"""What single precision can hold of a quantised model's floating-point path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pydirect._validation import FloatArray

if TYPE_CHECKING:
    from pydirect.quantized.models import QuantizedModel

# What standardised inputs are cut off at: their squares stay finite.
LARGEST_SINGLE = 1e15
# Two powers of ten on either side of what is left of normal numbers, for products with basis functions.
RANGE = (1e-36, 1e36)


def require_single(model: QuantizedModel) -> None:
    """Raise ValueError when units of X or y, or their squares, are beyond single precision; zeros are not."""
    m = model.basis.input_map
    target = "real='double' or dtype=float64, or scale y"
    inputs = "real='double' or dtype=float64, or scale X"
    values: tuple[tuple[str, FloatArray, bool, str], ...] = (
        ("squared units of the outputs", model.scale**2, True, target),
        ("noise variances", model.noise, True, target),
        ("offsets of the outputs", model.offset, False, target),
        ("scales of the columns", m.scale[m.kept], True, inputs),
        ("means of the columns", m.mean[m.kept], False, inputs),
    )
    for name, array, both, hint in values:
        size = np.abs(array[array != 0])
        if (size > RANGE[1]).any() or (both and (size < RANGE[0]).any()):
            least, largest = size.min(), size.max()
            raise ValueError(
                f"{name} must be between {RANGE[0]:g} and {RANGE[1]:g} in single precision, got {least:.3g} to "
                f"{largest:.3g}: use {hint}"
            )
