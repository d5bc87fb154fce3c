"""From codes and a feature map to an integer program, with the bound of its rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import FeatureMap, FourierFeatures, LinearFeatures, PrecomputedFeatures
from pydirect.quantized.integer.program import ONE, SINE_ERROR, Group, IntegerProgram, Program, round_shift

# Standardised inputs are cut off at ± 32767 of these: at eight standard deviations.
INPUT_UNIT = 2.0**-12
INPUT_LIMIT = 32767
MULTIPLIER_LIMIT = 127
FREQUENCY_BITS = (8, 16, 32)
# Frequencies are kept with 16 bits when that moves no phase by more than this many turns.
LARGEST_PHASE_ERROR = 2.0**-9
# Bits of a group's gain, where groups have different units.
GAIN_BITS = 14


class IntegerArithmeticError(ValueError):
    """A model has no integer-only form; the message says which of its relatives has."""


class IntegerArithmeticWarning(UserWarning):
    """Integers lose what rows of X tell apart; the message says where and what helps."""


@dataclass(frozen=True)
class BasisLayout:
    """Columns of Φ in the order of a program's basis functions: of each frequency the cosine and the sine first.

    Attributes
    ----------
    order : ndarray of int
        Columns of Φ.
    frequencies : ndarray of int
        Of the feature map; their two columns come first.
    linear : ndarray of int
        Inputs of the feature map that are basis functions.
    constant : bool
    unit : ndarray of shape (len(order),)
        Amplitude of each basis function.
    """

    order: NDArray[np.intp]
    frequencies: NDArray[np.intp]
    linear: NDArray[np.intp]
    constant: bool
    unit: FloatArray


def lay_out(features: FeatureMap, used: NDArray[np.bool_], spread: FloatArray | None = None) -> BasisLayout:
    """Return what a program keeps of a feature map, given which columns of Φ have weights that are not zero.

    Frequencies and inputs of equal amplitudes stand together; `spread` is a further factor of the weights of
    precomputed columns, (n_weights,).

    Raises
    ------
    IntegerArithmeticError
        When the features have no integer form.
    """
    none = np.empty(0, dtype=np.intp)
    if isinstance(features, FourierFeatures):
        f = features.n_frequencies
        kept = np.flatnonzero(used[:f] | used[f : 2 * f])
        kept = kept[np.argsort(-np.abs(features.amplitudes[kept]), kind="stable")]
        scale = np.empty(0) if features.linear_scale is None else features.linear_scale
        linear = np.flatnonzero(used[2 * f : 2 * f + len(scale)] & (scale != 0))
        linear = linear[np.argsort(-np.abs(scale[linear]), kind="stable")]
        constant = features.constant is not None and bool(used[-1])
        last = [features.n_weights - 1] if constant else []
        order = np.concatenate([np.stack([kept, f + kept], axis=1).ravel(), 2 * f + linear, last]).astype(np.intp)
        unit = np.concatenate([np.repeat(features.amplitudes[kept], 2), scale[linear], [features.constant or 0.0]])
        return BasisLayout(order, kept, linear, constant, unit[: len(order)])
    if isinstance(features, LinearFeatures):
        linear, constant = np.flatnonzero(used[:-1]), bool(used[-1])
        order = np.concatenate([linear, [len(used) - 1] if constant else []]).astype(np.intp)
        unit = np.concatenate([np.ones(len(linear)), [features.intercept_scale]])
        return BasisLayout(order, none, linear, constant, unit[: len(order)])
    if isinstance(features, PrecomputedFeatures):
        linear, unit = np.flatnonzero(used), np.ones(len(used)) if spread is None else spread
        linear = linear[np.argsort(-unit[linear], kind="stable")]
        return BasisLayout(linear, none, linear, False, unit[linear])
    raise IntegerArithmeticError(
        f"integers need features='fourier', 'linear' or 'precomputed', got {features.kind!r}: fit such a model, or let "
        "pydirect.fit_within choose one of a given size"
    )


def integer_levels(levels: FloatArray) -> tuple[NDArray[np.int32], float, float]:
    """Return integers and a step with ``levels ≈ step · integers``, and the largest error.

    Evenly spaced levels with zero among them, or half way between two of them, and ± powers of two have no error beyond
    rounding; others are rounded to multiples of the largest one's 127th part, so that a small level may become 0.
    """
    largest = float(np.abs(levels).max())
    if largest == 0:
        return np.zeros(len(levels), dtype=np.int32), 1.0, 0.0
    steps = [largest / MULTIPLIER_LIMIT]
    nonzero = np.abs(levels[levels != 0])
    if len(levels) > 1:
        spacing = float(np.diff(np.sort(levels)).min())
        steps = [step for step in (float(nonzero.min(initial=np.inf)), spacing, spacing / 2) if step > 0] + steps
    for step in steps:
        integers = np.rint(levels / step)
        error = float(np.abs(integers * step - levels).max())
        if np.abs(integers).max() <= 2**15 and error <= 1e-9 * largest:
            break
    else:
        integers = np.rint(levels / steps[-1])
        error = float(np.abs(integers * steps[-1] - levels).max())
    return integers.astype(np.int32), step, error


def require_no_scores(input_map: InputMap) -> None:
    """Raise IntegerArithmeticError when inputs pass through normal scores."""
    if input_map.knots.size:
        raise IntegerArithmeticError("integers need inputs without normal scores: fit with rank_inputs=False")


def input_columns(
    input_map: InputMap, inputs: NDArray[np.intp], unit: FloatArray
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Return column, origin and multiplier of inputs of a feature map."""
    columns = input_map.kept[inputs]
    origin, scale = input_map.mean[columns], input_map.scale[columns]
    # Two powers of ten on either side, for the products of inputs near their limit.
    low, high = max(1e-33, 1e-37 / unit.min(initial=1.0)), 1e36
    if (np.abs(origin) > high).any() or (scale > high).any() or (scale < low).any():
        raise IntegerArithmeticError(
            f"columns must vary between {low:g} and {high:g}, what single precision holds, for integers: scale X"
        )
    return columns.astype(np.int32), origin.astype(np.float32), (1 / (scale * unit)).astype(np.float32)


def quantise_frequencies(
    turns: FloatArray, unit: FloatArray, bits: int | str
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Round frequencies, (n_inputs, n_frequencies) turns a unit of x, to integers and a shift for every input.

    Parameters
    ----------
    turns : ndarray of shape (n_inputs, n_frequencies)
    unit : ndarray of shape (n_inputs,)
        What an integer input stands for.
    bits : {8, 16, 32, "auto"}
        ``"auto"``: 16 where that moves no phase by more than 2^-9 turns, else 32.

    Returns
    -------
    ndarray of int8, int16 or int32, shape (n_frequencies, n_inputs)
    ndarray of uint8, shape (n_inputs,)
    """
    exact = turns.T * unit * 2.0**32  # phase of one integer step
    if bits == "auto":
        _, shift = quantise_frequencies(turns, unit, 16)
        error = (0.5 * 2.0**shift * (shift > 0)).sum() * INPUT_LIMIT / 2.0**32
        bits = 16 if error <= LARGEST_PHASE_ERROR else 32
    dtype = np.dtype(f"int{bits}")
    limit = 2 ** (int(bits) - 1) - 1
    largest = np.abs(exact).max(axis=0, initial=0.0)
    if bits == 32:  # beyond half a turn a step, whole turns are left out
        exact, largest = exact - 2.0**32 * np.rint(exact / 2.0**32), np.minimum(largest, 2.0**31)
    shift = np.maximum(np.ceil(np.log2(np.maximum(largest, 1.0) / (limit + 0.4))), 0)
    return np.clip(np.rint(exact / 2.0**shift), -limit, limit).astype(dtype), shift.astype(np.uint8)


@dataclass(frozen=True)
class OutputScale:
    """Units of a program's outputs.

    Attributes
    ----------
    scale, offset : ndarray of shape (n_outputs,)
        A function is ``offset + scale · Σ_j w_j φ_j`` with w_j the levels.
    noise : ndarray of shape (n_outputs,)
        Variance in units of the outputs.
    spread : float
        Factor of standard deviations, noise included already.
    """

    scale: FloatArray
    offset: FloatArray
    noise: FloatArray
    spread: float = 1.0


def build_program(
    input_map: InputMap,
    features: FeatureMap,
    layout: BasisLayout,
    codes: NDArray[np.uint8],
    levels: FloatArray,
    n_samples: int,
    output: OutputScale,
    *,
    feature_bits: int = 16,
    frequency_bits: int | str = "auto",
    input_unit: float = INPUT_UNIT,
) -> IntegerProgram:
    """Return the integer program of codes (len(layout.order), n_outputs · n_samples) on a feature map.

    Raises
    ------
    IntegerArithmeticError
        When inputs pass through normal scores.
    AccumulatorOverflowError
        When sums could leave 32 bits.
    """
    require_no_scores(input_map)
    turns, limit = np.empty((input_map.n_outputs, 0)), INPUT_LIMIT
    if isinstance(features, FourierFeatures):
        turns = features.frequencies[:, layout.frequencies] / (2 * np.pi)
        limit = min(limit, round(LINEAR_REACH / input_unit))
    inputs = np.flatnonzero((turns != 0).any(axis=1) | np.isin(np.arange(len(turns)), layout.linear))
    unit = np.full(len(inputs), input_unit)
    columns, origin, multiplier = input_columns(input_map, inputs, unit)
    frequencies, phase_shift = quantise_frequencies(turns[inputs], unit, frequency_bits)
    multipliers, step, _ = integer_levels(levels)
    one = ONE[feature_bits]
    kinds = ["fourier"] * (2 * len(layout.frequencies)) + ["linear"] * len(layout.linear)
    kinds += ["constant"] * layout.constant
    linear_unit = input_unit * (256 if feature_bits == 8 else 1)
    units = layout.unit * np.array([linear_unit if kind == "linear" else 1 / one for kind in kinds])
    edges = [j for j in range(len(kinds)) if j == 0 or kinds[j] != kinds[j - 1] or units[j] != units[j - 1]]
    groups = tuple(Group(kinds[begin], begin, end) for begin, end in pairwise([*edges, len(kinds)]))
    n_outputs = len(output.scale)
    program = IntegerProgram(
        n_features_in=len(input_map.mean),
        columns=columns,
        origin=origin,
        multiplier=multiplier,
        limit=np.full(len(inputs), INPUT_LIMIT, dtype=np.int32),
        frequencies=frequencies,
        phase_shift=phase_shift,
        linear=np.searchsorted(inputs, layout.linear).astype(np.int32),
        linear_limit=limit,
        groups=groups,
        feature_bits=feature_bits,
        codes=codes,
        multipliers=multipliers,
        n_outputs=n_outputs,
        n_samples=n_samples,
        scale=np.ones(n_outputs),
        offset=output.offset,
        noise=np.zeros(n_outputs, dtype=np.uint64),
        deviation_shift=0,
        std_scale=np.ones(n_outputs),
    )
    return _with_units(program, units[edges] * step, output)


def _with_units(program: IntegerProgram, units: FloatArray, output: OutputScale) -> IntegerProgram:
    """Set gains, shifts and output scales, from what an accumulator of each group stands for."""
    terms = np.abs(program.weights) * program.largest_features()[:, None]
    reach = np.array([terms[g.begin : g.end].sum(axis=0).max(initial=0) for g in program.groups], dtype=np.float64)
    if len(program.groups) <= 1:
        groups, unit = program.groups, float(units[0]) if len(units) else 1.0
    else:
        # The largest total takes 30 bits; every group's gain about GAIN_BITS, its accumulator is shifted to the rest.
        unit = float(np.abs(units) @ reach) / 2**30 or 1.0
        ratio = units / unit
        shift = np.clip(np.ceil(GAIN_BITS - np.log2(np.maximum(np.abs(ratio), 1e-300))), 0, 30).astype(int)
        gain = np.rint(ratio * 2.0**shift).astype(int)
        groups = tuple(
            replace(g, gain=int(a), shift=int(s)) for g, a, s in zip(program.groups, gain, shift, strict=True)
        )
    total = sum(abs(g.gain) * int(round_shift(int(b), g.shift)) for g, b in zip(groups, reach, strict=True))
    return replace(program, groups=groups, **output_units(total, unit, program.n_samples, output))


def output_units(total: int, unit: float, n_samples: int, output: OutputScale) -> dict[str, Any]:
    """Return the last fields of a program, from its largest total and what a total of one stands for.

    Raises
    ------
    IntegerArithmeticError
        When the noise is beyond what integers hold beside the functions.
    """
    s = n_samples
    # Squares of S deviations and the noise, one half of 2^63 each at most.
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


def input_rounding(program: Program, input_map: InputMap) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return of every input, standardised: what an integer stands for, the largest magnitude, the largest rounding."""
    unit = 1.0 / (program.multiplier.astype(np.float64) * input_map.scale[program.columns])
    mean = np.abs(input_map.mean[program.columns]) / input_map.scale[program.columns]
    largest = program.limit * unit
    # Half a step, and single precision: of the origin and of x, then of three operations.
    return unit, largest, unit / 2 + 2.0**-24 * (2 * mean + 4 * largest)


def rounding_bound(
    program: IntegerProgram,
    input_map: InputMap,
    features: FeatureMap,
    layout: BasisLayout,
    levels: FloatArray,
    scale: FloatArray,
) -> FloatArray:
    """Bound of ``|integer − exact|`` of a sample's function wherever no input is cut off, (n_outputs,), units of y.

    Exact is Φw in real numbers for the same level indices. With Δx_i the rounding of input i, X_i its largest magnitude
    and Δν_fi that of a frequency in turns, the phase is off by ``Σ_i |ν_fi| Δx_i + |Δν_fi| X_i`` turns, a Fourier
    feature of amplitude a by ``a (2π · that + SINE_ERROR)``, a linear one by its unit times Δx and the rounding to
    int8. With ŵ_j what the integers stand for and φ̂_j what is computed, ``|φ̂_j ŵ_j − φ_j w_j| ≤ |φ̂_j − φ_j| |ŵ_j| +
    |φ_j| |ŵ_j − w_j|``, summed; then the error of the gains on ``Σ_j φ̂_j ŵ_j``, half a unit for every shift, and the
    rounding of double precision beside a large offset.
    """
    multipliers, step, _ = integer_levels(levels)
    unit, largest, dx = input_rounding(program, input_map)
    errors, sizes = np.zeros(program.n_features), np.zeros(program.n_features)
    if isinstance(features, FourierFeatures):
        inputs = np.searchsorted(input_map.kept, program.columns)
        turns = features.frequencies[np.ix_(inputs, layout.frequencies)].T / (2 * np.pi)
        kept = program.frequencies * 2.0 ** program.phase_shift.astype(np.float64) / 2.0**32 / unit
        off = turns - kept
        off -= np.rint(off * unit) / unit  # whole turns a step
        phase = np.abs(turns) @ dx + np.abs(off) @ largest
        n = 2 * program.n_frequencies
        errors[:n] = np.repeat(np.minimum(2 * np.pi * phase, 2.0) + SINE_ERROR[program.feature_bits], 2)
        sizes[:n] = 1.0
    for g in program.groups:
        if g.kind == "linear":
            here, linear = slice(g.begin, g.end), program.inputs_of(g)
            errors[here] = dx[linear] + (128 * unit[linear] if program.feature_bits == 8 else 0.0)
            sizes[here] = np.minimum(largest[linear], program.linear_limit * unit[linear])
            if program.feature_bits == 8:
                errors[here] += np.maximum(sizes[here] - 127 * 256 * unit[linear], 0)
        elif g.kind == "constant":
            sizes[g.begin : g.end] = 1.0
    amplitude = np.abs(layout.unit)
    used = np.abs(step * multipliers)[program.codes]
    bound = (amplitude * errors) @ used + (amplitude * sizes) @ np.abs(step * multipliers - levels)[program.codes]
    total_unit = abs(float(program.scale[0] * program.n_samples / scale[0]))  # a total of one, in units of Φw
    shifts = sum(abs(g.gain) * (2**g.shift > 1) / 2 for g in program.groups)
    gains = np.zeros(program.n_columns)
    for g in program.groups:
        if amplitude[g.begin] == 0:
            continue
        reach = (amplitude * (sizes + errors))[g.begin : g.end] @ used[g.begin : g.end]
        # Inputs of a group have the same unit but for the rounding of their multipliers: the worst one counts.
        one = np.array([1.0 / ONE[program.feature_bits]])
        if g.kind == "linear":
            one = unit[program.inputs_of(g)] * (256 if program.feature_bits == 8 else 1)
        true = amplitude[g.begin] * step * one
        gains += reach * np.abs(abs(g.gain) / 2.0**g.shift * total_unit / true - 1).max()
    per_column = (bound + gains + shifts * total_unit).reshape(program.n_outputs, -1)
    # What is rounded beside an offset, product and sum on both paths and once more for a mean.
    largest = ((amplitude * (sizes + errors)) @ used).reshape(per_column.shape).max(axis=1) * np.abs(scale)
    return np.abs(scale) * per_column.max(axis=1) + 3 * np.spacing(np.abs(program.offset) + largest)
