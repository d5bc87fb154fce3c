"""Rows that a growing model holds while they are few, so that its feature map can still change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.repeated import equal_rows
from pydirect.persistence.fields import (
    Arrays,
    Header,
    build,
    require_array,
    require_float64,
    require_positive,
    require_type,
)
from pydirect.streams.tables import Column, Table, Text, as_text, label

# A share of a row's weight that is rounding.
ROUNDING = 1e-9
# A row of which decay has left less is lost in sums with any later one.
FADED = 1e-30


@dataclass(frozen=True, eq=False, repr=False)
class HeldRows:
    """Rows of tables with their targets; text is held as codes.

    - `x`, (n_rows, n_columns): numbers and codes, NaN where they are missing.
    - `values`: text of each code of each column, None for numbers.
    - `names`: of the columns, if they have any.
    - `y`, (n_rows, n_outputs).
    - `weight`, (n_rows,): positive.
    - `count`, (n_rows,): what decay has left of each row, 1 at first.
    - `n_learned`: number of rows from which hyperparameters were last learned.
    """

    x: FloatArray
    values: list[list[str] | None]
    names: list[str] | None
    y: FloatArray
    weight: FloatArray
    count: FloatArray
    n_learned: int = 0

    @classmethod
    def of(cls, table: Table, y: FloatArray, weight: FloatArray | None) -> Self:
        """Hold the rows of positive weight; `y`, (n_rows, n_outputs); `weight`, (n_rows,)."""
        n, d = table.shape
        nothing = cls(np.empty((0, d)), [None] * d, table.names, np.empty((0, y.shape[1])), np.empty(0), np.empty(0))
        return nothing.joined(table, y, np.ones(n) if weight is None else weight)

    def __repr__(self) -> str:
        return f"<HeldRows: {len(self)} rows of {len(self.values)} columns>"

    def __len__(self) -> int:
        return len(self.x)

    @property
    def table(self) -> Table:
        """The rows as a table."""
        if all(own is None for own in self.values):
            return Table.of_numbers(self.x, self.names)
        columns = [
            x if own is None else Text(own, np.where(np.isnan(x), -1.0, x).astype(np.intp))
            for x, own in zip(self.x.T, self.values, strict=True)
        ]
        return Table(columns, self.names)

    def joined(self, table: Table, y: FloatArray, weight: FloatArray | None) -> Self:
        """Return these and more rows.

        Raises TypeError if a column held numbers before and holds text now.
        """
        coded = [self._coded(j, column, label(table.names, j)) for j, column in enumerate(table.columns)]
        x, used = np.column_stack([codes for codes, _ in coded]), slice(None) if weight is None else weight > 0
        added = np.ones(len(x)) if weight is None else weight
        return replace(
            self,
            x=np.concatenate([self.x, x[used]]),
            values=[own for _, own in coded],
            names=table.names if self.names is None else self.names,
            y=np.concatenate([self.y, y[used]]),
            weight=np.concatenate([self.weight, added[used]]),
            count=np.concatenate([self.count, np.ones(len(x))[used]]),
        )

    def decayed(self, factor: float) -> Self:
        """Let the rows count `factor` times as much; those of which nothing is left are dropped."""
        weight, count = factor * self.weight, factor * self.count
        left = count > FADED
        return replace(self, x=self.x[left], y=self.y[left], weight=weight[left], count=count[left])

    def without(self, table: Table, y: FloatArray, weight: FloatArray | None, decay: float) -> Self:
        """Return the rows that are left without some of them, whose weights have decayed since; equal rows are merged.

        Raises ValueError if there are no such rows, or none would be left.
        """
        n, both = len(self), self.joined(table, y, weight)
        first, group = equal_rows(np.hstack([np.where(np.isnan(both.x), np.inf, both.x), both.y]))
        totals = [
            np.bincount(group[rows], values, minlength=len(first))
            for rows in (slice(n), slice(n, None))
            for values in (both.weight[rows], both.count[rows])
        ]
        held, count, gone, gone_count = totals[0], totals[1], decay * totals[2], decay * totals[3]
        if (gone > held * (1 + ROUNDING)).any():
            row = int(np.flatnonzero((gone > held * (1 + ROUNDING))[group[n:]])[0])
            raise ValueError(f"X and y must be of rows seen, with at most their weights: row {row} is none of them")
        share = 1 - gone / held
        left = share > ROUNDING
        if not left.any():
            raise ValueError("X must leave some of the rows seen, got all of them")
        kept, fewer = first[left], count - gone_count
        return replace(
            both,
            x=both.x[kept],
            y=both.y[kept],
            weight=(share * held)[left],
            count=np.where(fewer > ROUNDING * count, fewer, share * count)[left],
        )

    def _coded(self, j: int, column: Column, name: str) -> tuple[FloatArray, list[str] | None]:
        """Return a column of new rows as numbers or codes, and the text of all codes."""
        own = self.values[j]
        if isinstance(column, np.ndarray) and (own is None or np.isnan(column).all()):
            return column, own
        text = as_text(column)
        if own is None and not np.isnan(self.x[:, j]).all():
            raise TypeError(f"{name} must hold numbers, as in the rows before, got {text.values[0]!r}")
        known = {value: k for k, value in enumerate(own or ())}
        codes = [float(known.setdefault(value, len(known))) for value in text.values]
        return np.array([*codes, np.nan])[text.codes], list(known)

    # --- files

    @classmethod
    def from_fields(cls, header: Header, arrays: Arrays, name: str) -> Self:
        """Rebuild from the fields written by `pydirect.persistence.fields.Writer.fields`, and check the result."""
        rows: Self = build(cls, header, arrays, name)
        rows._check()
        return rows

    def _check(self) -> None:
        """Raise unless all parts fit together and all numbers are in range."""
        require_type(self.values, "values", list)
        require_type(self.n_learned, "n_learned", int)
        require_float64(self.x, "x")
        n, d = len(self.weight), len(self.values)
        if self.x.shape != (n, d) or np.isinf(self.x).any():
            raise ValueError(f"x must be {n} finite rows of {d} columns")
        for codes, own in zip(self.x.T, self.values, strict=True):
            if own is not None:
                _check_codes(codes, own)
        _check_names(self.names, d)
        require_array(self.y, "y", n, "n_outputs")
        require_positive(self.weight, "weight", n)
        require_positive(self.count, "count", n)
        if not 0 < self.n_learned:
            raise ValueError("n_learned must be positive")


def _check_codes(codes: FloatArray, values: Sequence[str]) -> None:
    require_type(values, "values", list)
    known = codes[~np.isnan(codes)]
    if not all(isinstance(value, str) for value in values) or not np.isin(known, np.arange(len(values))).all():
        raise ValueError("x must hold the codes of text")


def _check_names(names: Sequence[str] | None, n_columns: int) -> None:
    if names is not None:
        require_type(names, "names", list)
        if len(names) != n_columns or not all(isinstance(name, str) for name in names):
            raise ValueError(f"names must be {n_columns} strings")
