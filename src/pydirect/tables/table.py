"""Columns of tables, as numbers or as text: frames of any package that narwhals reads, and arrays of objects."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from pydirect._validation import MISSING, FloatArray, column_names, is_missing
from pydirect.tables.dates import Dates, zone_of

NUMBERS = (numbers.Real, np.bool_, decimal.Decimal)
TEXT_TYPES = ("str", "string", "large_string")  # as pandas and PyArrow call them
DATES, DURATIONS = (datetime.date, np.datetime64), (datetime.time, datetime.timedelta, np.timedelta64)


@dataclass(frozen=True)
class Text:
    """A column of text.

    - `values`: distinct ones, in the order of their first appearance.
    - `codes`, (n_rows,): number of each row's value, −1 where it is missing.
    - `declared`: whether the user says that these are categories.
    """

    values: Sequence[str]
    codes: NDArray[np.intp]
    declared: bool = False

    def __len__(self) -> int:
        return len(self.codes)


Column = FloatArray | Text | Dates


@dataclass(frozen=True)
class Table:
    """Columns of equal length: numbers with NaN where they are missing, text, or dates.

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
        columns = [rows_of(column, chosen) for column in self.columns]
        return Table(columns, self.names, None if self.matrix is None else self.matrix[chosen])

    @classmethod
    def of_numbers(cls, x: FloatArray, names: list[str] | None = None) -> Table:
        """Return the columns of a matrix."""
        return cls(list(x.T), names, x)

    @classmethod
    def of(cls, X: Any) -> Self:
        """Read a frame or a two-dimensional array.

        Raises TypeError if a column holds anything but numbers, booleans, text and dates; the message names it.
        """
        if is_frame(X):
            return cls._of_series(_series(X), column_names(X))
        values = np.asarray(X)
        if values.dtype.kind in "SU" and not isinstance(X, np.ndarray):  # lists keep numbers beside text
            values = np.asarray(X, dtype=object)
        if values.ndim != 2:
            expected = "Expected 2D array of shape (n_rows, n_features_in) for X"
            raise ValueError(f"{expected}, got {values.ndim}D array instead")
        return cls([column_of_array(values[:, j], label(None, j)) for j in range(values.shape[1])])

    @classmethod
    def of_text(cls, X: Any) -> Self | None:
        """Read a frame or array like `of`; None if it holds nothing but numbers, and NumPy can read it."""
        if not is_frame(X):
            return cls.of(X) if holds_text(X) else None
        columns = _series(X)
        numeric = hasattr(X, "__array__") and all(map(_is_numeric, columns))
        return None if numeric else cls._of_series(columns, column_names(X))

    @classmethod
    def _of_series(cls, series: Sequence[Any], names: list[str] | None) -> Self:
        return cls([_column_of_series(own, label(names, j)) for j, own in enumerate(series)], names)


def rows_of(column: Column, chosen: Any) -> Column:
    """Return some of the rows of a column."""
    if isinstance(column, np.ndarray):
        return column[chosen]
    return replace(column, **{("codes" if isinstance(column, Text) else "seconds"): _rows_in(column)[chosen]})


def _rows_in(column: Text | Dates) -> NDArray[Any]:
    return column.codes if isinstance(column, Text) else column.seconds


def is_absent(column: Column) -> NDArray[np.bool_]:
    """Return where a column has no value, (n_rows,)."""
    values = column if isinstance(column, np.ndarray) else _rows_in(column)
    return values < 0 if isinstance(column, Text) else np.isnan(values)


def as_numbers(given: Any, name: str) -> np.ndarray:
    """Return an array of numbers, a memory-mapped one unchanged; TypeError names a column of anything else."""
    if is_frame(given):
        columns, parts = _series(given), []
        for own, column in zip(columns, column_names(given) or range(len(columns)), strict=True):
            part = _numbers_of_series(own)
            if part is None:
                got = own.dtype if isinstance(own, np.ndarray) else type(own.dtype).__name__
                raise TypeError(f"column {column!r} of {name} must hold real numbers, got dtype {got}")
            parts.append(part)
        # Numbers of one type are not copied, unless some of them may be missing.
        if len({own.dtype for own in columns}) > 1 or (values := np.asarray(given)).dtype.kind == "O":
            return np.column_stack(parts)
        return values
    values = given if isinstance(given, np.ndarray) else np.asarray(given)
    if values.dtype.kind not in "fiub":
        own = getattr(given, "name", None)  # of a series
        what = f"column {own!r} of {name}" if isinstance(own, str) else name
        raise TypeError(f"{what} must hold real numbers, got dtype {values.dtype}")
    return values


def label(names: Sequence[str] | None, column: int) -> str:
    """Return how messages name a column of X."""
    return f"column {column} of X" if names is None else f"column {names[column]!r}"


def is_frame(X: Any) -> bool:
    """Whether X is a data frame: it has columns, each of which can be taken out by its name."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "__len__")


def holds_text(X: Any) -> bool:
    """Whether an array or list is neither of numbers nor of booleans."""
    dtype = getattr(X, "dtype", None)
    if dtype is None and isinstance(X, list | tuple):
        return any(np.asarray(row).dtype.kind in "SUOMm" for row in X[:1]) or np.asarray(X).dtype.kind in "SU"
    return getattr(dtype, "kind", "f") in "SUOMm"


def refuse_what_numpy_converts(values: Any, name: str) -> None:
    """Raise where NumPy would take dates for integers, or hidden numbers for numbers, or cannot see rows."""
    dtype = getattr(values, "dtype", None)
    if hasattr(values, "collect") and not hasattr(values, "__len__"):
        raise TypeError(f"{name} must hold rows, got a {type(values).__name__}: {name}.collect() reads them")
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise ValueError(f"{name} must have no masked values: fill them, as by {name}.astype(float).filled(np.nan)")
    if getattr(dtype, "kind", "") in ("M", "m") and name != "X":
        raise TypeError(f"{name} must hold numbers or labels, got dates or times")


def require_numbers(y: Any) -> None:
    """Raise if targets are text that holds no numbers."""
    values = np.asarray(y)
    if values.dtype.kind in "OUT":
        try:
            values.astype(object).astype(np.float64)
        except ValueError as error:
            raise ValueError(f"y must hold numbers, but {error}: labels are for classifiers") from None


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
            got = "text: encode it, say with scikit-learn's OneHotEncoder" if isinstance(column, Text) else "dates"
            return TypeError(f"{label(table.names, j)} must hold numbers, got {got}")
        if np.isnan(column).any():
            return ValueError(
                f"{label(table.names, j)} must have no missing values, got NaN: fill them, say with scikit-learn's "
                "SimpleImputer"
            )
    return error


def _series(X: Any) -> list[Any]:
    """Return the columns of a frame: series of narwhals, or arrays of a frame that it does not know."""
    if hasattr(X, "set_axis") and not X.columns.is_unique:  # other packages have no such frames
        twice = X.columns[X.columns.duplicated()].tolist()[0]
        raise ValueError(f"X must have columns of different names, got {twice!r} more than once")
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return list(frame.iter_columns())
    return [np.asarray(X[name]) for name in X.columns]


def _is_numeric(series: Any) -> bool:
    """Whether a column's type is one of numbers or booleans that NumPy has."""
    dtype = series.dtype
    if isinstance(dtype, nw.dtypes.DType) and dtype != nw.Unknown:
        return bool(dtype == nw.Boolean or (dtype.is_numeric() and dtype != nw.Decimal))
    native = series if isinstance(series, np.ndarray) else series.to_native()
    own = getattr(native, "dtype", getattr(native, "type", None))
    return getattr(own, "kind", "b" if str(own).lower() == "null" else "O") in "biuf"


def kinds(frame: Any) -> dict[str, str]:
    """Return what each column of a frame holds: "numbers", "text", "dates", or values of another type."""
    found = {}
    for name, own in zip(frame.column_names, _series(frame), strict=True):
        dtype = own.dtype
        text, dates = dtype in (nw.String, nw.Categorical, nw.Enum), dtype in (nw.Date, nw.Datetime)
        other = "text" if text else "dates" if dates else f"values of type {type(dtype).__name__.lower()}"
        found[name] = "numbers" if _is_numeric(own) or dtype == nw.Decimal else other
    return found


def _numbers_of_series(series: Any) -> FloatArray | None:
    """Return the numbers of a column, NaN where they are missing; None if its type is another."""
    if not _is_numeric(series) and series.dtype != nw.Decimal:
        return None
    values = series if isinstance(series, np.ndarray) else series.to_numpy()
    return np.asarray(values, dtype=np.float64) if values.dtype.kind in "biuf" else _numbers(series.to_list())


def _column_of_series(series: Any, name: str) -> Column:
    if isinstance(series, np.ndarray):
        return column_of_array(series, name)
    numbers = _numbers_of_series(series)
    if numbers is not None:
        return numbers
    if series.dtype.is_temporal():
        return _dates_of_series(series, name)
    categories = series.dtype in (nw.Categorical, nw.Enum)
    distinct = _distinct(series.to_native(), categories)
    if distinct is None or not distinct[1]:
        return _column_of_objects(series.to_list(), name)
    text = _column_of_objects(distinct[1], name, text=True)
    assert isinstance(text, Text)  # several may have the same key, such as 1 and "1"
    own = Text(text.values, np.append(text.codes, -1)[distinct[0]], declared=categories)
    return own if categories else as_dates(own, name)


def _distinct(native: Any, categories: bool) -> tuple[NDArray[np.intp], list[Any]] | None:
    """Return codes and distinct values where pandas or PyArrow knows that all are text or categories: no loop."""
    if not categories and str(getattr(native, "dtype", getattr(native, "type", ""))) not in TEXT_TYPES:
        return None
    if hasattr(native, "factorize"):
        codes, values = native.factorize()
        return codes, list(values)
    if hasattr(native, "dictionary_encode"):
        whole = native.combine_chunks().dictionary_encode()  # of a dictionary, itself
        return np.asarray(whole.indices.fill_null(-1), dtype=np.intp), whole.dictionary.to_pylist()
    return None


def column_of_array(values: NDArray[Any], name: str) -> Column:
    """Return an array as a column of numbers, text or dates."""
    kind = values.dtype.kind
    if kind in "biuf":
        return np.asarray(values, dtype=np.float64)
    if kind == "M":
        return Dates.of_numpy(values)
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
    if types and all(issubclass(t, DATES) for t in types):
        return checked_dates(Dates.of_objects([None if is_missing(v) else v for v in values], name), name)
    if any(issubclass(t, DATES + DURATIONS) for t in types):
        raise _odd_times(name)
    odd = next((t for t in types if not issubclass(t, (str, bytes, *NUMBERS)) and not text), None)
    if odd is not None:
        raise TypeError(f"{name} must hold numbers, booleans, text or dates, got {odd.__name__}")
    if found_types - {str, type(None)}:
        values = [None if is_missing(v) else key_of(v) for v in values]
    found: dict[str, int] = {}
    codes = [-1 if v is None else found.setdefault(v, len(found)) for v in values]
    own = Text(list(found), np.array(codes, dtype=np.intp))
    return own if text else as_dates(own, name)


def _numbers(values: list[Any]) -> FloatArray:
    return np.array([np.nan if type(v).__name__ in MISSING else float(v) for v in values], dtype=np.float64)


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


def reads_as_number(value: str) -> bool:
    """Whether text is a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def as_text(column: Column) -> Text:
    """Return a column of numbers or dates as one of text."""
    if isinstance(column, Text):
        return replace(column, declared=True)
    if isinstance(column, Dates):
        return Text(*column.texts(), declared=True)
    values, codes = np.unique(column, return_inverse=True, equal_nan=True)
    keys = [key_of(v) for v in values.tolist() if v == v]
    return Text(keys, np.where(codes < len(keys), codes, -1), declared=True)


def as_dates(text: Text, name: str) -> Column:
    """Return a column of text as one of dates if it is nothing else."""
    dates = Dates.of_texts(text.values, text.codes, name)
    return text if dates is None else checked_dates(dates, name)


def _dates_of_series(series: Any, name: str) -> Dates:
    dtype = series.dtype
    if dtype not in (nw.Date, nw.Datetime):
        raise _odd_times(name)
    zone = getattr(dtype, "time_zone", None) or ""
    if not zone:
        return Dates.of_numpy(series.cast(nw.Datetime("us")).to_numpy())
    checked_dates(Dates(np.empty(0), zone), name)
    return Dates.of_numpy(series.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy(), zone)


def checked_dates(dates: Dates, name: str) -> Dates:
    """Return dates; raise unless their time zone is known."""
    try:
        zone_of(dates.zone or "UTC")
    except ValueError as error:
        raise ValueError(f"{name}: {error}: convert it, such as to UTC") from None
    return dates


def _odd_times(name: str) -> TypeError:
    return TypeError(
        f"{name} must hold numbers, booleans, text or dates, got durations or times without a date, or dates beside "
        "something else: turn them into numbers, such as hours"
    )


def equal_rows(*tables: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first of each of the distinct rows of tables side by side, ascending, and for every row its number."""
    keys = row_hashes(*tables)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    if not all([np.array_equal(column, column[first][where]) for table in tables for column in table.T]):
        # Two different rows share a hash of 64 bits.
        _, first, where = np.unique(np.hstack(tables), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[where.ravel()]


def row_hashes(*tables: FloatArray) -> NDArray[np.uint64]:
    """Return hashes of the rows of tables side by side, (n_rows,), of one column after another."""
    keys = np.zeros(len(tables[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for table in tables:
            for column in table.T:
                bits = np.ascontiguousarray(column + 0.0, dtype=np.float64).view(np.uint64)  # −0 is 0
                keys = mixed(keys + bits)
    return keys


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers whose bits depend on all bits of each number: SplitMix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
