"""Integer programs of networks with quadratic activations: steps 2 and 3 of their arithmetic.

The other steps are those of `pydirect.quantized.integer.program`, except that q is an int32 and its multiplier a power
of two, so that only what single precision does not hold is lost: whitening magnifies small differences between columns.

2. Network inputs, int16: ``sum_k = rotation_offset_k + Σ_i rotation[k, i] · q_i`` in int64 and ``z_k =
   round_shift(sum_k, rotation_shift_k)``, clipped to ±32767.

3. Layers, separately for every column. The inputs x of a layer are the z or the outputs of the layer below, with a bias
   also ``ones[layer]``, which represents one. Every unit's sum ``acc = Σ_i W_i x_i`` is an int32 with ``W_i = centre_i
   + spread_i · multipliers[code_i]``, or ``multipliers[code_i]`` where all weights of a layer share their levels. A
   hidden unit computes ``a = round_shift(acc · rescale[layer], rescale_shift[layer])`` in int64, clipped to ±32767, and
   ``x = round_shift(a², 15)`` for the next layer. The output's sum is the total.

`NetworkProgram.prove` proves from the codes that no sum can overflow, whatever the inputs: this is what clipping is
for. It begins at least twice as far out as rows of X reached when the model was quantised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.quadratic.engines import NetworkShape
from pydirect.quantized.integer.arithmetic import INT32_MAX, Integers, round_shift
from pydirect.quantized.integer.program import Bounds, Operations, Program

INPUT_LIMIT = 2**30
# Of network inputs and of hidden units before they are squared; a square is shifted by one bit more.
LIMIT = 32767
SQUARE_SHIFT = 15
# Sum of the magnitudes of the rotation's entries for one network input, and its offset: sums stay below 2^62 and 2^60.
LARGEST_ENTRIES, LARGEST_OFFSET = 2**31, 2**60


@dataclass(frozen=True, kw_only=True)
class NetworkProgram(Program):
    """Integer program of a network with quadratic activations; the module's docstring is its definition.

    Codes are in the order of `NetworkShape`, (n_weights, n_outputs · n_samples): every output is a network.

    - `rotation`, int32 (shape.n_inputs, n_inputs).
    - `rotation_offset`, int64 (shape.n_inputs,): corrects for the rounding of origins to single precision.
    - `rotation_shift`, uint8 (shape.n_inputs,).
    - `ones`, int32 (n_layers,): represents one in the inputs of a layer; at most 32767, like the magnitudes of `centre`
      and `spread`.
    - `rescale`, int64 (depth,).
    - `rescale_shift`, uint8 (depth,).
    - `centre`, `spread`, int32 (n_weights, n_outputs): none where all weights of a layer share their levels.
    - `steps`, (n_layers,): what a weight of one represents in each layer; not needed to run the program.
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
        """Largest magnitude of every input of a layer, including the bias, (fan_in,)."""
        largest = np.full(self.shape.layers[layer][1], LIMIT, dtype=np.int64)
        if self.shape.bias:
            largest[-1] = self.ones[layer]
        return largest

    @property
    def operations(self) -> Operations:
        """Operations per row except those of the weights' levels."""
        n_hidden = self.n_columns * sum(self.shape.hidden_layer_sizes)
        own = 0 if self.centre is None else self.codes.size  # a centre and a spread of every weight
        rotation = self.rotation.size
        return Operations(rotation + own, self.n_inputs + rotation + 2 * own + 2 * n_hidden)

    # --- proof

    @cached_property
    def _bounds(self) -> Bounds:
        nothing = np.zeros(1)
        self._require_magnitudes(
            {
                "limit": (self.limit, INPUT_LIMIT),
                "entries of the rotation": (np.abs(self.rotation.astype(np.int64)).sum(axis=1), 2 * LARGEST_ENTRIES),
                "rotation_offset": (self.rotation_offset, LARGEST_OFFSET),
                "rotation_shift": (self.rotation_shift, 61),
                "ones": (self.ones, LIMIT),
                "rescale": (self.rescale, INT32_MAX),
                "rescale_shift": (self.rescale_shift, 61),
                "centre": (nothing if self.centre is None else self.centre, LIMIT),
                "spread": (nothing if self.spread is None else self.spread, LIMIT),
            }
        )
        named = []
        # Code adds centre and spread one after the other, so that each of the two sums has to fit.
        sizes = np.abs(self.weights)
        if self.centre is not None and self.spread is not None:
            sizes = np.abs(self._columns(self.centre)) + np.abs(self._columns(self.spread)) * sizes
        for layer, (part, own) in enumerate(zip(self.shape.slices, self.shape.layers, strict=True)):
            products = sizes[part].reshape(*own, self.n_columns) * self.largest_inputs(layer)[:, None]
            named.append((f"an accumulator of layer {layer + 1}", int(products.sum(axis=1).max(initial=0))))
        hint = "fewer units below it, or fewer levels, make it smaller"
        return self._bounds_of(named, total=named[-1][1], hint=hint)

    # --- reference

    def features(self, q: Integers) -> Integers:
        """Step 2: network inputs, (n_rows, shape.n_inputs)."""
        sums = np.asarray(q, dtype=np.int64) @ self.rotation.T.astype(np.int64) + self.rotation_offset
        return np.clip(round_shift(sums, self.rotation_shift.astype(np.int64)), -LIMIT, LIMIT)

    def activations(self, acc: Integers, layer: int) -> Integers:
        """Step 3: a for a hidden layer's sums."""
        return np.clip(round_shift(acc * self.rescale[layer], int(self.rescale_shift[layer])), -LIMIT, LIMIT)

    def layers(self, z: Integers, column: int, values: Integers) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Step 3 of one column: yield W (fan_out, fan_in), inputs and sums of every layer, the last two per row."""
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
        """Whether nothing is clipped at rows of quantised inputs, hidden units included, (n_rows,)."""
        z = self.features(q)
        inside = super().in_range(q) & (np.abs(z) < LIMIT).all(axis=1)
        for column in range(self.n_columns):
            for layer, (_, _, acc) in enumerate(self.layers(z, column, self.values)):
                if layer < self.shape.depth:
                    inside &= (np.abs(self.activations(acc, layer)) < LIMIT).all(axis=1)
        return np.asarray(inside)
