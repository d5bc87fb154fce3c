"""Tables of the command line: reading CSV and Parquet files.

CSV is read with the standard library alone, so that a file means the same on every machine. A column is numeric if
each of its fields is a number or missing, boolean (stored as 0 and 1) if all of them are "true" or "false", and text
otherwise. A Parquet file declares the types of its columns.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Collection
from lzma import LZMAError

import numpy as np

from pydirect.cli.common import TableError
from pydirect.cli.csv_files import CsvFile
from pydirect.cli.number_styles import COMMA, decimal_signs, read_numbers, usual_sign
from pydirect.cli.parquet_files import read_parquet
from pydirect.cli.table_values import interpreted, missing_marks
from pydirect.cli.tables import Table

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
_FOREIGN = {b"PK\x03\x04": "a ZIP archive or Excel workbook", b"\xd0\xcf\x11\xe0": "an Excel workbook"}


def read_table(
    path: str | os.PathLike[str],
    text_columns: Collection[str] = (),
    missing: Collection[str] = (),
    decimal: str | None = None,
) -> Table:
    """Read a CSV or Parquet file.

    A file is read as Parquet if its name ends in ``.parquet`` or its first bytes say so, else as CSV. A CSV file is
    UTF-8 text with or without a byte order mark, or UTF-16 with one, and may be compressed by gzip, bzip2 or xz; its
    first line holds the names of the columns, and columns without one are left out; fields are separated by commas,
    semicolons, tabs or bars, whichever fits, and may be quoted. Blank lines are skipped. Empty fields, ``?``, and
    ``NA``, ``N/A``, ``#N/A``, ``<NA>``, ``NaN`` and ``null`` in any case are missing values.

    `path`: file to read. `text_columns`: columns of a CSV file to read as text even if all their fields look like
    numbers. Unknown names are ignored. `missing`: more fields of a CSV file that stand for a missing value. `decimal`:
    decimal sign of a CSV file, ``"point"`` or ``"comma"``; by default it is found out. Returns the table with all
    columns, including their missing values. Raises TableError if the file is not a table with a header, at least one
    row, and distinct column names. Raises ImportError if the file is Parquet and pyarrow is not installed. Raises
    OSError if the file cannot be read.
    """
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


def _read_csv(file: CsvFile, text_columns: Collection[str], missing: Collection[str], decimal: str | None) -> Table:
    names = file.header()
    forced = {i for i, name in enumerate(names) if name in text_columns}
    columns = file.columns(len(names), set(forced), missing)
    table = Table({}, {}, len(columns[0]))
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
