"""The integer arithmetic of a quantised model, defined once: compiled kernels and exported code give the same integers.

A program takes a row of inputs to one integer for every posterior sample, and these to a mean, a standard deviation and
intervals. Networks have steps 2 and 3 of their own, in `pydirect.quantized.integer.network`; the others are shared.
Floating point occurs where inputs enter (not at all when they are integers already) and in one scale and offset at the
very end. Throughout, ``round_shift(v, r)`` is v/2^r rounded to the nearest integer, halves away from zero, done on the
magnitude so that no negative number is shifted: ``sign(v) · ((|v| + (2^r >> 1)) >> r)``.

1. Inputs, for each input i of the program, which reads column ``columns[i]`` of the row:

   - from floats, all in single precision, each operation rounded: ``v = (x − origin_i) · multiplier_i``; v is cut off
     at ``±limit_i`` (``if !(v > −limit) v = −limit; if (v > limit) v = limit``, so that NaN gives −limit); then 0.5 is
     added, or subtracted when v < 0, and the fraction is dropped: ``q_i``, an int16 (of a network an int32).
   - from integers (`RawInputs`): ``t = r − origin_i`` cut off at ``±reach_i``, ``q_i = round_shift(t · multiplier_i +
     offset_i, shift_i)`` in int64, cut off at ``±limit_i``.

2. Basis functions, int16 or int8 (``feature_bits``), in this order. ONE is 32767 or 127.

   - Fourier features of each frequency f, cosine then sine. The phase is a fraction of a turn in an unsigned 32-bit
     integer, 2^32 = one turn, which wraps around:
     ``phase_f = Σ_i (frequencies[f, i] · q_i) << phase_shift_i mod 2^32``.
     The sine is `turn_sine` of the phase, the cosine that of ``phase + 2^30``.
   - Inputs: q_i for every i in ``linear``, cut off at ``±linear_limit``; with int8 features ``round_shift(q_i, 8)``,
     cut off at ±127.
   - The constant ONE, when there is one.

   `turn_sine`: the two highest bits are the quadrant, the other 30 the position p in it; in odd quadrants p becomes
   ``2^30 − 1 − p``. ``i = p >> 24`` is one of 64 intervals. int16: ``frac = (p >> 9) & 0x7FFF`` and the value is
   ``T[i] + (((T[i+1] − T[i]) · frac + 2^14) >> 15)`` with T[i] = round(32767 sin(i/64 · π/2)), 65 entries, ascending.
   int8: the value is ``T[i] = round(127 sin((i + ½)/64 · π/2))``, 64 entries. In quadrants 2 and 3 it is negated.

3. Sums. ``multipliers[code]`` is the integer that a code stands for. The basis functions fall into consecutive groups,
   each with a unit of its own. For every column (a sample of an output, column = output · n_samples + sample)
   ``acc_g = Σ_{j in g} φ_j · multipliers[code[j, column]]`` in int32, and
   ``total = Σ_g gain_g · round_shift(acc_g, shift_g)`` in int32. `IntegerProgram.bounds` proves from the codes that
   neither can leave int32, whatever the inputs. Where multipliers are 0 and ± powers of two the product is a shift.

4. Moments over the S samples of an output: ``sum = Σ_s total_s`` in int64 and ``d_s = S · total_s − sum``. Then
   ``V = noise + Σ_s round_shift(d_s, deviation_shift)²`` in uint64, which the bounds prove to stay below 2^63, and
   ``root = ⌊√V⌋``. The half-width of a central interval is ``(z · root + 2^15) >> 16`` with z = round(−2^16 Φ⁻¹((1 −
   level)/2)). A quantile p of the samples themselves: with the totals ascending, ``h = round(p 2^16) · (S − 1)``,
   i = h >> 16 and frac = h & 0xFFFF, it is ``total_i + (((total_{i+1} − total_i) · frac + 2^15) >> 16)``. The ends of a
   central interval of the samples have ``round(p 2^16) = round((1 − level)/2 · 2^16)`` and 2^16 less that.

5. The last step, in double precision: ``mean = offset + scale · sum``, ``std = std_scale · root``, half-widths
   likewise, a sample's function ``offset + scale · S · total``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array

Integers = NDArray[np.int64]
INT32_MAX = 2**31 - 1
QUARTER = 2**30
ONE = {8: 127, 16: 32767}
SINE_TABLES: dict[int, NDArray[Any]] = {
    8: np.rint(127 * np.sin((np.arange(64) + 0.5) / 64 * np.pi / 2)).astype(np.int8),
    16: np.rint(32767 * np.sin(np.arange(65) / 64 * np.pi / 2)).astype(np.int16),
}
# Largest error of `turn_sine` against sin, in units of one. int16: linear interpolation, (π/128)²/8; the phase's lowest
# nine bits, which are dropped; rounding of the table and of the interpolation. int8: half an interval, and rounding.
SINE_ERROR = {8: np.pi / 256 + 0.5 / 127, 16: (np.pi / 128) ** 2 / 8 + 2 * np.pi * 2.0**-23 + 1.0 / 32767}


class AccumulatorOverflowError(ValueError):
    """A sum of the integer arithmetic could leave its type."""


def half_width(level: float) -> float:
    """Return a central Gaussian interval's half-width in standard deviations; exact for levels next to one, too."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def gaussian_z(level: float) -> int:
    """65536 times the standard deviations of a central Gaussian interval's half-width, rounded."""
    return round(2**16 * half_width(level))


def lower_quantile(level: float) -> int:
    """65536 times the probability below a central interval, rounded."""
    return round(2**16 * (1 - level) / 2)


def round_shift(v: Any, shift: Any) -> Any:
    """Return v/2^shift rounded to the nearest integer, halves away from zero."""
    return np.sign(v) * ((np.abs(v) + (2**shift >> 1)) >> shift)


def smallest_integers(values: ArrayLike) -> NDArray[Any]:
    """Return integers in the smallest signed type that holds them."""
    array = np.asarray(values, dtype=np.int64)
    for dtype in (np.int8, np.int16):
        if np.array_equal(array.astype(dtype), array):
            return array.astype(dtype)
    return array.astype(np.int32)


def turn_sine(phase: Integers, feature_bits: int) -> Integers:
    """Sine of phases in 2^-32 turns, in units of 1/ONE, from the quarter-wave table."""
    phase = np.asarray(phase, dtype=np.int64) & 0xFFFFFFFF
    quadrant, p = phase >> 30, phase & (QUARTER - 1)
    p = np.where(quadrant & 1, QUARTER - 1 - p, p)
    table, i = SINE_TABLES[feature_bits].astype(np.int64), p >> 24
    if feature_bits == 16:
        value = table[i] + (((table[i + 1] - table[i]) * ((p >> 9) & 0x7FFF) + 2**14) >> 15)
    else:
        value = table[i]
    return np.where(quadrant & 2, -value, value)


def integer_sqrt(v: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """⌊√v⌋ for v below 2^63."""
    root = np.sqrt(v.astype(np.float64)).astype(np.uint64)
    root -= root * root > v  # a double holds 53 bits: the root is at most one too large
    return root + ((root + np.uint64(1)) ** 2 <= v)


@dataclass(frozen=True)
class RawInputs:
    """How a device's own integers, sensor counts say, become the program's inputs; see step 1.

    Attributes
    ----------
    origin, reach : ndarray of int32, shape (n_inputs,)
        ``|origin| + reach`` is at most 2^30.
    multiplier, offset : ndarray of int32, shape (n_inputs,)
        At most 2^30 in magnitude. The offset is what the origin's rounding to a whole count leaves.
    shift : ndarray of uint8, shape (n_inputs,)
        At most 45, so that nothing exceeds 2^61.
    limit : ndarray of int32, shape (n_inputs,)
    """

    origin: NDArray[np.int32]
    reach: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    offset: NDArray[np.int32]
    shift: NDArray[np.uint8]
    limit: NDArray[np.int32]

    @classmethod
    def of(cls, program: Program, counts_per_unit: ArrayLike, zero_count: ArrayLike = 0) -> RawInputs:
        """Return the constants for counts ``r = zero_count + counts_per_unit · x`` of every input of the program.

        Before it is rounded, q is within 2^-13 of what it is for this x in real numbers, of a network within 2.

        Parameters
        ----------
        program : Program
        counts_per_unit, zero_count : array_like of shape (n_features_in,) or numbers

        Raises
        ------
        ValueError
            When they are not finite, not of this shape, the counts do not fit into 31 bits, or one count is more than
            the inputs' range.
        """
        d = program.n_features_in
        gain = _for_every_input(counts_per_unit, "counts_per_unit", d)[program.columns]
        zero = _for_every_input(zero_count, "zero_count", d)[program.columns]
        if (gain == 0).any():
            raise ValueError(f"counts_per_unit must not be zero for an input that the model reads, got {gain}")
        exact = zero + gain * program.origin.astype(np.float64)
        slope = program.multiplier.astype(np.float64) / gain  # units of q a count
        origin, reach = np.rint(exact), np.ceil((program.limit + 1.0) / np.abs(slope)) + 1
        if (fine := program.columns[~(np.abs(origin) + reach <= 2**30)]).size:
            raise ValueError(f"counts of column {fine[0]} must fit into 31 bits over its range; divide them beforehand")
        if (coarse := program.columns[np.abs(slope) > np.minimum(2.0 * program.limit, 2.0**30)]).size:
            raise ValueError(f"counts_per_unit must be larger: a count is more than the range of column {coarse[0]}")
        shift = np.floor(np.log2(2**30 / np.abs(slope)))
        return cls(
            origin.astype(np.int32),
            reach.astype(np.int32),
            np.rint(slope * 2.0**shift).astype(np.int32),
            np.rint((origin - exact) * slope * 2.0**shift).astype(np.int32),
            shift.astype(np.uint8),
            program.limit,
        )

    def quantise(self, counts: ArrayLike) -> Integers:
        """Return q of counts (n_rows, n_inputs), by step 1."""
        t = np.asarray(counts, dtype=np.int64) - self.origin
        t = np.clip(t, -self.reach.astype(np.int64), self.reach) * self.multiplier + self.offset
        return np.clip(round_shift(t, self.shift.astype(np.int64)), -self.limit, self.limit)


def _for_every_input(values: ArrayLike, name: str, d: int) -> FloatArray:
    return np.broadcast_to(as_float_array(values, name, (d,) if np.ndim(values) else ()), (d,))


@dataclass(frozen=True)
class Group:
    """Consecutive basis functions of one unit.

    Attributes
    ----------
    kind : {"fourier", "linear", "constant"}
    begin, end : int
        Basis functions.
    gain, shift : int
        Step 3.
    """

    kind: str
    begin: int
    end: int
    gain: int = 1
    shift: int = 0


@dataclass(frozen=True)
class Bounds:
    """Largest magnitudes that the sums of a program can reach, whatever its inputs.

    Attributes
    ----------
    accumulators : tuple of int
        Of ``acc_g``, for every group; its partial sums in any order are no larger.
    total : int
        Of ``total`` and its partial sums.
    sum : int
    squares : int
        Of V.
    """

    accumulators: tuple[int, ...]
    total: int
    sum: int
    squares: int


@dataclass(frozen=True)
class Operations:
    """Operations a row, but for the products of weights that are not zero and their sums."""

    additions: int = 0
    multiplications: int = 0
    table_lookups: int = 0


@dataclass(frozen=True, kw_only=True)
class Program:
    """What all models in integers share: inputs, codes, and steps 1, 4 and 5 of the module's docstring.

    Attributes
    ----------
    n_features_in : int
        Columns of a row.
    columns : ndarray of int32, shape (n_inputs,)
        Columns that are read.
    origin, multiplier : ndarray of float32, shape (n_inputs,)
    limit : ndarray of int32, shape (n_inputs,)
        At most 32767; of a network at most 2^30.
    codes : ndarray of uint8, shape (n_features, n_outputs · n_samples)
    multipliers : ndarray of int32, shape (n_levels,)
        At most 2^15 in magnitude.
    n_outputs, n_samples : int
    scale, offset : ndarray of float64, shape (n_outputs,)
        Of a sum over the samples.
    noise : ndarray of uint64, shape (n_outputs,)
    deviation_shift : int
    std_scale : ndarray of float64, shape (n_outputs,)
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
        """Inputs that are read."""
        return len(self.columns)

    @property
    def n_columns(self) -> int:
        """Samples of all outputs."""
        return self.codes.shape[1]

    @cached_property
    def weights(self) -> Integers:
        """Integers that the codes stand for, (n_features, n_columns)."""
        return self.multipliers.astype(np.int64)[self.codes]

    @property
    def powers_of_two(self) -> bool:
        """Whether all multipliers are 0 or ± powers of two."""
        m = np.abs(self.multipliers)
        return bool(((m & (m - 1)) == 0).all())

    @property
    def operations(self) -> Operations:
        """Operations a row of all but the weights."""
        raise NotImplementedError

    # --- proof

    @property
    def bounds(self) -> Bounds:
        """Prove that no sum leaves its type.

        Raises
        ------
        AccumulatorOverflowError
            When one could, with the bound, or a number of the program leaves its type.
        """
        raise NotImplementedError

    def _require_magnitudes(self, *numbers: tuple[str, ArrayLike, int]) -> None:
        """Raise unless numbers of the program, those of all and those given here, are at most so large."""
        shared = (
            ("deviation_shift", [self.deviation_shift], 62),
            ("multipliers", self.multipliers, 2**15),
        )
        for name, values, largest in (*shared, *numbers):
            array = np.asarray(values, dtype=np.int64)
            found = max(int(array.max(initial=0)), -int(array.min(initial=0)))  # |-2^63| is no int64
            if found > largest:
                raise AccumulatorOverflowError(f"{name} must be at most {largest} in magnitude, got {found}")

    def _proved(self, accumulators: Sequence[tuple[str, int]], total: int, rounding: int, hint: str) -> Bounds:
        """Return bounds, given those of named accumulators and what rounding adds to them before a shift."""
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
        """Step 1 from floats: q of rows of X, (n_rows, n_inputs)."""
        with np.errstate(over="ignore"):  # single precision ends at 3e38; what is beyond is cut off anyway
            x = np.asarray(X)[:, self.columns].astype(np.float32)
            v = (x - self.origin) * self.multiplier
        limit = self.limit.astype(np.float32)
        v = np.where(v > -limit, v, -limit)
        v = np.where(v > limit, limit, v)
        return np.trunc(v + np.where(v < 0, np.float32(-0.5), np.float32(0.5))).astype(np.int64)

    def features(self, q: Integers) -> Integers:
        """Step 2: what the weights of the program are multiplied with first, (n_rows, n_features)."""
        raise NotImplementedError

    def totals_of_features(self, phi: Integers) -> Integers:
        """Step 3: totals, (n_rows, n_outputs, n_samples)."""
        raise NotImplementedError

    def in_range(self, q: Integers) -> NDArray[np.bool_]:
        """Tell the rows of quantised inputs where nothing is cut off, (n_rows,)."""
        return np.asarray((np.abs(q) < self.limit).all(axis=1))

    def totals(self, X: ArrayLike) -> Integers:
        """Return the totals of rows of X, (n_rows, n_outputs, n_samples)."""
        self.bounds  # noqa: B018 (proves that int64 here and int32 there agree)
        return self.totals_of_features(self.features(self.quantise_inputs(X)))

    def sums(self, totals: Integers) -> Integers:
        """Step 4: sums over the samples, (n_rows, n_outputs)."""
        return totals.sum(axis=2)

    def roots(self, totals: Integers, *, noise: bool = True) -> NDArray[np.uint64]:
        """Step 4: ⌊√V⌋, (n_rows, n_outputs); without the noise on request."""
        deviation = self.n_samples * totals - self.sums(totals)[:, :, None]
        squares = (round_shift(deviation, self.deviation_shift) ** 2).sum(axis=2).astype(np.uint64)
        return integer_sqrt(squares + self.noise if noise else squares)

    def quantiles(self, totals: Integers, p: float) -> Integers:
        """Step 4: a quantile of the samples' totals, (n_rows, n_outputs)."""
        ordered = np.sort(totals, axis=2)
        h = round(p * 2**16) * (self.n_samples - 1)
        i, frac = h >> 16, h & 0xFFFF
        above = ordered[:, :, min(i + 1, self.n_samples - 1)]
        return ordered[:, :, i] + (((above - ordered[:, :, i]) * frac + 2**15) >> 16)

    def quantile_interval(self, totals: Integers, level: float) -> tuple[Integers, Integers]:
        """Step 4: the ends of a central interval of the samples' totals, (n_rows, n_outputs) each."""
        low = lower_quantile(level) / 2**16
        return self.quantiles(totals, low), self.quantiles(totals, 1 - low)

    # --- last step

    def mean(self, totals: Integers) -> FloatArray:
        """Step 5: means, (n_rows, n_outputs)."""
        return self.offset + self.scale * self.sums(totals)

    def std(self, totals: Integers, *, noise: bool = True) -> FloatArray:
        """Step 5: standard deviations, (n_rows, n_outputs)."""
        return self.std_scale * self.roots(totals, noise=noise).astype(np.float64)

    def interval(self, totals: Integers, level: float) -> tuple[FloatArray, FloatArray]:
        """Step 5: central intervals of a Gaussian with this mean and standard deviation, (n_rows, n_outputs) each."""
        z = np.uint64(gaussian_z(level))
        half = self.std_scale * ((z * self.roots(totals) + np.uint64(2**15)) >> np.uint64(16)).astype(np.float64)
        mean = self.mean(totals)
        return mean - half, mean + half

    def function_interval(self, totals: Integers, level: float) -> tuple[FloatArray, FloatArray]:
        """Step 5: central intervals of the samples' functions, noise left out, (n_rows, n_outputs) each."""
        first, second = (
            self.offset + self.scale * self.n_samples * end for end in self.quantile_interval(totals, level)
        )
        return np.minimum(first, second), np.maximum(first, second)

    def functions(self, totals: Integers) -> FloatArray:
        """Step 5: values of the samples' functions, (n_rows, n_outputs, n_samples)."""
        return self.offset[:, None] + (self.scale * self.n_samples)[:, None] * totals


@dataclass(frozen=True, kw_only=True)
class IntegerProgram(Program):
    """A model that is linear in basis functions, in integers alone.

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
        """Frequencies: half the number of Fourier features."""
        return len(self.frequencies)

    @property
    def n_features(self) -> int:
        """Basis functions."""
        return self.codes.shape[0]

    @property
    def one(self) -> int:
        """Integer that stands for one in basis functions."""
        return ONE[self.feature_bits]

    @property
    def operations(self) -> Operations:
        """Operations a row of all but the weights."""
        interpolations = 2 * self.n_frequencies if self.feature_bits == 16 else 0
        common = self.n_frequencies * self.n_inputs + len(self.groups) * self.n_columns
        return Operations(
            additions=common + 3 * interpolations,
            multiplications=common + interpolations + self.n_inputs,
            table_lookups=2 * self.n_frequencies + interpolations,
        )

    def inputs_of(self, group: Group) -> NDArray[np.int32]:
        """Return the inputs that a group of linear basis functions consists of."""
        first = 2 * self.n_frequencies
        return self.linear[group.begin - first : group.end - first]

    def largest_features(self) -> Integers:
        """Largest magnitude of every basis function, (n_features,)."""
        out = np.full(self.n_features, self.one, dtype=np.int64)
        for g in self.groups:
            if g.kind == "linear":
                limit = np.minimum(self.limit[self.inputs_of(g)], self.linear_limit).astype(np.int64)
                out[g.begin : g.end] = limit if self.feature_bits == 16 else np.minimum(round_shift(limit, 8), 127)
        return out

    # --- proof

    @cached_property
    def bounds(self) -> Bounds:
        """Prove that no sum leaves its type; see `Program.bounds`."""
        self._require_magnitudes(
            ("limit", self.limit, 32767),
            ("phase_shift", self.phase_shift, 31),
            ("shifts of groups", [g.shift for g in self.groups], 30),
            ("linear_limit", [self.linear_limit], 32767),
            ("gains of groups", [g.gain for g in self.groups], INT32_MAX),
        )
        terms = np.abs(self.weights) * self.largest_features()[:, None]
        reach = [int(terms[g.begin : g.end].sum(axis=0).max(initial=0)) for g in self.groups]
        # round_shift is monotone, so that the bound of what goes in gives that of what comes out.
        total = sum(abs(g.gain) * int(round_shift(b, g.shift)) for g, b in zip(self.groups, reach, strict=True))
        rounding = max((2**g.shift >> 1 for g in self.groups), default=0)
        named = [("an accumulator", b) for b in reach]
        return self._proved(named, total, rounding, "fewer levels or feature_bits=8 make it smaller")

    # --- reference

    def features(self, q: Integers) -> Integers:
        """Step 2: basis functions, (n_rows, n_features)."""
        out = np.empty((len(q), self.n_features), dtype=np.int64)
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
        """Step 3: totals, (n_rows, n_outputs, n_samples)."""
        total = np.zeros((len(phi), self.n_columns), dtype=np.int64)
        for g in self.groups:
            acc = phi[:, g.begin : g.end] @ self.weights[g.begin : g.end]
            total += g.gain * round_shift(acc, g.shift)
        return total.reshape(len(phi), self.n_outputs, self.n_samples)
