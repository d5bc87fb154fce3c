"""`DeviceModel`: what exported integer code computes, in Python, the tables that it stores, and its cost.

Numbers of a device have single precision or are counts, int32. In single precision, every operation rounded, the mean
is ``offset + scale · sum``, the standard deviation ``std_scale · root``, half-widths likewise with a constant of their
own. In counts, of which ``counts_per_unit`` make a unit of the output, with ``affine(v, gain, offset, shift) =
round_shift(v · gain + offset, shift)`` in int64 and ``round_shift`` to the nearest integer, halves away from zero,

- the mean is ``affine(sum, gain, offset, shift)``, a sample's function likewise with ``S · total`` for ``sum``;
- the standard deviation ``affine(root, width_gain, 0, width_shift)``, the half-width of an interval likewise with
  ``interval_gain``.

The gain is ``counts_per_unit · scale · 2^shift``, which is rounded, as is the offset. With M the largest sum, the mean
is thus within ``1/2 + (M + 1)/2^(shift + 1)`` counts of ``counts_per_unit · (offset + scale · sum)`` in real numbers.
Shifts are at least the number of bits of M, or of the largest width: means, functions and standard deviations are
within one count, ends of Gaussian intervals within two. As M and the largest width are proved (`prove` of programs), so
is that no result leaves 32 bits, whatever the inputs: counts too fine for that are refused.

Probabilities of classes are counts of 2^-15 from logits in counts of which ``2^bits log2(e)`` make one, ``bits`` at
most 16. For each sample, with ``d ≥ 0`` how many counts a class's logit is below the largest one, ``p = 2^(-d/2^bits)``
in units of ``2^-exponent_bits`` by `power_of_two`. A class's share is p over the sum of all classes, rounded to 2^-23;
its probability is the average of the samples' shares, rounded to 2^-15. Two classes have the logits 0 and z, and the
first one's probability is what the second one's leaves. With 16 bits every probability is within one count of that of
the logits in real numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array
from pydirect.quantized.fitted import as_rows
from pydirect.quantized.program import (
    AccumulatorOverflowError,
    IntegerProgram,
    Integers,
    Results,
    half_width,
    smallest_integers,
)


def round_shift(v: Integers, shift: NDArray[Any]) -> Integers:
    """Return v/2^shift rounded to the nearest integer, halves away from zero."""
    shift = shift.astype(np.int64)
    return np.asarray(np.sign(v) * ((np.abs(v) + (2**shift >> 1)) >> shift))


@dataclass(frozen=True)
class RawInputs:
    """Conversion of a device's own integers (sensor counts) to the program's inputs; step 1 of the arithmetic.

    ``q_i = round_shift((r − origin_i) · multiplier_i + offset_i, shift_i)`` in int64, clipped to ±limit.
    """

    # origin, multiplier, offset: int32 (n_inputs,): at most 2^30 in magnitude, so that nothing exceeds 2^62 for any
    # int32. The offset corrects for the rounding of the origin to a whole count
    origin: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    offset: NDArray[np.int32]
    # uint8 (n_inputs,): at most 45
    shift: NDArray[np.uint8]
    limit: int
    # counts_per_unit, zero_count: (n_features_in,)
    counts_per_unit: FloatArray
    zero_count: FloatArray

    @classmethod
    def of(cls, program: IntegerProgram, counts_per_unit: ArrayLike, zero_count: ArrayLike = 0) -> RawInputs:
        """Derive the constants for counts ``r = zero_count + counts_per_unit · x`` of every input of the program.

        Before it is rounded, q differs by at most 2^-13 from its value for this x in real numbers.
        """
        d = program.n_features_in
        gains, zeros = _spread(counts_per_unit, "counts_per_unit", d), _spread(zero_count, "zero_count", d)
        gain = gains[program.columns]
        if (gain == 0).any():
            raise ValueError(f"counts_per_unit must not be zero for an input that the model reads, got {gain}")
        exact = zeros[program.columns] + gain * program.origin.astype(np.float64)
        slope = program.multiplier.astype(np.float64) / gain  # units of q per count
        origin, reach = np.rint(exact), np.ceil((program.limit + 1.0) / np.abs(slope)) + 1
        if (fine := program.columns[~(np.abs(origin) + reach <= 2**30)]).size:
            raise ValueError(f"counts of column {fine[0]} must fit into 31 bits over its range; divide them beforehand")
        if (coarse := program.columns[np.abs(slope) > 2.0 * program.limit]).size:
            raise ValueError(f"counts_per_unit must be larger: one count is more than the range of column {coarse[0]}")
        shift = np.floor(np.log2(2**30 / np.abs(slope)))
        slope = slope * 2.0**shift
        first, multiplier, rest = (np.rint(a).astype(np.int32) for a in (origin, slope, (origin - exact) * slope))
        return cls(first, multiplier, rest, shift.astype(np.uint8), program.limit, gains, zeros)

    def counts(self, rows: FloatArray) -> NDArray[np.int32]:
        """Return the counts of rows of X, as far as 32 bits hold them, (n_rows, n_features_in)."""
        exact = np.rint(self.zero_count + self.counts_per_unit * rows)
        return np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)

    def quantise(self, counts: ArrayLike) -> Integers:
        """Return q of counts (n_rows, n_inputs), by step 1."""
        t = (np.asarray(counts, dtype=np.int64) - self.origin) * self.multiplier + self.offset
        return np.clip(round_shift(t, self.shift), -self.limit, self.limit)


def _spread(values: ArrayLike, name: str, n: int) -> FloatArray:
    """Validate one number, or one for each of n columns, (n,)."""
    return np.broadcast_to(as_float_array(values, name, (n,) if np.ndim(values) else ()), (n,))


@dataclass(frozen=True)
class SingleResults(Results):
    """Results in single precision."""

    dtype: ClassVar[Any] = np.float32
    program: IntegerProgram


# By default the smallest standard deviation has four digits, or the largest value of a model without noise seven.
COUNTS_OF_NOISE, COUNTS_OF_REACH = 1e3, 1e6
# Of logits, whose probabilities are then within one count of 2^-15.
LOGIT_BITS = 16
# Relative to what varies, which then has three digits.
LARGEST_OFFSET = 1e6
LARGEST_SHIFT = 60
CONSTANTS: dict[str, Any] = {"gain": np.int32, "offset": np.int64, "shift": np.uint8}
CONSTANTS |= {"width_gain": np.int32, "interval_gain": np.int32, "width_shift": np.uint8}


@dataclass(frozen=True)
class FixedResults(Results):
    """Constants that turn a program's integers into counts; the module's docstring defines them."""

    program: IntegerProgram
    # (n_outputs,)
    counts_per_unit: FloatArray
    # gain, width_gain, interval_gain: int32 (n_outputs,); `offset`, int64; `shift`, `width_shift`, uint8
    gain: NDArray[np.int32]
    offset: Integers
    shift: NDArray[np.uint8]
    width_gain: NDArray[np.int32]
    interval_gain: NDArray[np.int32]
    width_shift: NDArray[np.uint8]

    @classmethod
    def of(cls, program: IntegerProgram, counts_per_unit: ArrayLike | None = None, level: float = 0.9) -> Self:
        """Derive the constants, of intervals of one probability; by default counts are powers of ten."""
        largest = largest_counts(program, level)
        if counts_per_unit is None:
            counts = np.minimum(_default_counts(program), [10.0 ** math.floor(math.log10(most)) for most in largest])
        else:
            counts = np.array(_spread(counts_per_unit, "output_counts_per_unit", len(largest)))
            if not ((counts > 0) & (counts <= largest)).all():
                raise ValueError(
                    f"output_counts_per_unit must be positive, at most {largest.tolist()}, got {counts.tolist()}"
                )
        reach, width, z = program.prove().sum, _largest_root(program), Fraction(half_width(level))
        rows = []
        for numbers in zip(counts, program.scale, program.offset, program.std_scale, strict=True):
            count, *units = map(Fraction, numbers)
            scale, offset, std_scale = (count * unit for unit in units)
            widest = std_scale * max(z, Fraction(1))
            shift = _largest_shift(abs(scale), abs(scale) * reach + abs(offset))
            width_shift = _largest_shift(widest, widest * width)
            scale, offset, std_scale = scale * 2**shift, offset * 2**shift, std_scale * 2**width_shift
            rows.append((round(scale), round(offset), shift, round(std_scale), round(std_scale * z), width_shift))
        pairs = zip(CONSTANTS.items(), zip(*rows, strict=True), strict=True)
        results = cls(program, counts, **{name: np.array(column, dtype) for (name, dtype), column in pairs})
        results.prove()
        return results

    def prove(self) -> int:
        """Prove that no product leaves 64 bits and no result 32, whatever the inputs; return the largest result."""
        own = {name: np.abs(getattr(self, name).astype(object)) for name in CONSTANTS}  # integers without bounds
        widest = np.maximum(own["width_gain"], own["interval_gain"])
        product = self.program.prove().sum * own["gain"] + own["offset"] + (1 << own["shift"] >> 1)
        other = _largest_root(self.program) * widest + (1 << own["width_shift"] >> 1)
        end = (product >> own["shift"]) + (other >> own["width_shift"])
        for value, limit in ((product, 2**63), (other, 2**63), (end, 2**31)):
            if value.max() >= limit:
                raise AccumulatorOverflowError(f"a result must stay below {limit}, but could reach {value.max()}")
        return int(end.max())

    def value(self, sums: Integers) -> Integers:
        """Return counts of ``offset + scale · sums``."""
        return round_shift(sums * self.gain.astype(np.int64) + self.offset, self.shift)

    def width(self, roots: Integers, factor: float = 1.0) -> Integers:
        """Return counts of ``factor · std_scale · roots``, the factor one or that of the intervals."""
        gain = self.width_gain if factor == 1.0 else self.interval_gain
        return round_shift(roots * gain.astype(np.int64), self.width_shift)


def require_digits(program: IntegerProgram) -> None:
    """Raise ValueError when the offset leaves no digits to the functions, or units are beyond single precision."""
    varies = np.abs(program.scale) * program.prove().sum + _noise(program)
    if not ((varies < 1e30) & ((varies == 0) | (varies > 1e-30))).all():
        raise ValueError(f"results of 32 bits cannot hold outputs that vary by {varies.max():g}: scale y")
    lost = (varies > 0) & (np.abs(program.offset) > LARGEST_OFFSET * varies)
    if lost.any():
        raise ValueError(f"y must vary more beside its mean, {program.offset[lost][0]:.6g}, for 32 bits: subtract it")


def largest_counts(program: IntegerProgram, level: float) -> FloatArray:
    """Return the finest counts of every output that `FixedResults` can offer, (n_outputs,)."""
    reach, width = program.prove().sum, _largest_root(program)
    scale, std_scale = np.abs(program.scale), program.std_scale * max(half_width(level), 1.0)
    mean, half = np.abs(program.offset) + scale * max(reach, 1), std_scale * max(width, 1)
    limits = [(2.0**31 - 8) / (mean + half)]
    with np.errstate(divide="ignore"):  # no limit of what is zero
        for gain, end, bits in ((scale, mean, reach.bit_length()), (std_scale, half, width.bit_length())):
            limits += [(2.0**31 - 1) / (gain * 2.0**bits), 2.0**62 / (end * 2.0**bits)]
    return np.asarray(np.min(limits, axis=0) * (1 - 1e-9))  # a margin for rounding in double precision


def _default_counts(program: IntegerProgram) -> FloatArray:
    noise = _noise(program)
    reach = np.abs(program.offset) + np.abs(program.scale) * max(program.prove().sum, 1)
    wanted = np.where(noise > 0, COUNTS_OF_NOISE / np.where(noise > 0, noise, 1.0), COUNTS_OF_REACH / reach)
    return np.asarray(10.0 ** np.ceil(np.log10(wanted)))


def _noise(program: IntegerProgram) -> FloatArray:
    return np.asarray(program.std_scale * np.sqrt(2.0**16 * program.noise.astype(np.float64)))


def _largest_root(program: IntegerProgram) -> int:
    return math.isqrt(program.prove().squares * 2**16)


def _largest_shift(factor: Fraction, largest: Fraction) -> int:
    """Return the largest shift for which the factor takes 31 bits and the largest value 62."""
    fits = (s for s in range(LARGEST_SHIFT, 0, -1) if factor * 2**s <= 2**31 - 1 and largest * 2**s <= 2**62)
    return next(fits, 0)


CERTAIN = 2**15
SHARE_BITS = 23
# 2^-f = 1 - f (c_1 - f (c_2 - f (c_3 - f c_4))) within 2.2e-6 for f from 0 to 1, in units of 2^-30; c_4 first.
POLYNOMIAL = (7419135, 57311509, 257211668, 744187942, 2**30)


def exponent_bits(n_classes: int) -> int:
    """Return the bits of a power of two, such that the sum over the classes stays below 2^31."""
    return min(24, 30 - n_classes.bit_length())


def class_probabilities(logits: Integers, n_classes: int, bits: int) -> Integers:
    """Return probabilities from counts of logits, ``2^bits log2(e)`` of which make one.

    From (n_rows, n_outputs, n_samples) to (n_rows, n_classes).
    """
    if n_classes == 2:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    below = logits.max(axis=1, keepdims=True) - logits
    e = power_of_two(below << (LOGIT_BITS - bits), exponent_bits(n_classes))
    shares = ratio(e, e.sum(axis=1, keepdims=True), SHARE_BITS).sum(axis=2)
    found = ratio(shares, logits.shape[2] << SHARE_BITS, 15)
    if n_classes == 2:
        found[:, 0] = CERTAIN - found[:, 1]
    return found


def power_of_two(u: Integers, bits: int) -> Integers:
    """Return ``2^(-u/2^16)`` in units of 2^-bits, rounded down."""
    whole, fraction = u >> 16, u & 0xFFFF
    value = np.zeros_like(u)
    for c in POLYNOMIAL:
        value = c - ((value * fraction) >> 16)
    return np.where(whole > bits, 0, value >> np.minimum(30 - bits + whole, 62))


def ratio(part: Integers, whole: Integers | int, bits: int) -> Integers:
    """Return ``part / whole`` in units of 2^-bits, rounded to the nearest, halves up."""
    return np.asarray(((part << (bits + 1)) + whole) // (2 * np.asarray(whole)))


Pair = tuple[NDArray[Any], NDArray[Any]]
Tables = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class DeviceModel:
    """An integer program with its inputs and results: the numbers of an exported header, bit for bit.

    Rows are (n_rows, n_features_in): a device's own integers, ``zero_count + counts_per_unit · x``, or without these
    constants x itself in single precision, as are the results. Results of integers are counts, (n_rows, n_outputs), of
    which ``counts_per_unit`` make a unit of the output.
    """

    program: IntegerProgram
    results: SingleResults | FixedResults
    level: float
    raw: RawInputs | None
    # constants of results in counts, or of logits in counts, if there are any
    fixed: FixedResults | None
    n_classes: int

    @classmethod
    def of(
        cls,
        program: IntegerProgram,
        *,
        counts_per_unit: ArrayLike | None = None,
        zero_count: ArrayLike = 0.0,
        output_counts_per_unit: ArrayLike | None = None,
        level: float = 0.9,
        n_classes: int = 0,
    ) -> Self:
        """Derive all constants; see `pydirect.quantized.c_header.to_c` for the arguments."""
        if counts_per_unit is None and (np.any(zero_count) or output_counts_per_unit is not None):
            raise ValueError("zero_count and output_counts_per_unit must come with counts_per_unit")
        if n_classes and output_counts_per_unit is not None:
            raise ValueError("output_counts_per_unit must be None for a classifier: probabilities are counts of 2^-15")
        program.prove()
        raw = None if counts_per_unit is None else RawInputs.of(program, counts_per_unit, zero_count)
        if n_classes:
            largest = largest_counts(program, level).min() * math.log(2)
            output_counts_per_unit = 2.0 ** min(LOGIT_BITS, math.floor(math.log2(largest))) / math.log(2)
        fixed = None if raw is None and not n_classes else FixedResults.of(program, output_counts_per_unit, level)
        results = SingleResults(program) if raw is None or fixed is None else fixed
        return cls(program, results, level, raw, fixed, n_classes)

    def quantise(self, X: ArrayLike) -> Integers:
        """Return the inputs of the program, (n_rows, n_inputs)."""
        rows = as_rows(X, self.program.n_features_in, ())
        if self.raw is None:
            return np.asarray(self.program.quantise_inputs(rows))
        if not ((rows == np.rint(rows)) & (rows >= -(2**31)) & (rows < 2**31)).all():
            raise ValueError("X must hold counts, whole numbers of 32 bits: round(zero_count + counts_per_unit * x)")
        return self.raw.quantise(rows[:, self.program.columns].astype(np.int64))

    def totals(self, X: ArrayLike) -> Integers:
        """Totals of every sample, (n_rows, n_outputs, n_samples)."""
        return np.asarray(self.program.totals_of_features(self.program.features(self.quantise(X))))

    def predict(self, X: ArrayLike) -> Pair:
        """Mean and standard deviation of every output, noise included."""
        totals = self.totals(X)
        return self.results.mean(totals), self.results.std(totals)

    def predict_interval(self, X: ArrayLike) -> Pair:
        """Central Gaussian intervals of the target."""
        return self.results.interval(self.totals(X), self.level)

    def predict_class(self, X: ArrayLike) -> Integers:
        """Index of the most probable class by the mean logit, (n_rows,)."""
        mean = self._logits().mean(self.totals(X))
        return np.asarray((mean[:, 0] > 0).astype(np.int64) if mean.shape[1] == 1 else mean.argmax(axis=1))

    def predict_proba(self, X: ArrayLike) -> Integers:
        """Probabilities of the classes in units of 2^-15, (n_rows, n_classes)."""
        return class_probabilities(self._logits().functions(self.totals(X)), self.n_classes, self.logit_bits)

    @property
    def logit_bits(self) -> int:
        """Bits of a classifier's logits: ``2^bits log2(e)`` counts make one."""
        return round(math.log2(self._logits().counts_per_unit[0] * math.log(2)))

    def _logits(self) -> FixedResults:
        if self.fixed is None or not self.n_classes:
            raise ValueError("only a classifier has probabilities")
        return self.fixed

    # --- cost

    def tables(self) -> dict[str, Tables]:
        """Return the tables that the device stores, by part, except the packed codes.

        Column numbers take the smallest type that holds them all. Those from 0 on, and evenly spaced levels, need no
        table.
        """
        program, fixed = self.program, self.fixed
        index = np.uint8 if program.n_features_in <= 256 else np.uint16
        own = {"columns": program.columns, "linear": program.linear}
        inputs: Tables = {k: a.astype(index) for k, a in own.items() if (a != np.arange(len(a))).any()}
        if self.raw is None:
            inputs |= shortened({"origin": program.origin, "multiplier": program.multiplier})
        else:
            inputs |= {f"input_{name}": getattr(self.raw, name) for name in ("origin", "multiplier", "offset", "shift")}
        parts = {"inputs": inputs, "frequencies": {}, "trees": {}, "levels": {}}
        if program.n_frequencies:
            parts["frequencies"] = {"phase_shift": program.phase_shift, "frequencies": program.frequencies}
        if program.n_trees:
            parts["trees"] = {"splits": (program.thresholds.astype(np.int32) + 2**15).astype(np.uint16)}
        if level_step(program.multipliers) is None:
            parts["levels"] = {"multipliers": smallest_integers(program.multipliers)}
        parts |= {"slopes": self.slopes(), "groups": self.groups()}
        outputs: Tables = {} if program.n_samples == 1 else {"noise": program.noise}
        if isinstance(self.results, SingleResults):
            with np.errstate(over="ignore"):  # only the size counts then: `require_digits`
                outputs |= {name: getattr(program, name).astype(np.float32) for name in ("scale", "offset")}
                outputs |= {"std_scale": self.results.width_scale()}
        if fixed is not None:
            outputs |= {f"count_{name}": getattr(fixed, name) for name in ("gain", "offset", "shift")}
        if fixed is self.results:
            outputs |= {"width_gain": fixed.width_gain, "width_shift": fixed.width_shift}
        return parts | {"outputs": outputs}

    @property
    def n_coded(self) -> int:
        """Number of basis functions whose weights are stored as codes, not times their gains."""
        return self.program.n_basis_functions if self.program.n_frequencies else self.program.n_leaves

    def slopes(self) -> Tables:
        """Return weights times gains of all inputs and of the constant, where they are no codes."""
        program, own = self.program, self.program.gain[self.n_coded :, None] * self.program.weights[self.n_coded :]
        if not len(own):
            return {}
        slope = np.zeros((program.n_inputs, program.n_columns), dtype=np.int64)
        slope[program.linear] = own[: len(program.linear)]
        start = {"start": own[-1].astype(np.int32)} if program.has_constant else {}
        return {"slope": smallest_integers(slope)} | start

    def groups(self) -> Tables:
        """Return where terms of a gain end, and these gains; a tree is a term, and each gain half of the one before."""
        gain, waves = self.program.gain[: self.n_coded : 1 << self.program.depth], self.program.n_frequencies
        if not len(gain):
            return {}
        halves = gain[0] >> np.arange(31)
        ends = np.append(np.flatnonzero(np.diff(gain)) + 1, len(gain))
        if not waves:
            ends = np.searchsorted(-gain, -halves[halves >= gain[-1]], side="right")
        own = {"group_end": ends.astype(np.min_scalar_type(len(gain)))}
        return own | ({"group_gain": smallest_integers(gain[ends - 1])} if waves else {})

    def interval_table(self) -> Tables:
        """Return the table that only ``predict_interval`` reads."""
        if isinstance(self.results, SingleResults):
            return {"interval_scale": self.results.width_scale(half_width(self.level))}
        return {"interval_gain": self.results.interval_gain}

    def cost(self) -> dict[str, int]:
        """Estimate what ``predict``, or ``predict_proba``, takes: bytes of code and of stack, and instructions.

        Fitted to programs compiled by GCC with -Os, counts for a Cortex-M0+, floats for a Cortex-M4 with a
        single-precision unit; `bench/scripts/flash.py` compares.
        """
        program, counts = self.program, self.raw is not None
        columns, inputs, trees, waves = program.n_columns, program.n_inputs, program.n_trees, program.n_frequencies
        code = (490 if counts else 195) + 120 * (trees > 0) + 275 * (waves > 0)
        code += 145 * (program.n_samples > 1) + 65 * (program.total_shift > 0)
        code += (330 if counts else 220) * (program.n_outputs > 1) + (150 if counts else 230) * (self.n_classes > 0)
        terms = trees if waves == 0 else program.n_basis_functions
        instructions = 70 + 26 * inputs + (35 + 15 * inputs) * waves + 12 * program.depth * trees
        instructions += 90 * columns * (program.n_samples > 1) + (12 + (16 if columns % 2 else 10) * columns) * terms
        instructions += 6 * inputs * columns * (waves == 0)
        return {"code": code, "stack": 2 * inputs + 4 * columns + 128, "instructions": instructions}


def shortened(tables: Tables) -> Tables:
    """Return the upper halves of numbers of single precision, where the lower ones of all are zero."""
    words = {name: table.view(np.uint32) for name, table in tables.items()}
    whole = any((own & 0xFFFF).any() for own in words.values())
    return tables if whole else {name: (own >> 16).astype(np.uint16) for name, own in words.items()}


def level_step(multipliers: NDArray[np.int32]) -> int | None:
    """Return the difference between neighbouring levels if it is constant, else None."""
    steps = set(np.diff(multipliers).tolist())
    return steps.pop() if len(steps) == 1 else None
