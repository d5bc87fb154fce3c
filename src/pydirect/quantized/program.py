"""Integer programs: the definition of the integer arithmetic, which kernels, C and ONNX reproduce bit for bit.

A program maps a row of inputs to one integer per posterior sample, and these to a mean, a standard deviation and
intervals.
Floating point occurs only where inputs enter (not at all when they are integers already) and in one scale and offset at
the very end. Throughout, ``round_shift(v, r)`` is v/2^r rounded to the nearest integer, halves away from zero, computed
on the magnitude so that no negative number is shifted: ``sign(v) · ((|v| + (2^r >> 1)) >> r)``.

1. Inputs. Input i of the program reads column ``columns[i]`` of the row:

   - from floats, all in single precision, each operation rounded: ``v = (x − origin_i) · multiplier_i``; v is clipped
     to ``±limit_i`` (``if !(v > −limit) v = −limit; if (v > limit) v = limit``, so that NaN gives −limit); then 0.5 is
     added, or subtracted when v < 0, and the fraction is dropped: ``q_i``, an int16.
   - from integers (`RawInputs`): ``q_i = round_shift((r − origin_i) · multiplier_i + offset_i, shift_i)`` in int64,
     clipped to ``±limit_i``.

2. Basis functions, int16, in this order. ONE is 32767.

   - Fourier features of each frequency f, cosine then sine. The phase is a fraction of a turn in an unsigned 32-bit
     integer, 2^32 = one turn, which wraps around:
     ``phase_f = Σ_i (frequencies[f, i] · q_i) << phase_shift_i mod 2^32``.
     The sine is `turn_sine` of the phase, the cosine that of ``phase + 2^30``.
   - Leaves of the trees of a forest, 0 or 1, tree by tree. A tree has ``depth`` levels; the bit of a level is one if
     ``q_i > threshold`` for the input and the threshold of the level's split, and the bits, the first level's the
     highest, are the number of the leaf that is 1.
   - Inputs: q_i for every i in ``linear``, clipped to ``±linear_limit``.
   - The constant ONE, if there is one.

   `turn_sine`: the two highest bits are the quadrant, the other 30 the position p in it; in odd quadrants p becomes
   ``2^30 − 1 − p``. ``i = p >> 24`` is one of 64 intervals and ``frac = (p >> 9) & 0x7FFF``; the value is ``T[i] +
   (((T[i+1] − T[i]) · frac + 2^14) >> 15)`` with T[i] = round(32767 sin(i/64 · π/2)), 65 entries, ascending. In
   quadrants 2 and 3 it is negated.

3. Sums. ``multipliers[code]`` is the integer that a code stands for. The basis functions form consecutive groups, each
   with its own unit. For every column (a sample of an output, column = output · n_samples + sample)
   ``acc_g = Σ_{j in g} φ_j · multipliers[code[j, column]]`` in int32, and
   ``total = Σ_g gain_g · round_shift(acc_g, shift_g)`` in int32. `prove` proves from the codes that neither can
   overflow int32, whatever the inputs. Where multipliers are 0 and ± powers of two the product is a shift.

4. Moments over the S samples of an output: ``sum = Σ_s total_s`` in int64 and ``d_s = S · total_s − sum``. Then
   ``V = noise + Σ_s round_shift(d_s, deviation_shift)²`` in uint64, which is proved to stay below 2^63, and
   ``root = ⌊√V⌋``. The half-width of a central interval is ``(z · root + 2^15) >> 16`` with z = round(−2^16 Φ⁻¹((1 −
   level)/2)). A quantile p of the samples themselves: with the totals ascending, ``h = round(p 2^16) · (S − 1)``,
   i = h >> 16 and frac = h & 0xFFFF, it is ``total_i + (((total_{i+1} − total_i) · frac + 2^15) >> 16)``. The ends of a
   central interval of the samples have ``round(p 2^16) = round((1 − level)/2 · 2^16)`` and 2^16 minus that.

5. The last step, in double precision: ``mean = offset + scale · sum``, ``std = std_scale · root``, half-widths
   likewise, a sample's function ``offset + scale · S · total``. Exported C takes it in integers, see
   `pydirect.quantized.device`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._validation import FloatArray


class IntegerArithmeticError(ValueError):
    """A model has no integer-only form; the message names a similar model that has one."""


class IntegerArithmeticWarning(UserWarning):
    """Integer arithmetic clips inputs or changes predictions at rows of X; the message says where and what helps."""


class AccumulatorOverflowError(ValueError):
    """A sum of the integer arithmetic could overflow its type."""


Integers = NDArray[np.int64]
INT32_MAX = 2**31 - 1
QUARTER = 2**30
LARGEST_ROOT = 3_037_000_499  # of an int64
ONE = 32767
SINE_TABLE = np.rint(32767 * np.sin(np.arange(65) / 64 * np.pi / 2)).astype(np.int16)
# Largest error of `turn_sine` against sin, in units of one: linear interpolation, (π/128)²/8; the phase's lowest nine
# bits, which are dropped; rounding of the table and of the interpolation.
SINE_ERROR = (np.pi / 128) ** 2 / 8 + 2 * np.pi * 2.0**-23 + 1.0 / 32767


def half_width(level: float) -> float:
    """Half-width of a central Gaussian interval in standard deviations; accurate for levels close to one."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def gaussian_z(level: float) -> int:
    """Half-width of a central Gaussian interval in standard deviations, times 65536 and rounded."""
    return round(2**16 * half_width(level))


def lower_quantile(level: float) -> int:
    """Probability below a central interval, times 65536 and rounded."""
    return round(2**16 * (1 - level) / 2)


def round_shift(v: Any, shift: Any) -> Any:
    """Return v/2^shift rounded to the nearest integer, halves away from zero."""
    return np.sign(v) * ((np.abs(v) + (2**shift >> 1)) >> shift)


def smallest_integers(values: ArrayLike) -> NDArray[Any]:
    """Convert integers to the smallest signed type that holds them all."""
    array = np.asarray(values, dtype=np.int64)
    for dtype in (np.int8, np.int16):
        if np.array_equal(array.astype(dtype), array):
            return array.astype(dtype)
    return array.astype(np.int32)


def entries(table: NDArray[Any], index: Any) -> Any:
    """Return entries of a table; `index` is an array or a value of a graph."""
    return table[index] if isinstance(index, np.ndarray) else index.entries_of(table)


def turn_sine(phase: Any) -> Any:
    """Sine of phases in units of 2^-32 turns, in units of 1/ONE, from the quarter-wave table."""
    phase = phase & 0xFFFFFFFF
    quadrant, p = phase >> 30, phase & (QUARTER - 1)
    p = np.where(quadrant & 1, QUARTER - 1 - p, p)
    table, i = SINE_TABLE.astype(np.int64), p >> 24
    value = entries(table, i)
    value = value + ((entries(np.diff(table), i) * ((p >> 9) & 0x7FFF) + 2**14) >> 15)
    return np.where(quadrant & 2, -value, value)


def integer_sqrt(v: Any) -> Any:
    """⌊√v⌋ for int64 v."""
    root = np.minimum(np.floor(np.sqrt(v.astype(np.float64))).astype(np.int64), LARGEST_ROOT)
    root = root - (root * root > v)  # a double holds 53 bits: the root is off by one at most
    return root + (v - root * root > root * 2)


BLOCK_ROWS = 256  # basis functions of a block stay in the cache


@dataclass(frozen=True)
class Bounds:
    """Bounds on the magnitudes of a program's sums, whatever its inputs."""

    # of ``acc_g``, per group; its partial sums in any order are no larger
    accumulators: tuple[int, ...]
    # of ``total`` and its partial sums
    total: int
    sum: int
    # of V
    squares: int


class Results(ABC):
    """Step 5: results (n_rows, n_outputs) from totals (n_rows, n_outputs, n_samples), as numbers or in fixed point."""

    program: IntegerProgram

    @abstractmethod
    def value(self, sums: Integers, factor: int = 1) -> NDArray[Any]:
        """Return ``offset + scale · factor · sums``."""

    @abstractmethod
    def width(self, widths: Integers) -> NDArray[Any]:
        """Return ``std_scale · widths``."""

    def mean(self, totals: Integers) -> NDArray[Any]:
        """Means."""
        return self.value(self.program.sums(totals))

    def std(self, totals: Integers) -> NDArray[Any]:
        """Return standard deviations, noise included."""
        return self.width(self.program.roots(totals))

    def interval(self, totals: Integers, level: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Central intervals of a Gaussian with this mean and standard deviation."""
        mean, half = self.mean(totals), self.width(self.program.half_widths(totals, level))
        return mean - half, mean + half

    def function_quantiles(self, totals: Integers, p: float) -> NDArray[Any]:
        """Quantiles of the samples' functions, without noise."""
        return self.value(self.program.quantiles(totals, p), self.program.n_samples)

    def function_interval(self, totals: Integers, level: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Central intervals of the samples' functions, without noise."""
        low = lower_quantile(level) / 2**16
        first, second = (self.function_quantiles(totals, p) for p in (low, 1 - low))
        return np.minimum(first, second), np.maximum(first, second)

    def missing(self, totals: Integers) -> FloatArray:
        """Return the variance beyond that of the samples and the noise, (1, n_outputs): integers have none."""
        return np.zeros((1, self.program.n_outputs))

    def functions(self, totals: Any) -> Any:
        """Values of the samples' functions, (n_rows, n_outputs, n_samples)."""
        values = self.value(np.transpose(totals, (2, 0, 1)), self.program.n_samples)
        return np.transpose(values, (1, 2, 0))


@dataclass(frozen=True)
class Group:
    """Consecutive basis functions with a common unit."""

    # {"fourier", "leaves", "linear", "constant"}
    kind: str
    # begin, end: range of basis functions
    begin: int
    end: int
    # gain, shift: see step 3
    gain: int = 1
    shift: int = 0


@dataclass(frozen=True)
class Forest:
    """Trees of an integer program: a table of splits, and the splits of every tree's levels."""

    # int32 (n_splits,): input that is compared; `thresholds`, int16 or int8
    inputs: NDArray[np.int32]
    thresholds: NDArray[Any]
    # uint8 or uint16 (n_trees, depth)
    splits: NDArray[Any]

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return len(self.splits) << self.splits.shape[1]

    def leaves(self, q: Any) -> Any:
        """Return the leaves, (n_rows, n_leaves), one per tree 1 and the others 0."""
        n_trees, depth = self.splits.shape
        at = self.splits.ravel().astype(np.intp)
        right = np.take(q, self.inputs[at], axis=1) > self.thresholds[at].astype(np.int64)
        bits = np.reshape(right.astype(np.int64), (-1, n_trees, depth))
        leaf = np.sum(bits * (1 << np.arange(depth, dtype=np.int64)[::-1]), axis=2)
        chosen = leaf[:, :, None] == np.arange(1 << depth, dtype=np.int64)
        return np.reshape(chosen.astype(np.int64), (-1, self.n_leaves))


@dataclass(frozen=True, kw_only=True)
class IntegerProgram(Results):
    """Integer program of a model that is linear in basis functions; the module's docstring is its definition."""

    # columns of a row
    n_features_in: int
    # int32 (n_inputs,): columns that are read
    columns: NDArray[np.int32]
    # origin, multiplier: float32 (n_inputs,)
    origin: NDArray[np.float32]
    multiplier: NDArray[np.float32]
    # int32 (n_inputs,): at most 32767
    limit: NDArray[np.int32]
    # uint8 (n_basis_functions, n_outputs · n_samples)
    codes: NDArray[np.uint8]
    # int32 (n_levels,): at most 2^15 in magnitude
    multipliers: NDArray[np.int32]
    n_outputs: int
    n_samples: int
    # scale, offset: (n_outputs,): applied to a sum over the samples
    scale: FloatArray
    offset: FloatArray
    # uint64 (n_outputs,)
    noise: NDArray[np.uint64]
    deviation_shift: int
    # (n_outputs,)
    std_scale: FloatArray
    # int8, int16 or int32 (n_frequencies, n_inputs); `phase_shift`, uint8 (n_inputs,), below 32
    frequencies: NDArray[Any]
    phase_shift: NDArray[np.uint8]
    # int32 (n_linear,): inputs that are basis functions themselves
    linear: NDArray[np.int32]
    linear_limit: int
    groups: tuple[Group, ...]
    forest: Forest | None = None

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

    # --- proof

    def prove(self) -> Bounds:
        """Prove that no sum can overflow, whatever the inputs, and return the bounds."""
        return self._bounds

    # --- reference

    def quantise_inputs(self, X: Any) -> Any:
        """Step 1 from floats: q of rows of X, (n_rows, n_inputs)."""
        with np.errstate(over="ignore"):  # single precision ends at 3e38; anything larger is clipped anyway
            v = (np.take(X, self.columns, axis=1).astype(np.float32) - self.origin) * self.multiplier
        limit = self.limit.astype(np.float32)
        v = np.where(v > -limit, v, -limit)
        v = np.where(v > limit, limit, v)
        return (v + np.where(v < 0, np.float32(-0.5), np.float32(0.5))).astype(np.int64)  # drops the fraction

    def in_range(self, q: Integers) -> NDArray[np.bool_]:
        """Whether nothing is clipped at rows of quantised inputs, (n_rows,)."""
        return np.asarray((np.abs(q) < self.limit).all(axis=1))

    def totals(self, X: ArrayLike) -> Integers:
        """Return the totals of steps 1 to 3 at rows of X, (n_rows, n_outputs, n_samples)."""
        self.prove()  # so that int64 here and int32 elsewhere agree
        return np.asarray(self.totals_of_features(self.features(self.quantise_inputs(np.asarray(X)))))

    def sums(self, totals: Any) -> Any:
        """Step 4: sums over the samples, (n_rows, n_outputs)."""
        return np.sum(totals, axis=2)

    def roots(self, totals: Any) -> Any:
        """Step 4: ⌊√V⌋, (n_rows, n_outputs)."""
        deviation = round_shift(totals * self.n_samples - self.sums(totals)[:, :, None], self.deviation_shift)
        return integer_sqrt(np.sum(deviation * deviation, axis=2) + self.noise.astype(np.int64))

    def quantiles(self, totals: Integers, p: float) -> Integers:
        """Step 4: a quantile of the samples' totals, (n_rows, n_outputs)."""
        ordered = np.sort(totals, axis=2)
        h = round(p * 2**16) * (self.n_samples - 1)
        i, frac = h >> 16, h & 0xFFFF
        above = ordered[:, :, min(i + 1, self.n_samples - 1)]
        return ordered[:, :, i] + (((above - ordered[:, :, i]) * frac + 2**15) >> 16)

    def half_widths(self, totals: Integers, level: float) -> Integers:
        """Step 4: half-widths of central Gaussian intervals, (n_rows, n_outputs)."""
        return np.asarray((gaussian_z(level) * self.roots(totals) + 2**15) >> 16)

    @property
    def program(self) -> IntegerProgram:  # type: ignore[override]
        """Itself."""
        return self

    def value(self, sums: Any, factor: int = 1) -> Any:
        """Step 5: ``offset + scale · factor · sums``."""
        return sums * (self.scale * factor) + self.offset

    def width(self, widths: Any) -> Any:
        """Step 5: ``std_scale · widths``."""
        return widths * self.std_scale

    @property
    def n_frequencies(self) -> int:
        """Number of frequencies: half the number of Fourier features."""
        return len(self.frequencies)

    @property
    def n_basis_functions(self) -> int:
        """Number of basis functions."""
        return self.codes.shape[0]

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return 0 if self.forest is None else self.forest.n_leaves

    @property
    def first_linear(self) -> int:
        """Number of basis functions before the inputs."""
        return 2 * self.n_frequencies + self.n_leaves

    @property
    def has_constant(self) -> bool:
        """Whether the last basis function is the constant."""
        return any(g.kind == "constant" for g in self.groups)

    def inputs_of(self, group: Group) -> NDArray[np.int32]:
        """Return the inputs that are the basis functions of a linear group."""
        return self.linear[group.begin - self.first_linear : group.end - self.first_linear]

    def largest_features(self) -> Integers:
        """Largest magnitude of every basis function, (n_basis_functions,)."""
        out = np.full(self.n_basis_functions, ONE, dtype=np.int64)
        for g in self.groups:
            if g.kind == "linear":
                out[g.begin : g.end] = np.minimum(self.limit[self.inputs_of(g)], self.linear_limit)
            elif g.kind == "leaves":
                out[g.begin : g.end] = 1
        return out

    # --- proof

    def largest_accumulators(self) -> list[int]:
        """Largest magnitude of ``acc_g`` per group, whatever the inputs."""
        terms = np.abs(self.weights) * self.largest_features()[:, None]
        if self.forest is not None:  # of a tree one leaf counts
            first, (n_trees, depth) = 2 * self.n_frequencies, self.forest.splits.shape
            own = terms[first : first + self.n_leaves].reshape(n_trees, 1 << depth, self.n_columns)
            own[:, 0] = own.max(axis=1)
            own[:, 1:] = 0
        return [int(terms[g.begin : g.end].sum(axis=0).max(initial=0)) for g in self.groups]

    @cached_property
    def _bounds(self) -> Bounds:
        expected = self.first_linear + len(self.linear) + self.has_constant
        if self.n_basis_functions != expected:
            raise ValueError(f"codes must have {expected} rows, one per basis function, got {self.n_basis_functions}")
        for name, values, most in (
            ("deviation_shift", self.deviation_shift, 62),
            ("multipliers", self.multipliers, 2**15),
            ("limit", self.limit, 32767),
            ("phase_shift", self.phase_shift, 31),
            ("shifts of groups", [g.shift for g in self.groups], 30),
            ("linear_limit", self.linear_limit, 32767),
            ("gains of groups", [g.gain for g in self.groups], INT32_MAX),
        ):
            array = np.asarray(values, dtype=np.int64)
            found = max(int(array.max(initial=0)), -int(array.min(initial=0)))  # |-2^63| is no int64
            if found > most:
                raise AccumulatorOverflowError(f"{name} must be at most {most} in magnitude, got {found}")
        reach = self.largest_accumulators()
        total, rounding = largest_total(self.groups, reach), max((2**g.shift >> 1 for g in self.groups), default=0)
        sums = self.n_samples * total
        deviation = int(round_shift(2 * sums, self.deviation_shift))
        squares = self.n_samples * deviation**2 + int(self.noise.max(initial=0))
        for name, value, most in (
            *(("an accumulator", value + rounding, INT32_MAX) for value in reach),  # before it is shifted
            ("a total", total, INT32_MAX),
            ("the sum of squares", squares, 2**63 - 1),
        ):
            if value > most:
                hint = "fewer levels make it smaller"
                raise AccumulatorOverflowError(f"{name} must stay below {most + 1}, but could reach {value}: {hint}")
        return Bounds(tuple(reach), total, sums, squares)

    # --- compiled

    def run(self, x: FloatArray, n_threads: int = 1, with_missing: bool = False) -> Integers:
        """Return the same totals, by compiled kernels where there are any; the same bits for any number of threads."""
        if self.forest is not None:  # comparisons, which NumPy does as well
            blocks = range(0, max(len(x), 1), BLOCK_ROWS)
            return np.concatenate([self.totals(x[begin : begin + BLOCK_ROWS]) for begin in blocks])
        totals = np.empty((len(x), self.n_columns), dtype=np.int32)
        self._engine.run(x, totals, n_threads)
        return totals.reshape(len(x), self.n_outputs, self.n_samples).astype(np.int64)

    @cached_property
    def _engine(self) -> _core.IntegerProgram:
        self.prove()  # 32 bits suffice
        frequencies = self.frequencies.astype(np.int64) << self.phase_shift.astype(np.int64)
        inputs = self.n_features_in, self.columns, self.origin, self.multiplier, self.limit
        waves = np.ascontiguousarray((frequencies & 0xFFFFFFFF).astype(np.uint32))
        linear = self.linear, self.linear_limit, self.has_constant
        groups = [(g.begin, g.end, g.gain, g.shift) for g in self.groups]
        return _core.IntegerProgram(
            *inputs, waves, *linear, SINE_TABLE, groups, np.ascontiguousarray(self.codes), self.multipliers
        )

    # --- reference

    def features(self, q: Any) -> Any:
        """Step 2: basis functions, (n_rows, n_basis_functions)."""
        parts = []
        if self.n_frequencies:
            phase = (q << self.phase_shift.astype(np.int64)) @ self.frequencies.T.astype(np.int64)
            pairs = np.stack([turn_sine(phase + QUARTER), turn_sine(phase)], axis=2)
            parts.append(np.reshape(pairs, (-1, 2 * self.n_frequencies)))
        if self.forest is not None:
            parts.append(self.forest.leaves(q))
        if len(self.linear):
            parts.append(np.clip(np.take(q, self.linear, axis=1), -self.linear_limit, self.linear_limit))
        if not parts or self.has_constant:
            parts.append(np.sum(q, axis=1, keepdims=True) * 0 + ONE)
        return np.concatenate(parts, axis=1)

    def totals_of_features(self, phi: Any, weights: Any = None) -> Any:
        """Step 3: totals, (n_rows, n_outputs, n_samples); `weights`: the same as `weights`, as a value of a graph."""
        weights = self.weights if weights is None else weights
        if not self.groups:
            return np.zeros((len(phi), self.n_outputs, self.n_samples), dtype=np.int64)
        own = [(g, phi[:, g.begin : g.end] @ weights[g.begin : g.end]) for g in self.groups]
        total = sum(round_shift(acc, g.shift) * g.gain for g, acc in own)
        return np.reshape(total, (-1, self.n_outputs, self.n_samples))


def largest_total(groups: tuple[Group, ...], accumulators: list[int]) -> int:
    """Largest magnitude of a total, given those of the groups' accumulators.

    `round_shift` is monotone, so a bound on its argument gives one on its value.
    """
    return sum(abs(g.gain) * int(round_shift(b, g.shift)) for g, b in zip(groups, accumulators, strict=True))
