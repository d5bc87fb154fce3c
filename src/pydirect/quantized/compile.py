"""Integer programs compiled from codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import FeatureMap, ForestFeatures, FourierFeatures, LinearFeatures
from pydirect.quantized.fitted import Outputs
from pydirect.quantized.program import (
    INPUT_LIMIT,
    LARGEST_GAIN,
    LARGEST_SHIFTED,
    ONE,
    SINGLE_NOISE,
    IntegerArithmeticError,
    IntegerProgram,
)

MULTIPLIER_LIMIT = 127
# Standardised inputs are int16 in these units.
INPUT_UNIT = 2.0**-12
# Means may be rounded by this many standard deviations.
LARGEST_MOVE = 1 / 16
# Sums over at most this many samples fit without a shift, and gains keep their precision.
FEW_SAMPLES = 2
# Frequencies take the fewest bits that move no phase by more than this many turns.
LARGEST_PHASE_ERROR = 2.0**-9


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


@dataclass(frozen=True)
class BasisLayout:
    """Columns of Φ in the order of a program's basis functions: first the cosine and the sine of each frequency."""

    # columns of Φ
    order: NDArray[np.intp]
    # those of the feature map that are used; their two columns come first
    frequencies: NDArray[np.intp]
    # those of a forest, all of whose leaves follow
    trees: NDArray[np.intp]
    # inputs of the feature map that are basis functions themselves
    linear: NDArray[np.intp]
    # (len(order),): amplitude of each basis function, times the scale of its weight's levels
    unit: FloatArray


def lay_out(features: FeatureMap, used: NDArray[np.bool_], spread: FloatArray | None = None) -> BasisLayout:
    """Choose and order the columns of Φ for a program, given which of them have non-zero weights.

    Basis functions of a kind and of equal units are adjacent. `spread`, (n_weights,): scale of every weight's levels;
    by default one.
    """
    waves, n_trees, depth = np.empty(0), 0, 0
    constant: float | None = None
    if isinstance(features, ForestFeatures):
        n_trees, depth = features.n_trees, features.depth
        first, slopes = np.full(features.n_leaves, features.amplitude), features.linear_scale
    elif isinstance(features, FourierFeatures):
        first = waves = np.concatenate([features.amplitudes, features.amplitudes])
        slopes, constant = features.slopes, features.constant
    elif isinstance(features, LinearFeatures):
        first, slopes, constant = waves, np.ones(features.n_features_in), features.intercept_scale
    else:
        raise IntegerArithmeticError(
            f"integers need features='fourier' or 'linear', got {features.kind!r}; or let pydirect.fit_quantized choose"
        )
    unit = np.concatenate([first, slopes, [] if constant is None else [constant]])
    unit = unit if spread is None else unit * spread
    size = np.abs(unit)
    f, end = len(waves) // 2, len(first) + len(slopes)
    frequencies = np.flatnonzero(used[:f] | used[f : 2 * f])
    frequencies = frequencies[np.argsort(-np.maximum(size[frequencies], size[f + frequencies]), kind="stable")]
    trees = np.flatnonzero(used[: n_trees << depth].reshape(n_trees, 1 << depth).any(axis=1))
    trees = trees[np.argsort(-size[trees << depth], kind="stable")]
    linear = np.flatnonzero(used[len(first) : end] & (slopes != 0))
    if f:  # in groups
        linear = linear[np.argsort(-size[len(first) + linear], kind="stable")]
    pairs = np.stack([frequencies, f + frequencies], axis=1).ravel()
    leaves = ((trees << depth)[:, None] + np.arange(1 << depth)).ravel()
    last = [end] if constant is not None and used[-1] else []
    order = np.concatenate([pairs, leaves, len(first) + linear, last]).astype(np.intp)
    return BasisLayout(order, frequencies, trees, linear, unit[order])


def input_reach(features: FeatureMap) -> float:
    """Return where standardised inputs are clipped: where the linear part of the kernel ends, if there is one."""
    return LINEAR_REACH if isinstance(features, FourierFeatures | ForestFeatures) else INPUT_LIMIT * INPUT_UNIT


def quantise_frequencies(turns: FloatArray, bits: int | None = None) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Round frequencies, (n_inputs, n_frequencies) turns per unit of x, to integers and one shift per input.

    `bits`: by default the fewest of 8, 16 and 32 that move no phase by more than 2^-9 turns. Returns integers
    (n_frequencies, n_inputs) and uint8 (n_inputs,).
    """
    exact = turns.T * INPUT_UNIT * 2.0**32  # phase of one integer step
    if bits is None:
        for bits in (8, 16, 32):
            integers, shift = quantise_frequencies(turns, bits)
            error = np.abs(integers * 2.0**shift - exact).sum(axis=1).max(initial=0.0) * INPUT_LIMIT / 2.0**32
            if error <= LARGEST_PHASE_ERROR:
                break
        return integers, shift
    limit = 2 ** (bits - 1) - 1
    largest = np.abs(exact).max(axis=0, initial=0.0)
    if bits == 32:  # beyond half a turn per step, whole turns are left out
        exact, largest = exact - 2.0**32 * np.rint(exact / 2.0**32), np.minimum(largest, 2.0**31)
    shift = np.maximum(np.ceil(np.log2(np.maximum(largest, 1.0) / (limit + 0.4))), 0)
    return np.clip(np.rint(exact / 2.0**shift), -limit, limit).astype(f"int{bits}"), shift.astype(np.uint8)


def build_program(
    basis: Basis, layout: BasisLayout, codes: NDArray[np.uint8], levels: FloatArray, n_samples: int, output: Outputs
) -> IntegerProgram:
    """Compile codes (len(layout.order), n_outputs · n_samples) on a basis to an integer program.

    A function is ``offset + scale · Σ_j w_j φ_j`` with w_j the levels.
    """
    features, turns = basis.map, np.empty((basis.input_map.n_outputs, 0))
    compared, thresholds = np.empty((0, 0), dtype=np.intp), np.empty((0, 0))
    if isinstance(features, FourierFeatures):
        turns = features.frequencies[:, layout.frequencies] / (2 * np.pi)
    elif isinstance(features, ForestFeatures) and len(layout.trees):
        compared, thresholds = features.columns[layout.trees], features.thresholds[layout.trees]
    read = np.isin(np.arange(len(turns)), layout.linear) | (compared.size > 0)  # by their numbers: all
    inputs = np.flatnonzero((turns != 0).any(axis=1) | read)
    own_inputs = _input_fields(basis.input_map, inputs)  # refuses normal scores
    # An input is above the threshold if its integer, which is rounded, is above this one.
    above = np.rint(thresholds / INPUT_UNIT - 0.5).astype(np.int16)
    if (above % threshold_step(len(inputs)) != compared).any():
        raise IntegerArithmeticError("the lowest bits of thresholds, in input units, must be the number of their input")
    frequencies, phase_shift = quantise_frequencies(turns[inputs])
    multipliers, step = integer_levels(levels)
    first, n_linear = 2 * len(layout.frequencies) + (len(compared) << compared.shape[1]), len(layout.linear)
    in_units = np.full(len(layout.order), 1 / ONE if len(layout.frequencies) else 1.0)
    in_units[first : first + n_linear] = INPUT_UNIT
    n_outputs = len(output.scale)
    one = np.ones(n_outputs)
    program = IntegerProgram(
        **own_inputs,
        limit=round(input_reach(features) / INPUT_UNIT),
        frequencies=frequencies,
        phase_shift=phase_shift,
        compared=compared.astype(np.int32),
        thresholds=above,
        linear=np.searchsorted(inputs, layout.linear).astype(np.int32),
        gain=np.zeros(len(layout.order), dtype=np.int32),
        codes=codes,
        multipliers=multipliers,
        n_outputs=n_outputs,
        n_samples=n_samples,
        total_shift=0,
        noise=np.zeros(n_outputs, dtype=np.uint32),
        deviation_shift=0,
        scale=one,
        offset=output.offset,
        std_scale=one,
    )
    return _with_units(program, layout.unit * in_units * step, output)


def _input_fields(input_map: InputMap, inputs: NDArray[np.intp]) -> dict[str, Any]:
    """Return the fields of a program that step 1 reads, for inputs of a feature map."""
    if input_map.knots.size:
        raise IntegerArithmeticError("integers have no normal scores: fit with features=Fourier(rank_inputs=False)")
    columns = input_map.kept[inputs]
    origin, scale = input_map.mean[columns], input_map.scale[columns]
    # A margin of two powers of ten at either end, for products of inputs near their limit.
    low, high = 1e-37 / INPUT_UNIT, 1e36
    if (np.abs(origin) > high).any() or (scale > high).any() or (scale < low).any():
        raise IntegerArithmeticError(f"columns must vary between {low:g} and {high:g}, in single precision: scale X")
    return {
        "n_features_in": len(input_map.mean),
        "columns": columns.astype(np.int32),
        "origin": origin.astype(np.float32),
        "multiplier": (1 / (scale * INPUT_UNIT)).astype(np.float32),
    }


def short_inputs(input_map: InputMap) -> InputMap:
    """Round means and scales so that a program's constants take the upper halves of single precision, where it can."""
    with np.errstate(over="ignore", divide="ignore"):
        mean, multiplier = _upper_half(input_map.mean), _upper_half(1 / (input_map.scale * INPUT_UNIT))
        scale = 1 / (multiplier * INPUT_UNIT)
    near = np.abs(mean - input_map.mean) <= LARGEST_MOVE * input_map.scale
    usual = np.isfinite(scale) & (scale > 0)
    return replace(input_map, mean=np.where(near, mean, input_map.mean), scale=np.where(usual, scale, input_map.scale))


def _upper_half(values: FloatArray) -> FloatArray:
    """Round to numbers of single precision whose lower sixteen bits are zero."""
    bits = values.astype(np.float32).view(np.int32).astype(np.int64) + 2**15
    return (bits & ~0xFFFF).astype(np.int32).view(np.float32).astype(np.float64)


def threshold_step(n_inputs: int) -> int:
    """Return the step of thresholds: a split is stored in 16 bits, the lowest of which are the number of its input."""
    return 1 << max((n_inputs - 1).bit_length(), 1)


def _with_units(program: IntegerProgram, units: FloatArray, output: Outputs) -> IntegerProgram:
    """Set gains, shifts and output scales, given what a basis function of one represents, in units of Φw."""
    s, largest = program.n_samples, float(np.abs(units).max(initial=0.0)) or 1.0
    most = (LARGEST_SHIFTED - 4 * s) // (2 * s)  # of a total
    own = units[: program.n_leaves]
    halvings = np.rint(np.log2(own[:1] / own)).astype(np.int32)  # units of trees are powers of two, the largest first
    # A gain of one, in units of Φw: so large that squares hold the noise.
    least = float((np.sqrt(output.noise) / output.scale).max()) * s**1.5 / 2.0 ** (45 + program.term_shift)
    unit = max(largest / (LARGEST_GAIN if program.n_frequencies else LARGEST_SHIFTED), min(least, largest))
    while True:
        gain = np.rint(units / unit).astype(np.int32)
        gain[: program.n_leaves] = gain[:1] >> halvings
        program = replace(program, gain=gain)
        reach = max(*program.reach(program.weights).tolist(), 1)
        limit = most if s <= FEW_SAMPLES and not program.n_frequencies else LARGEST_SHIFTED
        if reach <= limit:
            break
        unit *= max(reach / limit, 1.01)
    total_shift = max(int(np.ceil(np.log2(reach / most))), 0)
    program = replace(program, total_shift=total_shift)
    scale = output.scale * unit * 2.0 ** (program.term_shift + total_shift)
    if s == 1:
        noise, shift, step = np.full(len(scale), SINGLE_NOISE), 0, np.sqrt(output.noise / SINGLE_NOISE)
    else:
        # The squares of S deviations and the noise each take at most half of 2^32.
        exact = np.sqrt(output.noise) / np.abs(scale) * s**1.5
        deviation = max(int(program.largest_deviations().max(initial=0)), 1)
        needed = max((deviation + 1) * np.sqrt(s) / 2**15.5, float(exact.max(initial=0.0)) / 2**15.5, 1.0)
        if not needed <= LARGEST_SHIFTED:
            raise IntegerArithmeticError("integers need a noise that is not beyond the units of the outputs: scale y")
        shift = int(np.ceil(np.log2(needed)))
        noise, step = np.rint((exact / 2.0**shift) ** 2), np.abs(scale) * 2.0**shift / s**1.5
    return replace(
        program,
        scale=scale / s,
        noise=noise.astype(np.uint32),
        deviation_shift=shift,
        std_scale=output.calibration * step / 2**8,
    )
