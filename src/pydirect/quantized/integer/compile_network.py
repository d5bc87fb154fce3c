"""Integer programs of networks with quadratic activations, compiled from their codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.quadratic.engines import NetworkShape
from pydirect.quantized.basis import NetworkBasis
from pydirect.quantized.errors import IntegerArithmeticError
from pydirect.quantized.integer.arithmetic import INT32_MAX, Integers
from pydirect.quantized.integer.network import (
    INPUT_LIMIT,
    LARGEST_ENTRIES,
    LARGEST_OFFSET,
    LIMIT,
    SQUARE_SHIFT,
    NetworkProgram,
)
from pydirect.quantized.integer.units import OutputScale, input_fields, integer_levels, scaled_fields, unscaled_fields

# Standardised columns are clipped to ± 2^30 of these or of slightly less: beyond eight standard deviations.
INPUT_UNIT = 2.0**-26
# Ratio of what integers represent to how far rows of X reached.
HEADROOM = 2.0
# Bits of a layer's rescaling factor.
RESCALE_BITS = 30


def build_network_program(
    basis: NetworkBasis,
    codes: NDArray[np.uint8],
    levels: FloatArray,
    centre: FloatArray,
    spread: FloatArray,
    n_samples: int,
    output: OutputScale,
) -> NetworkProgram:
    """Compile codes (n_weights, n_outputs · n_samples) with these levels, centres and spreads to an integer program.

    The integers of a layer's inputs are a multiple of the values they represent, so that the bias is exact; steps of
    weights are the smallest for which every sum fits.

    Raises IntegerArithmeticError when integers cannot represent the network, with the layer. Raises
    AccumulatorOverflowError when sums could overflow 32 bits, with the layer.
    """
    shape = basis.shape
    if not len(basis.reach):
        raise IntegerArithmeticError(
            "integers of a network need to know how far its hidden units reach: quantise with X=, rows like those of "
            "training"
        )
    inputs = np.flatnonzero(basis.matrix.any(axis=1))
    scale = basis.input_map.scale[basis.input_map.kept[inputs]]
    unit = 2.0 ** -np.ceil(-np.log2(INPUT_UNIT * scale)) / scale
    own_inputs = input_fields(basis.input_map, inputs, unit, INPUT_LIMIT)
    ones = _ones(basis.reach)
    offset = (own_inputs["origin"].astype(np.float64) - basis.input_map.mean[own_inputs["columns"]]) / scale
    rotation, rotation_offset, rotation_shift = _rotation(basis.matrix[inputs] * ones[0], unit, offset)
    multipliers, level_step = integer_levels(levels)
    unit_spread = np.broadcast_to(spread, (len(codes), len(output.scale))) * level_step
    centre = np.broadcast_to(centre, unit_spread.shape)
    steps, tables = _shared_steps(shape, centre, unit_spread), None
    if steps is None:
        steps = _weight_steps(shape, centre, unit_spread, multipliers[codes], ones)
        step = np.repeat(steps, [part.stop - part.start for part in shape.slices])[:, None]
        tables = [np.rint(table / step).astype(np.int32) for table in (centre, unit_spread)]
    rescale, rescale_shift = _rescaling(steps, ones)
    program = NetworkProgram(
        **own_inputs,
        codes=codes,
        multipliers=multipliers,
        shape=shape,
        rotation=rotation,
        rotation_offset=rotation_offset,
        rotation_shift=rotation_shift,
        ones=ones,
        rescale=rescale,
        rescale_shift=rescale_shift,
        centre=tables[0] if tables else None,
        spread=tables[1] if tables else None,
        steps=steps,
        **unscaled_fields(output, n_samples),
    )
    return replace(program, **scaled_fields(program.prove().total, float(steps[-1] / ones[-1]), n_samples, output))


def _ones(reach: FloatArray) -> NDArray[np.int32]:
    """Return the integers that represent one in the inputs of every layer: the network's inputs, then squares."""
    largest = HEADROOM * reach
    largest[1:] **= 2
    ones = np.floor(LIMIT / np.maximum(largest, 1.0))  # the bias needs an integer: none is finer
    for layer in np.flatnonzero(~(ones >= 1)):
        raise IntegerArithmeticError(
            f"integers need inputs of layer {layer + 1} below {LIMIT}, but they could be {largest[layer]:.3g}: fit "
            "with a smaller prior_scale, or keep arithmetic='float'"
        )
    return ones.astype(np.int32)


def _rotation(
    matrix: FloatArray, unit: FloatArray, offset: FloatArray
) -> tuple[NDArray[np.int32], Integers, NDArray[np.uint8]]:
    """Round a rotation (n_inputs, n_rotated) of standardised columns ``offset + unit · q``; return its integers."""
    exact, constant = (matrix * unit[:, None]).T, offset @ matrix
    largest = np.maximum(np.abs(exact).sum(axis=1) / LARGEST_ENTRIES, np.abs(constant) / LARGEST_OFFSET)
    largest = np.maximum(largest, np.abs(exact).max(axis=1, initial=0.0) / (INT32_MAX - 1))
    shift = np.minimum(np.floor(-np.log2(np.maximum(largest, 2.0**-61))), 61)
    if not (shift >= 0).all():
        raise IntegerArithmeticError(
            "integers need columns that vary more about their mean, and are not nearly multiples of each other: drop "
            "or shift some, or keep arithmetic='float'"
        )
    size = 2.0**shift
    integers = np.rint(exact * size[:, None]).astype(np.int32), np.rint(constant * size).astype(np.int64)
    return *integers, shift.astype(np.uint8)


def _shared_steps(shape: NetworkShape, centre: FloatArray, spread: FloatArray) -> FloatArray | None:
    """Return the common spread of every layer, or None where weights have centres or spreads of their own."""
    first = np.array([spread[part].flat[0] for part in shape.slices])
    same = all((spread[part] == s).all() for part, s in zip(shape.slices, first, strict=True))
    return first if same and not centre.any() else None


def _weight_steps(
    shape: NetworkShape, centre: FloatArray, spread: FloatArray, weights: NDArray[np.int32], ones: NDArray[np.int32]
) -> FloatArray:
    """Return the smallest steps of every layer's weights for which sums stay below 2^31, rounding included."""
    steps = np.empty(len(shape.layers))
    n_samples, largest_level = weights.shape[1] // centre.shape[1], int(np.abs(weights).max(initial=0))
    for layer, (part, (fan_out, fan_in)) in enumerate(zip(shape.slices, shape.layers, strict=True)):
        inputs = np.full(fan_in, LIMIT, dtype=np.float64)
        if shape.bias:
            inputs[-1] = ones[layer]
        sizes = np.repeat(np.abs(centre[part]), n_samples, axis=1)
        sizes = sizes + np.repeat(np.abs(spread[part]), n_samples, axis=1) * np.abs(weights[part])
        needed = float(np.einsum("oic,i->oc", sizes.reshape(fan_out, fan_in, -1), inputs).max())
        room = INT32_MAX - inputs.sum() * (1 + largest_level) / 2  # centre and spread are rounded by one half each
        if room < INT32_MAX / 2:
            raise IntegerArithmeticError(
                f"integers have too few bits for the weights of layer {layer + 1}, {fan_in} inputs wide: fit with "
                "fewer units or fewer levels, or keep arithmetic='float'"
            )
        tables = max(float(np.abs(centre[part]).max()), float(np.abs(spread[part]).max())) / LIMIT
        steps[layer] = max(needed / room, tables) or 1.0
    return steps


def _rescaling(steps: FloatArray, ones: NDArray[np.int32]) -> tuple[Integers, NDArray[np.uint8]]:
    """Return factors and shifts that turn the sums of every hidden layer into what is squared."""
    below, above = ones[:-1].astype(np.float64), ones[1:].astype(np.float64)
    # a² / 2^15 is `above` where the sum represents one.
    ratio = steps[:-1] / below * np.sqrt(above * 2.0**SQUARE_SHIFT)
    for layer in np.flatnonzero(~((ratio > 0) & (ratio < 2.0 ** (RESCALE_BITS - 1)))):
        raise IntegerArithmeticError(
            f"integers do not hold the weights of layer {layer + 1}, whose steps are {steps[layer]:.3g}: fit with "
            "another prior_scale, or keep arithmetic='float'"
        )
    shift = np.minimum(RESCALE_BITS - 1 - np.floor(np.log2(ratio)), 61)
    return np.rint(ratio * 2.0**shift).astype(np.int64), shift.astype(np.uint8)
