"""Nearest training rows: a k-d tree where few directions matter, otherwise all distances in single precision."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from pydirect._validation import FloatArray

Float32Array = NDArray[np.float32]

# Up to this many dimensions of equal spread a tree is faster than all distances, at 40,000 rows.
MOST_TREE_DIMENSIONS = 5.0
BLOCK_BYTES = 2**21  # distances held at a time: what the cache holds
N_GROUPS = 32  # the nearest rows are among those of the groups with the nearest representatives


class Neighbours:
    """The nearest of fixed rows, the same for any number of threads.

    - `rows`, (n_rows, n_columns): centred, so that single precision resolves small distances.
    """

    def __init__(self, rows: Float32Array) -> None:
        self.rows = rows

    def __reduce__(self) -> Any:
        return Neighbours, (self.rows,)

    @cached_property
    def _tree(self) -> KDTree | None:
        return KDTree(self.rows) if effective_dimensions(self.rows) <= MOST_TREE_DIMENSIONS else None

    @cached_property
    def _table(self) -> Float32Array:
        """[−2uᵀ; ‖u‖²] of all rows, padded by infinitely distant ones to whole groups; (n_columns + 1, ...)."""
        padded = np.zeros((self.rows.shape[1] + 1, len(self.rows) + -len(self.rows) % N_GROUPS), dtype=np.float32)
        padded[:-1, : len(self.rows)] = -2 * self.rows.T
        padded[-1] = np.inf
        padded[-1, : len(self.rows)] = np.einsum("ij,ij->i", self.rows, self.rows)
        return padded

    def prepare(self) -> None:
        """Build what queries use, before several threads ask for it."""
        if self._tree is None:
            _ = self._table

    def nearest(self, queries: Float32Array, k: int) -> NDArray[np.intp]:
        """Return the indices of the k nearest rows, in any order; (n_queries, k).

        - `queries`, (n_queries, n_columns).
        - `k`: at most the number of rows.
        """
        if k == len(self.rows):
            return np.tile(np.arange(k), (len(queries), 1))
        if self._tree is not None:
            return np.asarray(self._tree.query(queries, k)[1], dtype=np.intp).reshape(len(queries), k)
        size = max(1, BLOCK_BYTES // (4 * self._table.shape[1]))
        blocks = [self._nearest_of_all(queries[begin : begin + size], k) for begin in range(0, len(queries), size)]
        return np.concatenate(blocks) if blocks else np.empty((0, k), dtype=np.intp)

    def _nearest_of_all(self, queries: Float32Array, k: int) -> NDArray[np.intp]:
        """Return the k nearest rows by ‖u‖² − 2uᵀq, first among the minima of groups of rows."""
        distance = np.hstack([queries, np.ones((len(queries), 1), dtype=np.float32)]) @ self._table
        minima = distance.reshape(len(queries), N_GROUPS, -1).min(axis=1)
        width = minima.shape[1]
        if k >= width:
            return np.argpartition(distance, k - 1, axis=1)[:, :k]
        groups = np.argpartition(minima, k - 1, axis=1)[:, :k]
        rows = (np.arange(N_GROUPS)[:, None] * width + groups[:, None, :]).reshape(len(queries), -1)
        chosen = np.argpartition(np.take_along_axis(distance, rows, axis=1), k - 1, axis=1)[:, :k]
        return np.take_along_axis(rows, chosen, axis=1)


def effective_dimensions(rows: Float32Array) -> float:
    """Return how many columns of equal variance are as spread out: (Σ v)²/Σ v²."""
    variance = rows.var(axis=0, dtype=np.float64)
    total = variance.sum()
    return float(total**2 / (variance @ variance)) if total > 0 else 0.0


def used_columns(u: FloatArray, negligible: float) -> NDArray[np.intp]:
    """Return the columns without those of least variance that together have this fraction of the whole."""
    variance = u.var(axis=0)
    order = np.argsort(variance, kind="stable")
    dropped = np.cumsum(variance[order]) <= negligible * variance.sum()
    dropped[-1] = False  # one stays, whatever it is
    return np.sort(order[~dropped])
