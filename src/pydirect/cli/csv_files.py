"""CSV files of the command line: their fields, row by row, and their columns as numbers or texts."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pydirect.cli.common import TableError
from pydirect.cli.table_values import MISSING, as_texts, field_numbers
from pydirect.cli.tables import check_names

_DELIMITERS = ",;\t|"
_ROWS_PER_CHUNK = 20_000
_SNIFFED_BYTES = 2**16


@dataclass(frozen=True)
class CsvFile:
    """The bytes of a CSV file, for several passes."""

    content: bytes
    path: str

    @property
    def encoding(self) -> str:
        """UTF-16 with its byte order mark, else UTF-8 with or without one."""
        marked = self.content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return "utf-16" if marked else "utf-8-sig"

    @cached_property
    def delimiter(self) -> str:
        """The delimiter that splits the first two rows into equally many fields, and into most of them."""
        start = self.content[:_SNIFFED_BYTES].decode(self.encoding, errors="replace")
        return max(_DELIMITERS, key=lambda delimiter: _delimiter_score(start, delimiter))

    def header(self) -> list[str]:
        """Return the names of the columns, empty for those without one; raise if there are none, or no rows."""
        rows = self._rows()
        first = next(rows, None)
        if first is None:
            raise TableError(f"{self.path}: the file is empty")
        names = [name.strip() for name in first]
        named = [name for name in names if name]
        check_names(named, self.path)
        if all(field_numbers([name]) is not None for name in named):
            raise TableError(f"{self.path}: expected column names in the first line, got only numbers")
        if next(rows, None) is None:
            raise TableError(f"{self.path}: the file has a header but no rows")
        return names

    def columns(self, n_columns: int, text: set[int], missing: Collection[str] = MISSING) -> list[np.ndarray]:
        """Return the columns, as numbers where possible, as texts for the numbers of columns in `text`.

        Text far down in a column changes how its earlier rows must be kept ("007" is not 7): reading then starts again
        with that column as text. This is rare and avoids keeping all fields as strings.
        """
        while True:
            pieces: list[list[np.ndarray]] = [[] for _ in range(n_columns)]
            if all(_add_chunk(pieces, chunk, text, missing) for chunk in self._chunks(n_columns)):
                return [np.concatenate(parts) for parts in pieces]

    def _chunks(self, n_columns: int) -> Iterator[list[list[str]]]:
        """Yield the rows below the header in chunks."""
        rows = self._rows(n_columns)
        next(rows)
        while chunk := list(itertools.islice(rows, _ROWS_PER_CHUNK)):
            if any(len(row) != n_columns for row in chunk):
                self._raise_ragged(n_columns)
            yield chunk

    def _rows(self, n_columns: int = 2) -> Iterator[list[str]]:
        """Yield the rows that are not blank; in files of one column, a line of two quotes is a missing value."""
        reader = self._reader()
        try:
            yield from (row for row in reader if len(row) > 1 or (row and (n_columns == 1 or row[0].strip())))
        except csv.Error as error:
            hint = "; is a quotation mark missing?" if "limit" in str(error) else ""
            raise TableError(f"{self.path}, line {reader.line_num}: {error}{hint}") from None
        except UnicodeDecodeError:
            raise TableError(self._undecodable()) from None

    def _undecodable(self) -> str:
        try:
            self.content.decode(self.encoding)
        except UnicodeDecodeError as error:
            line = self.content[: error.start].count(b"\n") + 1
            reason = f"expected UTF-8 text, got byte 0x{self.content[error.start]:02x} in line {line}"
        return f"{self.path}: {reason}; save the file as UTF-8 (in Excel 'CSV UTF-8', or with iconv -f WINDOWS-1252)"

    def _reader(self) -> Any:
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding=self.encoding, newline="")
        # strict: a stray or unclosed quote is an error, not a reason to guess.
        return csv.reader(text, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def _raise_ragged(self, n_columns: int) -> None:
        reader = self._reader()
        rows = ((reader.line_num, row) for row in reader if len(row) > 1 or (row and row[0].strip()))
        wrong = [(line, len(row)) for line, row in rows if len(row) != n_columns]
        fields = "field" if n_columns == 1 else "fields"
        more = f" ({len(wrong)} such lines)" if len(wrong) > 1 else ""
        raise TableError(
            f"{self.path}, line {wrong[0][0]}: expected {n_columns} {fields} as in the header, got {wrong[0][1]}{more}"
        )


def _delimiter_score(text: str, delimiter: str) -> tuple[bool, bool, int]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        sizes = [len(row) for row in itertools.islice(filter(None, reader), 2)]
    except csv.Error:
        sizes = []
    first = sizes[0] if sizes else 0
    return first > 1, len(set(sizes)) == 1, first


def _add_chunk(
    pieces: list[list[np.ndarray]], chunk: list[list[str]], text: set[int], missing: Collection[str]
) -> bool:
    """Append a chunk to its columns; return False if a column with earlier pieces turned out to be text."""
    sound = True
    for i, values in enumerate(zip(*chunk, strict=True)):
        numbers = None if i in text else field_numbers(values, missing)
        if numbers is None and i not in text:
            text.add(i)
            sound = sound and not pieces[i]
        pieces[i].append(as_texts(values, missing) if numbers is None else numbers)
    return sound
