"""Maximisation of an acquisition function over a box of numbers and categories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from scipy.optimize import minimize

from pydirect._validation import FloatArray
from pydirect.decisions.space import UNIT, Box

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
        ...  # pragma: no cover

    def gradient(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values, (n_rows,), and gradients, (n_rows, n_inputs)."""
        ...  # pragma: no cover


def maximise(
    acquisition: Acquisition,
    box: Box,
    good: FloatArray,
    rng: np.random.Generator,
    applied: Callable[[FloatArray], FloatArray] = lambda rows: rows,
) -> FloatArray:
    """Return a row where an acquisition function is large, (n_columns,).

    Parameters
    ----------
    acquisition : Acquisition
    box : Box
    good : ndarray of shape (n_good, n_columns)
        Rows near which to look, complete.
    rng : numpy.random.Generator
    applied : callable
        From complete rows to the same rows with NaN where a column does not apply.
    """

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
