"""A table of the command line: named columns of numbers, booleans and text, and checks of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pydirect.cli.table_values import first_text, is_missing


class TableError(ValueError):
    """A table cannot be used; the message says where and why."""


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    - `columns`, (n_rows,): numbers and booleans as float64 with NaN for missing values; text as object arrays of str
      with None for missing values. In the order of the file.
    - `unusable`: columns that hold anything else, and what they hold.
    - `n_rows`: number of rows.
    - `booleans`: columns of numbers that were read as true and false.
    """

    columns: dict[str, np.ndarray]
    unusable: dict[str, str]
    n_rows: int
    booleans: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """Names of all columns, unusable ones last."""
        return [*self.columns, *self.unusable]

    def column(self, name: str) -> np.ndarray:
        """Return one column.

        Returns the column, not a copy, (n_rows,). Raises TableError if there is no such column, or it holds neither
        numbers nor text.
        """
        self.require([name])
        if name in self.unusable:
            raise TableError(f"column {name!r} holds {self.unusable[name]}")
        return self.columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of finite numbers, or raise.

        Returns the column, not a copy, (n_rows,). Raises TableError if there is no such column, or a value is missing,
        not finite or not a number; its row is named.
        """
        values = self.column(name)
        if values.dtype == object:
            row, text = first_text(values)
            raise TableError(f"column {name!r}: expected numbers, got {text!r} in data row {row + 1}")
        self.require_complete([name])
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise TableError(f"column {name!r}: expected finite numbers, got {values[row]} in data row {row + 1}")
        return values

    def require(self, names: Iterable[str]) -> None:
        """Raise unless the columns exist.

        Raises TableError if some do not exist; all of them are named.
        """
        present = set(self.names)
        absent = [name for name in names if name not in present]
        if absent:
            word = "column" if len(absent) == 1 else "columns"
            raise TableError(f"no {word} {listed(absent)} in the data (it has {listed(self.names)})")

    def require_complete(self, names: Iterable[str]) -> None:
        """Raise if columns have missing values.

        Raises TableError if a value is missing; the column and its first such row are named.
        """
        for name in names:
            missing = is_missing(self.column(name))
            if missing.any():
                row, count = int(np.argmax(missing)) + 1, int(missing.sum())
                raise TableError(f"column {name!r}: missing value in data row {row} ({count} in this column)")

    def drop_missing(self, names: Iterable[str]) -> Table:
        """Return the rows that have a value in each of these columns.

        Returns these rows, with all columns. Raises TableError if no row is left.
        """
        missing = {name: is_missing(self.column(name)) for name in names}
        keep = ~np.logical_or.reduce(list(missing.values()), axis=0) if missing else np.ones(self.n_rows, dtype=bool)
        if not keep.any():
            worst = max(missing, key=lambda name: int(missing[name].sum()))
            raise TableError(f"every row has a missing value; column {worst!r} has {missing[worst].sum()} of them")
        columns = {name: values[keep] for name, values in self.columns.items()}
        return Table(columns, self.unusable, int(keep.sum()), self.booleans)


def listed(names: Iterable[str], limit: int = 10) -> str:
    """Return a list of names in quotation marks, cut after `limit` names."""
    names = list(names)
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
