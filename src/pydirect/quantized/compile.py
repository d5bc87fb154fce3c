"""Integer programs compiled from codes, and bounds on the error of their arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import FeatureMap, ForestFeatures, FourierFeatures, LinearFeatures, PrecomputedFeatures
from pydirect.quantized.fitted import LinearBasis
from pydirect.quantized.program import (
    ONE,
    SINE_ERROR,
    Forest,
    Group,
    IntegerArithmeticError,
    IntegerProgram,
    largest_total,
)

MULTIPLIER_LIMIT = 127


@dataclass(frozen=True)
class OutputScale:
    """Units of a program's outputs."""

    # scale, offset: (n_outputs,): a function is ``offset + scale · Σ_j w_j φ_j`` with w_j the levels
    scale: FloatArray
    offset: FloatArray
    # (n_outputs,): variance in squared units of the outputs
    noise: FloatArray
    # factor on standard deviations, already including the noise
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
    """Return the fields of a program that step 1 reads, for inputs of a feature map with these units."""
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
    """Return the fields that put outputs in their units, from the largest total and what a total of one represents."""
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


# Standardised inputs are clipped to ± 32767 of these: at eight standard deviations.
INPUT_UNIT = 2.0**-12
INPUT_LIMIT = 32767
INPUT_REACH = INPUT_LIMIT * INPUT_UNIT
FREQUENCY_BITS = (8, 16, 32)
# Frequencies have 16 bits when that moves no phase by more than this many turns.
LARGEST_PHASE_ERROR = 2.0**-9
# Bits of a group's gain, where groups have different units.
GAIN_BITS = 14


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
    constant: bool
    # (len(order),): amplitude of each basis function, times the scale of its weight's levels
    unit: FloatArray


def lay_out(features: FeatureMap, used: NDArray[np.bool_], spread: FloatArray | None = None) -> BasisLayout:
    """Choose and order the columns of Φ for a program, given which of them have non-zero weights.

    Frequencies and inputs of equal units are adjacent. `spread`, (n_weights,): scale of every weight's levels; by
    default one.
    """
    spread = np.ones(len(used)) if spread is None else spread
    constant, (frequencies, trees, leaves) = False, np.empty((3, 0), dtype=np.intp)
    if isinstance(features, ForestFeatures):
        n, first = features.n_leaves, features.n_leaves
        unit = spread * np.concatenate([np.full(n, features.amplitude), features.linear_scale, [features.constant]])
        trees = np.flatnonzero(used[:n].reshape(features.n_trees, 1 << features.depth).any(axis=1))
        trees = trees[np.argsort(-np.abs(unit[trees << features.depth]), kind="stable")]
        leaves = ((trees << features.depth)[:, None] + np.arange(1 << features.depth)).ravel()
        linear, constant = np.flatnonzero(used[n:-1] & (features.linear_scale != 0)), bool(used[-1])
    elif isinstance(features, FourierFeatures):
        f = features.n_frequencies
        scale = np.empty(0) if features.linear_scale is None else features.linear_scale
        end = [] if features.constant is None else [features.constant]
        unit = np.concatenate([features.amplitudes, features.amplitudes, scale, end]) * spread
        frequencies = np.flatnonzero(used[:f] | used[f : 2 * f])
        largest = np.maximum(np.abs(unit[frequencies]), np.abs(unit[f + frequencies]))
        frequencies = frequencies[np.argsort(-largest, kind="stable")]
        first, linear = 2 * f, np.flatnonzero(used[2 * f : 2 * f + len(scale)] & (scale != 0))
        constant = features.constant is not None and bool(used[-1])
    elif isinstance(features, LinearFeatures):
        unit = np.append(np.ones(features.n_features_in), features.intercept_scale) * spread
        first, linear, constant = 0, np.flatnonzero(used[:-1]), bool(used[-1])
    elif isinstance(features, PrecomputedFeatures):
        first, linear, unit = 0, np.flatnonzero(used), spread
    else:
        raise IntegerArithmeticError(
            f"integers need features='fourier', 'linear' or 'precomputed', got {features.kind!r}: fit such a model, or "
            "let pydirect.fit_quantized choose one of a given size"
        )
    linear = linear[np.argsort(-np.abs(unit[first + linear]), kind="stable")]
    pairs = np.stack([frequencies, first // 2 + frequencies], axis=1).ravel()
    order = np.concatenate([pairs, leaves, first + linear, [len(unit) - 1] if constant else []]).astype(np.intp)
    return BasisLayout(order, frequencies, trees, linear, constant, unit[order])


def quantise_frequencies(
    turns: FloatArray, unit: FloatArray, bits: int | str
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Round frequencies, (n_inputs, n_frequencies) turns per unit of x, to integers and one shift per input.

    `turns`, (n_inputs, n_frequencies). `unit`, (n_inputs,): what an integer input of one represents. `bits` ({8, 16,
    32, "auto"}): ``"auto"``: 16 where that moves no phase by more than 2^-9 turns, else 32. Returns int8
    (n_frequencies, n_inputs); shape uint8 (n_inputs,).
    """
    exact = turns.T * unit * 2.0**32  # phase of one integer step
    if bits == "auto":
        _, shift = quantise_frequencies(turns, unit, 16)
        error = (0.5 * 2.0**shift * (shift > 0)).sum() * INPUT_LIMIT / 2.0**32
        bits = 16 if error <= LARGEST_PHASE_ERROR else 32
    dtype = np.dtype(f"int{bits}")
    limit = 2 ** (int(bits) - 1) - 1
    largest = np.abs(exact).max(axis=0, initial=0.0)
    if bits == 32:  # beyond half a turn per step, whole turns are left out
        exact, largest = exact - 2.0**32 * np.rint(exact / 2.0**32), np.minimum(largest, 2.0**31)
    shift = np.maximum(np.ceil(np.log2(np.maximum(largest, 1.0) / (limit + 0.4))), 0)
    return np.clip(np.rint(exact / 2.0**shift), -limit, limit).astype(dtype), shift.astype(np.uint8)


def build_program(
    basis: Basis,
    layout: BasisLayout,
    codes: NDArray[np.uint8],
    levels: FloatArray,
    n_samples: int,
    output: OutputScale,
    frequency_bits: int | str = "auto",
) -> IntegerProgram:
    """Compile codes (len(layout.order), n_outputs · n_samples) on a basis to an integer program."""
    input_map, features = basis.input_map, basis.map
    turns, linear_limit = np.empty((input_map.n_outputs, 0)), INPUT_LIMIT
    if isinstance(features, FourierFeatures):
        turns = features.frequencies[:, layout.frequencies] / (2 * np.pi)
        linear_limit = min(INPUT_LIMIT, round(LINEAR_REACH / INPUT_UNIT))
    split = np.empty(0, dtype=np.intp)
    if isinstance(features, ForestFeatures):
        split, linear_limit = features.columns[layout.trees], min(INPUT_LIMIT, round(LINEAR_REACH / INPUT_UNIT))
    inputs = np.flatnonzero((turns != 0).any(axis=1) | np.isin(np.arange(len(turns)), [*layout.linear, *split.flat]))
    unit = np.full(len(inputs), INPUT_UNIT)
    own_inputs = input_fields(input_map, inputs, unit, INPUT_LIMIT)  # refuses normal scores
    frequencies, phase_shift = quantise_frequencies(turns[inputs], unit, frequency_bits)
    multipliers, step = integer_levels(levels)
    groups, units = _grouped(layout)
    program = IntegerProgram(
        **own_inputs,
        frequencies=frequencies,
        phase_shift=phase_shift,
        linear=np.searchsorted(inputs, layout.linear).astype(np.int32),
        linear_limit=linear_limit,
        groups=groups,
        codes=codes,
        multipliers=multipliers,
        forest=_forest(features, layout.trees, inputs) if isinstance(features, ForestFeatures) else None,
        **unscaled_fields(output, n_samples),
    )
    return _with_units(program, units * step, output)


def _forest(features: ForestFeatures, trees: NDArray[np.intp], inputs: NDArray[np.intp]) -> Forest | None:
    """Return the trees of a program with these inputs; equal splits are stored once."""
    if not len(trees):
        return None
    # An input is above the threshold if its integer, which is rounded, is above this one.
    thresholds = np.rint(features.thresholds[trees] / INPUT_UNIT - 0.5)
    pairs = np.stack([np.searchsorted(inputs, features.columns[trees]), thresholds], axis=2).reshape(-1, 2)
    table, index = np.unique(pairs.astype(np.int64), axis=0, return_inverse=True)
    splits = index.reshape(len(trees), -1).astype(np.uint8 if len(table) <= 256 else np.uint16)
    return Forest(table[:, 0].astype(np.int32), table[:, 1].astype(np.int16), splits)


def _grouped(layout: BasisLayout) -> tuple[tuple[Group, ...], FloatArray]:
    """Return groups of consecutive basis functions with a common unit, and these units."""
    n_leaves = len(layout.order) - 2 * len(layout.frequencies) - len(layout.linear) - layout.constant
    kinds = ["fourier"] * (2 * len(layout.frequencies)) + ["leaves"] * n_leaves + ["linear"] * len(layout.linear)
    kinds += ["constant"] * layout.constant
    own = {"linear": INPUT_UNIT, "leaves": 1.0}
    units = layout.unit * np.array([own.get(kind, 1 / ONE) for kind in kinds])
    edges = [j for j in range(len(kinds)) if j == 0 or kinds[j] != kinds[j - 1] or units[j] != units[j - 1]]
    return tuple(Group(kinds[begin], begin, end) for begin, end in pairwise([*edges, len(kinds)])), units[edges]


def _with_units(program: IntegerProgram, units: FloatArray, output: OutputScale) -> IntegerProgram:
    """Set gains, shifts and output scales, given what an accumulator of one represents in each group."""
    reach = program.largest_accumulators()
    if len(program.groups) <= 1:
        groups, unit = program.groups, float(units[0]) if len(units) else 1.0
    else:
        # The largest total takes 30 bits; every group's gain about GAIN_BITS, its accumulator is shifted to the rest.
        unit = float(np.abs(units) @ np.array(reach, dtype=np.float64)) / 2**30 or 1.0
        ratio = units / unit
        shift = np.clip(np.ceil(GAIN_BITS - np.log2(np.maximum(np.abs(ratio), 1e-300))), 0, 30).astype(int)
        gain = np.rint(ratio * 2.0**shift).astype(int)
        groups = tuple(
            replace(g, gain=int(a), shift=int(s)) for g, a, s in zip(program.groups, gain, shift, strict=True)
        )
    fields = scaled_fields(largest_total(groups, reach), unit, program.n_samples, output)
    return replace(program, groups=groups, **fields)


def input_rounding(program: IntegerProgram, input_map: InputMap) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the value of one integer step, the largest magnitude and the largest rounding error per input.

    All standardised, (n_inputs,) each.
    """
    unit = 1.0 / (program.multiplier.astype(np.float64) * input_map.scale[program.columns])
    mean = np.abs(input_map.mean[program.columns]) / input_map.scale[program.columns]
    largest = program.limit * unit
    # Half a step, and single precision: of the origin and of x, then of three operations.
    return unit, largest, unit / 2 + 2.0**-24 * (2 * mean + 4 * largest)


def rounding_bound(
    program: IntegerProgram, basis: LinearBasis, layout: BasisLayout, levels: FloatArray, scale: FloatArray
) -> FloatArray:
    """Bound on ``|integer − exact|`` for a sample's function wherever no input is clipped, (n_outputs,), units of y.

    Exact is Φw in real numbers for the same level indices. With ŵ_j what the integers represent and φ̂_j what is
    computed, ``|φ̂_j ŵ_j − φ_j w_j| ≤ |φ̂_j − φ_j| |ŵ_j| + |φ_j| |ŵ_j − w_j|``, summed; then the error of the gains on
    ``Σ_j φ̂_j ŵ_j``, half a unit for every shift, and the rounding of double precision beside a large offset.

    `levels`, (n_levels,). `scale`, (n_outputs,): from Φw to units of y.
    """
    multipliers, step = integer_levels(levels)
    errors, sizes = _feature_errors(program, basis, layout)
    amplitude = np.abs(layout.unit)
    used = np.abs(step * multipliers)[program.codes]
    bound = (amplitude * errors) @ used + (amplitude * sizes) @ np.abs(step * multipliers - levels)[program.codes]
    total_unit = abs(float(program.scale[0] * program.n_samples / scale[0]))  # a total of one, in units of Φw
    shifts = sum(abs(g.gain) * (2**g.shift > 1) / 2 for g in program.groups)
    gains = np.zeros(program.n_columns)
    unit, _, _ = input_rounding(program, basis.input_map)
    for g in program.groups:
        if amplitude[g.begin] == 0:
            continue
        reach = (amplitude * (sizes + errors))[g.begin : g.end] @ used[g.begin : g.end]
        # Inputs of a group have the same unit up to the rounding of their multipliers: the worst one counts.
        one = np.array([1.0 if g.kind == "leaves" else 1.0 / ONE])
        if g.kind == "linear":
            one = unit[program.inputs_of(g)]
        true = amplitude[g.begin] * step * one
        gains += reach * np.abs(abs(g.gain) / 2.0**g.shift * total_unit / true - 1).max()
    per_column = (bound + gains + shifts * total_unit).reshape(program.n_outputs, -1)
    largest = ((amplitude * (sizes + errors)) @ used).reshape(per_column.shape).max(axis=1) * np.abs(scale)
    return np.abs(scale) * per_column.max(axis=1) + _rounding_beside(program.offset, largest)


def _feature_errors(program: IntegerProgram, basis: LinearBasis, layout: BasisLayout) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the error and on the magnitude of every basis function, both before its amplitude.

    With Δx_i the rounding of input i, X_i its largest magnitude and Δν_fi the rounding of a frequency in turns, the
    phase is off by at most ``Σ_i |ν_fi| Δx_i + |Δν_fi| X_i`` turns, and a Fourier feature by ``2π · that +
    SINE_ERROR``; a linear one by Δx.
    """
    unit, largest, dx = input_rounding(program, basis.input_map)
    errors, sizes = np.zeros((2, program.n_basis_functions))
    if isinstance(basis.features.map, FourierFeatures):
        inputs = np.searchsorted(basis.input_map.kept, program.columns)
        turns = basis.features.map.frequencies[np.ix_(inputs, layout.frequencies)].T / (2 * np.pi)
        kept = program.frequencies * 2.0 ** program.phase_shift.astype(np.float64) / 2.0**32 / unit
        off = turns - kept
        off -= np.rint(off * unit) / unit  # whole turns per step
        phase = np.abs(turns) @ dx + np.abs(off) @ largest
        n = 2 * program.n_frequencies
        errors[:n] = np.repeat(np.minimum(2 * np.pi * phase, 2.0) + SINE_ERROR, 2)
        sizes[:n] = 1.0
    for g in program.groups:
        if g.kind == "linear":
            here, linear = slice(g.begin, g.end), program.inputs_of(g)
            errors[here] = dx[linear]
            sizes[here] = np.minimum(largest[linear], program.linear_limit * unit[linear])
        else:  # a constant; leaves are exact but for rows within half a step of a threshold
            sizes[g.begin : g.end] = 1.0
    return errors, sizes


def _rounding_beside(offset: FloatArray, largest: FloatArray) -> FloatArray:
    """Bound the rounding in double precision beside an offset: of product and sum on both paths, and of a mean."""
    return np.asarray(3 * np.spacing(np.abs(offset) + largest))
