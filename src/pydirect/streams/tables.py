"""Columns of tables, as numbers or as text: frames of pandas, polars and their like, and arrays of objects.

Frames are recognised by what they can do, so that none of their packages is imported.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, column_names

NUMBERS = (numbers.Real, np.bool_, decimal.Decimal)
DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
# Rows from which pandas finds the texts of a column faster than a loop does.
MANY_ROWS = 1000
MISSING = ("NoneType", "NAType", "NaTType")  # types of None, pandas.NA and pandas.NaT


@dataclass(frozen=True)
class Text:
    """A column of text.

    - `values`: distinct ones, in the order of their first appearance.
    - `codes`, (n_rows,): number of each row's value, −1 where it is missing.
    """

    values: Sequence[str]
    codes: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.codes)


Column = FloatArray | Text


@dataclass(frozen=True)
class Table:
    """Columns of equal length: numbers with NaN where they are missing, or text.

    - `names`: None if they are not all strings.
    - `matrix`, (n_rows, n_columns): where all of them are numbers of one array.
    """

    columns: Sequence[Column]
    names: list[str] | None = None
    matrix: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self), len(self.columns)

    def rows(self, chosen: Any) -> Table:
        """Return some of the rows."""
        columns = [Text(c.values, c.codes[chosen]) if isinstance(c, Text) else c[chosen] for c in self.columns]
        return Table(columns, self.names, None if self.matrix is None else self.matrix[chosen])

    @classmethod
    def of_numbers(cls, x: FloatArray, names: list[str] | None = None) -> Table:
        """Return the columns of a matrix."""
        return cls(list(x.T), names, x)

    @classmethod
    def of(cls, X: Any) -> Table:
        """Read a frame or a two-dimensional array.

        Raises TypeError if a column holds anything but numbers, booleans and text; the message names it.
        """
        names = column_names(X)
        if is_frame(X):
            columns = [_column_of_series(s, label(names, j)) for j, s in enumerate(_series(X))]
        else:
            values = as_array(X)
            columns = [_column_of_array(values[:, j], label(names, j)) for j in range(values.shape[1])]
        return cls(columns, names)


def as_numbers(given: Any, name: str) -> np.ndarray:
    """Return an array of numbers, a memory-mapped one unchanged, or raise.

    Columns of a frame may be of several numeric types; messages name a column that holds anything else.
    """
    names = list(getattr(given, "columns", ()))
    if len(set(map(str, names))) < len(names) or not all(isinstance(column, str | int) for column in names):
        names = []  # not distinct
    columns = [given[column] for column in names]
    for label, column in zip(names, columns, strict=True):
        _require_numbers(column, f"column {label!r} of {name}")
    if len({str(column.dtype) for column in columns}) > 1:
        return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    values = given if isinstance(given, np.ndarray) else np.asarray(given)
    if columns and values.dtype.kind == "O":  # numbers that may be missing
        return np.asarray(given, dtype=np.float64)
    own = getattr(given, "name", None)  # of a series
    _require_numbers(values, f"column {own!r} of {name}" if isinstance(own, str) else name)
    return values


def _require_numbers(values: Any, name: str) -> None:
    # pandas' extension types have NumPy's kinds; polars' types have none.
    kind = values.dtype if hasattr(values.dtype, "kind") else np.asarray(values).dtype
    if kind.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {kind}")


def label(names: Sequence[str] | None, column: int) -> str:
    """Return how messages name a column of X."""
    return f"column {column} of X" if names is None else f"column {names[column]!r}"


def is_frame(X: Any) -> bool:
    """Whether X is a data frame: it has columns, each of which can be taken out by its name."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "__len__")


def as_array(X: Any) -> NDArray[Any]:
    """Return anything but a frame as a two-dimensional array; lists keep numbers beside text."""
    values = np.asarray(X)
    if values.dtype.kind in "SU" and not isinstance(X, np.ndarray):
        values = np.asarray(X, dtype=object)
    if values.ndim != 2:
        raise ValueError(f"Expected 2D array of shape (n_rows, n_features_in) for X, got {values.ndim}D array instead")
    return values


def holds_text(X: Any) -> bool:
    """Whether a column of X is neither of numbers nor of booleans."""
    if is_frame(X):
        return any(_kind(series.dtype) not in "biufc" for series in _series(X))
    dtype = getattr(X, "dtype", None)
    if dtype is None and isinstance(X, list | tuple):
        return any(np.asarray(row).dtype.kind in "SUO" for row in X[:1]) or np.asarray(X).dtype.kind in "SU"
    return getattr(dtype, "kind", "f") in "SUO"


def explain_numbers(X: Any, error: Exception) -> Exception:
    """Return an error that names the column of a table that is not all numbers, else the given one."""
    if not is_frame(X) and not holds_text(X):
        return error
    try:
        table = Table.of(X)
    except (TypeError, ValueError) as own:
        return own if is_frame(X) else error
    for j, column in enumerate(table.columns):
        if not isinstance(column, np.ndarray):
            return TypeError(
                f"{label(table.names, j)} must hold numbers, got text: encode it, say with scikit-learn's OneHotEncoder"
            )
        if np.isnan(column).any():
            return ValueError(
                f"{label(table.names, j)} must have no missing values, got NaN: fill them, say with scikit-learn's "
                "SimpleImputer"
            )
    return error


def _series(X: Any) -> Iterable[Any]:
    names = list(X.columns)
    if len(set(names)) == len(names):
        return (X[name] for name in names)
    return (X.iloc[:, j] for j in range(len(names)))


def _kind(dtype: Any) -> str:
    """Return NumPy's letter for a column's type, "O" for text and mixtures; polars' types have none of their own."""
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return str(kind)
    if str(dtype) in ("Boolean", "Null"):
        return "b"
    if getattr(dtype, "is_temporal", bool)():
        return "M"
    return "f" if getattr(dtype, "is_numeric", bool)() else "O"


def _column_of_series(series: Any, name: str) -> Column:
    kind = _kind(series.dtype)
    if kind in "Mm":
        raise _dates(name)
    if isinstance(series, np.ndarray):
        return _column_of_array(series, name)
    if hasattr(series, "cat") and hasattr(series.cat, "codes"):  # pandas' categories
        categories = _column_of_objects(list(series.cat.categories), name, text=True)
        assert isinstance(categories, Text)  # several may have the same key, such as 1 and "1"
        codes = np.asarray(series.cat.codes, dtype=np.intp)
        return Text(categories.values, np.where(codes < 0, -1, categories.codes[codes] if len(categories) else -1))
    if kind in "biuf":
        if hasattr(series, "isna"):
            return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        return _numbers(series.to_list()) if series.null_count() else np.asarray(series.to_numpy(), dtype=np.float64)
    if len(series) >= MANY_ROWS and str(series.dtype) in ("str", "string"):  # pandas': nothing but text, or missing
        codes, values = series.factorize()
        if len(values):
            return Text([str(value) for value in values], np.asarray(codes, dtype=np.intp))
    return _column_of_objects(series.to_list(), name)


def _column_of_array(values: NDArray[Any], name: str) -> Column:
    kind = values.dtype.kind
    if kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if kind in "Mm":
        raise _dates(name)
    if kind == "U":  # NumPy may have made text of numbers
        try:
            return values.astype(np.float64)
        except ValueError:
            pass
    return _column_of_objects(values.tolist(), name)


def _column_of_objects(values: list[Any], name: str, text: bool = False) -> Column:
    """Return Python objects as numbers if all of them are, else as text.

    `text`: whether numbers are text, too.
    """
    found_types = set(map(type, values))
    types = {t for t in found_types if t.__name__ not in MISSING}
    if not text and all(issubclass(t, NUMBERS) for t in types):
        return _numbers(values)
    if any(issubclass(t, DATES) for t in types):
        raise _dates(name)
    odd = next((t for t in types if not issubclass(t, (str, bytes, *NUMBERS)) and not text), None)
    if odd is not None:
        raise TypeError(f"{name} must hold numbers, booleans or text, got {odd.__name__}")
    if found_types - {str, type(None)}:
        values = [None if _is_missing(v) else key_of(v) for v in values]
    found: dict[str, int] = {}
    codes = [-1 if v is None else found.setdefault(v, len(found)) for v in values]
    return Text(list(found), np.array(codes, dtype=np.intp))


def _numbers(values: list[Any]) -> FloatArray:
    return np.array([np.nan if type(v).__name__ in MISSING else float(v) for v in values], dtype=np.float64)


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in MISSING or (isinstance(value, numbers.Real) and value != value)


def key_of(value: Any) -> str:
    """Return the text by which a value is known as a category: "1" for 1, 1.0 and "1"."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value)


def as_text(column: Column) -> Text:
    """Return a column of numbers as one of text."""
    if isinstance(column, Text):
        return column
    values, codes = np.unique(column, return_inverse=True, equal_nan=True)
    keys = [key_of(v) for v in values.tolist() if v == v]
    return Text(keys, np.where(codes < len(keys), codes, -1))


def _dates(name: str) -> TypeError:
    return TypeError(
        f"{name} must hold numbers, booleans or text, got dates or times: turn them into numbers that matter, such as "
        "days since a date, the day of the year or the hour"
    )
