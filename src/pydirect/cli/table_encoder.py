"""Columns of a table as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pydirect.cli.table_values import first_text, is_number
from pydirect.cli.tables import Table, TableError, listed

# Largest number of categories of a text column.
MAX_CATEGORIES = 50


@dataclass(frozen=True)
class _Column:
    """One column of a table; `categories` is None for numbers."""

    name: str
    categories: tuple[str, ...] | None

    @property
    def feature_names(self) -> list[str]:
        if self.categories is None:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]

    def to_header(self) -> dict[str, Any]:
        return {"name": self.name, "categories": None if self.categories is None else list(self.categories)}


class TableEncoder:
    """Encoder of a table's columns as a matrix: numbers unchanged, text one-hot.

    A text column becomes one column of zeros and ones per category, in sorted order. The encoder finds columns by name
    and ignores those it does not know. A category that did not occur in fitting is refused: its row would have zeros in
    all of these columns, a point far from all data whose prediction would be meaningless.

    Build one with `fit` or `from_header`.

    - `columns`: columns in the order of the matrix.
    """

    def __init__(self, columns: Sequence[_Column]) -> None:
        self._columns = tuple(columns)

    @classmethod
    def fit(cls, table: Table, names: Iterable[str]) -> TableEncoder:
        """Learn the categories of text columns.

        `table`: table with these columns, without missing values in them. `names`: columns to encode. Returns encoder
        for tables with these columns. Raises TableError if a column does not exist, has missing values, holds neither
        numbers nor text, or has too many categories.
        """
        return cls([_fit_column(table, name) for name in names])

    @classmethod
    def numeric(cls, names: Iterable[str]) -> TableEncoder:
        """Return an encoder of numeric columns.

        Returns an encoder for tables with these columns.
        """
        return cls([_Column(name, None) for name in names])

    @property
    def names(self) -> list[str]:
        """Names of the table's columns."""
        return [column.name for column in self._columns]

    @property
    def text_columns(self) -> list[str]:
        """Names of the table's text columns."""
        return [column.name for column in self._columns if column.categories is not None]

    @property
    def feature_names(self) -> list[str]:
        """Names of the matrix's columns, such as ``"size"`` and ``"colour=red"``."""
        return [name for column in self._columns for name in column.feature_names]

    def transform(self, table: Table) -> np.ndarray:
        """Encode a table.

        `table`: table with at least the encoder's columns. Returns the encoded table, (n_rows, n_features). Raises
        TableError if columns are absent (all are named), or one holds missing values, infinities, values of another
        type than in fitting, or a category that did not occur in fitting.
        """
        table.require(self.names)
        X = np.zeros((table.n_rows, len(self.feature_names)))
        start = 0
        for column in self._columns:
            width = len(column.feature_names)
            _encode(column, table, X[:, start : start + width])
            start += width
        return X

    def to_header(self) -> dict[str, Any]:
        """Return the encoder as a JSON-compatible dict.

        Returns what `from_header` takes.
        """
        return {"version": 1, "columns": [column.to_header() for column in self._columns]}

    @classmethod
    def from_header(cls, header: dict[str, Any]) -> TableEncoder:
        """Rebuild an encoder.

        `header`: what `to_header` returned. Returns an equal encoder. Raises ValueError if the header was not made by
        `to_header`.
        """
        if not isinstance(header, dict) or header.get("version") != 1 or not isinstance(header.get("columns"), list):
            raise ValueError(f"header: expected an encoder of version 1, got {header!r:.80}")
        columns = [_column_from_header(item) for item in header["columns"]]
        if len({column.name for column in columns}) != len(columns):
            raise ValueError("header: expected distinct column names, got one twice")
        return cls(columns)


def _column_from_header(item: Any) -> _Column:
    if not isinstance(item, dict) or item.keys() != {"name", "categories"} or not isinstance(item["name"], str):
        raise ValueError(f"header: expected a column with name and categories, got {item!r:.80}")
    categories = item["categories"]
    if categories is None:
        return _Column(item["name"], None)
    if not isinstance(categories, list) or not all(isinstance(category, str) for category in categories):
        raise ValueError(f"header: expected categories to be a list of str, got {categories!r:.80}")
    return _Column(item["name"], tuple(categories))


def _fit_column(table: Table, name: str) -> _Column:
    values = table.column(name)
    if values.dtype != object:
        table.numbers(name)
        return _Column(name, None)
    table.require_complete([name])
    categories = tuple(sorted(set(values)))
    if len(categories) > MAX_CATEGORIES:
        raise TableError(_too_many_categories(name, values, len(categories)))
    return _Column(name, categories)


def _too_many_categories(name: str, values: np.ndarray, count: int) -> str:
    # Most often this is a column of numbers with a typing error in it.
    n_numbers = sum(map(is_number, values))
    if 2 * n_numbers > len(values):
        row, text = first_text(values)
        return f"column {name!r}: expected numbers, got {text!r} in data row {row + 1}"
    return f"column {name!r}: expected at most {MAX_CATEGORIES} categories, got {count}; leave it out with --drop"


def _encode(column: _Column, table: Table, out: np.ndarray) -> None:
    """Encode one column of the table into its columns of the matrix, `out` (n_rows, width), initially zero."""
    if column.categories is None:
        out[:, 0] = table.numbers(column.name)
        return
    values = table.column(column.name)
    if values.dtype != object:
        raise TableError(f"column {column.name!r}: expected text as in fitting, got numbers")
    table.require_complete([column.name])
    positions = {category: i for i, category in enumerate(column.categories)}
    codes = np.fromiter((positions.get(value, -1) for value in values), dtype=np.intp, count=len(values))
    if (codes < 0).any():
        row = int(np.argmin(codes))
        raise TableError(
            f"column {column.name!r}: {values[row]!r} in data row {row + 1} did not occur in fitting "
            f"(known: {listed(column.categories)})"
        )
    out[np.arange(len(codes)), codes] = 1.0
