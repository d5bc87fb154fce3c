"""Growing forests for the posterior of their leaves: after every tree, the weights of all leaves are fitted anew.

With Q = √W Φ L⁻ᵀ, LLᵀ = ΦᵀWΦ + ridge, the fitted values of the ridge regression are Q Qᵀ √W y: a tree adds columns to Q
and changes no others. The first T trees of a forest are the forest of T trees.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from pydirect._validation import FloatArray
from pydirect.features.kernel import linear_inputs
from pydirect.features.maps import ForestFeatures
from pydirect.quantized.compile import INPUT_LIMIT, INPUT_UNIT

DEPTH = 4
BEYOND = (INPUT_LIMIT + 0.5) * INPUT_UNIT  # a threshold that no input exceeds
# Thresholds of an input that are tried, at most; rows that a tree is grown on.
N_THRESHOLDS = 63
SHARE_OF_ROWS = 0.7
# Prior precision of a leaf in units of the noise precision, in growing and of the means of a tree's halves; and the
# prior standard deviation of a slope relative to that of a leaf.
RIDGE = 1.0
SLOPE = 0.3


def growing_forest(
    x: FloatArray, y: FloatArray, weight: FloatArray, rng: np.random.Generator
) -> Callable[[int], ForestFeatures]:
    """Return the function from a number of trees to a forest grown on rows (n_rows, n_inputs).

    For targets (n_rows, n_outputs); rows count `weight` times.
    """
    n, d = x.shape
    root = np.sqrt(weight / weight.mean())[:, None]
    tables = [_thresholds(column) for column in x.T]
    cells = np.stack([np.searchsorted(table, column) for table, column in zip(tables, x.T, strict=True)], axis=1)
    cells += np.arange(d) * (N_THRESHOLDS + 1)
    thresholds = np.array([np.append(table, np.full(N_THRESHOLDS + 1 - len(table), BEYOND)) for table in tables])
    q, n_columns = np.empty((n, 512), order="F"), 0
    residual, splits = y, np.empty((0, DEPTH), dtype=np.intp)

    def explain(phi: FloatArray) -> None:
        """Fit the weights of more columns (n_rows, n_columns), of what others leave of them."""
        nonlocal q, n_columns, residual
        block, before = root * phi, q[:, :n_columns]
        shared = before.T @ block
        gram = block.T @ block - shared.T @ shared
        gram[np.diag_indices_from(gram)] += RIDGE
        own = solve_triangular(cholesky(gram, lower=True), (block - before @ shared).T, lower=True).T
        residual = residual - own @ (own.T @ (root * y)) / root
        end = n_columns + own.shape[1]
        if end > q.shape[1]:
            q = np.concatenate([q, np.empty_like(q)], axis=1)
        q[:, n_columns:end], n_columns = own, end

    def of_size(n_trees: int) -> ForestFeatures:
        nonlocal splits
        while len(splits) < n_trees:
            rows = np.sort(rng.permutation(n)[: max(int(SHARE_OF_ROWS * n), 1)])
            own = _splits(cells[rows], residual[rows], root[rows, 0] ** 2, d)
            explain(np.equal.outer(_leaf(cells, own), np.arange(1 << DEPTH)).astype(np.float64))
            splits = np.vstack([splits, own])
        columns, index = np.divmod(splits[:n_trees], N_THRESHOLDS + 1)
        return ForestFeatures(columns, thresholds[columns, index], 1.0, np.full(d, SLOPE), 1.0)

    explain(np.column_stack([SLOPE * linear_inputs(x, d), np.ones(n)]))
    return of_size


def _thresholds(column: FloatArray) -> FloatArray:
    """Return at most `N_THRESHOLDS` thresholds of an input, half way between integers of the program."""
    q = np.rint(column / INPUT_UNIT)
    different = np.unique(q)
    between = np.floor((different[1:] + different[:-1]) / 2)
    if len(between) > N_THRESHOLDS:
        quantiles = np.quantile(q, np.arange(1, N_THRESHOLDS + 1) / (N_THRESHOLDS + 1))
        between = np.unique(between[np.searchsorted(between, quantiles).clip(max=len(between) - 1)])
    return np.asarray((between + 0.5) * INPUT_UNIT)


def _splits(cells: NDArray[np.intp], r: FloatArray, weight: FloatArray, d: int) -> NDArray[np.intp]:
    """Return the split of every level, a number of a cell, by the fall of the penalised squared error of the means."""
    width = N_THRESHOLDS + 1
    leaf, chosen = np.zeros(len(cells), dtype=np.intp), np.empty(DEPTH, dtype=np.intp)
    for level in range(DEPTH):
        n_leaves = 1 << level
        at = (leaf[:, None] * (d * width) + cells).ravel()

        def sums(values: FloatArray, at: NDArray[np.intp] = at, n_leaves: int = n_leaves) -> FloatArray:
            counted = np.bincount(at, np.repeat(values, d), minlength=n_leaves * d * width)
            return np.cumsum(counted.reshape(n_leaves, d, width), axis=2)

        count = sums(weight)
        gain = np.zeros((d, width))
        for target in r.T:
            total = sums(weight * target)
            left, right = total, total[:, :, -1:] - total
            gain += (left**2 / (count + RIDGE) + right**2 / (count[:, :, -1:] - count + RIDGE)).sum(axis=0)
        chosen[level] = gain.argmax()
        leaf = 2 * leaf + _above(cells, chosen[level])
    return chosen


def _above(cells: NDArray[np.intp], split: np.intp) -> NDArray[np.bool_]:
    """Return whether rows are above the threshold of a split."""
    return np.asarray(cells[:, split // (N_THRESHOLDS + 1)] > split)


def _leaf(cells: NDArray[np.intp], splits: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the leaf of every row, (n_rows,)."""
    leaf = np.zeros(len(cells), dtype=np.intp)
    for split in splits:
        leaf = 2 * leaf + _above(cells, split)
    return leaf
