"""Frequencies proposed for a number of bytes: selected from a pool, moved from there, with random ones beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.maps import FourierFeatures, random_fourier_features
from pydirect.features.sparse_spectrum import optimised_frequencies
from pydirect.quantized.budget.costs import Costs, Form, Limits
from pydirect.quantized.budget.frequencies import forward_selection, rounded_frequencies, within_reach
from pydirect.quantized.budget.task import WEIGHT_BETWEEN, Task, points_between
from pydirect.statistics.gaussian import collect_statistics

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
    task: Task, name: str, form: Form, limits: Limits, selected: FourierFeatures | None = None
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


def _filled(task: Task, features: FourierFeatures, costs: Costs, limits: Limits) -> FourierFeatures:
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
    own = replace(
        features,
        frequencies=np.ascontiguousarray(features.frequencies[:, chosen]),
        amplitudes=np.sqrt(f / n) * features.amplitudes[chosen],
    )
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


def _selected(task: Task, costs: Costs, limits: Limits, frequency_bits: int) -> FourierFeatures:
    """Select frequencies, inputs and the constant by what each explains per byte, until the limits are reached."""
    pool = within_reach(random_fourier_features(task.hyperparameters, POOL, task.rng))
    pool = rounded_frequencies(pool, frequency_bits)
    x, y, weight = task.examples(MOST_SELECTION_ROWS)
    statistics = collect_statistics(pool, x, y, weight, n_threads=task.n_threads)
    noise = task.hyperparameters.noise_variance  # the prior variance of every weight is one
    chosen, singles = forward_selection(
        statistics.A,
        statistics.c,
        ridge=noise,
        n_pairs=POOL,
        costs=costs,
        limits=limits,
        least=LEAST_FALL * noise * task.n_outputs,
    )
    assert pool.linear_scale is not None
    linear = np.isin(np.arange(task.inputs.shape[1]), singles)
    return FourierFeatures(
        np.ascontiguousarray(pool.frequencies[:, chosen]),
        pool.amplitudes[chosen],
        np.where(linear, pool.linear_scale, 0.0),
        pool.constant,
    )
