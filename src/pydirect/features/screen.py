"""Which columns matter, alone or in pairs: tests of class means, before any kernel is fitted.

Every column is cut into quantile classes. Without an effect, targets of variance one have a sum of squares between the
classes of about χ²_df; the same holds for the cells of two columns, once single effects have been taken out. Products
of two columns are correlated with the targets at any width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray

# Most rows and columns that are looked at; with more columns, those with the largest effects of their own and others.
MAX_ROWS = 10_000
MAX_COLUMNS = 128
# Rows from which there are so many classes for single columns and for pairs; the first is a multiple of the second, or
# what single effects leave within the classes of pairs would make every pair significant.
CLASSES = ((2000, 18, 6), (400, 12, 4), (50, 6, 3))
# Effects from which a column's mean is taken out, and from which a column is relevant.
TAKEN_OUT = 3.5
# Standard deviations at which targets are cut off: else a single outlier in a rare category is an effect.
FARTHEST = 3.0
RELEVANT = 4.3
# Deviates beyond what the largest of many is by chance; products of a row, and columns, that are looked at together.
SPARE_DEVIATES = 1.5
MOST_PRODUCTS, PRODUCT_COLUMNS = 40_000_000_000, 512
# Times that all means are taken out: the first are those of targets that still have the other columns' effects.
SWEEPS = 3


def screen_columns(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the largest effect of every column, alone or in a pair; (n_columns,).

    Effects are normal deviates of the sums of squares between classes or cells: beyond `RELEVANT` hardly by chance,
    also among thousands of pairs. Weights play no part. Zeros for fewer than 50 rows, or fewer rows than columns.
    """
    n, d = x.shape
    scores = np.zeros(d)
    if n < CLASSES[-1][0] or d > n:
        return scores
    if n > MAX_ROWS:
        chosen = np.sort(rng.choice(n, MAX_ROWS, replace=False))
        x, y, n = x[chosen], y[chosen], MAX_ROWS
    fine, coarse = next((fine, coarse) for rows, fine, coarse in CLASSES if n >= rows)
    classes = quantile_classes(x, fine)
    rest = _cut_off(y)
    single = np.stack([_take_out_single_effects(classes, column, fine) for column in rest.T]).max(axis=0)
    rest = _cut_off(rest)
    looked_at = np.arange(d)
    if d > MAX_COLUMNS:
        ranked = np.argsort(-single, kind="stable")
        others = rng.choice(ranked[MAX_COLUMNS // 2 :], MAX_COLUMNS // 2, replace=False)
        looked_at = np.sort(np.concatenate([ranked[: MAX_COLUMNS // 2], others]))
    pairs = pair_effects(classes[:, looked_at] // (fine // coarse), rest, coarse, resolve_n_threads())
    scores[:] = np.maximum(single, product_effects(x, rest))
    scores[looked_at] = np.maximum(scores[looked_at], pairs.max(axis=1, initial=-np.inf))
    return scores


def product_effects(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return each column's largest correlation of a product with another one with y, as a normal deviate; (n_columns,).

    Less what the largest of so many deviates is by chance, so that `RELEVANT` is the same limit at any width.
    """
    d = x.shape[1]
    n = min(len(x), MOST_PRODUCTS // d**2)
    columns = np.ascontiguousarray(np.clip(standardised(x[:n]), -FARTHEST, FARTHEST).T, dtype=np.float32)
    found = np.zeros(d, dtype=np.float32)
    for target in y[:n].T.astype(np.float32):
        for begin in range(0, d, PRODUCT_COLUMNS):
            block = np.abs((columns[begin : begin + PRODUCT_COLUMNS] * target) @ columns.T)
            block[np.arange(len(block)), begin + np.arange(len(block))] = 0.0
            found[begin : begin + len(block)] = np.maximum(found[begin : begin + len(block)], block.max(axis=1))
    by_chance = np.sqrt(2 * np.log(max(d * d / 2, 1))) + SPARE_DEVIATES
    return np.asarray(found / np.sqrt(n) - max(by_chance - RELEVANT, 0.0), dtype=np.float64)


def quantile_classes(x: FloatArray, n_classes: int) -> NDArray[np.uint8]:
    """Return the quantile class of every entry within its column.

    Equal entries share one, the middle one of theirs: a rare value, of 0 and 1 say, is not in that of a common one.
    """
    n = len(x)
    classes = np.empty(x.shape, dtype=np.uint8)
    begins = np.arange(1, n_classes) * n // n_classes
    for j, column in enumerate(x.T):
        edges = np.sort(column)[begins]
        below, upto = (np.searchsorted(edges, column, side) for side in ("left", "right"))
        classes[:, j] = (below + upto + 1) // 2
    return classes


def normal_deviate(between: FloatArray, freedom: NDArray[np.integer[Any]]) -> FloatArray:
    """Return sums of squares between cells, χ²_df without an effect, as normal deviates.

    Wilson & Hilferty (1931): (χ²_df/df)^⅓ is nearly N(1 − 2/(9 df), 2/(9 df)).
    """
    df = np.maximum(freedom, 1)
    spread = 2.0 / (9.0 * df)
    return np.asarray((np.cbrt(between / df) - (1.0 - spread)) / np.sqrt(spread))


def pair_effects(classes: NDArray[np.uint8], y: FloatArray, n_classes: int, n_threads: int = 1) -> FloatArray:
    """Return the effects of all pairs of columns, (n_columns, n_columns), −∞ on the diagonal; largest over outputs."""
    d = classes.shape[1]
    between, cells = np.zeros((y.shape[1], d, d)), np.ones((d, d), dtype=np.int32)
    columns, targets = np.ascontiguousarray(classes.T), np.ascontiguousarray(y.T)
    _core.pair_screen(columns, targets, n_classes, between, cells, n_threads)
    effects = normal_deviate(between.max(axis=0), cells - 1)
    np.fill_diagonal(effects, -np.inf)
    return effects


def standardised(columns: FloatArray) -> FloatArray:
    """Return columns of mean zero and variance one, or zero where they are constant, (n_rows, n_columns)."""
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _cut_off(columns: FloatArray) -> FloatArray:
    return standardised(np.clip(standardised(columns), -FARTHEST, FARTHEST))


def _take_out_single_effects(classes: NDArray[np.uint8], y: FloatArray, n_classes: int) -> FloatArray:
    """Return the effects of single columns, and subtract from y, in place, the class means of the large ones."""
    counts = np.stack([np.bincount(c, minlength=n_classes) for c in classes.T])
    sums = np.stack([np.bincount(c, y, n_classes) for c in classes.T])
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=1)
    effects = normal_deviate(between, (counts > 0).sum(axis=1) - 1)
    large = [j for j in np.argsort(-effects, kind="stable") if effects[j] > TAKEN_OUT]
    for j in large * SWEEPS:
        means = np.bincount(classes[:, j], y, n_classes) / np.maximum(counts[j], 1)
        y -= means[classes[:, j]]
    return effects
