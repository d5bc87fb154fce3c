"""Probabilities of classes in integers, from logits in fixed point: counts of 2^-15.

For each sample, with d ≥ 0 how many counts a class's logit is below the largest one: ``u = (d · factor) >> shift``,
where ``factor / 2^shift`` is ``2^16 log2(e) / counts_per_unit``, and ``p = 2^(-u/2^16)`` in units of
``2^-exponent_bits`` by `power_of_two`. A class's share is p over the sum of all classes, rounded to 2^-23; its
probability is the average of the samples' shares, rounded to 2^-15. Two classes have the logits 0 and z, and the first
one's probability is what the second one's leaves. With 2^16 counts per unit of a logit every probability is within one
count of that of the logits in real numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pydirect.quantized.integer.arithmetic import Integers

ONE = 2**15
SHARE_BITS = 23
# 2^-f = 1 - f (c_1 - f (c_2 - f (c_3 - f c_4))) within 2.2e-6 for f from 0 to 1, in units of 2^-30; c_4 first.
POLYNOMIAL = (7419135, 57311509, 257211668, 744187942, 2**30)


@dataclass(frozen=True)
class Probabilities:
    """Constants of probabilities; the module's docstring defines them.

    - `factor`: at most 2^31 - 1.
    - `exponent_bits`: such that the sum over the classes stays below 2^31.
    """

    n_classes: int
    factor: int
    shift: int
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
            found[:, 0] = ONE - found[:, 1]
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
