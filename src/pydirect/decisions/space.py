"""The box in which a function is searched: columns of numbers and of categories, in units of their ranges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray

# Columns of the surrogate have variance one where rows are uniform in the box; categories are as far apart as ends.
UNIT = np.sqrt(12.0)
INDICATOR = UNIT / np.sqrt(2.0)
# Numbers with no more levels than these are searched level by level, others as if they were continuous.
FEW_LEVELS = 24


@dataclass(frozen=True)
class Column:
    """One column of the box: numbers in [0, 1], with levels if there are only so many, or categories 0, 1, ….

    - `levels`, (n_levels,) ascending, or None.
    - `is_category`: whether the levels are numbers of categories.
    """

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
