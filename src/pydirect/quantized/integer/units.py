"""Units of integer programs: what inputs, levels and outputs are multiples of. Shared by all builders of programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.quantized.errors import IntegerArithmeticError

MULTIPLIER_LIMIT = 127


@dataclass(frozen=True)
class OutputScale:
    """Units of a program's outputs.

    - `scale`, `offset`, (n_outputs,): a function is ``offset + scale · Σ_j w_j φ_j`` with w_j the levels.
    - `noise`, (n_outputs,): variance in squared units of the outputs.
    - `spread`: factor on standard deviations, already including the noise.
    """

    scale: FloatArray
    offset: FloatArray
    noise: FloatArray
    spread: float = 1.0


def integer_levels(levels: FloatArray) -> tuple[NDArray[np.int32], float]:
    """Return integers and a step with ``levels ≈ step · integers``.

    Evenly spaced levels, with zero among them or half way between two of them, and ± powers of two have no error beyond
    rounding; others are rounded to multiples of 1/127 of the largest one, so that a small level may become 0.
    """
    largest = float(np.abs(levels).max())
    if largest == 0:
        return np.zeros(len(levels), dtype=np.int32), 1.0
    steps = [largest / MULTIPLIER_LIMIT]
    nonzero = np.abs(levels[levels != 0])
    if len(levels) > 1:
        spacing = float(np.diff(np.sort(levels)).min())
        steps = [step for step in (float(nonzero.min(initial=np.inf)), spacing, spacing / 2) if step > 0] + steps
    for step in steps:
        integers = np.rint(levels / step)
        exact = np.abs(integers * step - levels).max() <= 1e-9 * largest
        if exact and np.abs(integers).max() <= 2**15:
            break
    return integers.astype(np.int32), step


def input_fields(input_map: InputMap, inputs: NDArray[np.intp], unit: FloatArray, limit: int) -> dict[str, Any]:
    """Return the fields of a program that step 1 reads, for inputs of a feature map with these units.

    Raises IntegerArithmeticError when inputs are normal scores, or single precision does not hold the columns.
    """
    if input_map.knots.size:
        raise IntegerArithmeticError("integers need inputs without normal scores: fit with rank_inputs=False")
    columns = input_map.kept[inputs]
    origin, scale = input_map.mean[columns], input_map.scale[columns]
    # A margin of two powers of ten at either end, for products of inputs near their limit.
    low, high = max(1e-33, 1e-37 / unit.min(initial=1.0)), 1e36
    if (np.abs(origin) > high).any() or (scale > high).any() or (scale < low).any():
        raise IntegerArithmeticError(
            f"columns must vary between {low:g} and {high:g}, what single precision holds, for integers: scale X"
        )
    return {
        "n_features_in": len(input_map.mean),
        "columns": columns.astype(np.int32),
        "origin": origin.astype(np.float32),
        "multiplier": (1 / (scale * unit)).astype(np.float32),
        "limit": np.full(len(inputs), limit, dtype=np.int32),
    }


def unscaled_fields(output: OutputScale, n_samples: int) -> dict[str, Any]:
    """Return the fields of a program that steps 4 and 5 read, before `scaled_fields` is able to set the units."""
    one = np.ones(len(output.scale))
    return {
        "n_outputs": len(one),
        "n_samples": n_samples,
        "scale": one,
        "offset": output.offset,
        "noise": np.zeros(len(one), dtype=np.uint64),
        "deviation_shift": 62,  # no sum of squares overflows
        "std_scale": one,
    }


def scaled_fields(total: int, unit: float, n_samples: int, output: OutputScale) -> dict[str, Any]:
    """Return the fields that put outputs in their units, from the largest total and what a total of one represents.

    Raises IntegerArithmeticError when the noise is too large to be represented beside the functions.
    """
    s = n_samples
    # The squares of S deviations and the noise each take at most half of 2^63.
    largest = np.sqrt(2.0**62 / s) - 1
    noise = np.sqrt(output.noise) / (np.abs(output.scale) * unit) * s**1.5
    needed = max(2.0 * s * total / largest, float(noise.max(initial=0.0)) / np.sqrt(2.0**61), 1.0)
    if not (np.isfinite(noise).all() and needed <= 2.0**62):
        raise IntegerArithmeticError("integers need a noise that is not beyond the units of the outputs: scale y")
    r = int(np.ceil(np.log2(needed)))
    scale = output.scale * unit
    return {
        "scale": scale / s,
        "noise": np.rint((noise / 2.0**r) ** 2).astype(np.uint64),
        "deviation_shift": r,
        "std_scale": output.spread * np.abs(scale) * 2.0**r / s**1.5,
    }
