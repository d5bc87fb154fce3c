"""Tables of the command line: reading CSV and Parquet files.

CSV is read with the standard library alone, so that a file means the same on every machine. A column is numeric if
each of its fields is a number or missing, boolean (stored as 0 and 1) if all of them are "true" or "false", and text
otherwise. A Parquet file declares the types of its columns.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pydirect.cli.table_values import DATES, as_objects, as_texts, field_numbers, interpreted
from pydirect.cli.tables import Table, TableError
from pydirect.streams.rows import PANDAS_INDEX

_DELIMITERS = ",;\t"
_ROWS_PER_CHUNK = 20_000
_SNIFFED_BYTES = 2**16


def read_table(path: str | os.PathLike[str], text_columns: Collection[str] = ()) -> Table:
    """Read a CSV or Parquet file.

    A file is read as Parquet if its name ends in ``.parquet`` or its first bytes say so, else as CSV. A CSV
    file is UTF-8 text, with or without a byte order mark; its first line holds the names of the columns; fields are
    separated by commas, semicolons or tabs, whichever fits, and may be quoted. Blank lines are skipped. Empty fields
    and ``NA``, ``N/A``, ``NaN`` and ``null`` in any case are missing values.

    `path`: file to read. `text_columns`: columns of a CSV file to read as text even if all their fields look like
    numbers. Unknown names are ignored. Returns the table with all columns, including their missing values. Raises
    TableError if the file is not a table with a header, at least one row, and distinct column names. Raises ImportError
    if the file is Parquet and pyarrow is not installed. Raises OSError if the file cannot be read.
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
        _add_column(table, name, values if name in text_columns else interpreted(values))
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
    """The bytes of a CSV file, for several passes."""

    content: bytes
    path: str
    delimiter: str

    def header(self) -> list[str]:
        first = next((row for row in self.rows() if row), None)
        if first is None:
            raise TableError(f"{self.path}: the file is empty")
        names = [name.strip() for name in first]
        _check_names(names, self.path)
        if all(field_numbers([name]) is not None for name in names):
            raise TableError(f"{self.path}: expected column names in the first line, got only numbers")
        if sum(1 for _ in itertools.islice(filter(None, self.rows()), 2)) < 2:
            raise TableError(f"{self.path}: the file has a header but no rows")
        return names

    def chunks(self, n_columns: int) -> Iterator[list[list[str]]]:
        """Yield the rows below the header in chunks."""
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
        # strict: a stray or unclosed quote is an error, not a reason to guess.
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
    """Return the delimiter that splits the first two rows into equally many fields, and into most of them."""
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
    """Return the columns, as numbers where possible.

    Text far down in a column changes how its earlier rows must be kept ("007" is not 7): reading then starts again with
    that column as text. This is rare and avoids keeping all fields as strings.
    """
    while True:
        pieces: list[list[np.ndarray]] = [[] for _ in range(n_columns)]
        if all(_add_chunk(pieces, chunk, text) for chunk in open_chunks()):
            return [np.concatenate(parts) for parts in pieces]


def _add_chunk(pieces: list[list[np.ndarray]], chunk: list[list[str]], text: set[int]) -> bool:
    """Append a chunk to its columns; return False if a column with earlier pieces turned out to be text."""
    sound = True
    for i, values in enumerate(zip(*chunk, strict=True)):
        numbers = None if i in text else field_numbers(values)
        if numbers is None and i not in text:
            text.add(i)
            sound = sound and not pieces[i]
        pieces[i].append(as_texts(values) if numbers is None else numbers)
    return sound


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
        return interpreted(as_objects(values.to_pylist()))
    if types.is_boolean(kind) and values.null_count < len(values):
        return as_objects(values.to_pylist())
    if any(is_kind(kind) for is_kind in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)):
        # Integers beyond 2**53 lose their last digits, like any number in a float64 column.
        return np.array(values.cast(float64(), safe=False).to_numpy(), dtype=np.float64)
    if types.is_null(kind):
        return np.full(len(values), np.nan)
    return DATES if types.is_temporal(kind) else f"values of type {kind}"
