"""Inputs from a device's own integers: sensor counts to quantised inputs, without floating point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array
from pydirect.quantized.integer.arithmetic import Integers, round_shift
from pydirect.quantized.integer.program import Program


@dataclass(frozen=True)
class RawInputs:
    """Conversion of a device's own integers (sensor counts) to the program's inputs; step 1 of the arithmetic.

    Attributes
    ----------
    origin, multiplier, offset : ndarray of int32, shape (n_inputs,)
        At most 2^30 in magnitude, so that nothing exceeds 2^62 for any int32. The offset corrects for the rounding of
        the origin to a whole count.
    shift : ndarray of uint8, shape (n_inputs,)
        At most 45.
    limit : ndarray of int32, shape (n_inputs,)
    counts_per_unit, zero_count : ndarray of shape (n_features_in,)
    """

    origin: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    offset: NDArray[np.int32]
    shift: NDArray[np.uint8]
    limit: NDArray[np.int32]
    counts_per_unit: FloatArray
    zero_count: FloatArray

    @classmethod
    def of(cls, program: Program, counts_per_unit: ArrayLike, zero_count: ArrayLike = 0) -> RawInputs:
        """Derive the constants for counts ``r = zero_count + counts_per_unit · x`` of every input of the program.

        Before it is rounded, q differs by at most 2^-13 from its value for this x in real numbers, for a network by at
        most 2.

        Parameters
        ----------
        program : Program
            The integer program.
        counts_per_unit : array_like of shape (n_features_in,) or numbers
            Counts per unit of every column.
        zero_count : array_like of shape (n_features_in,) or numbers, default=0
            Count at zero of every column.

        Raises
        ------
        ValueError
            When they are not finite or have another shape, the counts do not fit into 31 bits, or one count is more
            than the range of an input.
        """
        d = program.n_features_in
        gains, zeros = (
            _for_every_input(counts_per_unit, "counts_per_unit", d),
            _for_every_input(zero_count, "zero_count", d),
        )
        gain, zero = gains[program.columns], zeros[program.columns]
        if (gain == 0).any():
            raise ValueError(f"counts_per_unit must not be zero for an input that the model reads, got {gain}")
        exact = zero + gain * program.origin.astype(np.float64)
        slope = program.multiplier.astype(np.float64) / gain  # units of q per count
        origin, reach = np.rint(exact), np.ceil((program.limit + 1.0) / np.abs(slope)) + 1
        if (fine := program.columns[~(np.abs(origin) + reach <= 2**30)]).size:
            raise ValueError(f"counts of column {fine[0]} must fit into 31 bits over its range; divide them beforehand")
        if (coarse := program.columns[np.abs(slope) > np.minimum(2.0 * program.limit, 2.0**30)]).size:
            raise ValueError(f"counts_per_unit must be larger: one count is more than the range of column {coarse[0]}")
        shift = np.floor(np.log2(2**30 / np.abs(slope)))
        return cls(
            origin.astype(np.int32),
            np.rint(slope * 2.0**shift).astype(np.int32),
            np.rint((origin - exact) * slope * 2.0**shift).astype(np.int32),
            shift.astype(np.uint8),
            program.limit,
            gains,
            zeros,
        )

    def counts(self, rows: FloatArray) -> NDArray[np.int32]:
        """Return the counts of rows of X, as far as 32 bits hold them, (n_rows, n_features_in).

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features_in)
            Rows of X.

        Returns
        -------
        ndarray of int32 of shape (n_rows, n_features_in)
            Counts.
        """
        exact = np.rint(self.zero_count + self.counts_per_unit * rows)
        return np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)

    def quantise(self, counts: ArrayLike) -> Integers:
        """Return q of counts (n_rows, n_inputs), by step 1.

        Parameters
        ----------
        counts : array_like of shape (n_rows, n_inputs)
            Counts.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_inputs)
            Quantised inputs q.
        """
        t = (np.asarray(counts, dtype=np.int64) - self.origin) * self.multiplier + self.offset
        return np.clip(round_shift(t, self.shift.astype(np.int64)), -self.limit, self.limit)


def _for_every_input(values: ArrayLike, name: str, d: int) -> FloatArray:
    return np.broadcast_to(as_float_array(values, name, (d,) if np.ndim(values) else ()), (d,))
