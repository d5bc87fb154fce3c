"""Frequencies proposed for a number of bytes: selected one by one, moved from there, with random ones beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.maps import FourierFeatures, random_fourier_features
from pydirect.features.sparse_spectrum import optimised_frequencies
from pydirect.quantized.compile import INPUT_UNIT, quantise_frequencies
from pydirect.quantized.quantize import with_frequencies
from pydirect.quantized.task import WEIGHT_BETWEEN, Costs, Form, SizeLimits, Task, points_between
from pydirect.statistics.gaussian import collect_statistics

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
    a: FloatArray, c: FloatArray, *, ridge: float, n_pairs: int, costs: Costs, limits: SizeLimits, least: float
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


PROPOSALS = ("selected", "moved", "filled")
POOL = 1024
MOST_SELECTION_ROWS = 6000
MOST_FREQUENCIES = 512
# Frequencies that are moved, at most, and per row; steps.
MOST_MOVED = 256
MOVED_PER_ROW = 0.5
STEPS = 30
# Rows at which moved frequencies reproduce the kernel's posterior mean: training rows, and points between two of them.
MOST_ROWS = 800
# A column is selected when the squared error falls by more than this many noise variances (Akaike's criterion).
LEAST_FALL = 2.0


def proposed(
    task: Task, name: str, form: Form, limits: SizeLimits, selected: FourierFeatures | None = None
) -> FourierFeatures:
    """Propose features of one kind within the limits, with rounded frequencies.

    `name`: {"selected", "moved", "filled"}: selected from a pool; these, moved; these and random ones, moved.
    `selected`: the first of them, where it is known.
    """
    costs = form.costs(task.input_map)
    features = _selected(task, costs, limits, form.frequency_bits) if selected is None else selected
    if name == "filled":
        features = _filled(task, features, costs, limits)
    if name != "selected":
        features = _moved(task, features)
    return rounded_frequencies(features, form.frequency_bits)


def _filled(task: Task, features: FourierFeatures, costs: Costs, limits: SizeLimits) -> FourierFeatures:
    """Add random frequencies until the limits are reached, and all inputs where there is room for them."""
    d = task.inputs.shape[1]
    linear = costs.fixed + (d + 1) * costs.single + costs.frequency <= limits.n_bytes and d + 3 <= limits.n_weights
    singles = d * linear + 1
    room = (limits.n_bytes - costs.fixed - singles * costs.single) / costs.frequency
    useful = min(max(len(task.y), 16), MOST_FREQUENCIES)  # no model of these rows gains from more
    n = max(int(min(room, (limits.n_weights - singles) / 2, useful)), 1)
    drawn = random_fourier_features(task.hyperparameters, n, task.rng)
    assert drawn.linear_scale is not None
    drawn = within_reach(replace(drawn, linear_scale=linear * drawn.linear_scale))
    kept = min(features.n_frequencies, n)
    frequencies = np.hstack([features.frequencies[:, :kept], drawn.frequencies[:, kept:]])
    return replace(drawn, frequencies=np.ascontiguousarray(frequencies))


def _moved(task: Task, features: FourierFeatures) -> FourierFeatures:
    """Move frequencies, some of them when there are many, so that they reproduce the kernel's posterior mean."""
    f = features.n_frequencies
    n = min(f, MOST_MOVED, max(int(MOVED_PER_ROW * len(task.y)), 1))
    chosen = np.linspace(0, f - 1, n).astype(np.intp)  # evenly over the parts of the spectrum, always the same
    own = with_frequencies(features, chosen)
    own = replace(own, amplitudes=np.sqrt(f / n) * own.amplitudes)
    noise, largest = task.hyperparameters.noise_variance, np.abs(features.frequencies).max(axis=1)
    own = optimised_frequencies(own, noise, *_reproduced(task), largest, STEPS)
    frequencies = features.frequencies.copy()
    frequencies[:, chosen] = own.frequencies
    return replace(features, frequencies=frequencies)


def _reproduced(task: Task) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows, at training rows and between them, the kernel's posterior mean there, and their weights."""
    x, y, weight = task.subset(MOST_ROWS)
    rows = np.vstack([x, points_between(x, len(x), task.rng)])
    mean = task.kernel_mean(rows, x, y, weight)
    return rows, mean, np.concatenate([weight / weight.mean(), np.full(len(x), WEIGHT_BETWEEN)])


def _selected(task: Task, costs: Costs, limits: SizeLimits, frequency_bits: int) -> FourierFeatures:
    """Select frequencies, inputs and the constant by what each explains per byte, until the limits are reached."""
    pool = within_reach(random_fourier_features(task.hyperparameters, POOL, task.rng))
    pool = rounded_frequencies(pool, frequency_bits)
    x, y, weight = task.examples(MOST_SELECTION_ROWS)
    statistics = collect_statistics(pool, x, y, weight, n_threads=task.n_threads)
    noise = task.hyperparameters.noise_variance  # the prior variance of every weight is one
    least = LEAST_FALL * noise * task.n_outputs
    chosen, singles = forward_selection(
        statistics.A, statistics.c, ridge=noise, n_pairs=POOL, costs=costs, limits=limits, least=least
    )
    assert pool.linear_scale is not None
    linear = np.isin(np.arange(task.inputs.shape[1]), singles)
    return replace(with_frequencies(pool, chosen), linear_scale=np.where(linear, pool.linear_scale, 0.0))
