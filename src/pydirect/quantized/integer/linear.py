"""Integer programs of models that are linear in basis functions: steps 2 and 3 of `pydirect.quantized.integer.program`.

`IntegerProgram` is the reference; `pydirect.quantized.integer.engine` runs it in compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect.quantized.integer.arithmetic import INT32_MAX, ONE, QUARTER, Integers, round_shift, turn_sine
from pydirect.quantized.integer.program import Bounds, Operations, Program


@dataclass(frozen=True)
class Group:
    """Consecutive basis functions with a common unit.

    - `kind`: {"fourier", "linear", "constant"}.
    - `begin`, `end`: range of basis functions.
    - `gain`, `shift`: see step 3.
    """

    kind: str
    begin: int
    end: int
    gain: int = 1
    shift: int = 0


@dataclass(frozen=True, kw_only=True)
class IntegerProgram(Program):
    """Integer program of a model that is linear in basis functions.

    Parameters
    ----------
    n_features_in : int
        Number of columns of a row.
    columns : ndarray of int32 of shape (n_inputs,)
        Columns that are read.
    origin : ndarray of float32 of shape (n_inputs,)
        Subtracted from the columns.
    multiplier : ndarray of float32 of shape (n_inputs,)
        Factors of the differences.
    limit : ndarray of int32 of shape (n_inputs,)
        Largest magnitudes of the inputs, at most 32767.
    codes : ndarray of uint8 of shape (n_basis_functions, n_outputs · n_samples)
        Level indices.
    multipliers : ndarray of int32 of shape (n_levels,)
        Integers of the levels, at most 2^15 in magnitude.
    n_outputs : int
        Number of outputs.
    n_samples : int
        Number of samples.
    scale : ndarray of shape (n_outputs,)
        Factor of a sum over the samples.
    offset : ndarray of shape (n_outputs,)
        Added to it.
    noise : ndarray of uint64 of shape (n_outputs,)
        Noise variances in integers.
    deviation_shift : int
        Bits by which deviations are shifted before they are squared.
    std_scale : ndarray of shape (n_outputs,)
        Factor of integer standard deviations.

    Attributes
    ----------
    frequencies : ndarray of int8, int16 or int32, shape (n_frequencies, n_inputs)
    phase_shift : ndarray of uint8, shape (n_inputs,)
        Below 32.
    linear : ndarray of int32, shape (n_linear,)
        Inputs that are basis functions themselves.
    linear_limit : int
    groups : tuple of Group
    feature_bits : {8, 16}
    """

    frequencies: NDArray[Any]
    phase_shift: NDArray[np.uint8]
    linear: NDArray[np.int32]
    linear_limit: int
    groups: tuple[Group, ...]
    feature_bits: int

    # --- shape

    @property
    def n_frequencies(self) -> int:
        """Number of frequencies: half the number of Fourier features."""
        return len(self.frequencies)

    @property
    def n_basis_functions(self) -> int:
        """Number of basis functions."""
        return self.codes.shape[0]

    @property
    def one(self) -> int:
        """Integer that represents one in basis functions."""
        return ONE[self.feature_bits]

    @property
    def operations(self) -> Operations:
        """Operations per row except those of the weights."""
        interpolations = 2 * self.n_frequencies if self.feature_bits == 16 else 0
        common = self.n_frequencies * self.n_inputs + len(self.groups) * self.n_columns
        return Operations(
            additions=common + 3 * interpolations,
            multiplications=common + interpolations + self.n_inputs,
            table_lookups=2 * self.n_frequencies + interpolations,
        )

    def inputs_of(self, group: Group) -> NDArray[np.int32]:
        """Return the inputs that are the basis functions of a linear group.

        Parameters
        ----------
        group : Group
            Group of basis functions.

        Returns
        -------
        ndarray of int32
            Numbers of inputs.
        """
        first = 2 * self.n_frequencies
        return self.linear[group.begin - first : group.end - first]

    def largest_features(self) -> Integers:
        """Largest magnitude of every basis function, (n_basis_functions,).

        Returns
        -------
        ndarray of int64 of shape (n_basis_functions,)
            Magnitudes.
        """
        out = np.full(self.n_basis_functions, self.one, dtype=np.int64)
        for g in self.groups:
            if g.kind == "linear":
                limit = np.minimum(self.limit[self.inputs_of(g)], self.linear_limit).astype(np.int64)
                out[g.begin : g.end] = limit if self.feature_bits == 16 else np.minimum(round_shift(limit, 8), 127)
        return out

    # --- proof

    def largest_accumulators(self) -> list[int]:
        """Largest magnitude of ``acc_g`` per group, whatever the inputs.

        Returns
        -------
        list of int
            One number per group.
        """
        terms = np.abs(self.weights) * self.largest_features()[:, None]
        return [int(terms[g.begin : g.end].sum(axis=0).max(initial=0)) for g in self.groups]

    @cached_property
    def _bounds(self) -> Bounds:
        expected = 2 * self.n_frequencies + len(self.linear) + any(g.kind == "constant" for g in self.groups)
        if self.n_basis_functions != expected:
            raise ValueError(f"codes must have {expected} rows, one per basis function, got {self.n_basis_functions}")
        self._require_magnitudes(
            {
                "limit": (self.limit, 32767),
                "phase_shift": (self.phase_shift, 31),
                "shifts of groups": ([g.shift for g in self.groups], 30),
                "linear_limit": ([self.linear_limit], 32767),
                "gains of groups": ([g.gain for g in self.groups], INT32_MAX),
            }
        )
        reach = self.largest_accumulators()
        return self._bounds_of(
            [("an accumulator", b) for b in reach],
            total=largest_total(self.groups, reach),
            rounding=max((2**g.shift >> 1 for g in self.groups), default=0),
            hint="fewer levels or feature_bits=8 make it smaller",
        )

    # --- reference

    def features(self, q: Integers) -> Integers:
        """Step 2: basis functions, (n_rows, n_basis_functions).

        Parameters
        ----------
        q : ndarray of int64 of shape (n_rows, n_inputs)
            Quantised inputs.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_basis_functions)
            Basis functions.
        """
        out = np.empty((len(q), self.n_basis_functions), dtype=np.int64)
        scaled = np.asarray(q, dtype=np.int64) << self.phase_shift.astype(np.int64)
        phase = scaled @ self.frequencies.T.astype(np.int64)
        n = 2 * self.n_frequencies
        out[:, 0:n:2] = turn_sine(phase + QUARTER, self.feature_bits)
        out[:, 1:n:2] = turn_sine(phase, self.feature_bits)
        for g in self.groups:
            if g.kind == "linear":
                linear = np.clip(q[:, self.inputs_of(g)], -self.linear_limit, self.linear_limit)
                if self.feature_bits == 8:
                    linear = np.clip(round_shift(linear, 8), -127, 127)
                out[:, g.begin : g.end] = linear
            elif g.kind == "constant":
                out[:, g.begin : g.end] = self.one
        return out

    def totals_of_features(self, phi: Integers) -> Integers:
        """Step 3: totals, (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        phi : ndarray of int64 of shape (n_rows, n_basis_functions)
            Basis functions.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        """
        total = np.zeros((len(phi), self.n_columns), dtype=np.int64)
        for g in self.groups:
            acc = phi[:, g.begin : g.end] @ self.weights[g.begin : g.end]
            total += g.gain * round_shift(acc, g.shift)
        return total.reshape(len(phi), self.n_outputs, self.n_samples)


def largest_total(groups: tuple[Group, ...], accumulators: list[int]) -> int:
    """Largest magnitude of a total, given those of the groups' accumulators.

    `round_shift` is monotone, so a bound on its argument gives one on its value.
    """
    return sum(abs(g.gain) * int(round_shift(b, g.shift)) for g, b in zip(groups, accumulators, strict=True))
