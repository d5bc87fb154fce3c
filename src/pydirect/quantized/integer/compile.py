"""Integer programs of models that are linear in basis functions, compiled from their codes and feature map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import FeatureMap, FourierFeatures, LinearFeatures, PrecomputedFeatures
from pydirect.quantized.errors import IntegerArithmeticError
from pydirect.quantized.integer.arithmetic import ONE
from pydirect.quantized.integer.linear import Group, IntegerProgram, largest_total
from pydirect.quantized.integer.units import OutputScale, input_fields, integer_levels, scaled_fields, unscaled_fields

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
    """Columns of Φ in the order of a program's basis functions: first the cosine and the sine of each frequency.

    - `order`: columns of Φ.
    - `frequencies`: those of the feature map that are used; their two columns come first.
    - `linear`: inputs of the feature map that are basis functions themselves.
    - `unit`, (len(order),): amplitude of each basis function, times the scale of its weight's levels.
    """

    order: NDArray[np.intp]
    frequencies: NDArray[np.intp]
    linear: NDArray[np.intp]
    constant: bool
    unit: FloatArray


def lay_out(features: FeatureMap, used: NDArray[np.bool_], spread: FloatArray | None = None) -> BasisLayout:
    """Choose and order the columns of Φ for a program, given which of them have non-zero weights.

    Frequencies and inputs of equal units are adjacent. `spread`, (n_weights,): scale of every weight's levels; by
    default one.

    Raises IntegerArithmeticError when the features have no integer form.
    """
    spread = np.ones(len(used)) if spread is None else spread
    frequencies, constant = np.empty(0, dtype=np.intp), False
    if isinstance(features, FourierFeatures):
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
    order = np.concatenate([pairs, first + linear, [len(unit) - 1] if constant else []]).astype(np.intp)
    return BasisLayout(order, frequencies, linear, constant, unit[order])


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
    *,
    feature_bits: int = 16,
    frequency_bits: int | str = "auto",
) -> IntegerProgram:
    """Compile codes (len(layout.order), n_outputs · n_samples) on a basis to an integer program.

    Raises IntegerArithmeticError when inputs are normal scores, or single precision does not hold the columns. Raises
    AccumulatorOverflowError when sums could overflow 32 bits.
    """
    input_map, features = basis.input_map, basis.map
    turns, linear_limit = np.empty((input_map.n_outputs, 0)), INPUT_LIMIT
    if isinstance(features, FourierFeatures):
        turns = features.frequencies[:, layout.frequencies] / (2 * np.pi)
        linear_limit = min(INPUT_LIMIT, round(LINEAR_REACH / INPUT_UNIT))
    inputs = np.flatnonzero((turns != 0).any(axis=1) | np.isin(np.arange(len(turns)), layout.linear))
    unit = np.full(len(inputs), INPUT_UNIT)
    own_inputs = input_fields(input_map, inputs, unit, INPUT_LIMIT)  # refuses normal scores
    frequencies, phase_shift = quantise_frequencies(turns[inputs], unit, frequency_bits)
    multipliers, step = integer_levels(levels)
    groups, units = _grouped(layout, feature_bits)
    program = IntegerProgram(
        **own_inputs,
        frequencies=frequencies,
        phase_shift=phase_shift,
        linear=np.searchsorted(inputs, layout.linear).astype(np.int32),
        linear_limit=linear_limit,
        groups=groups,
        feature_bits=feature_bits,
        codes=codes,
        multipliers=multipliers,
        **unscaled_fields(output, n_samples),
    )
    return _with_units(program, units * step, output)


def _grouped(layout: BasisLayout, feature_bits: int) -> tuple[tuple[Group, ...], FloatArray]:
    """Return groups of consecutive basis functions with a common unit, and these units."""
    kinds = ["fourier"] * (2 * len(layout.frequencies)) + ["linear"] * len(layout.linear)
    kinds += ["constant"] * layout.constant
    linear_unit = INPUT_UNIT * (256 if feature_bits == 8 else 1)
    units = layout.unit * np.array([linear_unit if kind == "linear" else 1 / ONE[feature_bits] for kind in kinds])
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
