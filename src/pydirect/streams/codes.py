"""Text in streams of tables as numeric codes: sources hold numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.streams.tables import Column, Table, Text, as_numbers, as_text, holds_text, label

MOST_VALUES = 1_000_000  # of a column of text, which are kept in memory


class TableCodes:
    """Codes of the text in a stream of tables, in the order of first appearance: sources hold numbers.

    Attributes
    ----------
    gaps : bool
        Whether numbers and text may be missing.
    """

    def __init__(self, gaps: bool = True) -> None:
        self.gaps = gaps
        self._codes: dict[int, dict[str, int]] = {}  # by column
        self._numbers: NDArray[np.bool_] | None = None  # columns that have held numbers

    def coded(self, X: Any) -> NDArray[Any]:
        """Return a block with codes for text, (n_rows, n_columns), and NaN for what is missing.

        Raises TypeError if a column held numbers before and holds text now, or has too many values.
        """
        if not self._codes and not holds_text(X):
            numbers = as_numbers(X, "X")
            self.look(numbers)
            return numbers
        table = Table.of(X)
        out = np.empty(table.shape)
        for j, column in enumerate(table.columns):
            out[:, j] = self.column(j, column, label(table.names, j))
        self.look(out)
        return out

    def column(self, j: int, column: Column, name: str) -> FloatArray:
        """Return one column with codes for text."""
        if isinstance(column, np.ndarray) and (j not in self._codes or np.isnan(column).all()):
            return column
        text = as_text(column)
        if j not in self._codes and self._numbers is not None and self._numbers[j]:
            raise TypeError(f"{name} must hold numbers, as in the blocks before, got {text.values[0]!r}")
        known = self._codes.setdefault(j, {}) if text.values else {}
        codes = [float(known.setdefault(value, len(known))) for value in text.values]
        if len(known) > MOST_VALUES:
            raise TypeError(f"{name} must have at most {MOST_VALUES:,} different values, got more: leave it out")
        return np.array([*codes, np.nan])[text.codes]

    def look(self, x: NDArray[Any]) -> None:
        """Note which columns hold numbers."""
        if x.ndim != 2:
            return
        if self._numbers is None:
            self._numbers = np.zeros(x.shape[1], dtype=bool)
        if len(self._numbers) == x.shape[1] and not self._numbers.all():
            self._numbers |= ~np.isnan(x).all(axis=0)

    def table(self, x: FloatArray, names: Sequence[str] | None) -> Table:
        """Return coded rows as the table that they came from."""
        given = None if names is None else list(names)
        if not self._codes:
            return Table.of_numbers(x, given)
        columns: list[Column] = []
        for j, column in enumerate(x.T):
            codes = np.where(np.isnan(column), -1.0, column).astype(np.intp) if j in self._codes else None
            columns.append(column if codes is None else Text(list(self._codes[j]), codes))
        return Table(columns, given)
