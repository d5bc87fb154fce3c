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
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array
from pydirect.quantized.compile import threshold_step
from pydirect.quantized.fitted import as_rows
from pydirect.quantized.program import (
    AccumulatorOverflowError,
    IntegerProgram,
    Integers,
    Results,
    half_width,
    smallest_integers,
)


def round_shift(v: Integers, shift: Any) -> Integers:
    """Return v/2^shift rounded to the nearest integer, halves away from zero."""
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
        if (coarse := program.columns[np.abs(slope) > 2.0 * program.limit]).size:
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


@dataclass(frozen=True)
class SingleResults(Results):
    """Results in single precision."""

    program: IntegerProgram

    def value(self, sums: Integers) -> NDArray[np.float32]:
        """Return ``offset + scale · sums``."""
        scale, offset = self.program.scale.astype(np.float32), self.program.offset.astype(np.float32)
        return np.asarray(sums.astype(np.float32) * scale + offset)

    def width(self, roots: Integers, factor: float = 1.0) -> NDArray[np.float32]:
        """Return ``factor · std_scale · roots``."""
        return np.asarray(roots.astype(np.float32) * self.width_scale(factor))

    def width_scale(self, factor: float = 1.0) -> NDArray[np.float32]:
        """Return the factor on roots."""
        return (self.program.std_scale * factor).astype(np.float32)


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
        """Derive the constants; by default counts are powers of ten, or ``2^bits log2(e)`` for logits."""
        largest = largest_counts(program, level)
        if logits:
            counts = np.full(len(largest), 2.0 ** min(LOGIT_BITS, math.floor(math.log2(largest.min() * math.log(2)))))
            counts /= math.log(2)
        elif counts_per_unit is None:
            counts = np.minimum(_default_counts(program), [10.0 ** math.floor(math.log10(most)) for most in largest])
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
        reach, width = program.prove().sum, _largest_root(program)
        exact = [map(Fraction, a) for a in zip(counts, program.scale, program.offset, program.std_scale, strict=True)]
        factor = Fraction(half_width(level))
        columns = zip(*(_constants(reach, width, factor, *numbers) for numbers in exact), strict=True)
        constants: dict[str, Any] = {
            name: np.array(a, dtype=dtype) for (name, dtype), a in zip(CONSTANTS.items(), columns, strict=True)
        }
        results = cls(program, np.array(counts, dtype=np.float64), level=level, **constants)
        results.prove()
        return results

    def prove(self) -> int:
        """Prove that no product leaves 64 bits and no result 32, whatever the inputs; return the largest result."""
        reach, width = self.program.prove().sum, _largest_root(self.program)
        largest = 0
        gains = zip(
            self.gain, self.offset, self.shift, self.width_gain, self.interval_gain, self.width_shift, strict=True
        )
        for g, b, r, *h, q in gains:
            product, other = reach * abs(int(g)) + abs(int(b)), width * int(max(h))
            end = _rounded(product, int(r)) + _rounded(other, int(q))
            for value, limit in ((product + 2 ** int(r), 2**63), (other + 2 ** int(q), 2**63), (end, 2**31)):
                if value >= limit:
                    raise AccumulatorOverflowError(f"a result must stay below {limit}, but could reach {value}")
            largest = max(largest, end)
        return largest

    def value(self, sums: Integers) -> Integers:
        """Return counts of ``offset + scale · sums``."""
        return round_shift(sums * self.gain.astype(np.int64) + self.offset, self.shift.astype(np.int64))

    def width(self, roots: Integers, factor: float = 1.0) -> Integers:
        """Return counts of ``factor · std_scale · roots``, the factor one or that of the intervals."""
        gain = self.width_gain if factor == 1.0 else self.interval_gain
        return round_shift(roots * gain.astype(np.int64), self.width_shift.astype(np.int64))


def require_digits(program: IntegerProgram) -> None:
    """Raise ValueError when the offset leaves no digits to the functions, or units are beyond single precision."""
    varies = np.abs(program.scale) * program.prove().sum + _noise(program)
    if not ((varies < 1e30) & ((varies == 0) | (varies > 1e-30))).all():
        raise ValueError(f"results of 32 bits cannot hold outputs that vary by {varies.max():g}: scale y")
    lost = (varies > 0) & (np.abs(program.offset) > LARGEST_OFFSET * varies)
    if lost.any():
        raise ValueError(
            f"results of 32 bits cannot hold what varies beside an offset of {program.offset[lost][0]:.6g}: "
            "subtract an origin from y"
        )


def largest_counts(program: IntegerProgram, level: float) -> FloatArray:
    """Return the finest counts of every output that `FixedResults` can offer, (n_outputs,)."""
    reach, width = program.prove().sum, _largest_root(program)
    scale, std_scale = np.abs(program.scale), program.std_scale * max(half_width(level), 1.0)
    mean, half = np.abs(program.offset) + scale * max(reach, 1), std_scale * max(width, 1)
    bits, width_bits = reach.bit_length(), width.bit_length()
    with np.errstate(divide="ignore"):  # no limit of what is zero
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
    return np.asarray(program.std_scale * np.sqrt(2.0**16 * program.noise.astype(np.float64)))


def _largest_root(program: IntegerProgram) -> int:
    return math.isqrt(program.prove().squares * 2**16)


def _constants(
    reach: int, width: int, factor: Fraction, counts: Fraction, scale: Fraction, offset: Fraction, std_scale: Fraction
) -> tuple[int, int, int, int, int, int]:
    """Return gain, offset and shift of sums up to `reach`, and gains, also with `factor`, and shift of roots."""
    shift = _largest_shift(counts * abs(scale), counts * (abs(scale) * reach + abs(offset)))
    widest = counts * std_scale * max(factor, Fraction(1))
    width_shift = _largest_shift(widest, widest * width)
    gain, rest = round(counts * scale * 2**shift), round(counts * offset * 2**shift)
    width_gain = counts * std_scale * 2**width_shift
    return gain, rest, shift, round(width_gain), round(width_gain * factor), width_shift


def _largest_shift(factor: Fraction, largest: Fraction) -> int:
    """Return the largest shift for which the factor takes 31 bits and the largest value 62."""
    for shift in range(LARGEST_SHIFT, 0, -1):
        if factor * 2**shift <= 2**31 - 1 and largest * 2**shift <= 2**62:
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
    """Probabilities of classes from counts of logits, ``2^bits log2(e)`` of which make one."""

    n_classes: int
    bits: int

    @property
    def exponent_bits(self) -> int:
        """Bits of a power of two, such that the sum over the classes stays below 2^31."""
        return min(24, 30 - self.n_classes.bit_length())

    def of_logits(self, logits: Integers) -> Integers:
        """Return probabilities from counts of logits, (n_rows, n_outputs, n_samples) to (n_rows, n_classes)."""
        if self.n_classes == 2:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        below = logits.max(axis=1, keepdims=True) - logits
        e = power_of_two(below << (LOGIT_BITS - self.bits), self.exponent_bits)
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
    raw: RawInputs | None = None
    logits: FixedResults | None = None
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
        if counts_per_unit is None and (np.any(zero_count) or output_counts_per_unit is not None):
            raise ValueError(
                "zero_count and output_counts_per_unit must come with counts_per_unit, how many counts a unit of every "
                "input makes"
            )
        if n_classes and output_counts_per_unit is not None:
            raise ValueError("output_counts_per_unit must be None for a classifier: probabilities are counts of 2^-15")
        program.prove()
        logits = probabilities = None
        if n_classes:
            logits = FixedResults.of(program, None, level, logits=True)
            bits = round(math.log2(logits.counts_per_unit[0] * math.log(2)))
            probabilities = Probabilities(n_classes, bits)
        if counts_per_unit is None:
            return cls(program, SingleResults(program), level, None, logits, probabilities)
        raw = RawInputs.of(program, counts_per_unit, zero_count)
        results = FixedResults.of(program, output_counts_per_unit, level) if logits is None else logits
        return cls(program, results, level, raw, logits, probabilities)

    @property
    def fixed(self) -> FixedResults | None:
        """Constants of results in counts, if there are any."""
        return self.logits if isinstance(self.results, SingleResults) else self.results

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
        self.program.prove()
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
        logits = self._logits()
        assert self.probabilities is not None
        return self.probabilities.of_logits(logits.functions(self.totals(X)))

    def _logits(self) -> FixedResults:
        if self.logits is None:
            raise ValueError("only a classifier has probabilities")
        return self.logits

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
            inputs |= {"origin": program.origin, "multiplier": program.multiplier}
        else:
            inputs |= {f"input_{name}": getattr(self.raw, name) for name in ("origin", "multiplier", "offset", "shift")}
        parts = {"inputs": inputs, "frequencies": {}, "trees": {}, "levels": {}}
        if program.n_frequencies:
            parts["frequencies"] = {"phase_shift": program.phase_shift, "frequencies": program.frequencies}
        if (forest := program.forest) is not None:
            step = threshold_step(program.n_inputs)
            splits = forest.inputs * (2**16 // step) + (forest.thresholds.astype(np.int32) + 2**15) // step
            parts["trees"] = {"splits": splits.astype(np.uint16)}
        if level_step(program.multipliers) is None:
            parts["levels"] = {"multipliers": smallest_integers(program.multipliers)}
        ends, gains = term_groups(program)
        parts["groups"] = {"group_end": ends, "group_gain": gains}
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
        program, counts, forest = self.program, self.raw is not None, self.program.forest
        columns, inputs = program.n_columns, program.n_inputs
        parts = [
            (435 if counts else 205, True),
            (150, program.n_samples > 1),
            (150, program.n_frequencies > 0),
            (90, forest is not None),
            (95, len(set(program.gain.tolist())) > 1),
            (330 if counts else 220, program.n_outputs > 1),
            (150 if counts else 230, self.probabilities is not None),
        ]
        trees = 0 if forest is None else len(forest.inputs)
        instructions = 37 * inputs + (35 + 15 * inputs) * program.n_frequencies + 70 * trees
        instructions += 90 * columns * (program.n_samples > 1)
        instructions += (8 + 18 * columns) * (program.n_basis_functions - program.n_leaves + trees)
        code = sum(size for size, holds in parts if holds)
        return {"code": code, "stack": 2 * inputs + 4 * columns + 128, "instructions": instructions}


def level_step(multipliers: NDArray[np.int32]) -> int | None:
    """Return the difference between neighbouring levels if it is constant, else None."""
    steps = set(np.diff(multipliers).tolist())
    return steps.pop() if len(steps) == 1 else None


def term_groups(program: IntegerProgram) -> tuple[NDArray[np.uint16], NDArray[Any]]:
    """Return where terms of the same gain end, and these gains; a tree is one term, like any other basis function."""
    gain, forest = program.gain, program.forest
    if forest is not None:
        own = np.arange(program.n_leaves)  # a forest has no frequencies before it
        gain = np.delete(gain, own[own % (1 << forest.inputs.shape[1]) != 0])
    ends = np.append(np.flatnonzero(np.diff(gain)) + 1, len(gain))[: len(gain)]
    return ends.astype(np.uint16), smallest_integers(gain[ends - 1])
