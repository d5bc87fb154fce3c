"""Which columns matter, alone or in pairs: tests of class means, before any kernel is fitted.

Every column is cut into quantile classes. Without an effect, targets of variance one have a sum of squares between the
classes of about χ²_df; the same holds for the cells of two columns, once single effects have been taken out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray

# Most rows and columns that are looked at; with more columns, those with the largest effects of their own and others.
MAX_ROWS = 10_000
MAX_COLUMNS = 128
# Rows from which there are so many classes for single columns and for pairs; the first is a multiple of the second, or
# what single effects leave within the classes of pairs would make every pair significant.
CLASSES = ((2000, 18, 6), (400, 12, 4), (50, 6, 3))
# Effects from which a column's mean is taken out, and from which a column is relevant.
TAKEN_OUT = 3.5
RELEVANT = 4.3


def screen_columns(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the largest effect of every column, alone or in a pair; (n_columns,).

    Effects are normal deviates of the sums of squares between classes or cells: beyond `RELEVANT` hardly by chance,
    also among thousands of pairs. Weights play no part. Zeros for fewer than 50 rows, or fewer rows than columns.

    Parameters
    ----------
    x : ndarray of shape (n_rows, n_columns)
    y : ndarray of shape (n_rows, n_outputs)
    rng : numpy.random.Generator
        Chooses rows and columns where there are more than can be looked at.
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
    rest = np.stack([_standardised(column) for column in y.T], axis=1)
    single = np.stack([_take_out_single_effects(classes, column, fine) for column in rest.T]).max(axis=0)
    rest = np.stack([_standardised(column) for column in rest.T], axis=1)
    looked_at = np.arange(d)
    if d > MAX_COLUMNS:
        ranked = np.argsort(-single, kind="stable")
        others = rng.choice(ranked[MAX_COLUMNS // 2 :], MAX_COLUMNS // 2, replace=False)
        looked_at = np.sort(np.concatenate([ranked[: MAX_COLUMNS // 2], others]))
    pairs = pair_effects(classes[:, looked_at] // (fine // coarse), rest, coarse)
    scores[:] = single
    scores[looked_at] = np.maximum(single[looked_at], pairs.max(axis=1, initial=-np.inf))
    return scores


def quantile_classes(x: FloatArray, n_classes: int) -> NDArray[np.uint8]:
    """Return the quantile class of every entry within its column; equal entries share the class of their mean rank."""
    n = len(x)
    classes = np.empty(x.shape, dtype=np.uint8)
    for j, column in enumerate(x.T):
        ordered = np.sort(column)
        below, up_to = np.searchsorted(ordered, column, "left"), np.searchsorted(ordered, column, "right")
        classes[:, j] = n_classes * (below + up_to - 1) // (2 * n)
    return classes


def effect(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Effects as normal deviates, from sums of targets of variance one and counts of cells along the last axis.

    Wilson & Hilferty (1931): (χ²_df/df)^⅓ is nearly N(1 − 2/(9 df), 2/(9 df)).
    """
    between = np.divide(sums * sums, counts, out=np.zeros_like(sums), where=counts > 0).sum(axis=-1)
    freedom = np.maximum((counts > 0).sum(axis=-1) - 1, 1)
    spread = 2.0 / (9.0 * freedom)
    return np.asarray((np.cbrt(between / freedom) - (1.0 - spread)) / np.sqrt(spread))


def pair_effects(classes: NDArray[np.uint8], y: FloatArray, n_classes: int) -> FloatArray:
    """Return the effects of all pairs of columns, (n_columns, n_columns), with −∞ on the diagonal.

    The largest over the outputs. Counts and sums of cells are products of indicators.
    """
    d = classes.shape[1]
    indicators = (classes[:, :, None] == np.arange(n_classes, dtype=np.uint8)).reshape(len(y), -1).astype(np.float32)

    def cells(products: NDArray[np.float32]) -> FloatArray:
        shape = (d, n_classes, d, n_classes)
        return products.reshape(shape).transpose(0, 2, 1, 3).reshape(d, d, -1).astype(np.float64)

    counts = cells(indicators.T @ indicators)
    effects = np.full((d, d), -np.inf)
    for column in y.T:
        sums = cells(indicators.T @ (indicators * column.astype(np.float32)[:, None]))
        effects = np.maximum(effects, effect(sums, counts))
    np.fill_diagonal(effects, -np.inf)
    return effects


def _standardised(column: FloatArray) -> FloatArray:
    spread = column.std()
    return (column - column.mean()) / (spread if spread > 0 else 1.0)


def _take_out_single_effects(classes: NDArray[np.uint8], y: FloatArray, n_classes: int) -> FloatArray:
    """Return the effects of single columns, and subtract from y, in place, the class means of the large ones."""
    counts: FloatArray = np.stack([np.bincount(c, minlength=n_classes) for c in classes.T]).astype(np.float64)
    sums: FloatArray = np.stack([np.bincount(c, y, n_classes) for c in classes.T]).astype(np.float64)
    effects = effect(sums, counts)
    for j in np.argsort(-effects, kind="stable"):
        if effects[j] <= TAKEN_OUT:
            break
        means = np.bincount(classes[:, j], y, n_classes) / np.maximum(counts[j], 1.0)
        y -= means[classes[:, j]]
    return effects
