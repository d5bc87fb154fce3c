"""Results in fixed point: means, standard deviations and intervals as integers; step 5 without floating point.

With ``affine(v, gain, offset, shift) = round_shift(v · gain + offset, shift)`` in int64, results are counts, int32, of
which ``counts_per_unit`` make a unit of the output:

- the mean ``affine(sum, gain, offset, shift)``, a sample's function likewise with ``S · total`` for ``sum``;
- the standard deviation ``affine(root, width_gain, 0, width_shift)``, the half-width of an interval likewise.

The gain is ``counts_per_unit · scale · 2^shift``, which is rounded, as is the offset. With M the largest sum, the mean
is thus within ``1/2 + (M + 1)/2^(shift + 1)`` counts of ``counts_per_unit · (offset + scale · sum)`` in real numbers.
Shifts are at least the number of bits of M, or of the largest width: means, functions and standard deviations are
within one count, ends of Gaussian intervals within two. As M and the largest width are proved (`Program.prove`), so is
that no result leaves 32 bits, whatever the inputs: counts too fine for that are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array
from pydirect.quantized.errors import AccumulatorOverflowError
from pydirect.quantized.integer.arithmetic import INT32_MAX, Integers, gaussian_z, round_shift
from pydirect.quantized.integer.program import Program

# By default the smallest standard deviation has four digits, or the largest value of a model without noise seven.
COUNTS_OF_NOISE, COUNTS_OF_REACH = 1e3, 1e6
# Of logits, whose probabilities are then within one count of 2^-15.
COUNTS_OF_LOGIT = 2.0**16
# Relative to what varies, which then has three digits.
LARGEST_OFFSET = 1e6
LARGEST_SHIFT = 60


def affine(v: Any, gain: Any, offset: Any, shift: Any) -> Any:
    """Return ``(v · gain + offset) / 2^shift`` rounded to the nearest integer, halves away from zero."""
    return round_shift(v * gain + offset, shift)


@dataclass(frozen=True)
class FixedResults:
    """Constants that turn a program's integers into counts; the module's docstring defines them.

    - `counts_per_unit`, (n_outputs,).
    - `gain`, `width_gain`, int32 (n_outputs,); `offset`, int64; `shift`, `width_shift`, uint8.
    - `level`: probability of intervals.
    """

    program: Program
    counts_per_unit: FloatArray
    gain: NDArray[np.int32]
    offset: Integers
    shift: NDArray[np.uint8]
    width_gain: NDArray[np.int32]
    width_shift: NDArray[np.uint8]
    level: float

    @classmethod
    def of(
        cls, program: Program, counts_per_unit: ArrayLike | None = None, level: float = 0.9, *, logits: bool = False
    ) -> Self:
        """Derive the constants; by default counts are powers of ten, or of two for logits.

        Raises ValueError when counts are not positive, or so fine that a result could leave 32 bits.
        """
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
        reach = program.prove().sum
        constants = [
            _constants(reach, _largest_width(program, level), *map(Fraction, numbers))
            for numbers in zip(counts, program.scale, program.offset, program.std_scale, strict=True)
        ]
        gain, offset, shift, width_gain, width_shift = (
            np.array(a, dtype=np.int64) for a in zip(*constants, strict=True)
        )
        results = cls(
            program,
            np.array(counts, dtype=np.float64),
            gain.astype(np.int32),
            offset,
            shift.astype(np.uint8),
            width_gain.astype(np.int32),
            width_shift.astype(np.uint8),
            level,
        )
        results.prove()
        return results

    def prove(self) -> int:
        """Prove that no product leaves 64 bits and no result 32, whatever the inputs; return the largest result.

        Raises AccumulatorOverflowError when one could.
        """
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

    # --- counts, int64 (n_rows, n_outputs) each

    def value(self, sums: Integers) -> Integers:
        """Return counts of ``offset + scale · sums``."""
        return np.asarray(affine(sums, self.gain.astype(np.int64), self.offset, self.shift.astype(np.int64)))

    def width(self, widths: NDArray[Any]) -> Integers:
        """Return counts of ``std_scale · widths``."""
        return np.asarray(
            affine(widths.astype(np.int64), self.width_gain.astype(np.int64), 0, self.width_shift.astype(np.int64))
        )

    def mean(self, totals: Integers) -> Integers:
        """Means."""
        return self.value(self.program.sums(totals))

    def std(self, totals: Integers) -> Integers:
        """Return standard deviations, noise included."""
        return self.width(self.program.roots(totals))

    def interval(self, totals: Integers) -> tuple[Integers, Integers]:
        """Central intervals of a Gaussian with this mean and standard deviation."""
        mean, half = self.mean(totals), self.width(self.program.half_widths(totals, self.level))
        return mean - half, mean + half

    def function_interval(self, totals: Integers) -> tuple[Integers, Integers]:
        """Central intervals of the samples' functions, without noise."""
        ends = self.program.quantile_interval(totals, self.level)
        first, second = (self.value(self.program.n_samples * end) for end in ends)
        return np.minimum(first, second), np.maximum(first, second)

    def functions(self, totals: Integers) -> Integers:
        """Values of the samples' functions, (n_rows, n_outputs, n_samples)."""
        return np.moveaxis(self.value(self.program.n_samples * np.moveaxis(totals, 2, 0)), 0, 2)


def largest_counts(program: Program, level: float) -> FloatArray:
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


def _default_counts(program: Program) -> FloatArray:
    noise = _noise(program)
    reach = np.abs(program.offset) + np.abs(program.scale) * max(program.prove().sum, 1)
    wanted = np.where(noise > 0, COUNTS_OF_NOISE / np.where(noise > 0, noise, 1.0), COUNTS_OF_REACH / reach)
    return np.asarray(10.0 ** np.ceil(np.log10(wanted)))


def _noise(program: Program) -> FloatArray:
    return np.asarray(program.std_scale * np.sqrt(program.noise.astype(np.float64)))


def _power_below(largest: float, base: float) -> float:
    power = math.floor(math.log(largest, base))
    return base ** (power if base**power <= largest else power - 1)


def _largest_width(program: Program, level: float) -> int:
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
