"""Values with their codes, numbers in the order of first appearance: the text of a table, and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.persistence.schema import Shape
from pydirect.tables.table import Column, Table, Text, as_numbers, as_text, label

MOST_VALUES = 1_000_000  # of a column of text, which are kept in memory


class Codes(dict[Any, int]):
    """Values and their codes."""

    def of(self, values: Iterable[Any]) -> list[float]:
        """Return the codes of values, of new ones the next."""
        return [float(self.setdefault(value, len(self))) for value in values]


@dataclass(frozen=True)
class SavedCodebook:
    """`Codebook` in files: `values` are the text of each code of each column, None for numbers."""

    names: Annotated[tuple[str, ...], Shape("n_columns")] | None
    values: Annotated[tuple[tuple[str, ...] | None, ...], Shape("n_columns")]
    numeric: Annotated[NDArray[np.bool_], Shape("n_columns")]


class Codebook:
    """Codes of the text in the columns of tables that come in parts, and which columns hold numbers.

    - `names`: of the columns, if they have any.
    - `gaps`: whether numbers and text may be missing.
    - `numeric`, (n_columns,): columns that have held numbers; None before the first rows.
    """

    def __init__(self, names: list[str] | None = None, gaps: bool = True) -> None:
        self.names, self.gaps = names, gaps
        self.numeric: NDArray[np.bool_] | None = None
        self._codes: dict[int, Codes] = {}  # by column

    @property
    def is_numeric(self) -> bool:
        """Whether no column holds text."""
        return not self._codes

    @property
    def holds_numbers(self) -> bool:
        """Whether all columns have held numbers, and no text."""
        return self.is_numeric and self.numeric is not None and bool(self.numeric.all())

    @property
    def values(self) -> list[list[str] | None]:
        """Text of each code of each column, None for numbers."""
        d = 0 if self.numeric is None else len(self.numeric)
        return [list(self._codes[j]) if j in self._codes else None for j in range(d)]

    def coded(self, X: Any) -> NDArray[Any]:
        """Return rows with codes for text, (n_rows, n_columns), and NaN for what is missing.

        An array of numbers is returned as it is. Raises TypeError if a column held numbers before and holds text now,
        or has too many values.
        """
        table = X if isinstance(X, Table) else Table.of_text(X) if self.is_numeric else Table.of(X)
        if table is None:
            out = as_numbers(X, "X")
        elif self.is_numeric and table.matrix is not None:
            out = np.ascontiguousarray(table.matrix)
        else:
            for j, column in enumerate(table.columns):  # before anything changes
                if isinstance(column, Text) and column.values:
                    self._require_text(j, column, label(table.names, j))
            out = np.empty(table.shape)
            for j, column in enumerate(table.columns):
                out[:, j] = self.column(j, column, label(table.names, j))
        self.look(out)
        return out

    def _require_text(self, j: int, text: Text, name: str) -> None:
        if j not in self._codes and self.numeric is not None and self.numeric[j]:
            raise TypeError(f"{name} must hold numbers, as in the rows before, got {text.values[0]!r}")

    def column(self, j: int, column: Column, name: str) -> FloatArray:
        """Return one column with codes for text."""
        if isinstance(column, np.ndarray) and (j not in self._codes or np.isnan(column).all()):
            return column
        text = as_text(column)
        if not text.values:
            return np.full(len(text), np.nan)
        self._require_text(j, text, name)
        known = self._codes.setdefault(j, Codes())
        codes = known.of(text.values)
        if len(known) > MOST_VALUES:
            raise TypeError(f"{name} must have at most {MOST_VALUES:,} different values, got more: leave it out")
        return np.array([*codes, np.nan])[text.codes]

    def look(self, x: NDArray[Any]) -> None:
        """Note which columns hold numbers."""
        if x.ndim != 2:
            return
        if self.numeric is None:
            self.numeric = np.zeros(x.shape[1], dtype=bool)
        if len(self.numeric) == x.shape[1] and not self.numeric.all():
            self.numeric |= ~np.isnan(x).all(axis=0)

    def add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far."""
        assert self.numeric is not None
        self.numeric = np.append(self.numeric, np.zeros(n_columns, dtype=bool))

    def table(self, x: FloatArray, names: Sequence[str] | None = None) -> Table:
        """Return coded rows, of all columns or the first ones, as the table that they came from."""
        given = self.names if names is None else list(names)
        if self.is_numeric:
            return Table.of_numbers(x, given)
        columns: list[Column] = []
        for j, column in enumerate(x.T):
            codes = np.where(np.isnan(column), -1.0, column).astype(np.intp) if j in self._codes else None
            columns.append(column if codes is None else Text(list(self._codes[j]), codes))
        return Table(columns, given)

    # --- files

    def to_saved(self) -> SavedCodebook:
        assert self.numeric is not None
        values = tuple(None if own is None else tuple(own) for own in self.values)
        return SavedCodebook(None if self.names is None else tuple(self.names), values, self.numeric)

    @classmethod
    def from_saved(cls, saved: SavedCodebook) -> Self:
        book = cls(None if saved.names is None else list(saved.names))
        book.numeric = saved.numeric
        for j, own in enumerate(saved.values):
            if own is not None:
                book._codes[j] = Codes({value: k for k, value in enumerate(own)})
                if len(book._codes[j]) < len(own):
                    raise ValueError("values must be different strings")
        return book


class LabelCodes:
    """Numeric codes of labels, in the order of first appearance: sources hold numbers, labels may be strings.

    Labels that first appear in the same block of rows get their codes in sorted order.
    """

    def __init__(self) -> None:
        self._codes = Codes()

    @property
    def labels(self) -> list[Any]:
        """Label of each code."""
        return list(self._codes)

    def codes(self, values: np.ndarray) -> FloatArray:
        """Return the codes of labels, of shape (n_rows, 1); NaN where a label is missing.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
            Labels.

        Returns
        -------
        ndarray of shape (n_rows, 1)
            Codes.

        Raises
        ------
        TypeError, ValueError
            If there are several columns, or numbers that are not integers.
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"labels must be one column, got shape {values.shape}")
        if values.dtype.kind == "f":
            continuous = np.isfinite(values) & (values != np.trunc(values))
            if continuous.any():
                raise ValueError(f"y must hold labels, got the number {values[continuous][0]}")
        missing = _missing_labels(values)
        out = np.full(len(values), np.nan)
        try:
            found, inverse = np.unique(values[~missing], return_inverse=True)
        except TypeError:
            kinds = " and ".join(sorted({type(own).__name__ for own in values[~missing].tolist()}))
            raise TypeError(f"y must hold labels that can be ordered, of one type, got {kinds}") from None
        if found.size:
            out[~missing] = np.array(self._codes.of(found.tolist()))[inverse]
        return out[:, None]


def _missing_labels(values: np.ndarray) -> np.ndarray:
    """Return a mask of labels that are None, NaN or infinite."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    if values.dtype.kind == "O":
        return np.array([v is None or v != v for v in values], dtype=bool)
    return np.zeros(len(values), dtype=bool)
