"""Networks with quadratic activations in integers: steps 2 and 3 of their arithmetic, how it is made, and its error.

The other steps are those of `pydirect.quantized.integer.program`, but that q is an int32 and its multiplier a power of
two, so that nothing is lost but what single precision does not hold: whitening makes much of small differences between
columns.

2. Network inputs, int16: ``sum_k = rotation_offset_k + Σ_i rotation[k, i] · q_i`` in int64 and ``z_k =
   round_shift(sum_k, rotation_shift_k)``, cut off at ±32767.

3. Layers, of every column by itself. The inputs x of a layer are the z or what the layer below has made, with a bias
   also ``ones[layer]``, which stands for one. Every unit's sum ``acc = Σ_i W_i x_i`` is an int32 with ``W_i = centre_i
   + spread_i · multipliers[code_i]``, or ``multipliers[code_i]`` where all weights of a layer share their levels. A
   hidden unit makes ``a = round_shift(acc · rescale[layer], rescale_shift[layer])`` of it, in int64, cut off at ±32767,
   and ``x = round_shift(a², 15)`` for the next layer. The output's sum is the total.

`NetworkProgram.bounds` proves from the codes that no sum can leave its type, whatever the inputs: that is what cutting
off is for. It begins at least twice as far out as rows of X reached when the model was quantised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.quadratic.engines import NetworkShape
from pydirect.quantized.integer.compile import (
    IntegerArithmeticError,
    OutputScale,
    input_columns,
    input_rounding,
    integer_levels,
    output_units,
    require_no_scores,
)
from pydirect.quantized.integer.program import INT32_MAX, Bounds, Integers, Operations, Program, round_shift

# Standardised columns are cut off at ± 2^30 of these or of somewhat less: beyond eight standard deviations.
INPUT_UNIT = 2.0**-26
INPUT_LIMIT = 2**30
# Of network inputs and of hidden units before they are squared; a square is divided by one more.
LIMIT = 32767
SQUARE_SHIFT = 15
# Integers go that many times as far as rows of X did.
HEADROOM = 2.0
# Bits of a layer's rescaling factor.
RESCALE_BITS = 30
# Of all entries of the rotation for one network input, and of its offset: sums stay below 2^62 and 2^60.
LARGEST_ENTRIES, LARGEST_OFFSET = 2**31, 2**60


@dataclass(frozen=True)
class NetworkBasis:
    """Inputs of a network with quadratic activations, and its shape.

    Attributes
    ----------
    input_map : InputMap
    matrix : ndarray of shape (n_columns, n_inputs)
        Standardised columns times this are the network's inputs, cut off at ±largest.
    shape : NetworkShape
    largest : float
    reach : ndarray of shape (n_layers,) or (0,)
        Largest magnitude of network inputs, and of the sums of every hidden layer, in rows of X; empty without rows.
    """

    input_map: InputMap
    matrix: FloatArray
    shape: NetworkShape
    largest: float
    reach: FloatArray

    def transform(self, x: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return the network's inputs at rows of X, (n_rows, n_inputs); no variance is lacking, (n_rows, 1)."""
        return np.clip(self.input_map.transform(x) @ self.matrix, -self.largest, self.largest), np.zeros((len(x), 1))


@dataclass(frozen=True, kw_only=True)
class NetworkProgram(Program):
    """A network with quadratic activations in integers alone; the module's docstring is its definition.

    Codes stand in the order of `NetworkShape`, (n_weights, n_outputs · n_samples): every output is a network.

    Attributes
    ----------
    shape : NetworkShape
    rotation : ndarray of int32, shape (shape.n_inputs, n_inputs)
    rotation_offset : ndarray of int64, shape (shape.n_inputs,)
        What the rounding of origins to single precision leaves.
    rotation_shift : ndarray of uint8, shape (shape.n_inputs,)
    ones : ndarray of int32, shape (n_layers,)
        What stands for one in the inputs of a layer; at most 32767, as `centre` and `spread` in magnitude.
    rescale : ndarray of int64, shape (depth,)
    rescale_shift : ndarray of uint8, shape (depth,)
    centre, spread : ndarray of int32, shape (n_weights, n_outputs), or None
        None where all weights of a layer share their levels.
    steps : ndarray of float64, shape (n_layers,)
        What a layer's weight of one stands for; not needed to run the program.
    """

    shape: NetworkShape
    rotation: NDArray[np.int32]
    rotation_offset: Integers
    rotation_shift: NDArray[np.uint8]
    ones: NDArray[np.int32]
    rescale: Integers
    rescale_shift: NDArray[np.uint8]
    centre: NDArray[np.int32] | None
    spread: NDArray[np.int32] | None
    steps: FloatArray

    @cached_property
    def values(self) -> Integers:
        """Integers W of all weights, (n_weights, n_columns)."""
        if self.centre is None or self.spread is None:
            return self.weights
        return self._columns(self.centre) + self._columns(self.spread) * self.weights

    def _columns(self, table: NDArray[np.int32]) -> Integers:
        return np.repeat(table.astype(np.int64), self.n_samples, axis=1)

    def largest_inputs(self, layer: int) -> Integers:
        """Largest magnitude of every input of a layer, the bias too, (fan_in,)."""
        largest = np.full(self.shape.layers[layer][1], LIMIT, dtype=np.int64)
        if self.shape.bias:
            largest[-1] = self.ones[layer]
        return largest

    @property
    def operations(self) -> Operations:
        """Operations a row of all but the weights' levels."""
        n_hidden = self.n_columns * sum(self.shape.hidden_layer_sizes)
        own = 0 if self.centre is None else self.codes.size  # a centre of every weight, and a spread
        rotation = self.rotation.size
        return Operations(rotation + own, self.n_inputs + rotation + 2 * own + 2 * n_hidden)

    # --- proof

    @cached_property
    def bounds(self) -> Bounds:
        """Prove that no sum leaves its type, and no product that goes into one; see `Program.bounds`."""
        nothing = np.zeros(1)
        self._require_magnitudes(
            ("limit", self.limit, INPUT_LIMIT),
            ("entries of the rotation", np.abs(self.rotation.astype(np.int64)).sum(axis=1), 2 * LARGEST_ENTRIES),
            ("rotation_offset", self.rotation_offset, LARGEST_OFFSET),
            ("rotation_shift", self.rotation_shift, 61),
            ("ones", self.ones, LIMIT),
            ("rescale", self.rescale, INT32_MAX),
            ("rescale_shift", self.rescale_shift, 61),
            ("centre", nothing if self.centre is None else self.centre, LIMIT),
            ("spread", nothing if self.spread is None else self.spread, LIMIT),
        )
        named = []
        # Code adds centre and spread apart, so that each of the two has to fit.
        sizes = np.abs(self.weights)
        if self.centre is not None and self.spread is not None:
            sizes = np.abs(self._columns(self.centre)) + np.abs(self._columns(self.spread)) * sizes
        for layer, (part, own) in enumerate(zip(self.shape.slices, self.shape.layers, strict=True)):
            products = sizes[part].reshape(*own, self.n_columns) * self.largest_inputs(layer)[:, None]
            named.append((f"an accumulator of layer {layer + 1}", int(products.sum(axis=1).max(initial=0))))
        return self._proved(named, named[-1][1], 0, "fewer units below it, or fewer levels, make it smaller")

    # --- reference

    def features(self, q: Integers) -> Integers:
        """Step 2: network inputs, (n_rows, shape.n_inputs)."""
        sums = np.asarray(q, dtype=np.int64) @ self.rotation.T.astype(np.int64) + self.rotation_offset
        return np.clip(round_shift(sums, self.rotation_shift.astype(np.int64)), -LIMIT, LIMIT)

    def activations(self, acc: Integers, layer: int) -> Integers:
        """Step 3: a of a hidden layer's sums."""
        return np.clip(round_shift(acc * self.rescale[layer], int(self.rescale_shift[layer])), -LIMIT, LIMIT)

    def layers(self, z: Integers, column: int, values: Integers) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Step 3 of one column: yield every layer's W (fan_out, fan_in), its inputs and its sums, a row each."""
        x = z
        for layer, (part, own) in enumerate(zip(self.shape.slices, self.shape.layers, strict=True)):
            w = values[part, column].reshape(own)
            if self.shape.bias:
                x = np.hstack([x, np.full((len(x), 1), self.ones[layer])])
            # Exact: a double holds every partial sum, as the bounds prove.
            acc = (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.int64)
            yield w, x, acc
            if layer < self.shape.depth:
                x = round_shift(self.activations(acc, layer) ** 2, SQUARE_SHIFT)

    def totals_of_features(self, phi: Integers) -> Integers:
        """Step 3: totals, (n_rows, n_outputs, n_samples)."""
        totals = np.empty((len(phi), self.n_columns), dtype=np.int64)
        for column in range(self.n_columns):
            *_, (_, _, acc) = self.layers(phi, column, self.values)
            totals[:, column] = acc[:, 0]
        return totals.reshape(len(phi), self.n_outputs, self.n_samples)

    def in_range(self, q: Integers) -> NDArray[np.bool_]:
        """Tell the rows where nothing is cut off, no hidden unit either, (n_rows,)."""
        z = self.features(q)
        inside = super().in_range(q) & (np.abs(z) < LIMIT).all(axis=1)
        for column in range(self.n_columns):
            for layer, (_, _, acc) in enumerate(self.layers(z, column, self.values)):
                if layer < self.shape.depth:
                    inside &= (np.abs(self.activations(acc, layer)) < LIMIT).all(axis=1)
        return np.asarray(inside)


def reach_of(shape: NetworkShape, weights: FloatArray, inputs: FloatArray) -> FloatArray:
    """Return the largest magnitude of network inputs, and of the sums of every hidden layer, (n_layers,).

    Parameters
    ----------
    shape : NetworkShape
    weights : ndarray of shape (n_networks, n_weights)
    inputs : ndarray of shape (n_rows, n_inputs)
    """
    hidden = islice(shape.sums(weights, inputs), shape.depth)
    return np.array([np.abs(inputs).max(initial=0.0), *(np.abs(a).max(initial=0.0) for a in hidden)])


def build_network_program(
    basis: NetworkBasis,
    codes: NDArray[np.uint8],
    levels: FloatArray,
    centre: FloatArray,
    spread: FloatArray,
    n_samples: int,
    output: OutputScale,
) -> NetworkProgram:
    """Return the integer program of codes (n_weights, n_outputs · n_samples), given levels, centres and spreads.

    The integers of a layer's inputs are a multiple of what they stand for, so that the bias is exact; steps of weights
    are the smallest with which every sum fits.

    Raises
    ------
    IntegerArithmeticError
        When integers do not hold the network, with the layer.
    AccumulatorOverflowError
        When sums could leave 32 bits, with the layer.
    """
    require_no_scores(basis.input_map)
    shape = basis.shape
    if not len(basis.reach):
        raise IntegerArithmeticError(
            "integers of a network need to know how far its hidden units reach: quantise with X=, rows like those of "
            "training"
        )
    inputs = np.flatnonzero(basis.matrix.any(axis=1))
    scale = basis.input_map.scale[basis.input_map.kept[inputs]]
    unit = 2.0 ** -np.ceil(-np.log2(INPUT_UNIT * scale)) / scale
    columns, origin, multiplier = input_columns(basis.input_map, inputs, unit)
    ones = _ones(basis.reach)
    offset = (origin.astype(np.float64) - basis.input_map.mean[columns]) / scale
    rotation, rotation_offset, rotation_shift = _rotation(basis.matrix[inputs] * ones[0], unit, offset)
    multipliers, level_step, _ = integer_levels(levels)
    n_outputs = len(output.scale)
    unit_spread = np.broadcast_to(spread, (len(codes), n_outputs)) * level_step
    centre = np.broadcast_to(centre, unit_spread.shape)
    steps, tables = _shared_steps(shape, centre, unit_spread), None
    if steps is None:
        steps = _weight_steps(shape, centre, unit_spread, multipliers[codes], ones)
        step = np.repeat(steps, [part.stop - part.start for part in shape.slices])[:, None]
        tables = [np.rint(table / step).astype(np.int32) for table in (centre, unit_spread)]
    rescale, rescale_shift = _rescaling(steps, ones)
    program = NetworkProgram(
        n_features_in=len(basis.input_map.mean),
        columns=columns,
        origin=origin,
        multiplier=multiplier,
        limit=np.full(len(inputs), INPUT_LIMIT, dtype=np.int32),
        codes=codes,
        multipliers=multipliers,
        n_outputs=n_outputs,
        n_samples=n_samples,
        scale=np.ones(n_outputs),
        offset=output.offset,
        noise=np.zeros(n_outputs, dtype=np.uint64),
        deviation_shift=62,
        std_scale=np.ones(n_outputs),
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
    )
    unit_total = float(steps[-1] / ones[-1])
    return replace(program, **output_units(program.bounds.total, unit_total, n_samples, output))


def _ones(reach: FloatArray) -> NDArray[np.int32]:
    """Return what stands for one in the inputs of every layer: the network's inputs, then squares."""
    largest = HEADROOM * reach
    largest[1:] **= 2
    ones = np.floor(LIMIT / np.maximum(largest, 1.0))  # in integers none is finer than what the bias needs
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
    """Return the one spread of every layer, None where weights have centres or spreads of their own."""
    first = np.array([spread[part].flat[0] for part in shape.slices])
    same = all((spread[part] == s).all() for part, s in zip(shape.slices, first, strict=True))
    return first if same and not centre.any() else None


def _weight_steps(
    shape: NetworkShape, centre: FloatArray, spread: FloatArray, weights: NDArray[np.int32], ones: NDArray[np.int32]
) -> FloatArray:
    """Return the smallest steps of every layer's weights with which sums stay below 2^31, rounding included."""
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
    """Return factors and shifts from the sums of every hidden layer to what is squared."""
    below, above = ones[:-1].astype(np.float64), ones[1:].astype(np.float64)
    # a² / 2^15 is `above` where the sum stands for one.
    ratio = steps[:-1] / below * np.sqrt(above * 2.0**SQUARE_SHIFT)
    for layer in np.flatnonzero(~((ratio > 0) & (ratio < 2.0 ** (RESCALE_BITS - 1)))):
        raise IntegerArithmeticError(
            f"integers do not hold the weights of layer {layer + 1}, whose steps are {steps[layer]:.3g}: fit with "
            "another prior_scale, or keep arithmetic='float'"
        )
    shift = np.minimum(RESCALE_BITS - 1 - np.floor(np.log2(ratio)), 61)
    return np.rint(ratio * 2.0**shift).astype(np.int64), shift.astype(np.uint8)


def network_rounding_bound(
    program: NetworkProgram, basis: NetworkBasis, weights: FloatArray, scale: FloatArray, rows: FloatArray | None = None
) -> FloatArray:
    """Bound of ``|integer − exact|`` of a sample's function, units of y: at rows, or wherever nothing is cut off.

    Exact is the network in real numbers for the same level indices. With hats on what is computed, errors pass through
    a layer as ``|Σ ŵ x̂ − Σ w x| ≤ Σ |ŵ − w| |x̂| + |w| |x̂ − x|``, then gain the error of the factor and half a unit;
    through a square as ``|â² − a²| ≤ |â − a| (2 |â| + |â − a|)``, and half a unit again. Magnitudes with a hat are
    those at the rows; without rows those that the program reaches with all weights and inputs positive.

    Parameters
    ----------
    program : NetworkProgram
    basis : NetworkBasis
    weights : ndarray of shape (n_outputs · n_samples, n_weights)
    scale : ndarray of shape (n_outputs,)
    rows : ndarray of shape (n_rows, n_features_in), optional

    Returns
    -------
    ndarray of shape (n_rows or 1, n_outputs)
    """
    unit, largest, input_error = input_rounding(program, basis.input_map)
    mean, scales = (a[program.columns] for a in (basis.input_map.mean, basis.input_map.scale))
    offset = (program.origin.astype(np.float64) - mean) / scales
    if rows is None:
        size = largest[None]
        z, values = np.full((1, basis.shape.n_inputs), LIMIT), np.abs(program.values)
    else:
        q = program.quantise_inputs(rows)
        z, values, size = program.features(q), program.values, np.abs(q) * unit
        # Known here: what is lost in the rounding of these inputs.
        input_error = np.abs((rows[:, program.columns] - mean) / scales - offset - q * unit)
    matrix = basis.matrix[np.searchsorted(basis.input_map.kept, program.columns)]
    one, power = program.ones[0], 2.0 ** program.rotation_shift.astype(np.float64)
    rotation = program.rotation / (power * one)[:, None] / unit
    z_error = input_error @ np.abs(matrix) + size @ np.abs(rotation - matrix.T).T + 0.5 / one
    z_error = z_error + np.abs(program.rotation_offset / (power * one) - offset @ matrix)
    shape = basis.shape
    errors, sizes = np.empty((2, len(z), program.n_columns))
    for column in range(program.n_columns):
        exact = shape.matrices(weights[column])
        error = z_error
        for layer, (w, x, acc) in enumerate(program.layers(z, column, values)):
            if shape.bias:
                error = np.hstack([error, np.zeros((len(z), 1))])
            step, one = program.steps[layer], program.ones[layer]
            off = np.abs(program.values[shape.slices[layer], column].reshape(w.shape) * step - exact[layer])
            error = np.abs(x) / one @ off.T + error @ np.abs(exact[layer]).T
            if layer == shape.depth:
                break
            size_of_a = 1 / np.sqrt(program.ones[layer + 1] * 2.0**SQUARE_SHIFT)
            factor = program.rescale[layer] / 2.0 ** float(program.rescale_shift[layer])
            sums = np.abs(acc) * step / one
            error = error + sums * abs(factor * size_of_a / (step / one) - 1) + size_of_a / 2
            a = np.abs(program.activations(acc, layer)) * size_of_a
            error = error * (2 * a + error) + 0.5 / program.ones[layer + 1]
        errors[:, column], sizes[:, column] = error[:, 0], (np.abs(x) @ np.abs(w).T)[:, 0] * step / one
    per_output = (errors, sizes)
    error, size = (np.abs(scale) * a.reshape(len(z), -1, program.n_samples).max(axis=2) for a in per_output)
    # What is rounded beside an offset, product and sum on both paths and once more for a mean.
    return np.asarray(error + 3 * np.spacing(np.abs(program.offset) + size))
