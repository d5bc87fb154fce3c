"""Basis functions proposed for small models of every size: frequencies selected, and trees grown, one by one.

A selection goes on from the smaller ones, a forest starts from the next smaller one; neither depends on the limits of
the search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from pydirect._core import improved_tree
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
    - `with_points`: whether the kernel's posterior mean, at the rows and between them, grows the trees.
    """

    kind: str
    sizes: tuple[int, ...]
    most_of_classes: int
    depth: int = 3
    with_points: bool = True


FREQUENCIES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
TREES = (0, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128)
SMOOTH = (Family("fourier", FREQUENCIES, 128), *(Family("forest", TREES, 32, depth) for depth in (2, 3, 4)))
ROUGH = tuple(replace(f, with_points=False) for f in SMOOTH[1:])


def families_of(task: Task) -> list[Family]:
    """Return the families of a task: of labels smaller ones."""
    if not isinstance(task, LabelTask):
        return [*SMOOTH, *ROUGH]
    return [replace(f, sizes=tuple(size for size in f.sizes if size <= f.most_of_classes)) for f in SMOOTH]


def proposals(task: Task, family: Family) -> Callable[[int], SmallMap]:
    """Return the function from a size to basis functions fitted to a task."""
    if family.kind != "forest":
        return _selected(task)
    x, y, weight = _examples(task)
    if not family.with_points:
        return growing_forest(x, y, weight, family.depth)
    smooth = task.kernel_mean(x, *task.subset(MOST_KERNEL_ROWS))  # no tree is grown on the noise of a row
    return growing_forest(x, smooth, weight, family.depth, SMOOTH_RIDGE)


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


def forward_selection(
    a: FloatArray, c: FloatArray, *, ridge: float, n_pairs: int, costs: tuple[float, float], least: float, most: int
) -> NDArray[np.intp]:
    """Select columns of Φ one by one, by the fall of the penalised squared error per byte beyond `least` per column.

    This is forward selection for a ridge regression; errors of all outputs, the columns of `c`, are summed. Columns k
    and n_pairs + k are taken together, the others alone. The last one, the constant, is always taken, and at least one
    pair. A Cholesky factorisation of A + ridge grows row by row; the residuals of A's diagonal, of the pairs' products
    and of c after projection on the chosen columns give every fall in closed form.

    `a`, (n_weights, n_weights). `c`, (n_weights, n_outputs). `costs`: of a pair and of a single column. `least`:
    smallest fall per column. Returns at most `most` pairs and single columns in the order in which they were taken;
    single ones are counted from n_pairs on.
    """
    first, second = slice(0, n_pairs), slice(n_pairs, 2 * n_pairs)
    left = diagonal = a.diagonal() + ridge
    product, residual = a[first, second].diagonal(), c
    rows, n_taken = np.empty_like(a), 0
    taken: list[int] = []

    def take(j: int) -> None:
        nonlocal n_taken, left, product, residual
        row = a[j] - rows[:n_taken, j] @ rows[:n_taken]
        row[j] += ridge
        row /= np.sqrt(max(row[j], 1e-12 * diagonal[j]))
        residual = residual - np.outer(row, residual[j] / row[j])
        left = np.maximum(left - row**2, 1e-12 * diagonal)
        product = product - row[first] * row[second]
        rows[n_taken] = row
        n_taken += 1

    take(len(a) - 1)
    while len(taken) < most or min(taken) >= n_pairs:
        r, g = residual, left
        determinant = np.maximum(g[first] * g[second] - product**2, 1e-9 * g[first] * g[second])
        squares, both = (r**2).sum(axis=1), (r[first] * r[second]).sum(axis=1)
        pair = g[second] * squares[first] + g[first] * squares[second] - 2 * product * both
        single = (r[2 * n_pairs : -1] ** 2).sum(axis=1) / g[2 * n_pairs : -1]
        gain = np.concatenate([(pair / determinant - 2 * least) / costs[0], (single - least) / costs[1]])
        gain[taken] = -1.0
        best = int(gain.argmax())
        if gain[best] <= 0 or len(taken) >= most:
            if any(j < n_pairs for j in taken):
                break
            best = int(pair.argmax())
        taken.append(best)
        for j in (best, n_pairs + best) if best < n_pairs else (n_pairs + best,):
            take(j)
    return np.array(taken, dtype=np.intp)


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
    scale = pool.slopes
    x, y, weight = _examples(task)
    statistics = collect_statistics(pool, x, y, weight, n_threads=task.n_threads)
    noise = task.hyperparameters.noise_variance  # the prior variance of every weight is one
    code = bits_for(len(task.grid)) / 8 * task.n_outputs
    costs = (x.shape[1] + 4 * code, 1 + 2 * code)
    least = LEAST_FALL * noise * task.n_outputs
    taken, most = np.empty(0, dtype=np.intp), 0

    def of_size(size: int) -> FourierFeatures:
        nonlocal taken, most
        if size > most:
            most = 4 * size
            options: dict[str, Any] = {"ridge": noise, "n_pairs": POOL, "costs": costs, "least": least, "most": most}
            taken = forward_selection(statistics.A, statistics.c, **options)
        chosen = taken[:size]
        if not (chosen < POOL).any():
            chosen = np.append(taken[: size - 1], taken[taken < POOL][0])
        singles = np.isin(np.arange(len(scale)), chosen - POOL)
        pairs = np.sort(chosen[chosen < POOL])
        return replace(with_frequencies(pool, pairs), linear_scale=np.where(singles, scale, 0.0))

    return of_size


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
