"""Tables of the command line: named columns of numbers, booleans and text, what is wrong with them, and their files.

A column of a CSV file is numeric if each of its fields is a number or missing, boolean (stored as 0 and 1) if all of
them are "true" or "false", and text otherwise. A Parquet file declares the types of its columns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import TableError, check_names, listed
from pydirect.cli.csv_files import CsvFile, field_numbers, interpreted, is_number, read_columns
from pydirect.streams.rows import PANDAS_INDEX
from pydirect.tables.dates import is_date
from pydirect.tables.table import key_of

# Texts are not taken for categories if most are numbers, and more different ones than this.
_FEW_NUMBERS = 10
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
_FOREIGN = {b"PK\x03\x04": "a ZIP archive or Excel workbook", b"\xd0\xcf\x11\xe0": "an Excel workbook"}


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of equal length under their names, as estimators take them from data frames."""

    values: dict[str, np.ndarray]
    shape: tuple[int, int]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.values)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, chosen: np.ndarray | slice) -> Frame:
        """Return some of the rows."""
        values = {name: column[chosen] for name, column in self.values.items()}
        return Frame(values, (len(next(iter(values.values()))), len(values)))


@dataclass(frozen=True, eq=False)
class InputTable:
    """Named columns of equal length, in the order of the file: float64, or text as objects with None if missing.

    `unusable` columns hold anything else, `booleans` are those of numbers that were read as true and false.
    """

    columns: dict[str, np.ndarray]
    unusable: dict[str, str]
    n_rows: int
    booleans: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of all columns, unusable ones last."""
        return [*self.columns, *self.unusable]

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        return name in self.columns and self.columns[name].dtype == object

    def is_mostly_numbers(self, name: str) -> bool:
        """Whether a column of text is one of numbers with slips: most rows hold numbers, more than a few different."""
        texts = [text for text in self.columns[name].tolist() if text is not None]
        numbers = [text for text in texts if is_number(text)] if self.is_text(name) else []
        return 2 * len(numbers) > len(texts) and len(set(numbers)) > _FEW_NUMBERS

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of a column's missing values."""
        values = self.columns[name]
        return np.array([value is None for value in values]) if values.dtype == object else np.isnan(values)

    def numbers(self, name: str) -> np.ndarray:
        """Return a column in which `wrong_numbers` finds nothing as numbers, NaN where missing."""
        values = self.columns[name]
        if values.dtype != object:
            return values
        numbers = field_numbers(["" if text is None else text for text in values.tolist()])
        assert numbers is not None
        return numbers

    def make_text(self, name: str) -> None:
        """Turn numbers into the texts by which they are known as categories."""
        if name in self.columns and not self.is_text(name):
            values = self.columns[name].tolist()
            self.columns[name] = np.array([None if v != v else key_of(v) for v in values], dtype=object)

    def frame(self, names: Iterable[str]) -> Frame:
        """Return some columns."""
        values = {name: self.columns[name] for name in names}
        return Frame(values, (self.n_rows, len(values)))

    def rows(self, chosen: np.ndarray) -> InputTable:
        """Return some of the rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        n_rows = int(chosen.sum()) if chosen.dtype == bool else len(chosen)
        return InputTable(columns, self.unusable, n_rows, self.booleans, self.notes)

    # --- what is wrong

    def require(self, names: Iterable[str]) -> None:
        """Raise TableError unless the columns exist; all absent ones are named."""
        present = set(self.names)
        absent = [name for name in names if name not in present]
        if absent:
            word = "column" if len(absent) == 1 else "columns"
            raise TableError(f"no {word} {listed(absent)} in the data (it has {listed(self.names)})")

    def wrong_values(self, name: str) -> list[str]:
        """Return what keeps a column from being used, if anything; missing values do not."""
        if name in self.unusable:
            return [f"column {name!r} holds {self.unusable[name]}"]
        values = self.columns[name]
        if values.dtype == object:
            return []
        return self._wrong(name, np.isinf(values), "expected finite numbers")

    def wrong_numbers(self, name: str) -> list[str]:
        """Return what keeps a column from being used as numbers, if anything; missing values do not."""
        if not self.is_text(name):
            return self.wrong_values(name)
        wrong = np.array([text is not None and not is_number(text) for text in self.columns[name].tolist()])
        hint = (
            f"; --missing-value {shlex.quote(self.columns[name][np.argmax(wrong)] or '')} takes it for a missing value"
        )
        return [problem + hint for problem in self._wrong(name, wrong, "expected numbers")]

    def wrong_dates(self, name: str) -> list[str]:
        """Return what keeps a column from being used as dates, if anything; missing values do not."""
        values = self.columns.get(name, np.empty(0)).tolist()
        wrong = np.array([v is not None and v == v and not (isinstance(v, str) and is_date(v)) for v in values])
        return self._wrong(name, wrong, "expected dates such as 2024-01-31") if values else self.wrong_values(name)

    def missing_values(self, name: str) -> list[str]:
        """Return where a column lacks values, if anywhere."""
        missing = self.missing(name)
        return [f"column {name!r}: missing value in {place(missing)}"] if missing.any() else []

    def _wrong(self, name: str, wrong: np.ndarray, expected: str) -> list[str]:
        if not wrong.any():
            return []
        value = self.columns[name].tolist()[int(np.argmax(wrong))]
        return [f"column {name!r}: {expected}, got {value!r} in {place(wrong)}"]


def place(mask: np.ndarray) -> str:
    """Return the first row of a mask in words, and the number of such rows if there are more."""
    row, count = int(np.argmax(mask)) + 1, int(mask.sum())
    return f"data row {row}" + (f" ({count} such rows)" if count > 1 else "")


# --- files


def read_data(
    args: argparse.Namespace, path: Path, text_columns: Collection[str] = (), missing: Collection[str] = ()
) -> InputTable:
    """Read a table as the options say, with `missing` as further missing values, and print notes about it."""
    table = read_table(path, text_columns, {*args.missing_value, *missing}, args.decimal)
    for note in [] if getattr(args, "quiet", False) else table.notes:
        print(f"{path.name}: {note}", file=sys.stderr)
    return table


def read_table(
    path: str | os.PathLike[str],
    text_columns: Collection[str] = (),
    missing: Collection[str] = (),
    decimal: str | None = None,
) -> InputTable:
    """Read a CSV or Parquet file."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        content = _decompressed(file.read(), name)
    if content.startswith(b"PAR1") or name.endswith(".parquet"):
        return read_parquet(content, name)
    return _read_csv(CsvFile(content, name), text_columns, missing, decimal)


def _decompressed(content: bytes, path: str) -> bytes:
    """Return a file's content, uncompressed if it begins like a compressed file."""
    for start, module in _COMPRESSED.items():
        if content.startswith(start):
            try:
                return bytes(importlib.import_module(module).decompress(content))
            except (OSError, EOFError, ValueError, zlib.error, LZMAError) as error:
                raise TableError(f"{path}: the compressed file is damaged: {error}") from None
    for start, kind in _FOREIGN.items():
        if content.startswith(start):
            raise TableError(f"{path}: expected a CSV or Parquet file, got {kind}")
    return content


def _table(columns: Iterable[tuple[str, np.ndarray | str]], n_rows: int, notes: list[str]) -> InputTable:
    """Return a table of columns of numbers, booleans or texts, None where missing, and of unusable ones in words."""
    table = InputTable({}, {}, n_rows, notes=notes)
    for name, values in columns:
        if isinstance(values, str):
            table.unusable[name] = values
            continue
        if values.dtype == object and isinstance(next((value for value in values if value is not None), None), bool):
            table.booleans.add(name)
            values = values.astype(np.float64)  # None becomes NaN
        table.columns[name] = values
    return table


def _read_csv(
    file: CsvFile, text_columns: Collection[str], missing: Collection[str], decimal: str | None
) -> InputTable:
    names = file.header()
    columns, n_rows, notes = read_columns(file, names, text_columns, missing, decimal)
    if unnamed := [str(i + 1) for i, name in enumerate(names) if not name]:
        notes.insert(0, f"without a name, left out: column {', '.join(unnamed)}")
    return _table([pair for pair in zip(names, columns, strict=True) if pair[0]], n_rows, notes)


def read_parquet(content: bytes, path: str) -> InputTable:
    """Return the table in the bytes of a Parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Reading Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    try:
        data = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{path}: not a readable Parquet file: {error}") from None
    kept = [i for i, name in enumerate(data.column_names) if not PANDAS_INDEX.fullmatch(name)]
    check_names([data.column_names[i] for i in kept], path)
    if not kept or data.num_rows == 0:
        raise TableError(f"{path}: the file has no {'rows' if kept else 'columns'}")
    return _table([(data.column_names[i], _values_of(data.column(i))) for i in kept], data.num_rows, [])


def _values_of(values: Any) -> np.ndarray | str:
    from pyarrow import float64, types

    kind = values.type
    if types.is_dictionary(kind):
        return _values_of(values.cast(kind.value_type))
    if str(kind) in {"string", "large_string", "string_view"}:
        return interpreted(np.array(values.to_pylist(), dtype=object))
    if types.is_boolean(kind) and values.null_count < len(values):
        return np.array(values.to_pylist(), dtype=object)
    if any(is_kind(kind) for is_kind in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)):
        # Integers beyond 2**53 lose their last digits, like any number in a float64 column.
        return np.array(values.cast(float64(), safe=False).to_numpy(), dtype=np.float64)
    if types.is_null(kind):
        return np.full(len(values), np.nan)
    if types.is_timestamp(kind) or types.is_date(kind):
        zone = f"[{kind.tz}]" if getattr(kind, "tz", None) else ""  # behind each time, as in RFC 9557
        return np.array([v if v is None else v.isoformat() + zone for v in values.to_pylist()], dtype=object)
    return f"values of type {kind}"
