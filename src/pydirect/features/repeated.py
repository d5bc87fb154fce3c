"""Repeated rows and weights: which rows are equal, and how many rows they stand for.

A weight is a number of repetitions, as in scikit-learn: a row of weight two is a row given twice. What repetitions say
about the noise depends on where they come from. Measurements repeated at the same inputs scatter by the noise, and all
of them count. Copies of a row, and weights that stress some rows, repeat the noise with the row: taken for independent
measurements they would prove that there is none, as no other noise repeats itself.

A table tells which it is by the rows that agree in X. They are independent measurements where targets have few values,
so that different inputs share them and agreement may be chance, and where rows that agree in X often differ in y. All
other repetitions are copies: rows then count relative to their mean weight, at most once each where the kernel is
learned. The sums over all rows are divided by one number, for which they count as many rows: so the noise is the mean
squared residual of weighted rows, and fewer rows tell of it where few have most of the weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray

# Up to this number, distinct rows are in ascending order; more are in the order of their hashes.
MOST_SORTED_ROWS = 4000
# Share of the weight of repeated inputs, of those with several targets, from which repetitions are measurements.
MIXED_SHARE = 0.1


def equal_rows(*tables: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find equal rows.

    Parameters
    ----------
    *tables : ndarray of shape (n_rows, ...)
        Side by side.

    Returns
    -------
    first : ndarray of int, shape (n_distinct,)
        The first of each, in ascending order.
    where : ndarray of int, shape (n_rows,)
        For every row the number of the first that equals it.
    """
    keys = row_hashes(*tables)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    if not all(np.array_equal(column, column[first][where]) for table in tables for column in table.T):
        # Two different rows share a hash of 64 bits.
        _, first, where = np.unique(np.hstack(tables), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[where.ravel()]


def row_hashes(*tables: FloatArray) -> NDArray[np.uint64]:
    """Return hashes of the rows of tables side by side, (n_rows,): splitmix64 of one column after another."""
    keys = np.zeros(len(tables[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for table in tables:
            for column in table.T:
                bits = np.ascontiguousarray(column + 0.0, dtype=np.float64).view(np.uint64)  # −0 is 0
                keys = (keys + bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
                keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                keys ^= keys >> np.uint64(31)
    return keys


def distinct_rows(
    x: FloatArray, y: FloatArray, sample_weight: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge repeated rows and add up their weights; see `distinct_index`.

    Parameters
    ----------
    x : ndarray of shape (n_rows, n_features_in)
        Rows of inputs.
    y : ndarray of shape (n_rows, n_outputs)
        Targets.
    sample_weight : ndarray of shape (n_rows,) or None
        How many times each row counts.

    Returns
    -------
    (ndarray, ndarray, ndarray)
        Distinct rows, their mean targets and their weights.
    """
    index, weight = distinct_index(x, y, sample_weight)
    return x[index], y[index], weight


def distinct_index(
    x: FloatArray, y: FloatArray, sample_weight: FloatArray | None
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the indices of rows that differ in x or y, and their total weights; zero weights are dropped.

    A weight of two is then the same as a row given twice: the order of distinct rows depends on what they hold alone.
    Only long tables without weights in which nothing repeats keep their order.
    """
    weight = np.ones(len(x)) if sample_weight is None else sample_weight
    used = np.flatnonzero(weight > 0)
    if len(used) < len(x):
        x, y, weight = x[used], y[used], weight[used]
    first, where = equal_rows(x, y)
    total = np.bincount(where, weights=weight).astype(np.float64)
    if len(first) <= MOST_SORTED_ROWS:
        order = np.lexsort([column[first] for table in (y, x) for column in table.T[::-1]])
    elif (total == 1).all():
        order = np.arange(len(first))
    else:
        order = np.argsort(row_hashes(x[first], y[first]))
    return used[first[order]], total[order]


def merge_repeated(
    x: FloatArray, y: FloatArray, weight: FloatArray | None
) -> tuple[NDArray[np.intp], FloatArray, NDArray[np.intp]]:
    """Merge rows that are the same in x and y.

    Returns the index of the first of each, (n_distinct,), in ascending order; the total weights of each; and for every
    row given the number of its merged row, (n_rows,).
    """
    first, where = equal_rows(x, y)
    return first, np.bincount(where, weights=weight, minlength=len(first)).astype(np.float64), where


@dataclass(frozen=True)
class RowCounts:
    """What repetitions of distinct rows count for.

    Attributes
    ----------
    unit : float
        Weight of a row that counts once where the kernel is learned.
    most : float
        What a row counts for at most there; infinite for measurements, 1 for copies.
    repetitions : float
        What the sums over all rows are divided by in inference: their total weight is then what the rows count for
        where the kernel is learned, and a residual has its share in the noise by its weight.
    """

    unit: float
    most: float
    repetitions: float

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray, weight: FloatArray) -> RowCounts:
        """Return the counts of distinct rows: (n_rows, n_inputs), (n_rows, n_outputs) and (n_rows,)."""
        mean = float(weight.mean())
        if (weight == 1).all():
            return cls(1.0, np.inf, 1.0)
        if are_measurements(x, y, weight):
            unit = min(mean, 1.0)  # numbers of measurements are at least one on average
            return cls(unit, np.inf, unit)
        return cls(mean, 1.0, float(weight.sum() / np.minimum(weight / mean, 1.0).sum()))

    def where_learned(self, weight: FloatArray) -> FloatArray:
        """Return how many rows each distinct row counts for where the kernel is learned, (n_rows,)."""
        return np.minimum(weight / self.unit, self.most)

    def left_out(self, weight: FloatArray) -> FloatArray:
        """Return the weight that leaving out takes of each distinct row: of one measurement, or of all copies."""
        return np.minimum(weight, self.unit) if np.isinf(self.most) else weight


def are_measurements(x: FloatArray, y: FloatArray, weight: FloatArray) -> bool:
    """Whether rows that agree in x are independent measurements, rather than copies of each other.

    Arguments as of `RowCounts.of`.
    """
    n_targets = len(equal_rows(y)[0])
    if n_targets > max(2, weight.sum() / weight.min() / 2):  # of rows as they were given
        return False
    where = equal_rows(x)[1]
    total, several = np.bincount(where, weights=weight), np.bincount(where) > 1
    repeated = several | (total > 1)
    return bool(total[several].sum() > MIXED_SHARE * total[repeated].sum())
