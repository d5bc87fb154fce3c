"""The box in which a function is searched, of numbers and categories in units of their ranges, and its maximisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pydirect._validation import FloatArray

# Columns of the surrogate have variance one where rows are uniform in the box; categories are as far apart as ends.
UNIT = np.sqrt(12.0)
INDICATOR = UNIT / np.sqrt(2.0)
# Numbers with no more levels than these are searched level by level, others as if they were continuous.
FEW_LEVELS = 24


@dataclass(frozen=True)
class Column:
    """One column of the box: numbers in [0, 1], with ascending levels if they have such, or categories 0, 1, …."""

    levels: FloatArray | None = None
    is_category: bool = False

    @property
    def is_searched_by_level(self) -> bool:
        """Whether levels are compared with each other, instead of following a gradient."""
        return self.levels is not None and (self.is_category or len(self.levels) <= FEW_LEVELS)

    def snapped(self, u: FloatArray) -> FloatArray:
        """Return the nearest levels; NaN stays NaN."""
        if self.levels is None:
            return np.clip(u, 0.0, 1.0)
        middles = 0.5 * (self.levels[1:] + self.levels[:-1])
        return np.where(np.isnan(u), np.nan, self.levels[np.searchsorted(middles, u)])

    def at(self, uniform: FloatArray) -> FloatArray:
        """Return values at uniform numbers in [0, 1)."""
        if self.is_category:
            assert self.levels is not None
            return self.levels[(uniform * len(self.levels)).astype(np.intp)]
        return self.snapped(uniform)


@dataclass(frozen=True)
class Box:
    """The product of columns. Rows, (n_rows, n_columns), hold NaN where a column does not apply."""

    columns: tuple[Column, ...]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @cached_property
    def widths(self) -> NDArray[np.intp]:
        """Number of the surrogate's inputs for each column: one for numbers, one for each category; (n_columns,)."""
        return np.array([len(c.levels) if c.is_category and c.levels is not None else 1 for c in self.columns])

    @cached_property
    def inputs_of(self) -> NDArray[np.intp]:
        """First input of each column, (n_columns,)."""
        return np.cumsum(self.widths) - self.widths

    @cached_property
    def tied(self) -> NDArray[np.intp]:
        """Column of each input, (n_inputs,): its indicators share a length-scale."""
        return np.repeat(np.arange(self.n_columns), self.widths)

    @cached_property
    def continuous(self) -> NDArray[np.intp]:
        """Columns that follow a gradient."""
        return np.array([j for j, c in enumerate(self.columns) if not c.is_searched_by_level], dtype=np.intp)

    def at(self, uniform: FloatArray) -> FloatArray:
        """Return rows at uniform numbers, (n_rows, n_columns)."""
        return np.stack([c.at(uniform[:, j]) for j, c in enumerate(self.columns)], axis=1)

    def snapped(self, rows: FloatArray) -> FloatArray:
        """Return the nearest rows that exist."""
        return np.stack([c.snapped(rows[:, j]) for j, c in enumerate(self.columns)], axis=1)

    def inputs(self, rows: FloatArray) -> FloatArray:
        """Return inputs of the surrogate, (n_rows, n_inputs); what does not apply is in the middle of its range."""
        out = np.zeros((len(rows), len(self.tied)))
        for j, (column, first) in enumerate(zip(self.columns, self.inputs_of, strict=True)):
            applies = np.flatnonzero(~np.isnan(rows[:, j]))
            if column.is_category:
                out[applies, first + rows[applies, j].astype(np.intp)] = INDICATOR
            else:
                out[applies, first] = UNIT * (rows[applies, j] - 0.5)
        return out


# Candidates that are compared first: uniform ones, and neighbours of good rows at each of several distances.
N_UNIFORM = 512
N_NEIGHBOURS = 128
DISTANCES = (0.1, 0.01, 0.001)
# Candidates from which the function is ascended, and rounds of gradients and then levels.
N_STARTS = 4
N_ROUNDS = 6
MAX_ITER = 40
LEAST_GAIN = 1e-4


class Acquisition(Protocol):
    """A function of the surrogate's inputs."""

    def value(self, inputs: FloatArray) -> FloatArray:
        """Return values, (n_rows,)."""

    def gradient(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values, (n_rows,), and gradients, (n_rows, n_inputs)."""


def maximise(
    acquisition: Acquisition,
    box: Box,
    good: FloatArray,
    rng: np.random.Generator,
    applied: Callable[[FloatArray], FloatArray] = lambda rows: rows,
) -> FloatArray:
    """Return a row where an acquisition function is large, (n_columns,)."""

    def value(rows: FloatArray) -> FloatArray:
        return acquisition.value(box.inputs(applied(rows)))

    rows = candidates(box, good, rng)
    values = value(rows)
    order = np.argsort(-values, kind="stable")
    chosen = spread_out(box, rows, order, N_STARTS)
    best, best_value = rows[order[0]], values[order[0]]
    for row in rows[chosen]:
        row, row_value = ascend(acquisition, box, row, value, applied)
        if row_value > best_value:
            best, best_value = row, row_value
    return best


def candidates(box: Box, good: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return uniform rows, good rows, and neighbours of these in some of their columns."""
    parts = [box.at(rng.random((N_UNIFORM, box.n_columns))), good]
    by_level = np.array([column.is_searched_by_level for column in box.columns])
    share = np.where(by_level, 1 / box.n_columns, max(0.5, min(1.0, 2 / box.n_columns)))
    for distance in DISTANCES if len(good) else ():
        near = good[rng.integers(len(good), size=N_NEIGHBOURS)]
        step = np.clip(near + distance * rng.standard_normal(near.shape), 0.0, 1.0)
        other = np.where(by_level, box.at(rng.random(near.shape)), box.snapped(step))
        parts.append(np.where(rng.random(near.shape) < share, other, near))
    return np.concatenate(parts)


def spread_out(box: Box, rows: FloatArray, order: np.ndarray, n: int) -> list[int]:
    """Return the best row, and next ones that are not its close neighbours, in order."""
    chosen: list[int] = []
    for i in order[: 40 * n]:
        if all(np.abs(rows[i] - rows[j]).max() > 0.05 for j in chosen):
            chosen.append(int(i))
        if len(chosen) == n:
            break
    return chosen


def ascend(
    acquisition: Acquisition,
    box: Box,
    row: FloatArray,
    value: Callable[[FloatArray], FloatArray],
    applied: Callable[[FloatArray], FloatArray],
) -> tuple[FloatArray, float]:
    """Return the row, and its value, where gradients and comparisons of levels lead from a row."""
    best = float(value(row[None])[0])
    for _ in range(N_ROUNDS):
        before = best
        moved = box.snapped(ascend_gradient(acquisition, box, row, applied)[None])
        rows = np.concatenate([moved, other_levels(box, row), other_levels(box, moved[0])])
        values = value(rows)
        if values.max() > best:
            row, best = rows[int(np.argmax(values))], float(values.max())
        if best - before < LEAST_GAIN:
            break
    return row, best


def other_levels(box: Box, row: FloatArray) -> FloatArray:
    """Return all rows that differ from a row in one column that is searched by level."""
    parts = [np.empty((0, box.n_columns))]
    for j, column in enumerate(box.columns):
        if column.levels is not None and column.is_searched_by_level:
            part = np.repeat(row[None], len(column.levels), axis=0)
            part[:, j] = column.levels
            parts.append(part[column.levels != row[j]])
    return np.concatenate(parts)


def ascend_gradient(
    acquisition: Acquisition, box: Box, row: FloatArray, applied: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return where L-BFGS leads from a row in the continuous columns that apply."""
    active = applied(row[None])
    free = box.continuous[~np.isnan(active[0, box.continuous])]
    if not len(free):
        return row

    def negative(u: FloatArray) -> tuple[float, FloatArray]:
        active[0, free] = u
        value, gradient = acquisition.gradient(box.inputs(active))
        return -float(value[0]), -UNIT * gradient[0, box.inputs_of[free]]

    bounds, options = [(0.0, 1.0)] * len(free), {"maxiter": MAX_ITER}
    found = minimize(negative, row[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    moved = row.copy()
    moved[free] = found.x
    return moved
