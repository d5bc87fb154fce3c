"""`FixedPointModel`: what exported integer code computes, in Python, and the tables that it stores.

Results are counts, int32, of which ``counts_per_unit`` make a unit of the output. With ``affine(v, gain, offset, shift)
= round_shift(v · gain + offset, shift)`` in int64

- the mean is ``affine(sum, gain, offset, shift)``, a sample's function likewise with ``S · total`` for ``sum``;
- the standard deviation ``affine(root, width_gain, 0, width_shift)``, the half-width of an interval likewise.

The gain is ``counts_per_unit · scale · 2^shift``, which is rounded, as is the offset. With M the largest sum, the mean
is thus within ``1/2 + (M + 1)/2^(shift + 1)`` counts of ``counts_per_unit · (offset + scale · sum)`` in real numbers.
Shifts are at least the number of bits of M, or of the largest width: means, functions and standard deviations are
within one count, ends of Gaussian intervals within two. As M and the largest width are proved (`prove` of programs), so
is that no result leaves 32 bits, whatever the inputs: counts too fine for that are refused.

Probabilities of classes are counts of 2^-15. For each sample, with d ≥ 0 how many counts a class's logit is below the
largest one: ``u = (d · factor) >> shift``, where ``factor / 2^shift`` is ``2^16 log2(e) / counts_per_unit``, and ``p =
2^(-u/2^16)`` in units of ``2^-exponent_bits`` by `power_of_two`. A class's share is p over the sum of all classes,
rounded to 2^-23; its probability is the average of the samples' shares, rounded to 2^-15. Two classes have the logits 0
and z, and the first one's probability is what the second one's leaves. With 2^16 counts per unit of a logit every
probability is within one count of that of the logits in real numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array
from pydirect.quantized.fitted import as_rows
from pydirect.quantized.program import (
    INT32_MAX,
    SINE_TABLE,
    AccumulatorOverflowError,
    IntegerProgram,
    Integers,
    Results,
    gaussian_z,
    round_shift,
    smallest_integers,
)


@dataclass(frozen=True)
class RawInputs:
    """Conversion of a device's own integers (sensor counts) to the program's inputs; step 1 of the arithmetic."""

    # origin, multiplier, offset: int32 (n_inputs,): at most 2^30 in magnitude, so that nothing exceeds 2^62 for any
    # int32. The offset corrects for the rounding of the origin to a whole count
    origin: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    offset: NDArray[np.int32]
    # uint8 (n_inputs,): at most 45; `limit`, int32 (n_inputs,)
    shift: NDArray[np.uint8]
    limit: NDArray[np.int32]
    # counts_per_unit, zero_count: (n_features_in,)
    counts_per_unit: FloatArray
    zero_count: FloatArray

    @classmethod
    def of(cls, program: IntegerProgram, counts_per_unit: ArrayLike, zero_count: ArrayLike = 0) -> RawInputs:
        """Derive the constants for counts ``r = zero_count + counts_per_unit · x`` of every input of the program.

        Before it is rounded, q differs by at most 2^-13 from its value for this x in real numbers.
        """
        d = program.n_features_in
        named = ((counts_per_unit, "counts_per_unit"), (zero_count, "zero_count"))
        gains, zeros = (np.broadcast_to(as_float_array(a, name, (d,) if np.ndim(a) else ()), (d,)) for a, name in named)
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
        """Return the counts of rows of X, as far as 32 bits hold them, (n_rows, n_features_in)."""
        exact = np.rint(self.zero_count + self.counts_per_unit * rows)
        return np.clip(exact, -(2**31), 2**31 - 1).astype(np.int32)

    def quantise(self, counts: ArrayLike) -> Integers:
        """Return q of counts (n_rows, n_inputs), by step 1."""
        t = (np.asarray(counts, dtype=np.int64) - self.origin) * self.multiplier + self.offset
        return np.clip(round_shift(t, self.shift.astype(np.int64)), -self.limit, self.limit)


# By default the smallest standard deviation has four digits, or the largest value of a model without noise seven.
COUNTS_OF_NOISE, COUNTS_OF_REACH = 1e3, 1e6
# Of logits, whose probabilities are then within one count of 2^-15.
COUNTS_OF_LOGIT = 2.0**16
# Relative to what varies, which then has three digits.
LARGEST_OFFSET = 1e6
LARGEST_SHIFT = 60


@dataclass(frozen=True)
class FixedResults(Results):
    """Constants that turn a program's integers into counts; the module's docstring defines them."""

    program: IntegerProgram
    # (n_outputs,)
    counts_per_unit: FloatArray
    # gain, width_gain: int32 (n_outputs,); `offset`, int64; `shift`, `width_shift`, uint8
    gain: NDArray[np.int32]
    offset: Integers
    shift: NDArray[np.uint8]
    width_gain: NDArray[np.int32]
    width_shift: NDArray[np.uint8]
    # probability of intervals
    level: float

    @classmethod
    def of(
        cls,
        program: IntegerProgram,
        counts_per_unit: ArrayLike | None = None,
        level: float = 0.9,
        *,
        logits: bool = False,
    ) -> Self:
        """Derive the constants; by default counts are powers of ten, or of two for logits."""
        largest = largest_counts(program, level)
        if counts_per_unit is None:
            wanted = np.full(len(largest), COUNTS_OF_LOGIT) if logits else _default_counts(program)
            base = 2.0 if logits else 10.0
            counts = np.minimum(wanted, [_power_below(most, base) for most in largest])
            counts = np.full_like(counts, counts.min()) if logits else counts  # which are compared
        else:
            given = as_float_array(
                counts_per_unit, "output_counts_per_unit", (len(largest),) * (np.ndim(counts_per_unit) > 0)
            )
            counts = np.broadcast_to(given, (len(largest),))
            if not ((counts > 0) & (counts <= largest)).all():
                raise ValueError(
                    f"output_counts_per_unit must be positive and at most {largest.tolist()}, beyond which 32 bits do "
                    f"not hold every result, got {counts_per_unit!r}"
                )
        reach, width = program.prove().sum, _largest_width(program, level)
        exact = [map(Fraction, a) for a in zip(counts, program.scale, program.offset, program.std_scale, strict=True)]
        columns = zip(*(_constants(reach, width, *numbers) for numbers in exact), strict=True)
        dtypes = (np.int32, np.int64, np.uint8, np.int32, np.uint8)
        constants: list[Any] = [np.array(a, dtype=dtype) for a, dtype in zip(columns, dtypes, strict=True)]
        gain, offset, shift, width_gain, width_shift = constants
        counts = np.array(counts, dtype=np.float64)
        results = cls(program, counts, gain, offset, shift, width_gain, width_shift, level)
        results.prove()
        return results

    def prove(self) -> int:
        """Prove that no product leaves 64 bits and no result 32, whatever the inputs; return the largest result."""
        reach, width = self.program.prove().sum, _largest_width(self.program, self.level)
        largest = 0
        for g, b, r, h, q in zip(self.gain, self.offset, self.shift, self.width_gain, self.width_shift, strict=True):
            product, other = reach * abs(int(g)) + abs(int(b)), width * int(h)
            end = _rounded(product, int(r)) + _rounded(other, int(q))
            for value, limit in ((product + 2 ** int(r), 2**63), (other + 2 ** int(q), 2**63), (end, 2**31)):
                if value >= limit:
                    raise AccumulatorOverflowError(f"a result must stay below {limit}, but could reach {value}")
            largest = max(largest, end)
        return largest

    def require_digits(self) -> None:
        """Raise ValueError when the offset leaves no digits to the functions, or units are beyond single precision."""
        if not ((self.counts_per_unit > 1e-30) & (self.counts_per_unit < 1e30)).all():
            raise ValueError(f"units of the outputs need {self.counts_per_unit} counts each: scale y")
        varies = np.abs(self.program.scale) * self.program.prove().sum + _noise(self.program)
        lost = (varies > 0) & (np.abs(self.program.offset) > LARGEST_OFFSET * varies)
        if lost.any():
            raise ValueError(
                f"results of 32 bits cannot hold what varies beside an offset of {self.program.offset[lost][0]:.6g}: "
                "subtract an origin from y"
            )

    def value(self, sums: Integers, factor: int = 1) -> Integers:
        """Return counts of ``offset + scale · factor · sums``."""
        product = factor * sums * self.gain.astype(np.int64)
        return np.asarray(round_shift(product + self.offset, self.shift.astype(np.int64)))

    def width(self, widths: Integers) -> Integers:
        """Return counts of ``std_scale · widths``."""
        product = widths * self.width_gain.astype(np.int64)
        return np.asarray(round_shift(product, self.width_shift.astype(np.int64)))


def largest_counts(program: IntegerProgram, level: float) -> FloatArray:
    """Return the finest counts of every output that `FixedResults` can offer, (n_outputs,)."""
    reach, width = program.prove().sum, _largest_width(program, level)
    scale, std_scale = np.abs(program.scale), program.std_scale
    mean, half = np.abs(program.offset) + scale * max(reach, 1), std_scale * max(width, 1)
    bits, width_bits = reach.bit_length(), width.bit_length()
    limits = [
        (2.0**31 - 8) / (mean + half),
        (2.0**31 - 1) / (scale * 2.0**bits),
        2.0**62 / (mean * 2.0**bits),
        (2.0**31 - 1) / (std_scale * 2.0**width_bits),
        2.0**62 / (half * 2.0**width_bits),
    ]
    return np.asarray(np.min(limits, axis=0) * (1 - 1e-9))  # a margin for rounding in double precision


def _default_counts(program: IntegerProgram) -> FloatArray:
    noise = _noise(program)
    reach = np.abs(program.offset) + np.abs(program.scale) * max(program.prove().sum, 1)
    wanted = np.where(noise > 0, COUNTS_OF_NOISE / np.where(noise > 0, noise, 1.0), COUNTS_OF_REACH / reach)
    return np.asarray(10.0 ** np.ceil(np.log10(wanted)))


def _noise(program: IntegerProgram) -> FloatArray:
    return np.asarray(program.std_scale * np.sqrt(program.noise.astype(np.float64)))


def _power_below(largest: float, base: float) -> float:
    power = math.floor(math.log(largest, base))
    return base ** (power if base**power <= largest else power - 1)


def _largest_width(program: IntegerProgram, level: float) -> int:
    """Largest root, or half-width of an interval."""
    root = math.isqrt(program.prove().squares)
    return max(root, (gaussian_z(level) * root + 2**15) >> 16)


def _constants(
    reach: int, width: int, counts: Fraction, scale: Fraction, offset: Fraction, std_scale: Fraction
) -> tuple[int, int, int, int, int]:
    """Return gain, offset and shift of sums up to `reach`, gain and shift of widths up to `width`."""
    shift = _largest_shift(counts * abs(scale), counts * (abs(scale) * reach + abs(offset)))
    width_shift = _largest_shift(counts * std_scale, counts * std_scale * width)
    gain, rest = round(counts * scale * 2**shift), round(counts * offset * 2**shift)
    return gain, rest, shift, round(counts * std_scale * 2**width_shift), width_shift


def _largest_shift(factor: Fraction, largest: Fraction) -> int:
    """Return the largest shift for which the factor takes 31 bits and the largest value 62."""
    for shift in range(LARGEST_SHIFT, 0, -1):
        if factor * 2**shift <= INT32_MAX and largest * 2**shift <= 2**62:
            return shift
    return 0


def _rounded(v: int, shift: int) -> int:
    return (v + (2**shift >> 1)) >> shift


CERTAIN = 2**15
SHARE_BITS = 23
# 2^-f = 1 - f (c_1 - f (c_2 - f (c_3 - f c_4))) within 2.2e-6 for f from 0 to 1, in units of 2^-30; c_4 first.
POLYNOMIAL = (7419135, 57311509, 257211668, 744187942, 2**30)


@dataclass(frozen=True)
class Probabilities:
    """Constants of probabilities; the module's docstring defines them."""

    n_classes: int
    # at most 2^31 - 1
    factor: int
    shift: int
    # such that the sum over the classes stays below 2^31
    exponent_bits: int

    @classmethod
    def of(cls, n_classes: int, counts_per_unit: float) -> Self:
        """Derive the constants for logits of `counts_per_unit`."""
        exact = 2.0**16 / np.log(2.0) / counts_per_unit
        shift = min(int(30 - np.floor(np.log2(exact))), 62)
        return cls(n_classes, round(exact * 2.0**shift), shift, min(24, 30 - n_classes.bit_length()))

    def of_logits(self, logits: Integers) -> Integers:
        """Return probabilities from counts of logits, (n_rows, n_outputs, n_samples) to (n_rows, n_classes)."""
        if self.n_classes == 2:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        u = ((logits.max(axis=1, keepdims=True) - logits) * self.factor) >> self.shift
        e = power_of_two(u, self.exponent_bits)
        shares = ratio(e, e.sum(axis=1, keepdims=True), SHARE_BITS).sum(axis=2)
        found = ratio(shares, logits.shape[2] << SHARE_BITS, 15)
        if self.n_classes == 2:
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


Pair = tuple[Integers, Integers]


@dataclass(frozen=True)
class FixedPointModel:
    """An integer program with its inputs and results: the numbers of an exported header, bit for bit.

    Rows are (n_rows, n_features_in): a device's own integers, ``zero_count + counts_per_unit · x``, or without these
    constants x itself in single precision. Results are counts, (n_rows, n_outputs), of which ``counts_per_unit`` make a
    unit of the output. No result can leave 32 bits, whatever the row.
    """

    program: IntegerProgram
    results: FixedResults
    raw: RawInputs | None = None
    probabilities: Probabilities | None = None

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
        raw = None
        if counts_per_unit is not None:
            raw = RawInputs.of(program, counts_per_unit, zero_count)
        elif np.any(zero_count):
            raise ValueError("zero_count must come with counts_per_unit, how many counts a unit of every input makes")
        if n_classes and output_counts_per_unit is not None:
            raise ValueError("output_counts_per_unit must be None for a classifier: probabilities are counts of 2^-15")
        results = FixedResults.of(program, output_counts_per_unit, level, logits=n_classes > 0)
        if output_counts_per_unit is None:
            results.require_digits()
        probabilities = Probabilities.of(n_classes, float(results.counts_per_unit[0])) if n_classes else None
        return cls(program, results, raw, probabilities)

    @property
    def counts_per_unit(self) -> NDArray[np.float64]:
        """How many counts make a unit of every output, (n_outputs,)."""
        return self.results.counts_per_unit

    def quantise(self, X: ArrayLike) -> Integers:
        """Return the inputs of the program, (n_rows, n_inputs)."""
        rows = as_rows(X, self.program.n_features_in, ())
        if self.raw is None:
            return self.program.quantise_inputs(rows)
        if not ((rows == np.rint(rows)) & (rows >= -(2**31)) & (rows < 2**31)).all():
            raise ValueError("X must hold counts, whole numbers of 32 bits: round(zero_count + counts_per_unit * x)")
        return self.raw.quantise(rows[:, self.program.columns].astype(np.int64))

    def totals(self, X: ArrayLike) -> Integers:
        """Totals of every sample, (n_rows, n_outputs, n_samples)."""
        self.program.prove()
        return self.program.totals_of_features(self.program.features(self.quantise(X)))

    def predict(self, X: ArrayLike) -> Pair:
        """Mean and standard deviation of every output, noise included."""
        totals = self.totals(X)
        return self.results.mean(totals), self.results.std(totals)

    def predict_interval(self, X: ArrayLike) -> Pair:
        """Central Gaussian intervals of the target."""
        return self.results.interval(self.totals(X), self.results.level)

    def predict_function_interval(self, X: ArrayLike) -> Pair:
        """Central intervals of the samples' functions, without noise."""
        return self.results.function_interval(self.totals(X), self.results.level)

    def predict_class(self, X: ArrayLike) -> Integers:
        """Index of the most probable class by the mean logit, (n_rows,)."""
        mean = self.results.mean(self.totals(X))
        return (mean[:, 0] > 0).astype(np.int64) if mean.shape[1] == 1 else mean.argmax(axis=1)

    def predict_proba(self, X: ArrayLike) -> Integers:
        """Probabilities of the classes in units of 2^-15, (n_rows, n_classes)."""
        if self.probabilities is None:
            raise ValueError("only a classifier has probabilities")
        return self.probabilities.of_logits(self.results.functions(self.totals(X)))


Tables = dict[str, NDArray[Any]]


def level_step(multipliers: NDArray[np.int32]) -> int | None:
    """Return the difference between neighbouring levels if it is constant, else None."""
    steps = set(np.diff(multipliers).tolist())
    return steps.pop() if len(steps) == 1 else None


def stored_tables(results: FixedResults, raw: RawInputs | None = None) -> dict[str, Tables]:
    """Return the tables of a program by part, except the packed codes and constants that are written into the code.

    With `raw` the device's numbers are integers, both inputs and results; otherwise they have single precision.

    Column numbers take the smallest type that holds them all. Powers of two are bytes: 0x80 for zero, otherwise the
    exponent, with 0x40 for a negative one. Evenly spaced levels need no table.
    """
    program = results.program
    index = np.uint8 if program.n_features_in <= 256 else np.uint16
    inputs: Tables = {"columns": program.columns.astype(index)}
    outputs: Tables = {
        name: getattr(results, name) for name in ("gain", "offset", "shift", "width_gain", "width_shift")
    }
    outputs["noise"] = program.noise
    if raw is None:
        inputs |= {"origin": program.origin, "multiplier": program.multiplier}
        with np.errstate(over="ignore"):  # only the size counts then: `FixedResults.require_digits`
            outputs["unit"] = (1 / results.counts_per_unit).astype(np.float32)
    else:
        inputs |= {f"input_{name}": getattr(raw, name) for name in ("origin", "multiplier", "offset", "shift")}
    if len(set(program.limit.tolist())) > 1:
        inputs["limit"] = program.limit.astype(np.int16)
    levels: Tables = {}
    if program.powers_of_two:
        levels["powers"] = _powers(program.multipliers)
    elif level_step(program.multipliers) is None:
        levels["multipliers"] = smallest_integers(program.multipliers)
    parts = {"inputs": inputs, "levels": levels}
    if program.n_frequencies:
        inputs["phase_shift"] = program.phase_shift
    if len(program.linear):
        inputs["linear"] = program.linear.astype(index)
    if (forest := program.forest) is not None:
        inputs_of_splits = forest.inputs.astype(np.uint8 if program.n_inputs <= 256 else np.uint16)
        parts["trees"] = {"splits": forest.splits, "split_input": inputs_of_splits, "threshold": forest.thresholds}
    waves = {"frequencies": program.frequencies, "sine_table": SINE_TABLE}
    parts |= {name: {name: a} if program.n_frequencies else {} for name, a in waves.items()}
    parts["groups"] = {
        "group_end": np.array([g.end for g in program.groups], dtype=np.uint16),
        "group_gain": smallest_integers([g.gain for g in program.groups]),
        "group_shift": np.array([g.shift for g in program.groups], dtype=np.uint8),
    }
    return parts | {"outputs": outputs}


def _powers(multipliers: NDArray[np.int32]) -> NDArray[np.uint8]:
    size = np.abs(multipliers.astype(np.int64))
    power = np.log2(np.maximum(size, 1)).astype(np.uint8)
    return np.where(size == 0, 0x80, power | np.where(multipliers < 0, 0x40, 0)).astype(np.uint8)


def code_bytes(program: IntegerProgram) -> int:
    """Estimate the bytes of code of a prediction on a Cortex-M, compiled with -Os.

    Fitted to 64 programs with counts in and out, compiled by GCC 12 for a Cortex-M0+, and to forests: within 260 bytes.
    A Cortex-M4 takes about 100 bytes less. `bench/scripts/flash.py` compares.
    """
    waves, forest, linear = program.n_frequencies > 0, program.forest is not None, len(program.linear) > 0
    parts = [(285 if waves else 100, True), (200, forest), (175, linear), (380, program.n_outputs > 1)]
    return 790 - 310 * (program.n_samples == 1) + sum(size for size, holds in parts if holds)


def stack_bytes(program: IntegerProgram) -> int:
    """Estimate the bytes of stack of a prediction: quantised inputs, sums and registers."""
    return 2 * program.n_inputs + 8 * program.n_columns + 224


def instruction_count(program: IntegerProgram) -> int:
    """Estimate the instructions of a prediction on a Cortex-M: of every step, so many for each of its operations."""
    columns, inputs = program.n_columns, program.n_inputs
    splits = 0 if program.forest is None else program.forest.splits.size
    trees = 0 if program.forest is None else len(program.forest.splits)
    others = len(program.codes) - program.n_leaves
    waves = program.n_frequencies * (80 + 10 * inputs)
    return 600 + 40 * inputs + 150 * columns + waves + 14 * splits + (trees + others) * (10 + 16 * columns)
