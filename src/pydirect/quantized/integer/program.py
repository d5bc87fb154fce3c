"""Integer programs: the definition of the integer arithmetic, which kernels, C and ONNX reproduce bit for bit.

A program maps a row of inputs to one integer per posterior sample, and these to a mean, a standard deviation and
intervals. Steps 2 and 3 differ for networks, see `pydirect.quantized.integer.network`; the other steps are shared.
Floating point occurs only where inputs enter (not at all when they are integers already) and in one scale and offset at
the very end. Throughout, ``round_shift(v, r)`` is v/2^r rounded to the nearest integer, halves away from zero, computed
on the magnitude so that no negative number is shifted: ``sign(v) · ((|v| + (2^r >> 1)) >> r)``.

1. Inputs. Input i of the program reads column ``columns[i]`` of the row:

   - from floats, all in single precision, each operation rounded: ``v = (x − origin_i) · multiplier_i``; v is clipped
     to ``±limit_i`` (``if !(v > −limit) v = −limit; if (v > limit) v = limit``, so that NaN gives −limit); then 0.5 is
     added, or subtracted when v < 0, and the fraction is dropped: ``q_i``, an int16 (an int32 for a network).
   - from integers (`RawInputs`): ``q_i = round_shift((r − origin_i) · multiplier_i + offset_i, shift_i)`` in int64,
     clipped to ``±limit_i``.

2. Basis functions, int16 or int8 (``feature_bits``), in this order. ONE is 32767 or 127.

   - Fourier features of each frequency f, cosine then sine. The phase is a fraction of a turn in an unsigned 32-bit
     integer, 2^32 = one turn, which wraps around:
     ``phase_f = Σ_i (frequencies[f, i] · q_i) << phase_shift_i mod 2^32``.
     The sine is `turn_sine` of the phase, the cosine that of ``phase + 2^30``.
   - Inputs: q_i for every i in ``linear``, clipped to ``±linear_limit``; with int8 features ``round_shift(q_i, 8)``,
     clipped to ±127.
   - The constant ONE, if there is one.

   `turn_sine`: the two highest bits are the quadrant, the other 30 the position p in it; in odd quadrants p becomes
   ``2^30 − 1 − p``. ``i = p >> 24`` is one of 64 intervals. int16: ``frac = (p >> 9) & 0x7FFF`` and the value is
   ``T[i] + (((T[i+1] − T[i]) · frac + 2^14) >> 15)`` with T[i] = round(32767 sin(i/64 · π/2)), 65 entries, ascending.
   int8: the value is ``T[i] = round(127 sin((i + ½)/64 · π/2))``, 64 entries. In quadrants 2 and 3 it is negated.

3. Sums. ``multipliers[code]`` is the integer that a code stands for. The basis functions form consecutive groups, each
   with its own unit. For every column (a sample of an output, column = output · n_samples + sample)
   ``acc_g = Σ_{j in g} φ_j · multipliers[code[j, column]]`` in int32, and
   ``total = Σ_g gain_g · round_shift(acc_g, shift_g)`` in int32. `Program.prove` proves from the codes that neither can
   overflow int32, whatever the inputs. Where multipliers are 0 and ± powers of two the product is a shift.

4. Moments over the S samples of an output: ``sum = Σ_s total_s`` in int64 and ``d_s = S · total_s − sum``. Then
   ``V = noise + Σ_s round_shift(d_s, deviation_shift)²`` in uint64, which is proved to stay below 2^63, and
   ``root = ⌊√V⌋``. The half-width of a central interval is ``(z · root + 2^15) >> 16`` with z = round(−2^16 Φ⁻¹((1 −
   level)/2)). A quantile p of the samples themselves: with the totals ascending, ``h = round(p 2^16) · (S − 1)``,
   i = h >> 16 and frac = h & 0xFFFF, it is ``total_i + (((total_{i+1} − total_i) · frac + 2^15) >> 16)``. The ends of a
   central interval of the samples have ``round(p 2^16) = round((1 − level)/2 · 2^16)`` and 2^16 minus that.

5. The last step, in double precision: ``mean = offset + scale · sum``, ``std = std_scale · root``, half-widths
   likewise, a sample's function ``offset + scale · S · total``. Exported C takes it in integers, see
   `pydirect.quantized.integer.fixed_point`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray
from pydirect.quantized.errors import AccumulatorOverflowError
from pydirect.quantized.integer.arithmetic import (
    INT32_MAX,
    Integers,
    gaussian_z,
    integer_sqrt,
    lower_quantile,
    round_shift,
)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the magnitudes of a program's sums, whatever its inputs.

    - `accumulators`: of ``acc_g``, per group; its partial sums in any order are no larger.
    - `total`: of ``total`` and its partial sums.
    - `squares`: of V.
    """

    accumulators: tuple[int, ...]
    total: int
    sum: int
    squares: int


@dataclass(frozen=True)
class Operations:
    """Number of operations per row, not counting the products with non-zero weights and their sums."""

    additions: int = 0
    multiplications: int = 0
    table_lookups: int = 0


@dataclass(frozen=True, kw_only=True)
class Program(ABC):
    """Base of integer programs: inputs, codes, and steps 1, 4 and 5 of the module's docstring.

    - `n_features_in`: columns of a row.
    - `columns`, int32 (n_inputs,): columns that are read.
    - `origin`, `multiplier`, float32 (n_inputs,).
    - `limit`, int32 (n_inputs,): at most 32767; for a network at most 2^30.
    - `codes`, uint8 (n_basis_functions, n_outputs · n_samples).
    - `multipliers`, int32 (n_levels,): at most 2^15 in magnitude.
    - `scale`, `offset`, (n_outputs,): applied to a sum over the samples.
    - `noise`, uint64 (n_outputs,).
    - `std_scale`, (n_outputs,).
    """

    n_features_in: int
    columns: NDArray[np.int32]
    origin: NDArray[np.float32]
    multiplier: NDArray[np.float32]
    limit: NDArray[np.int32]
    codes: NDArray[np.uint8]
    multipliers: NDArray[np.int32]
    n_outputs: int
    n_samples: int
    scale: FloatArray
    offset: FloatArray
    noise: NDArray[np.uint64]
    deviation_shift: int
    std_scale: FloatArray

    # --- shape

    @property
    def n_inputs(self) -> int:
        """Number of inputs that are read."""
        return len(self.columns)

    @property
    def n_columns(self) -> int:
        """Number of samples of all outputs."""
        return self.codes.shape[1]

    @cached_property
    def weights(self) -> Integers:
        """Integers that the codes stand for, (n_basis_functions, n_columns)."""
        return self.multipliers.astype(np.int64)[self.codes]

    @property
    def powers_of_two(self) -> bool:
        """Whether all multipliers are 0 or ± powers of two."""
        m = np.abs(self.multipliers)
        return bool(((m & (m - 1)) == 0).all())

    @property
    @abstractmethod
    def operations(self) -> Operations:
        """Operations per row except those of the weights."""

    # --- proof

    def prove(self) -> Bounds:
        """Prove that no sum can overflow, whatever the inputs, and return the bounds.

        Raises AccumulatorOverflowError when a sum could overflow, with its bound, or a constant of the program is out
        of range.

        Returns
        -------
        Bounds
            Largest magnitudes of the sums.
        """
        return self._bounds

    @cached_property
    @abstractmethod
    def _bounds(self) -> Bounds: ...

    def _require_magnitudes(self, numbers: dict[str, tuple[ArrayLike, int]]) -> None:
        """Raise unless the shared constants and those given by name, as (values, largest), are within range."""
        shared: dict[str, tuple[ArrayLike, int]] = {
            "deviation_shift": ([self.deviation_shift], 62),
            "multipliers": (self.multipliers, 2**15),
        }
        for name, (values, largest) in (shared | numbers).items():
            array = np.asarray(values, dtype=np.int64)
            found = max(int(array.max(initial=0)), -int(array.min(initial=0)))  # |-2^63| is no int64
            if found > largest:
                raise AccumulatorOverflowError(f"{name} must be at most {largest} in magnitude, got {found}")

    def _bounds_of(self, accumulators: list[tuple[str, int]], *, total: int, hint: str, rounding: int = 0) -> Bounds:
        """Check the bounds on named accumulators, on totals and on V.

        `rounding` is what a rounding shift adds to an accumulator beforehand.
        """
        sums = self.n_samples * total
        deviation = int(round_shift(2 * sums, self.deviation_shift))
        squares = self.n_samples * deviation**2 + int(self.noise.max(initial=0))
        for name, value, largest in (
            *((name, value + rounding, INT32_MAX) for name, value in accumulators),
            ("a total", total, INT32_MAX),
            ("the sum of squares", squares, 2**63 - 1),
        ):
            if value > largest:
                raise AccumulatorOverflowError(f"{name} must stay below {largest + 1}, but could reach {value}: {hint}")
        return Bounds(tuple(value for _, value in accumulators), total, sums, squares)

    # --- reference

    def quantise_inputs(self, X: ArrayLike) -> Integers:
        """Step 1 from floats: q of rows of X, (n_rows, n_inputs).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_inputs)
            Quantised inputs q.
        """
        with np.errstate(over="ignore"):  # single precision ends at 3e38; anything larger is clipped anyway
            x = np.asarray(X)[:, self.columns].astype(np.float32)
            v = (x - self.origin) * self.multiplier
        limit = self.limit.astype(np.float32)
        v = np.where(v > -limit, v, -limit)
        v = np.where(v > limit, limit, v)
        return np.trunc(v + np.where(v < 0, np.float32(-0.5), np.float32(0.5))).astype(np.int64)

    @abstractmethod
    def features(self, q: Integers) -> Integers:
        """Step 2: factors of the weights, (n_rows, n_basis_functions); for a network those of its first layer."""

    @abstractmethod
    def totals_of_features(self, phi: Integers) -> Integers:
        """Step 3: totals, (n_rows, n_outputs, n_samples)."""

    def in_range(self, q: Integers) -> NDArray[np.bool_]:
        """Whether nothing is clipped at rows of quantised inputs, (n_rows,).

        Parameters
        ----------
        q : ndarray of int64 of shape (n_rows, n_inputs)
            Quantised inputs.

        Returns
        -------
        ndarray of bool of shape (n_rows,)
            Whether nothing is clipped.
        """
        return np.asarray((np.abs(q) < self.limit).all(axis=1))

    def totals(self, X: ArrayLike) -> Integers:
        """Return the totals of steps 1 to 3 at rows of X, (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        """
        self.prove()  # so that int64 here and int32 elsewhere agree
        return self.totals_of_features(self.features(self.quantise_inputs(X)))

    def sums(self, totals: Integers) -> Integers:
        """Step 4: sums over the samples, (n_rows, n_outputs).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_outputs)
            Sums.
        """
        return totals.sum(axis=2)

    def roots(self, totals: Integers, *, noise: bool = True) -> NDArray[np.uint64]:
        """Step 4: ⌊√V⌋, (n_rows, n_outputs), optionally without the noise.

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        noise : bool, default=True
            Whether the noise counts too.

        Returns
        -------
        ndarray of uint64 of shape (n_rows, n_outputs)
            Roots.
        """
        deviation = self.n_samples * totals - self.sums(totals)[:, :, None]
        squares = (round_shift(deviation, self.deviation_shift) ** 2).sum(axis=2).astype(np.uint64)
        return integer_sqrt(squares + self.noise if noise else squares)

    def quantiles(self, totals: Integers, p: float) -> Integers:
        """Step 4: a quantile of the samples' totals, (n_rows, n_outputs).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        p : float
            Probability of values below the quantile.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_outputs)
            Quantiles.
        """
        ordered = np.sort(totals, axis=2)
        h = round(p * 2**16) * (self.n_samples - 1)
        i, frac = h >> 16, h & 0xFFFF
        above = ordered[:, :, min(i + 1, self.n_samples - 1)]
        return ordered[:, :, i] + (((above - ordered[:, :, i]) * frac + 2**15) >> 16)

    def quantile_interval(self, totals: Integers, level: float) -> tuple[Integers, Integers]:
        """Step 4: ends of a central interval of the samples' totals, (n_rows, n_outputs) each.

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        level : float
            Probability that an interval contains.

        Returns
        -------
        (ndarray, ndarray)
            Lower and upper ends.
        """
        low = lower_quantile(level) / 2**16
        return self.quantiles(totals, low), self.quantiles(totals, 1 - low)

    def half_widths(self, totals: Integers, level: float) -> NDArray[np.uint64]:
        """Step 4: half-widths of central Gaussian intervals, (n_rows, n_outputs).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        level : float
            Probability that an interval contains.

        Returns
        -------
        ndarray of uint64 of shape (n_rows, n_outputs)
            Half-widths.
        """
        return (np.uint64(gaussian_z(level)) * self.roots(totals) + np.uint64(2**15)) >> np.uint64(16)

    # --- last step

    def mean(self, totals: Integers) -> FloatArray:
        """Step 5: means, (n_rows, n_outputs).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            Means.
        """
        return self.offset + self.scale * self.sums(totals)

    def std(self, totals: Integers, *, noise: bool = True) -> FloatArray:
        """Step 5: standard deviations, (n_rows, n_outputs).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        noise : bool, default=True
            Whether the noise counts too.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            Standard deviations.
        """
        return self.std_scale * self.roots(totals, noise=noise).astype(np.float64)

    def interval(self, totals: Integers, level: float) -> tuple[FloatArray, FloatArray]:
        """Step 5: central intervals of a Gaussian with this mean and standard deviation, (n_rows, n_outputs) each.

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        level : float
            Probability that an interval contains.

        Returns
        -------
        (ndarray, ndarray)
            Lower and upper ends.
        """
        half = self.std_scale * self.half_widths(totals, level).astype(np.float64)
        mean = self.mean(totals)
        return mean - half, mean + half

    def function_quantiles(self, totals: Integers, p: float) -> FloatArray:
        """Step 5: a quantile of the samples' functions, without noise, (n_rows, n_outputs).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        p : float
            Probability of values below the quantile.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            Quantiles.
        """
        return self.offset + self.scale * self.n_samples * self.quantiles(totals, p)

    def function_interval(self, totals: Integers, level: float) -> tuple[FloatArray, FloatArray]:
        """Step 5: central intervals of the samples' functions, without noise, (n_rows, n_outputs) each.

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        level : float
            Probability that an interval contains.

        Returns
        -------
        (ndarray, ndarray)
            Lower and upper ends.
        """
        ends = self.quantile_interval(totals, level)
        first, second = (self.offset + self.scale * self.n_samples * end for end in ends)
        return np.minimum(first, second), np.maximum(first, second)

    def functions(self, totals: Integers) -> FloatArray:
        """Step 5: values of the samples' functions, (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        totals : ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs, n_samples)
            Values.
        """
        return self.offset[:, None] + (self.scale * self.n_samples)[:, None] * totals
