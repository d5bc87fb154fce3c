"""Tables of the command line: reading CSV and Parquet files.

CSV is read with the standard library alone, so that a file means the same on every machine. A column is numeric if
each of its fields is a number or missing, boolean (stored as 0 and 1) if all of them are "true" or "false", and text
otherwise. A Parquet file declares the types of its columns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import zlib
from collections.abc import Collection
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import TableError
from pydirect.cli.csv_files import CsvFile
from pydirect.cli.table_values import (
    COMMA,
    DATES,
    as_objects,
    decimal_signs,
    interpreted,
    missing_marks,
    read_numbers,
    usual_sign,
)
from pydirect.cli.tables import InputTable, check_names
from pydirect.streams.rows import PANDAS_INDEX

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
_FOREIGN = {b"PK\x03\x04": "a ZIP archive or Excel workbook", b"\xd0\xcf\x11\xe0": "an Excel workbook"}


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
    return _read_csv(CsvFile(content, name), text_columns, missing_marks(missing), decimal)


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


def _read_csv(
    file: CsvFile, text_columns: Collection[str], missing: Collection[str], decimal: str | None
) -> InputTable:
    names = file.header()
    forced = {i for i, name in enumerate(names) if name in text_columns}
    columns = file.columns(len(names), set(forced), missing)
    table = InputTable({}, {}, len(columns[0]))
    if unnamed := [str(i + 1) for i, name in enumerate(names) if not name]:
        table.notes.append(f"without a name, left out: column {', '.join(unnamed)}")
    with_commas = _with_commas(file, columns, forced, missing, decimal)
    for i, name in enumerate(names):
        if not name:
            continue
        table.add(name, columns[i] if i in forced else with_commas[i] if i in with_commas else interpreted(columns[i]))
        if i in with_commas and decimal is None and name in table.columns:
            row, text = next((row, text) for row, text in enumerate(columns[i]) if text and {",", "."} & set(text))
            table.notes.append(f"column {name!r}: {text!r} is read as {table.columns[name][row]:.15g}")
    return table


def _with_commas(
    file: CsvFile, columns: list[np.ndarray], forced: Collection[int], missing: Collection[str], decimal: str | None
) -> dict[int, np.ndarray | str]:
    """Return the columns of numbers with commas, read with the file's decimal sign, or why they cannot be read."""
    texts = {i: _distinct(values) for i, values in enumerate(columns) if values.dtype == object and i not in forced}
    signed = {i: found for i, found in texts.items() if any("," in text or text.count(".") > 1 for text in found)}
    possible = _possible_signs(signed)
    sign = decimal or usual_sign(possible.values(), file.delimiter)
    if sign == COMMA:
        # What was read as a fraction may be an integer: 1.234 is 1234 here.
        fractions = {i for i, values in enumerate(columns) if values.dtype != object and _has_fractions(values)}
        again = file.columns(len(columns), fractions | set(texts) | set(forced), missing) if fractions else columns
        signs = _possible_signs({i: _distinct(again[i]) for i in fractions})
        possible |= {i: found for i, found in signs.items() if COMMA in found}
        for i in possible:
            columns[i] = again[i]
    return {i: read_numbers(columns[i], found, sign) for i, found in possible.items()}


def _has_fractions(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    return bool((finite != np.floor(finite)).any())


def _distinct(texts: np.ndarray) -> set[str]:
    return {text for text in texts.tolist() if text is not None}


def _possible_signs(texts: dict[int, set[str]]) -> dict[int, set[str]]:
    return {i: signs for i, different in texts.items() if (signs := decimal_signs(different)) is not None}


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
    table = InputTable({}, {}, data.num_rows)
    for i in kept:
        table.add(data.column_names[i], _values_of(data.column(i)))
    return table


def _values_of(values: Any) -> np.ndarray | str:
    from pyarrow import float64, types

    kind = values.type
    if types.is_dictionary(kind):
        return _values_of(values.cast(kind.value_type))
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


def read_data(
    args: argparse.Namespace, path: Path, text_columns: Collection[str] = (), missing: Collection[str] = ()
) -> InputTable:
    """Read a table as the options say, with `missing` as further missing values, and print notes about it."""
    table = read_table(path, text_columns, {*args.missing_value, *missing}, args.decimal)
    for note in [] if getattr(args, "quiet", False) else table.notes:
        print(f"{path.name}: {note}", file=sys.stderr)
    return table
