"""Frequencies of small models: chosen one by one, rounded, moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.budget.costs import Costs
from pydirect.quantized.integer.compile import INPUT_LIMIT, INPUT_UNIT, quantise_frequencies

POOL = 768
MOST_SELECTION_ROWS = 6000
# Frequencies that are moved, at most, and so many for a row; steps, from random ones and from those already moved.
MOST_MOVED = 256
MOVED_A_ROW = 0.5
STEPS = (30, 10)
WEIGHT_BETWEEN = 0.3
# Eight bits for a frequency go up to so many times the median magnitude of an input's frequencies.
LARGEST_FREQUENCY = 8.0
MOST_FREQUENCIES = 512
LEAST_CURVATURE = 0.02
PROPOSALS = ("random", "selected", "optimised")


def rounded_frequencies(features: FourierFeatures, bits: int) -> FourierFeatures:
    """Return features whose frequencies are exactly what `quantise_frequencies` makes of them."""
    unit = np.full(features.n_features_in, INPUT_UNIT)
    integers, shift = quantise_frequencies(features.frequencies / (2 * np.pi), unit, bits)
    turns = integers.T * 2.0 ** shift.astype(np.float64)[:, None] / 2.0**32 / INPUT_UNIT
    return replace(features, frequencies=np.ascontiguousarray(2 * np.pi * turns))


def within_reach(features: FourierFeatures) -> FourierFeatures:
    """Cut off frequencies far beyond the others: few bits for each are to tell most of them apart."""
    size = np.abs(features.frequencies)
    typical = np.median(size, axis=1)
    largest = LARGEST_FREQUENCY * np.where(typical > 0, typical, size.max(axis=1))[:, None]
    return replace(features, frequencies=np.clip(features.frequencies, -largest, largest))


def mapped_inputs(x: FloatArray, weight: FloatArray | None) -> tuple[InputMap, FloatArray]:
    """Return the map that standardises columns, and its values, cut off where integers end."""
    input_map = InputMap.fit(x, weight, rank=False)
    if input_map.n_outputs == 0:
        raise ValueError("X must have a column that varies")
    reach = INPUT_LIMIT * INPUT_UNIT
    return input_map, np.clip(input_map.transform(x), -reach, reach)


def forward_selection(
    a: FloatArray,
    c: FloatArray,
    ridge: float,
    n_pairs: int,
    costs: Costs,
    max_bytes: float,
    max_weights: float,
    least: float,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose columns of Φ one by one by the fall of the penalised squared error a byte, beyond `least` a column.

    Errors of all outputs, the columns of `c`, are summed.

    The regression is a ridge regression. Columns k and n_pairs + k are taken together, the others alone. The last one,
    the constant, is always taken, and one pair at least. A Cholesky factorisation of A + ridge grows row by row; what
    is left of A's diagonal, of the pairs' products and of c after projection on the chosen columns gives every fall in
    closed form.

    Returns
    -------
    ndarray of int
        Pairs that were taken.
    ndarray of int
        Of the columns that stand alone, those that were taken, counted from 2 n_pairs.
    """
    b = len(a)
    diagonal = a.diagonal() + ridge
    left = diagonal.copy()
    product = a[np.arange(n_pairs), n_pairs + np.arange(n_pairs)].copy()
    residual = c.copy()
    rows = np.empty((0, b))
    taken = np.zeros(b, dtype=bool)

    def take(j: int) -> None:
        nonlocal rows, left, product, residual
        row = a[j] - rows[:, j] @ rows
        row[j] += ridge
        row /= np.sqrt(max(row[j], 1e-12 * diagonal[j]))
        residual = residual - np.outer(row, residual[j] / row[j])
        left = np.maximum(left - row**2, 1e-12 * diagonal)
        product = product - row[:n_pairs] * row[n_pairs : 2 * n_pairs]
        rows = np.vstack([rows, row])
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
        pairs_fit = n_bytes + costs.frequency <= max_bytes and n_weights + 2 <= max_weights
        singles_fit = n_bytes + costs.single <= max_bytes and n_weights + 1 <= max_weights
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
