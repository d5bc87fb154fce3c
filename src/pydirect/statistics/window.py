"""Sums over rows that come, fade and leave: exponential forgetting and sliding windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._dense import gram
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.persistence.schema import AtLeast, Binds, Positive, Shape
from pydirect.statistics.gaussian import row_blocks

# Rows that are multiplied together: enough for products at the machine's peak.
BLOCK_ROWS = 1024
RUNNING_ROWS = 256  # of running sums at a time: powers of their factor stay far from zero
# Below this the common factor of sums that fade is multiplied out.
LEAST_SCALE = 1e-100


@dataclass(frozen=True)
class SavedSum:
    """`FadingSum` in files: without room for rows to come."""

    high: Annotated[FloatArray, Shape("n_columns", "n_columns")]
    low: Annotated[FloatArray, Shape("n_columns", "n_columns")]
    rows: Annotated[FloatArray, Shape("n_waiting*", "n_columns")]
    weight: Annotated[FloatArray, Shape("n_waiting*")]
    scale: Annotated[float, Positive]

    def check(self) -> None:
        """Raise unless the rows that wait leave room in a block."""
        if len(self.rows) >= BLOCK_ROWS:
            raise ValueError(f"rows must be fewer than {BLOCK_ROWS}, got {len(self.rows)}")


class FadingSum:
    """Σ ω zzᵀ over rows z that come and go one by one, and fade together.

    Rows wait until there are `BLOCK_ROWS` of them, and fading changes one number. The sum over blocks is compensated by
    Knuth's two-sum: an entry is off by at most (`BLOCK_ROWS` + 3) ε Σ |ω| |z_i z_j|, the sum over all rows so far.
    """

    def __init__(self, n_columns: int) -> None:
        self._high, self._low = np.zeros((2, n_columns, n_columns))
        self._waiting, self._weights, self._n_waiting = np.empty((0, n_columns)), np.empty(0), 0
        self._scale = 1.0  # by which the sum and the weights that wait are to be multiplied

    @property
    def n_columns(self) -> int:
        """Length of z."""
        return len(self._high)

    def add(self, rows: FloatArray, weight: FloatArray | None = None) -> None:
        """Add rows, (n_rows, n_columns), of weights (n_rows,); negative weights remove."""
        weight = np.ones(len(rows)) if weight is None else weight
        weight = weight / self._scale
        while len(rows):
            if not self._n_waiting and len(rows) >= BLOCK_ROWS:
                self._add_products(rows[:BLOCK_ROWS], weight[:BLOCK_ROWS])
                rows, weight = rows[BLOCK_ROWS:], weight[BLOCK_ROWS:]
                continue
            if not len(self._waiting):
                self._waiting, self._weights = np.empty((BLOCK_ROWS, self.n_columns)), np.empty(BLOCK_ROWS)
            n = min(len(rows), BLOCK_ROWS - self._n_waiting)
            own = slice(self._n_waiting, self._n_waiting + n)
            self._waiting[own], self._weights[own] = rows[:n], weight[:n]
            self._n_waiting += n
            rows, weight = rows[n:], weight[n:]
            if self._n_waiting == BLOCK_ROWS:
                self._sum_up()

    def add_sum(self, total: FloatArray) -> None:
        """Add the sum over other rows, (n_columns, n_columns)."""
        self._add(total / self._scale)

    def fade(self, factor: float) -> None:
        """Let all rows so far count `factor` times as much."""
        self._scale *= factor
        if self._scale < LEAST_SCALE:
            self._sum_up()
            self._high, self._low, self._scale = self._scale * self._high, self._scale * self._low, 1.0

    def lend(self) -> tuple[FloatArray, FloatArray, int, float]:
        """Rows that wait, their weights, how many they are, and what is to be multiplied; compiled code adds more."""
        if not len(self._waiting):
            self._waiting, self._weights = np.empty((BLOCK_ROWS, self.n_columns)), np.empty(BLOCK_ROWS)
        return self._waiting, self._weights, self._n_waiting, self._scale

    def take_back(self, n_rows: int, scale: float) -> None:
        """Go on after `n_rows` rows more."""
        self._n_waiting, self._scale = self._n_waiting + n_rows, scale

    def total(self) -> FloatArray:
        """Return the sum, (n_columns, n_columns)."""
        self._sum_up()
        return self._scale * (self._high + self._low)

    def copy(self) -> Self:
        """Return an independent copy."""
        n = self._n_waiting
        rows, weight = self._waiting[:n], self._weights[:n]  # copied there
        return self._with(self._high.copy(), self._low.copy(), rows, weight, self._scale)

    def _sum_up(self) -> None:
        n, self._n_waiting = self._n_waiting, 0
        if n:
            self._add_products(self._waiting[:n], self._weights[:n])

    def _add_products(self, rows: FloatArray, weight: FloatArray) -> None:
        with single_blas_thread():
            for sign in (1.0, -1.0):
                own = sign * weight > 0
                if own.any():
                    product = gram(_weighted(rows, np.sqrt(np.abs(weight)), own))
                    self._add(product if sign > 0 else -product)

    def _add(self, block: FloatArray) -> None:
        high = self._high + block
        taken = high - self._high
        self._low = self._low + ((self._high - (high - taken)) + (block - taken))
        self._high = high

    # --- files

    def to_saved(self) -> SavedSum:
        """Return what files hold."""
        n = self._n_waiting
        return SavedSum(self._high, self._low, self._waiting[:n], self._weights[:n], self._scale)

    @classmethod
    def from_saved(cls, saved: SavedSum) -> Self:
        """Rebuild from what files hold."""
        return cls(0)._with(saved.high, saved.low, saved.rows, saved.weight, saved.scale)

    def _with(self, high: FloatArray, low: FloatArray, rows: FloatArray, weight: FloatArray, scale: float) -> Self:
        made = type(self)(len(high))
        made._high, made._low, made._scale = high, low, scale
        made._waiting, made._weights = np.empty((BLOCK_ROWS, len(high))), np.empty(BLOCK_ROWS)
        made._waiting[: len(rows)], made._weights[: len(rows)], made._n_waiting = rows, weight, len(rows)
        return made


def _weighted(rows: FloatArray, root: FloatArray, own: NDArray[np.bool_]) -> FloatArray:
    if own.all():
        return rows if (root == 1).all() else rows * root[:, None]
    return rows[own] * root[own, None]


@dataclass(frozen=True)
class SavedWindow:
    """`WindowSum` in files."""

    young: Annotated[FadingSum, Binds(n_columns="n_columns")]
    old: Annotated[FadingSum, Binds(n_columns="n_columns")]
    n_young: Annotated[int, AtLeast(0)]
    n_old: Annotated[int, AtLeast(0)]


class WindowSum:
    """Σ ω zzᵀ over the rows of a window, whose oldest leave in the order in which they came.

    New rows are added to the younger of two sums, those that leave are subtracted from the older. Once that lost all
    its rows it is dropped with its rounding, and the younger takes its place: errors are those of two windows at most.
    """

    def __init__(self, n_columns: int) -> None:
        self._young, self._old = FadingSum(n_columns), FadingSum(n_columns)
        self._n_young, self._n_old = 0, 0

    @property
    def n_columns(self) -> int:
        """Length of z."""
        return self._young.n_columns

    @property
    def n_rows(self) -> int:
        """Number of rows in the window."""
        return self._n_young + self._n_old

    def add(self, rows: FloatArray, weight: FloatArray | None = None) -> None:
        """Add the latest rows, (n_rows, n_columns), of positive weights (n_rows,)."""
        self._young.add(rows, weight)
        self._n_young += len(rows)

    def leave(self, rows: FloatArray, weight: FloatArray | None = None) -> None:
        """Remove the oldest rows: the same that were added first, with their weights."""
        if len(rows) > self.n_rows:
            raise ValueError(f"at most {self.n_rows} rows can leave, got {len(rows)}")
        weight = np.ones(len(rows)) if weight is None else weight
        while len(rows):
            if not self._n_old:
                self._old, self._n_old = self._young, self._n_young
                self._young, self._n_young = FadingSum(self._old.n_columns), 0
            leaving = min(len(rows), self._n_old)
            if leaving == self._n_old:
                self._old = FadingSum(self._old.n_columns)
            else:
                self._old.add(rows[:leaving], -weight[:leaving])
            self._n_old -= leaving
            rows, weight = rows[leaving:], weight[leaving:]

    def remove(self, rows: FloatArray, weight: FloatArray, age: NDArray[np.intp]) -> None:
        """Remove any rows of the window, given how many rows of the window came before each, (n_rows,)."""
        old = age < self._n_old
        for own, generation in ((old, self._old), (~old, self._young)):
            generation.add(rows[own], -weight[own])
        self._n_old -= int(old.sum())
        self._n_young -= int((~old).sum())

    def total(self) -> FloatArray:
        """Return the sum, (n_columns, n_columns)."""
        return self._young.total() + self._old.total()

    # --- files

    def to_saved(self) -> SavedWindow:
        """Return what files hold."""
        return SavedWindow(self._young, self._old, self._n_young, self._n_old)

    @classmethod
    def from_saved(cls, saved: SavedWindow) -> Self:
        """Rebuild from what files hold."""
        made = cls(0)
        made._young, made._old, made._n_young, made._n_old = saved.young, saved.old, saved.n_young, saved.n_old
        return made


def faded_sums(values: FloatArray, factor: float, before: float) -> FloatArray:
    """Return the running sums s_i = `factor` · s_(i−1) + x_i of values x, (n,), that begin with s_0 = `before`.

    The factor must not be so small that its 256th power is zero.
    """
    sums = np.empty(len(values))
    for begin, end in row_blocks(len(values), RUNNING_ROWS):
        powers = factor ** np.arange(1.0, end - begin + 1)
        sums[begin:end] = powers * (before + np.cumsum(values[begin:end] / powers))
        before = float(sums[end - 1])
    return sums
