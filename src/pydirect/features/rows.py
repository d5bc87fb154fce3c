"""Training rows: which of them are equal, and how many rows these and weights stand for.

A row of weight two is a row given twice. Replicates, independent measurements at the same inputs, scatter by the noise,
and all of them count. Duplicates of a row, and weights that stress some rows, repeat the noise with the row: taken for
replicates they would prove that there is none.

Rows that agree in X are replicates where targets have few values, so that agreement may be chance, or where they often
differ in y. All others are duplicates: rows then count relative to their mean weight, at most once each where the
kernel is learned, and sums over all rows are divided by one number, for which they count as about as many rows; it
depends on Σω² alone, so that sums over rows know it too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.statistics.gaussian import counted_rows
from pydirect.tables.table import equal_rows, row_hashes

# Up to this number, distinct rows are in ascending order; more are in the order of their hashes.
MOST_SORTED_ROWS = 4000
# Share of the weight of repeated inputs, of those with several targets, from which repetitions are replicates.
MIXED_SHARE = 0.1


def distinct_rows(
    x: FloatArray, y: FloatArray, sample_weight: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge repeated rows and add up their weights; see `distinct_index`.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.features import distinct_rows
    >>> x, y, weight = distinct_rows(np.array([[0.0], [1.0], [0.0]]), np.array([[5.0], [6.0], [5.0]]), None)
    >>> x.tolist(), y.tolist(), weight.tolist()
    ([[0.0], [1.0]], [[5.0], [6.0]], [2.0, 1.0])
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
        # By targets that are numbers, so that the order of columns does not matter, else by x first.
        tables = (x, y) if 2 * len(equal_rows(y[first])[0]) > len(first) else (y, x)
        order = np.lexsort([column[first] for table in tables for column in table.T[::-1]])
    elif (total == 1).all():
        order = np.arange(len(first))
    else:
        order = np.argsort(row_hashes(x[first], y[first]))
    return used[first[order]], total[order]


@dataclass(frozen=True)
class RowCounts:
    """What repetitions of distinct rows count for, as rows of weight `unit` where the kernel is learned.

    `most` is what a row counts for at most there: infinite for replicates, 1 for duplicates. `repetitions` is what sums
    over all rows are divided by in inference.
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
        if are_replicates(x, y, weight):
            unit = min(mean, 1.0)  # numbers of replicates are at least one on average
            return cls(unit, np.inf, unit)
        total = float(weight.sum())
        return cls(mean, 1.0, total / counted_rows(float(len(weight)), total, float(weight @ weight)))

    def where_learned(self, weight: FloatArray) -> FloatArray:
        """Return how many rows each distinct row counts for where the kernel is learned, (n_rows,)."""
        return np.minimum(weight / self.unit, self.most)

    def left_out(self, weight: FloatArray) -> FloatArray:
        """Return the weight that leaving out takes of each distinct row: of one replicate, or of all duplicates."""
        return np.minimum(weight, self.unit) if np.isinf(self.most) else weight


def are_replicates(x: FloatArray, y: FloatArray, weight: FloatArray) -> bool:
    """Whether rows that agree in x are replicates, independent measurements, rather than duplicates."""
    n_targets = len(equal_rows(y)[0])
    if n_targets > max(2, weight.sum() / weight.min() / 2):  # of rows as they were given
        return False
    where = equal_rows(x)[1]
    total, several = np.bincount(where, weights=weight), np.bincount(where) > 1
    repeated = several | (total > 1)
    return bool(total[several].sum() > MIXED_SHARE * total[repeated].sum())


@dataclass(frozen=True)
class TrainingRows:
    """Rows x (n_rows, n_features_in), standardised targets or labels ±1 (n_rows, n_outputs), weights (n_rows,).

    `precision` (n_rows,): of targets about f, relative to those that scatter by the noise alone; one by default.
    `untold` (n_outputs,): share of f's variance over what is missing that an indicator leaves open; all by default.
    `offset` (n_rows, n_functions), `offset_variance` (n_rows,): of what adds to latent functions of x; zero by default.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray | None
    precision: FloatArray | None = None
    untold: FloatArray | None = None
    offset: FloatArray | float = 0.0
    offset_variance: FloatArray | float = 0.0

    @property
    def information(self) -> FloatArray | None:
        """Weights times precisions, with which rows enter sums, (n_rows,); None for ones."""
        return self.weight if self.precision is None else self.precision * self.weights

    @property
    def weights(self) -> FloatArray:
        """The weights, (n_rows,), also where none were given."""
        return np.ones(len(self.x)) if self.weight is None else self.weight

    @property
    def precisions(self) -> FloatArray:
        """The precisions, (n_rows,), also where none were given."""
        return np.ones(len(self.x)) if self.precision is None else self.precision

    @cached_property
    def distinct(self) -> tuple[NDArray[np.intp], FloatArray]:
        """Indices of the distinct rows and their weights; see `distinct_index`."""
        return distinct_index(self.x, self.y, self.weight)

    @cached_property
    def merged(self) -> tuple[NDArray[np.intp], FloatArray, NDArray[np.intp]]:
        """Merge rows that are the same in x and y, also those of weight zero.

        The index of the first of each, (n_distinct,), in ascending order; the total weights of each; and for every row
        the number of its merged row, (n_rows,).
        """
        first, where = equal_rows(self.x, self.y)
        return first, np.bincount(where, weights=self.weight, minlength=len(first)).astype(np.float64), where

    @cached_property
    def counts(self) -> RowCounts:
        """What the rows count for in inference."""
        index, weight = self.distinct
        return RowCounts.of(self.x[index], self.y[index], weight)

    @property
    def is_plain(self) -> bool:
        """Whether all rows differ and have a weight of one."""
        index, weight = self.distinct
        return len(index) == len(self.x) and bool((weight == 1).all())

    def divided(self, repetitions: float) -> TrainingRows:
        """Return the same rows with their weights divided by a number."""
        return replace(self, weight=self.weights / repetitions)
