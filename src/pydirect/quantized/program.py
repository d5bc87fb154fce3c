"""Integer programs: the definition of the integer arithmetic, which kernels, C and ONNX reproduce bit for bit.

A program maps a row of inputs to one integer per posterior sample, and these to a mean, a standard deviation and
intervals. Throughout, ``shifted(v, r)`` is v/2^r rounded to the nearest integer, halves up, for ``|v| < 2^30``:
``((v + 2^30 + (2^r >> 1)) >> r) − (2^30 >> r)``, so that no negative number is shifted.

1. Inputs. Input i of the program reads column ``columns[i]`` of the row:

   - from floats, all in single precision, each operation rounded: ``v = (x − origin_i) · multiplier_i``; v is clipped
     to ``±limit`` (``if !(v > −limit) v = −limit; if (v > limit) v = limit``, so that NaN gives −limit); then 32768.5
     is added, the fraction is dropped and 32768 subtracted: ``q_i``, an int16.
   - from integers (`pydirect.quantized.device.RawInputs`): in int64, clipped likewise.

2. Basis functions φ in units of 2^-15, in this order:

   - Fourier features of each frequency f, cosine then sine. The phase is a fraction of a turn in an unsigned 32-bit
     integer, 2^32 = one turn, which wraps around:
     ``phase_f = Σ_i (frequencies[f, i] · q_i) << phase_shift_i mod 2^32``.
     The sine is `turn_sine` of the phase, the cosine that of ``phase + 2^30``.
   - Leaves of the trees of a forest, 0 or 1, tree by tree. A tree has ``depth`` levels; the bit of a level is one if
     ``q_i > threshold`` for the input and the threshold of the level's split, and the bits, the first level's the
     highest, are the number of the leaf that is 1.
   - Inputs: q_i for every i in ``linear``.
   - The constant, if there is one: ONE, or 1 in programs without frequencies.

   `turn_sine`: the phase is rounded to 16 bits. The two highest are the quadrant, the other 14 the position p in it; in
   odd quadrants p becomes ``2^14 − p``. A polynomial of p follows: ``z = p² >> 12``, ``r = c_1 − ((z (c_2 − (z c_3 >>
   16))) >> 16)``, ``(p r + 2^13) >> 14``. In quadrants 2 and 3 it is negated.

3. Totals. ``multipliers[code]`` is the integer that a code stands for; each basis function has a gain. For every column
   (a sample of an output, column = output · n_samples + sample) ``sum = Σ_j shifted(φ_j · gain_j, term_shift) ·
   multipliers[code[j, column]]`` in int32, with a ``term_shift`` of 15, or none in programs without frequencies, and
   ``total = shifted(sum, total_shift)``. `prove` proves from the codes that nothing can overflow, whatever the inputs.

4. Moments over the S samples of an output: ``sum = Σ_s total_s`` and ``d_s = shifted(S · total_s − sum,
   deviation_shift)`` in int32, ``V = noise + Σ_s d_s²`` in uint32, ``root = ⌊√(2^16 V)⌋``, 24 bits. For a single
   sample, V is the noise, 2^30.

5. Results, in double precision here: ``mean = offset + scale · sum``, ``std = std_scale · root``, half-widths of
   intervals a multiple of it, a sample's function ``offset + scale · S · total``. Exported C takes this step in single
   precision or in integers, see `pydirect.quantized.device`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar

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
QUARTER = 2**30
ONE = 2**15
INPUT_LIMIT = 32767
LARGEST_GAIN = 32767
LARGEST_SHIFTED = 2**30 - 1
SINGLE_NOISE = 2**30
# Of u − u³ and u⁵ in sin(π/2 u), in units of 2^-15: within 1.6e-4, the rounding of the phase included.
SINE = (51455, 21035, 2347)


def half_width(level: float) -> float:
    """Half-width of a central Gaussian interval in standard deviations; accurate for levels close to one."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def shifted(v: Any, shift: int) -> Any:
    """Return v/2^shift rounded to the nearest integer, halves up."""
    return ((v + (QUARTER + (2**shift >> 1))) >> shift) - (QUARTER >> shift)


def smallest_integers(values: ArrayLike) -> NDArray[Any]:
    """Convert integers to the smallest signed type that holds them all."""
    array = np.asarray(values, dtype=np.int64)
    for dtype in (np.int8, np.int16):
        if np.array_equal(array.astype(dtype), array):
            return array.astype(dtype)
    return array.astype(np.int32)


def turn_sine(phase: Any) -> Any:
    """Sine of phases in units of 2^-32 turns, in units of 2^-15."""
    turn = ((phase + 2**15) & 0xFFFFFFFF) >> 16
    p = turn & 0x3FFF
    p = np.where(turn & 0x4000, 0x4000 - p, p)
    z = (p * p) >> 12
    value = (p * (SINE[0] - ((z * (SINE[1] - ((z * SINE[2]) >> 16))) >> 16)) + 2**13) >> 14
    return np.where(turn & 0x8000, -value, value)


BLOCK_ROWS = 256  # basis functions of a block stay in the cache


@dataclass(frozen=True)
class Bounds:
    """Bounds on the magnitudes of a program's numbers, whatever its inputs."""

    # of the sum of a column before it is shifted, and of its partial sums in any order
    accumulator: int
    # of sums over the samples
    sum: int
    # of V
    squares: int


class Results:
    """Step 5: results (n_rows, n_outputs) from totals (n_rows, n_outputs, n_samples), in floating point of `dtype`."""

    dtype: ClassVar[Any] = np.float64
    program: IntegerProgram

    def value(self, sums: Any) -> Any:
        """Return ``offset + scale · sums``."""
        return sums.astype(self.dtype) * self.program.scale.astype(self.dtype) + self.program.offset.astype(self.dtype)

    def width(self, roots: Any, factor: float = 1.0) -> Any:
        """Return ``factor · std_scale · roots``."""
        return roots.astype(self.dtype) * self.width_scale(factor)

    def width_scale(self, factor: float = 1.0) -> NDArray[Any]:
        """Return the factor on roots."""
        return (self.program.std_scale * factor).astype(self.dtype)

    def mean(self, totals: Any) -> Any:
        """Means."""
        return self.value(self.program.sums(totals))

    def std(self, totals: Any) -> Any:
        """Return standard deviations, noise included."""
        return self.width(self.program.roots(totals))

    def interval(self, totals: Integers, level: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Central intervals of a Gaussian with this mean and standard deviation."""
        mean, half = self.mean(totals), self.width(self.program.roots(totals), half_width(level))
        return mean - half, mean + half

    def missing(self, totals: Integers) -> FloatArray:
        """Return the variance beyond that of the samples and the noise, (1, n_outputs): integers have none."""
        return np.zeros((1, self.program.n_outputs))

    def functions(self, totals: Any) -> Any:
        """Values of the samples' functions, (n_rows, n_outputs, n_samples)."""
        values = self.value(np.transpose(totals, (2, 0, 1)) * self.program.n_samples)
        return np.transpose(values, (1, 2, 0))


def leaves(inputs: Any, columns: NDArray[np.integer[Any]], thresholds: NDArray[Any]) -> Any:
    """Return 1 for the leaf that a row reaches in each tree, 0 for the others, (n_rows, n_trees · 2^depth).

    `columns`, `thresholds`, (n_trees, depth): the splits.
    """
    n_trees, depth = columns.shape
    right = np.take(inputs, columns.ravel(), axis=1) > thresholds.ravel()
    bits = np.reshape(right.astype(np.int64), (-1, n_trees, depth))
    leaf = np.sum(bits * (1 << np.arange(depth, dtype=np.int64)[::-1]), axis=2)
    chosen = leaf[:, :, None] == np.arange(1 << depth, dtype=np.int64)
    return np.reshape(chosen.astype(np.int64), (-1, n_trees << depth))


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
    # largest magnitude of an input, at most 32767
    limit: int
    # int8, int16 or int32 (n_frequencies, n_inputs); `phase_shift`, uint8 (n_inputs,), below 32
    frequencies: NDArray[Any]
    phase_shift: NDArray[np.uint8]
    # int32 (n_trees, depth): input that each level of a tree compares; `thresholds`, int16
    compared: NDArray[np.int32]
    thresholds: NDArray[np.int16]
    # int32 (n_linear,): inputs that are basis functions themselves
    linear: NDArray[np.int32]
    # int32 (n_basis_functions,): at most `LARGEST_GAIN` in magnitude where there are frequencies
    gain: NDArray[np.int32]
    # uint8 (n_basis_functions, n_outputs · n_samples)
    codes: NDArray[np.uint8]
    # int32 (n_levels,): at most 2^15 in magnitude
    multipliers: NDArray[np.int32]
    n_outputs: int
    n_samples: int
    total_shift: int
    # uint32 (n_outputs,)
    noise: NDArray[np.uint32]
    deviation_shift: int
    # (n_outputs,)
    scale: FloatArray
    offset: FloatArray
    std_scale: FloatArray

    # --- shape

    @property
    def n_inputs(self) -> int:
        """Number of inputs that are read."""
        return len(self.columns)

    @property
    def n_basis_functions(self) -> int:
        """Number of basis functions."""
        return self.codes.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of samples of all outputs."""
        return self.codes.shape[1]

    @property
    def n_frequencies(self) -> int:
        """Number of frequencies: half the number of Fourier features."""
        return len(self.frequencies)

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.compared)

    @property
    def depth(self) -> int:
        """Levels of a tree, 0 without trees."""
        return self.compared.shape[1]

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return self.n_trees << self.depth

    @property
    def first_linear(self) -> int:
        """Number of basis functions before the inputs."""
        return 2 * self.n_frequencies + self.n_leaves

    @property
    def term_shift(self) -> int:
        """Shift of products with gains."""
        return 15 if self.n_frequencies else 0

    @property
    def has_constant(self) -> bool:
        """Whether the last basis function is the constant."""
        return self.n_basis_functions > self.first_linear + len(self.linear)

    @cached_property
    def weights(self) -> Integers:
        """Integers that the codes stand for, (n_basis_functions, n_columns)."""
        return self.multipliers.astype(np.int64)[self.codes]

    # --- proof

    def prove(self) -> Bounds:
        """Prove that nothing can overflow, whatever the inputs, and return the bounds."""
        return self._bounds

    def reach(self, weights: Integers) -> Integers:
        """Largest magnitude of sums with these weights (n_basis_functions, n), whatever the inputs, (n,)."""
        largest = np.full(self.n_basis_functions, 1 << self.term_shift, dtype=np.int64)
        largest[self.first_linear : self.first_linear + len(self.linear)] = self.limit
        terms = np.abs(weights) * shifted(largest * np.abs(self.gain.astype(np.int64)), self.term_shift)[:, None]
        if self.n_trees:  # of a tree one leaf counts
            own, terms = np.split(terms, [self.n_leaves])
            own = own.reshape(self.n_trees, -1, terms.shape[1]).max(axis=1)
            return np.asarray(terms.sum(axis=0) + own.sum(axis=0))
        return np.asarray(terms.sum(axis=0))

    @cached_property
    def _bounds(self) -> Bounds:
        expected = self.first_linear + len(self.linear) + self.has_constant
        if self.n_basis_functions != expected or len(self.gain) != expected:
            raise ValueError(f"codes must have {expected} rows, one per basis function, got {self.n_basis_functions}")
        s, weights = self.n_samples, self.weights
        accumulator = int(self.reach(weights).max(initial=0))
        sums = s * int(shifted(np.int64(min(accumulator, LARGEST_SHIFTED)), self.total_shift))
        squares = int(self.noise.astype(np.int64).max(initial=0))
        if s > 1:
            squares += int((self.largest_deviations() ** 2).reshape(self.n_outputs, s).sum(axis=1).max(initial=0))
        largest_gain = LARGEST_GAIN if self.n_frequencies else LARGEST_SHIFTED
        for name, value, most in (
            ("phase_shift", int(self.phase_shift.max(initial=0)), 31),
            ("multipliers", int(np.abs(self.multipliers.astype(np.int64)).max(initial=0)), 2**15),
            ("limit", self.limit, INPUT_LIMIT),
            ("gain", int(np.abs(self.gain.astype(np.int64)).max(initial=0)), largest_gain),
            ("a total before it is shifted", accumulator, LARGEST_SHIFTED),
            ("a sum over the samples", sums, LARGEST_SHIFTED // 2),
            ("the sum of squares", squares, 2**32 - 1),
        ):
            if value > most:
                raise AccumulatorOverflowError(f"{name} must be at most {most}, but could reach {value}")
        return Bounds(accumulator, sums, squares)

    def largest_deviations(self) -> Integers:
        """Largest magnitudes of ``S · total_s − sum`` after their shift, per column."""
        s = self.n_samples
        own = self.weights.reshape(-1, self.n_outputs, s)
        centred = (s * own - own.sum(axis=2, keepdims=True)).reshape(-1, self.n_columns)
        reach = (self.reach(centred) >> self.total_shift) + s * (self.total_shift > 0)
        return np.asarray(shifted(np.minimum(reach, LARGEST_SHIFTED), self.deviation_shift))

    # --- steps 1 to 3

    def quantise_inputs(self, X: Any) -> Any:
        """Step 1 from floats: q of rows of X, (n_rows, n_inputs)."""
        with np.errstate(over="ignore"):  # single precision ends at 3e38; anything larger is clipped anyway
            v = (np.take(X, self.columns, axis=1).astype(np.float32) - self.origin) * self.multiplier
        limit = np.float32(self.limit)
        v = np.where(v > -limit, v, -limit)
        v = np.where(v > limit, limit, v)
        return (v + np.float32(32768.5)).astype(np.int64) - 32768

    def features(self, q: Any) -> Any:
        """Step 2: basis functions, (n_rows, n_basis_functions)."""
        parts = []
        if self.n_frequencies:
            phase = (q << self.phase_shift.astype(np.int64)) @ self.frequencies.T.astype(np.int64)
            pairs = np.stack([turn_sine(phase + QUARTER), turn_sine(phase)], axis=2)
            parts.append(np.reshape(pairs, (-1, 2 * self.n_frequencies)))
        if self.n_trees:
            parts.append(leaves(q, self.compared, self.thresholds.astype(np.int64)))
        if len(self.linear):
            parts.append(np.take(q, self.linear, axis=1))
        if not parts or self.has_constant:
            parts.append(np.sum(q, axis=1, keepdims=True) * 0 + (1 << self.term_shift))
        return np.concatenate(parts, axis=1)

    def totals_of_features(self, phi: Any, weights: Any = None) -> Any:
        """Step 3: totals, (n_rows, n_outputs, n_samples); `weights`: the same as `weights`, as a value of a graph."""
        if not self.n_basis_functions:
            return np.zeros((len(phi), self.n_outputs, self.n_samples), dtype=np.int64)
        terms = shifted(phi * self.gain.astype(np.int64), self.term_shift)
        sums = terms @ (self.weights if weights is None else weights)
        return np.reshape(shifted(sums, self.total_shift), (-1, self.n_outputs, self.n_samples))

    def totals(self, X: ArrayLike) -> Integers:
        """Return the totals of steps 1 to 3 at rows of X, (n_rows, n_outputs, n_samples)."""
        self.prove()  # so that int64 here and int32 elsewhere agree
        return np.asarray(self.totals_of_features(self.features(self.quantise_inputs(np.asarray(X)))))

    # --- steps 4 and 5

    def sums(self, totals: Any) -> Any:
        """Step 4: sums over the samples, (n_rows, n_outputs)."""
        return np.sum(totals, axis=2)

    def roots(self, totals: Any) -> Any:
        """Step 4: ⌊√(2^16 V)⌋, (n_rows, n_outputs)."""
        deviation = shifted(totals * self.n_samples - self.sums(totals)[:, :, None], self.deviation_shift)
        squares = np.sum(deviation * deviation, axis=2) + self.noise.astype(np.int64)
        return np.floor(np.sqrt((squares * 2**16).astype(np.float64))).astype(np.int64)  # exact: 48 bits

    @property
    def program(self) -> IntegerProgram:  # type: ignore[override]
        """Itself."""
        return self

    # --- compiled

    def run(self, x: FloatArray, n_threads: int = 1, with_missing: bool = False) -> Integers:
        """Return the same totals, by compiled kernels where there are any; the same bits for any number of threads."""
        if not self.n_frequencies:  # comparisons and sums, which NumPy does as well
            blocks = range(0, max(len(x), 1), BLOCK_ROWS)
            return np.concatenate([self.totals(x[begin : begin + BLOCK_ROWS]) for begin in blocks])
        totals = np.empty((len(x), self.n_columns), dtype=np.int32)
        self._engine.run(x, totals, n_threads)
        return totals.reshape(len(x), self.n_outputs, self.n_samples).astype(np.int64)

    @cached_property
    def _engine(self) -> _core.IntegerProgram:
        self.prove()  # 32 bits suffice
        frequencies = self.frequencies.astype(np.int64) << self.phase_shift.astype(np.int64)
        waves = np.ascontiguousarray((frequencies & 0xFFFFFFFF).astype(np.uint32))
        inputs = self.n_features_in, self.columns, self.origin, self.multiplier, self.limit, waves, self.linear
        codes = np.ascontiguousarray(self.codes)
        return _core.IntegerProgram(*inputs, self.gain, codes, self.multipliers, self.total_shift)
