"""Frequencies of small models: rounded to integers, and selected one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.budget.costs import Costs, Limits
from pydirect.quantized.integer.compile import INPUT_UNIT, quantise_frequencies

# Frequencies of eight bits go up to this multiple of the median magnitude of an input's frequencies.
LARGEST_FREQUENCY = 8.0


def rounded_frequencies(features: FourierFeatures, bits: int) -> FourierFeatures:
    """Round frequencies to the exact values of the integers that `quantise_frequencies` returns."""
    unit = np.full(features.n_features_in, INPUT_UNIT)
    integers, shift = quantise_frequencies(features.frequencies / (2 * np.pi), unit, bits)
    turns = integers.T * 2.0 ** shift.astype(np.float64)[:, None] / 2.0**32 / INPUT_UNIT
    return replace(features, frequencies=np.ascontiguousarray(2 * np.pi * turns))


def within_reach(features: FourierFeatures) -> FourierFeatures:
    """Clip frequencies far beyond the others, so that few bits each resolve most of them."""
    size = np.abs(features.frequencies)
    typical = np.median(size, axis=1)
    largest = LARGEST_FREQUENCY * np.where(typical > 0, typical, size.max(axis=1))[:, None]
    return replace(features, frequencies=np.clip(features.frequencies, -largest, largest))


def forward_selection(
    a: FloatArray, c: FloatArray, *, ridge: float, n_pairs: int, costs: Costs, limits: Limits, least: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Select columns of Φ one by one, by the fall of the penalised squared error per byte beyond `least` per column.

    This is forward selection for a ridge regression; errors of all outputs, the columns of `c`, are summed. Columns k
    and n_pairs + k are taken together, the others alone. The last one, the constant, is always taken, and at least one
    pair. A Cholesky factorisation of A + ridge grows row by row; the residuals of A's diagonal, of the pairs' products
    and of c after projection on the chosen columns give every fall in closed form.

    `a`, (n_weights, n_weights). `c`, (n_weights, n_outputs). `least`: smallest fall per column. Returns the pairs that
    were taken; single columns that were taken, counted from 2 n_pairs.
    """
    b = len(a)
    diagonal = a.diagonal() + ridge
    left = diagonal.copy()
    product = a[np.arange(n_pairs), n_pairs + np.arange(n_pairs)].copy()
    residual = c.copy()
    rows, n_taken = np.empty((64, b)), 0
    taken = np.zeros(b, dtype=bool)

    def take(j: int) -> None:
        nonlocal rows, n_taken, left, product, residual
        if n_taken == len(rows):
            rows = np.concatenate([rows, np.empty_like(rows)])
        row = a[j] - rows[:n_taken, j] @ rows[:n_taken]
        row[j] += ridge
        row /= np.sqrt(max(row[j], 1e-12 * diagonal[j]))
        residual = residual - np.outer(row, residual[j] / row[j])
        left = np.maximum(left - row**2, 1e-12 * diagonal)
        product = product - row[:n_pairs] * row[n_pairs : 2 * n_pairs]
        rows[n_taken] = row
        n_taken += 1
        taken[j] = True

    take(b - 1)
    n_bytes, n_weights = costs.fixed + costs.single, 1
    while True:
        r, g = residual, left
        first, second = slice(0, n_pairs), slice(n_pairs, 2 * n_pairs)
        determinant = np.maximum(g[first] * g[second] - product**2, 1e-9 * g[first] * g[second])
        squares, both = (r**2).sum(axis=1), (r[first] * r[second]).sum(axis=1)
        pair = g[second] * squares[first] + g[first] * squares[second] - 2 * product * both
        single = (r[2 * n_pairs :] ** 2).sum(axis=1) / g[2 * n_pairs :]
        gain = np.concatenate([(pair / determinant - 2 * least) / costs.frequency, (single - least) / costs.single])
        gain[np.concatenate([taken[first], taken[2 * n_pairs :]])] = -1.0
        pairs_fit = n_bytes + costs.frequency <= limits.n_bytes and n_weights + 2 <= limits.n_weights
        singles_fit = n_bytes + costs.single <= limits.n_bytes and n_weights + 1 <= limits.n_weights
        gain[:n_pairs] = gain[:n_pairs] if pairs_fit else -1.0
        gain[n_pairs:] = gain[n_pairs:] if singles_fit else -1.0
        best = int(gain.argmax())
        if gain[best] <= 0:
            if taken[:n_pairs].any():
                break
            best = int(pair.argmax())
        if best < n_pairs:
            take(best)
            take(n_pairs + best)
            n_bytes, n_weights = n_bytes + costs.frequency, n_weights + 2
        else:
            take(n_pairs + best)
            n_bytes, n_weights = n_bytes + costs.single, n_weights + 1
    return np.flatnonzero(taken[:n_pairs]), np.flatnonzero(taken[2 * n_pairs : -1])
