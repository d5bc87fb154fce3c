"""Tables for the command line: reading CSV and Parquet files, and turning their columns into a matrix of numbers.

CSV is read with the standard library alone, so that a file means the same on every machine. A column is numeric when
each of its fields is a number or missing, boolean (stored as 0 and 1) when they are all "true" or "false", and text
otherwise. Parquet files say themselves what their columns are.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pydirect.streams.rows import PANDAS_INDEX

MAX_CATEGORIES = 50
_MISSING = frozenset({"", "na", "n/a", "nan", "null"})
_BOOLEANS = {"true": True, "false": False}
_DELIMITERS = ",;\t"
_ROWS_PER_CHUNK = 20_000
_SNIFFED_BYTES = 2**16
_DATE_OR_TIME = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4})( \d.*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_DATES = "dates or times; turn them into numbers first, for example days since a fixed date"
_COMMAS = "numbers with decimal commas; write them with decimal points"


class TableError(ValueError):
    """A table cannot be used as it is; the message says where and why."""


# ------------------------------------------------------------------------------------------------------------ table


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Attributes
    ----------
    columns : dict of str to ndarray of shape (n_rows,)
        Numbers and booleans as float64 with NaN for missing values; text as object arrays of str with None for missing
        values. In the order of the file.
    unusable : dict of str to str
        Columns that hold something else, and what it is.
    n_rows : int
        Number of rows.
    booleans : set of str
        Columns of numbers that were true and false.
    """

    columns: dict[str, np.ndarray]
    unusable: dict[str, str]
    n_rows: int
    booleans: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """Names of all columns, those that cannot be used last."""
        return [*self.columns, *self.unusable]

    def column(self, name: str) -> np.ndarray:
        """Return one column.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        values : ndarray of shape (n_rows,)
            The column, not a copy.

        Raises
        ------
        TableError
            If there is no such column, or it holds neither numbers nor text.
        """
        self.require([name])
        if name in self.unusable:
            raise TableError(f"column {name!r} holds {self.unusable[name]}")
        return self.columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """Return one column that must hold finite numbers, none of them missing.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        values : ndarray of shape (n_rows,)
            The column, not a copy.

        Raises
        ------
        TableError
            If there is no such column, or it holds something else; the first such row is named.
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
        """Check that columns exist.

        Parameters
        ----------
        names : iterable of str
            Names of the columns.

        Raises
        ------
        TableError
            If some do not exist; all of these are named.
        """
        present = set(self.names)
        absent = [name for name in names if name not in present]
        if absent:
            word = "column" if len(absent) == 1 else "columns"
            raise TableError(f"no {word} {listed(absent)} in the data (it has {listed(self.names)})")

    def require_complete(self, names: Iterable[str]) -> None:
        """Check that columns have no missing values.

        Parameters
        ----------
        names : iterable of str
            Names of the columns.

        Raises
        ------
        TableError
            If a value is missing; the column and its first such row are named.
        """
        for name in names:
            missing = _is_missing(self.column(name))
            if missing.any():
                row, count = int(np.argmax(missing)) + 1, int(missing.sum())
                raise TableError(f"column {name!r}: missing value in data row {row} ({count} in this column)")

    def drop_missing(self, names: Iterable[str]) -> Table:
        """Leave out the rows in which some of the columns have no value.

        Parameters
        ----------
        names : iterable of str
            Columns to look at.

        Returns
        -------
        table : Table
            The other rows, with all columns.

        Raises
        ------
        TableError
            If no row is left.
        """
        missing = {name: _is_missing(self.column(name)) for name in names}
        keep = ~np.logical_or.reduce(list(missing.values()), axis=0) if missing else np.ones(self.n_rows, dtype=bool)
        if not keep.any():
            worst = max(missing, key=lambda name: int(missing[name].sum()))
            raise TableError(f"every row has a missing value; column {worst!r} has {missing[worst].sum()} of them")
        columns = {name: values[keep] for name, values in self.columns.items()}
        return Table(columns, self.unusable, int(keep.sum()), self.booleans)


def _is_missing(values: np.ndarray) -> np.ndarray:
    if values.dtype == object:
        return np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    return np.asarray(np.isnan(values))


def listed(names: Iterable[str], limit: int = 10) -> str:
    """Return names in quotation marks, the first ones of many."""
    names = list(names)
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def first_text(values: np.ndarray) -> tuple[int, str]:
    """Return row and value of the first text that is not a number, or of the first text at all."""
    texts = [(row, value) for row, value in enumerate(values) if value is not None]
    return next((item for item in texts if not is_number(item[1])), texts[0])


# ---------------------------------------------------------------------------------------------------------- reading


def read_table(path: str | os.PathLike[str], text_columns: Collection[str] = ()) -> Table:
    """Read a CSV or Parquet file.

    A file is taken for Parquet when its name ends in ``.parquet`` or its content says so, and for CSV otherwise. A CSV
    file is UTF-8 text, with or without a byte order mark; its first line holds the names of the columns; fields are
    separated by commas, semicolons or tabs, whichever fits, and may be quoted. Blank lines are skipped. Empty fields
    and ``NA``, ``N/A``, ``NaN`` and ``null`` in any case are missing values.

    Parameters
    ----------
    path : path-like
        File to read.
    text_columns : collection of str, optional
        Columns of a CSV file to take for text even if all their fields look like numbers. Names that are not in the
        file are ignored.

    Returns
    -------
    table : Table
        All columns, with missing values still in them.

    Raises
    ------
    TableError
        If the file is not a table with a header, at least one row, and distinct column names.
    ImportError
        If the file is Parquet and pyarrow is not installed.
    OSError
        If the file cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(b"PAR1") or os.fspath(path).endswith(".parquet"):
        return _read_parquet(content, path)
    return _read_csv(content, path, text_columns)


def _read_csv(content: bytes, path: str | os.PathLike[str], text_columns: Collection[str]) -> Table:
    source = _Csv(content, os.fspath(path), _sniff(content))
    names = source.header()
    forced = {i for i, name in enumerate(names) if name in text_columns}
    arrays = _read_columns(partial(source.chunks, len(names)), len(names), forced)
    table = Table({}, {}, len(arrays[0]))
    for name, values in zip(names, arrays, strict=True):
        _add_column(table, name, values if name in text_columns else _interpreted(values))
    return table


def _add_column(table: Table, name: str, values: np.ndarray | str) -> None:
    if isinstance(values, str):
        table.unusable[name] = values
        return
    if values.dtype == object and isinstance(next((value for value in values if value is not None), None), bool):
        table.booleans.add(name)
        values = values.astype(np.float64)  # None becomes NaN
    table.columns[name] = values


@dataclass(frozen=True)
class _Csv:
    """The bytes of a CSV file, which may be gone through several times."""

    content: bytes
    path: str
    delimiter: str

    def header(self) -> list[str]:
        first = next((row for row in self.rows() if row), None)
        if first is None:
            raise TableError(f"{self.path}: the file is empty")
        names = [name.strip() for name in first]
        _check_names(names, self.path)
        if all(_numbers([name]) is not None for name in names):
            raise TableError(f"{self.path}: expected column names in the first line, got only numbers")
        if sum(1 for _ in itertools.islice(filter(None, self.rows()), 2)) < 2:
            raise TableError(f"{self.path}: the file has a header but no rows")
        return names

    def chunks(self, n_columns: int) -> Iterator[list[list[str]]]:
        """Go through the rows below the header, many at a time."""
        rows = filter(None, self.rows())
        next(rows)
        while chunk := list(itertools.islice(rows, _ROWS_PER_CHUNK)):
            if any(len(row) != n_columns for row in chunk):
                self._raise_ragged(n_columns)
            yield chunk

    def rows(self) -> Iterator[list[str]]:
        reader = self._reader()
        try:
            yield from reader
        except csv.Error as error:
            raise TableError(f"{self.path}, line {reader.line_num}: {error}") from None
        except UnicodeDecodeError:
            raise TableError(f"{self.path}: expected UTF-8 text, got other bytes; save the file as UTF-8") from None

    def _reader(self) -> Any:
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding="utf-8-sig", newline="")
        # strict: a stray quote or an unclosed one is an error, not the start of a guess.
        return csv.reader(text, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def _raise_ragged(self, n_columns: int) -> None:
        reader = self._reader()
        row = next(row for row in reader if row and len(row) != n_columns)
        fields = "field" if n_columns == 1 else "fields"
        raise TableError(
            f"{self.path}, line {reader.line_num}: expected {n_columns} {fields} as in the header, got {len(row)}"
        )


def _check_names(names: list[str], path: str) -> None:
    if "" in names:
        hint = "; a table written by pandas needs index=False" if names[0] == "" else ""
        raise TableError(f"{path}: column {names.index('') + 1} has no name{hint}")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise TableError(f"{path}: column name {twice[0]!r} occurs more than once")


def _sniff(content: bytes) -> str:
    """Return the delimiter that cuts the first two rows into the same, and the larger, number of fields."""
    start = content[:_SNIFFED_BYTES].decode("utf-8-sig", errors="replace")
    return max(_DELIMITERS, key=lambda delimiter: _delimiter_score(start, delimiter))


def _delimiter_score(text: str, delimiter: str) -> tuple[bool, bool, int]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        sizes = [len(row) for row in itertools.islice(filter(None, reader), 2)]
    except csv.Error:
        sizes = []
    first = sizes[0] if sizes else 0
    return first > 1, len(set(sizes)) == 1, first


def _read_columns(
    open_chunks: Callable[[], Iterator[list[list[str]]]], n_columns: int, text: set[int]
) -> list[np.ndarray]:
    """Return the columns, as numbers where that is possible.

    Text that first shows up far down changes how the earlier rows must be kept ("007" is not 7), so reading starts
    again then, with that column taken for text. This happens seldom and spares keeping all fields as strings.
    """
    while True:
        pieces: list[list[np.ndarray]] = [[] for _ in range(n_columns)]
        if all(_add_chunk(pieces, chunk, text) for chunk in open_chunks()):
            return [np.concatenate(parts) for parts in pieces]


def _add_chunk(pieces: list[list[np.ndarray]], chunk: list[list[str]], text: set[int]) -> bool:
    """Append a chunk to its columns; return False if a column with earlier pieces turned out to be text."""
    sound = True
    for i, values in enumerate(zip(*chunk, strict=True)):
        numbers = None if i in text else _numbers(values)
        if numbers is None and i not in text:
            text.add(i)
            sound = sound and not pieces[i]
        pieces[i].append(_texts(values) if numbers is None else numbers)
    return sound


def _numbers(values: Sequence[str]) -> np.ndarray | None:
    """Return numbers with NaN where missing, or None if some value is neither a number nor missing."""
    # float() takes 1_000 for a number; a table hardly means that.
    if "_" in "".join(values):
        return None
    try:
        return np.fromiter(map(float, values), dtype=np.float64, count=len(values))
    except ValueError:
        pass
    try:
        return np.fromiter(map(_number_or_nan, values), dtype=np.float64, count=len(values))
    except ValueError:
        return None


def is_number(value: str) -> bool:
    """Whether a text is a number."""
    return value.lower() not in _MISSING and _numbers([value]) is not None


def _number_or_nan(value: str) -> float:
    return np.nan if value.strip().lower() in _MISSING else float(value)


def _texts(values: Sequence[str]) -> np.ndarray:
    stripped = (value.strip() for value in values)
    return _objects([None if value.lower() in _MISSING else value for value in stripped])


def _objects(values: list[Any]) -> np.ndarray:
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def _interpreted(values: np.ndarray) -> np.ndarray | str:
    """Return a column as numbers, booleans or text, or say what it holds if it is none of these."""
    if values.dtype != object:
        return values
    different = {value for value in values if value is not None}
    if not different:
        return np.full(len(values), np.nan)
    if all(value.lower() in _BOOLEANS for value in different):
        return _objects([None if value is None else _BOOLEANS[value.lower()] for value in values])
    if all(_DATE_OR_TIME.fullmatch(value) for value in different):
        return _DATES
    # A plain number counts as well, since a column may hold 3 next to 2,5.
    if any(map(_DECIMAL_COMMA.fullmatch, different)) and all(is_number(v.replace(",", ".")) for v in different):
        return _COMMAS
    return values


# ---------------------------------------------------------------------------------------------------------- parquet


def _read_parquet(content: bytes, path: str | os.PathLike[str]) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Reading Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    try:
        data = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{os.fspath(path)}: not a readable Parquet file: {error}") from None
    return _from_arrow(data, os.fspath(path))


def _from_arrow(data: Any, path: str) -> Table:
    kept = [i for i, name in enumerate(data.column_names) if not PANDAS_INDEX.fullmatch(name)]
    _check_names([data.column_names[i] for i in kept], path)
    if not kept or data.num_rows == 0:
        raise TableError(f"{path}: the file has no {'rows' if kept else 'columns'}")
    table = Table({}, {}, data.num_rows)
    for i in kept:
        _add_column(table, data.column_names[i], _from_arrow_column(data.column(i)))
    return table


def _from_arrow_column(values: Any) -> np.ndarray | str:
    from pyarrow import float64, types

    kind = values.type
    if types.is_dictionary(kind):
        return _from_arrow_column(values.cast(kind.value_type))
    if str(kind) in {"string", "large_string", "string_view"}:
        return _interpreted(_objects(values.to_pylist()))
    if types.is_boolean(kind) and values.null_count < len(values):
        return _objects(values.to_pylist())
    if any(is_kind(kind) for is_kind in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)):
        # Integers beyond 2**53 lose their last digits, as any number in a float64 column does.
        return np.array(values.cast(float64(), safe=False).to_numpy(), dtype=np.float64)
    if types.is_null(kind):
        return np.full(len(values), np.nan)
    return _DATES if types.is_temporal(kind) else f"values of type {kind}"
