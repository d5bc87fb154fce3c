"""Limits of single precision for the floating-point path of quantised models."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray
from pydirect.quantized.basis import NetworkBasis
from pydirect.quantized.model import QuantizedModel

# Standardised inputs are clipped here: their squares stay finite.
LARGEST_SINGLE = 1e15
# Largest sum of a network, hidden or in units of the output: the sum of 256 samples' squares stays finite.
LARGEST_SUM = 1e17
# Inputs of a network are not clipped below this, 16 standard deviations.
LEAST_CUT_OFF = 8.0
# A margin of two powers of ten at either end of the normal numbers, for products with basis functions.
RANGE = (1e-36, 1e36)


def require_single(model: QuantizedModel) -> None:
    """Raise ValueError when units of X or y, or their squares, are non-zero and beyond single precision."""
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


def largest_network_input(model: QuantizedModel, basis: NetworkBasis) -> float:
    """Return where network inputs are clipped in single precision, so that no sum exceeds `LARGEST_SUM`."""
    weights = np.abs(model.network_weights).reshape(model.packed.shape[1], -1)
    limits = basis.largest * 2.0 ** -np.arange(60)
    *hidden, out = basis.shape.sums(weights, np.repeat(limits[:, None], basis.shape.n_inputs, axis=1))
    out = out * np.repeat(np.maximum(np.abs(model.scale), 1.0), model.n_samples)[:, None, None]
    largest = np.max([a.max(axis=(0, 2)) for a in (*hidden, out)], axis=0)  # nothing is negative
    fits = limits[largest <= LARGEST_SUM]
    return max(float(fits.max(initial=0.0)), min(LEAST_CUT_OFF, basis.largest))
