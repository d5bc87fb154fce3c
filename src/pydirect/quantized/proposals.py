"""Basis functions proposed for small models of every size: frequencies selected and refined, trees grown one by one.

A selection goes on from the smaller ones, a forest starts from the next smaller one; neither depends on the limits of
the search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.linalg import solve
from scipy.optimize import minimize

from pydirect._core import improved_tree, selected_columns
from pydirect._validation import FloatArray
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import ForestFeatures, FourierFeatures, random_fourier_features
from pydirect.quantized.codes import bits_for
from pydirect.quantized.compile import INPUT_UNIT, quantise_frequencies, threshold_step
from pydirect.quantized.quantize import with_frequencies
from pydirect.quantized.task import MOST_KERNEL_ROWS, LabelTask, SmallMap, Task
from pydirect.statistics.gaussian import collect_statistics


@dataclass(frozen=True)
class Family:
    """Kind of basis functions.

    - `sizes`: numbers of frequencies and inputs, or of trees, that are compared; of classes, whose fits take longer,
      those up to `most_of_classes`.
    - `depth`: levels of a tree.
    - `with_points`: whether trees are grown on the kernel's posterior mean, at the rows and between them.
    - `handicap`: nats per row by which a model must be better than those of other families.
    """

    kind: str
    sizes: tuple[int, ...]
    most_of_classes: int
    depth: int = 3
    with_points: bool = True
    handicap: float = 0.0


FREQUENCIES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
TREES = (0, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128)
SMOOTH = (Family("fourier", FREQUENCIES, 128), *(Family("forest", TREES, 32, depth) for depth in (2, 3, 4)))
ROUGH = tuple(replace(f, with_points=False) for f in SMOOTH[1:])
# Frequencies that were moved may be far off between the rows.
REFINED = Family("refined", (4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64), 0, handicap=0.05)


def families_of(task: Task) -> list[Family]:
    """Return the families of a task: of labels smaller ones."""
    if not isinstance(task, LabelTask):
        return [*SMOOTH, REFINED, *ROUGH]
    return [replace(f, sizes=tuple(size for size in f.sizes if size <= f.most_of_classes)) for f in SMOOTH]


def proposals(task: Task, family: Family) -> Callable[[int], SmallMap]:
    """Return the function from a size to basis functions fitted to a task."""
    if family.kind == "fourier":
        return _selected(task)
    x, y, weight = _examples(task)
    if not family.with_points:
        return growing_forest(x, y, weight, family.depth)
    smooth = task.kernel_mean(x, *task.subset(MOST_KERNEL_ROWS))  # nothing is fitted to the noise of a row
    if family.kind == "forest":
        return growing_forest(x, smooth, weight, family.depth, SMOOTH_RIDGE)
    selected, ridge = _selected(task), task.hyperparameters.noise_variance
    return lambda size: refined_frequencies(selected(size), x, smooth, weight / weight.max(), ridge)


def _examples(task: Task) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return at most `MOST_EXAMPLES` of a task's examples."""
    examples = task.examples(MOST_EXAMPLES)
    chosen = np.sort(np.random.default_rng(0).permutation(len(examples[0]))[:MOST_EXAMPLES])
    x, y, weight = (np.ascontiguousarray(a[chosen]) for a in examples)
    return x, y, weight


def rounded_frequencies(features: FourierFeatures) -> FourierFeatures:
    """Round frequencies to the exact values of integers of eight bits."""
    integers, shift = quantise_frequencies(features.frequencies / (2 * np.pi), 8)
    turns = integers.T * 2.0 ** shift.astype(np.float64)[:, None] / 2.0**32 / INPUT_UNIT
    return replace(features, frequencies=np.ascontiguousarray(2 * np.pi * turns))


def within_reach(features: FourierFeatures) -> FourierFeatures:
    """Clip frequencies far beyond the others, so that few bits each resolve most of them."""
    size = np.abs(features.frequencies)
    typical = np.median(size, axis=1)
    largest = LARGEST_FREQUENCY * np.where(typical > 0, typical, size.max(axis=1))[:, None]
    return replace(features, frequencies=np.clip(features.frequencies, -largest, largest))


# Frequencies of eight bits go up to this multiple of the median magnitude of an input's frequencies.
LARGEST_FREQUENCY = 8.0
POOL = 512
# Rows, and points between them, that basis functions are chosen for.
MOST_EXAMPLES = 3000
# A column is selected when the squared error falls by more than this many noise variances (Akaike's criterion).
LEAST_FALL = 2.0


def _selected(task: Task) -> Callable[[int], FourierFeatures]:
    """Select frequencies and inputs by what each explains per byte; at least one frequency belongs to every size."""
    pool = within_reach(random_fourier_features(task.hyperparameters, POOL, np.random.default_rng(0)))
    pool = rounded_frequencies(pool)
    x, y, weight = _examples(task)
    statistics = collect_statistics(pool, x, y, weight, n_threads=task.n_threads)
    noise = task.hyperparameters.noise_variance  # the prior variance of every weight is one
    code = bits_for(len(task.grid)) / 8 * task.n_outputs
    costs, least = (x.shape[1] + 4 * code, 1 + 2 * code), LEAST_FALL * noise * task.n_outputs
    taken = np.array(selected_columns(statistics.A, statistics.c, noise, POOL, costs, least, FREQUENCIES[-1]))

    def of_size(size: int) -> FourierFeatures:
        chosen = taken[:size]
        if chosen.min() >= POOL:
            chosen = np.append(chosen[:-1], taken[taken < POOL][0])
        singles = np.isin(np.arange(len(pool.slopes)), chosen - POOL)
        pairs = np.sort(chosen[chosen < POOL])
        return replace(with_frequencies(pool, pairs), linear_scale=np.where(singles, pool.slopes, 0.0))

    return of_size


# Steps of the descent: few keep frequencies near their start.
STEPS = 30


def refined_frequencies(
    features: FourierFeatures, x: FloatArray, y: FloatArray, weight: FloatArray, ridge: float
) -> FourierFeatures:
    """Move frequencies to where a ridge regression of y (n_rows, n_outputs) on Φ leaves least, within their range.

    ``min_w ½ ‖y − Φw‖² + ½ ridge ‖w‖²`` is ``½ yᵀ(y − Φw)`` at its minimum, whose gradient is that at fixed w (Golub
    and Pereyra's variable projection), here with rows that count `weight` times.
    """
    shape, n = features.frequencies.shape, features.n_frequencies

    def left(theta: FloatArray) -> tuple[float, FloatArray]:
        phi = replace(features, frequencies=theta.reshape(shape)).transform(x)
        weighted = weight[:, None] * phi
        gram = weighted.T @ phi
        gram[np.diag_indices_from(gram)] += ridge
        w = solve(gram, weighted.T @ y, assume_a="pos")
        residual = weight[:, None] * (y - phi @ w)
        by_phase = phi[:, n : 2 * n] * (residual @ w[:n].T) - phi[:, :n] * (residual @ w[n : 2 * n].T)
        return float((residual * y).sum()) / 2, (x.T @ by_phase).ravel()

    most = np.repeat(np.abs(features.frequencies).max(axis=1), n)
    options = {"maxiter": STEPS, "maxcor": 20}
    start, bounds = features.frequencies.ravel(), [*zip(-most, most, strict=True)]
    found = minimize(left, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options).x
    return rounded_frequencies(replace(features, frequencies=np.ascontiguousarray(found.reshape(shape))))


BEYOND = LINEAR_REACH + INPUT_UNIT / 2  # no input exceeds it
# Thresholds of an input that are tried, at most; rows that a tree is grown on.
N_THRESHOLDS = 63
SHARE_OF_ROWS = 0.7
# Prior precision of a leaf in units of the noise precision, in growing and of the means of a tree's halves; and the
# prior standard deviation of a slope relative to that of a leaf.
RIDGE = 1.0
# On the kernel's posterior mean.
SMOOTH_RIDGE = 5.0
SLOPE = 0.3


def growing_forest(
    x: FloatArray, y: FloatArray, weight: FloatArray, depth: int = 3, ridge: float = RIDGE
) -> Callable[[int], ForestFeatures]:
    """Return the function from a number of trees to a forest grown on rows (n_rows, n_inputs).

    For targets (n_rows, n_outputs); rows count `weight` times. `depth`: levels of a tree.
    """
    n, d = x.shape
    weight = weight / weight.mean()
    root = np.sqrt(weight)[:, None]
    tables = [_thresholds(column, threshold_step(d), i) for i, column in enumerate(x.T)]
    cells = np.stack([np.searchsorted(*both) for both in zip(tables, x.T, strict=True)], axis=1).astype(np.uint8)
    thresholds = np.tile(BEYOND + INPUT_UNIT * np.arange(d)[:, None], N_THRESHOLDS + 1)
    for own, table in zip(thresholds, tables, strict=True):
        own[: len(table)] = table

    def features(splits: list[list[int]]) -> ForestFeatures:
        columns, index = np.divmod(np.array(splits, dtype=np.intp).reshape(-1, depth), N_THRESHOLDS + 1)
        return ForestFeatures(columns, thresholds[columns, index], 1.0, np.full(d, SLOPE))

    def fitted(splits: list[list[int]]) -> tuple[list[FloatArray], FloatArray]:
        """Fit all leaves and slopes together; return what each tree explains, and what is left of the targets."""
        phi = root * features(splits).transform(x)
        gram = phi.T @ phi
        gram[np.diag_indices_from(gram)] += ridge
        weights = solve(gram, phi.T @ (root * y), assume_a="pos")
        leaves = [slice(t << depth, (t + 1) << depth) for t in range(len(splits))]
        return [phi[:, own] @ weights[own] / root for own in leaves], y - phi @ weights / root

    @cache
    def forest(n_trees: int) -> list[list[int]]:
        """Return the splits of each tree: those of the next smaller forest and new ones, each improved in turn."""
        if n_trees == 0:
            return []
        rng, before = np.random.default_rng(n_trees), max(size for size in TREES if size < n_trees)
        splits: list[list[int]] = [*forest(before), *[[]] * (n_trees - before)]
        explained, left = fitted(splits[:before])
        explained += [np.zeros_like(y)] * (n_trees - before)
        for t in (*range(before, n_trees), *rng.permutation(n_trees), *rng.permutation(n_trees)):
            seen, target = np.asarray(rng.random(n) < SHARE_OF_ROWS), left + explained[t]
            tree = improved_tree(cells, seen, weight, target, splits[t], depth, N_THRESHOLDS + 1, ridge)
            splits[t], explained[t] = tree
            left = target - explained[t]
        return splits

    return lambda n_trees: features(forest(n_trees))


def _thresholds(column: FloatArray, step: int, number: int) -> FloatArray:
    """Return at most `N_THRESHOLDS` thresholds of an input: units above multiples of a step, its number and a half."""
    q = np.rint(column / INPUT_UNIT)
    different = np.unique(q)
    between = number + np.unique(step * np.rint((different[1:] + different[:-1] - 2 * number) / (2 * step)))
    if len(between) > N_THRESHOLDS:
        quantiles = np.quantile(q, np.arange(1, N_THRESHOLDS + 1) / (N_THRESHOLDS + 1))
        between = np.unique(between[np.searchsorted(between, quantiles).clip(max=len(between) - 1)])
    return np.asarray((between + 0.5) * INPUT_UNIT)
