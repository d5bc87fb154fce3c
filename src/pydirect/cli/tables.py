"""Tables of the command line: files of named columns, each read as numbers, text or dates when it is asked for."""

from __future__ import annotations

import codecs
import csv
import importlib
import io
import itertools
import re
import shlex
import warnings
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.streams.rows import PANDAS_INDEX
from pydirect.tables.table import Column, Table, Text, as_text, column_of_array, is_absent, reads_as_number

POINT, COMMA = "point", "comma"
MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null"})
_BOOLEANS = {"true": 1.0, "false": 0.0}
_DELIMITERS = ",;\t|"
_ROWS_PER_CHUNK = 20_000
_SNIFFED_BYTES = 2**16
# Between the fields of a column: no text that was decoded holds it. Lists of fields would take ten times the memory.
_BETWEEN = "\udfff"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
# Numbers whose decimal sign is D and whose digits G may group.
_FORM = r"[+-]?(\d+D?\d*|D\d+|[1-9]\d{0,2}(G\d{3})+(D\d*)?)(e[+-]?\d+)?"
_NUMBERS = {
    sign: re.compile(_FORM.replace("D", f"[{decimal}]").replace("G", f"[{group}]"), re.ASCII | re.IGNORECASE)
    for sign, decimal, group in ((POINT, ".", ","), (COMMA, ",", "."))
}


class TableFile:
    """Named columns of a file.

    - `names`: of the columns, in the order of the file.
    - `n_rows`: below the header.
    """

    path: Path
    names: list[str]
    n_rows: int

    def column(self, name: str, text: bool = False) -> Column:
        """Return a column of numbers, text or dates; with `text`, as categories whatever it holds."""
        raise NotImplementedError

    def is_boolean(self, name: str) -> bool:
        """Whether a column holds true and false, which are the numbers one and zero."""
        raise NotImplementedError

    def require(self, names: Iterable[str]) -> None:
        """Raise unless the columns exist."""
        absent = [name for name in names if name not in self.names]
        if absent:
            words = f"column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}"
            raise ValueError(f"{self.path}: no {words} (it has {', '.join(map(repr, self.names))})")

    def numbers(self, name: str, expected: str = "numbers") -> FloatArray:
        """Return a column of numbers, NaN where missing; raise with what is `expected` if it holds anything else."""
        column = self.column(name)
        if isinstance(column, np.ndarray):
            return column
        found = as_text(column)
        wrong = np.array([*(not reads_as_number(value) for value in found.values), False])
        row = int(np.argmax(wrong[found.codes] if wrong.any() else found.codes == 0))
        value = found.values[found.codes[row]]
        few = isinstance(column, Text) and 2 * wrong.sum() < len(wrong)  # of its values are no numbers
        hint = f"; --missing-value {shlex.quote(value)} takes it for missing" if few else ""
        raise ValueError(
            f"{self.path}: column {name!r}: expected {expected}, got {value!r} in data row {row + 1}{hint}"
        )

    def labels(self, name: str) -> list[Any]:
        """Return labels of classes or groups: text, booleans, integers if all are whole, or floats; None if missing."""
        column = self.column(name)
        if not isinstance(column, np.ndarray):
            text = as_text(column)
            return np.array([*text.values, None], dtype=object)[text.codes].tolist()
        known = column[~np.isnan(column)]
        kind: type = bool if self.is_boolean(name) else int if (known == np.round(known)).all() else float
        return [None if value != value else kind(value) for value in column.tolist()]

    def table(self, names: Sequence[str], text: Collection[str] = (), unused: Collection[str] = ()) -> Table:
        """Return some columns as models take them, of which some are `text`, and `unused` ones need not exist."""
        self.require(name for name in names if name not in unused)
        nothing = Text([], np.full(self.n_rows, -1))
        columns = [nothing if name in unused else self.column(name, name in text) for name in names]
        return Table(columns, list(names))


def missing_rows(table: Table) -> NDArray[np.bool_]:
    """Return which rows lack a value of any column."""
    return np.any([is_absent(column) for column in table.columns], axis=0)


def read_table(path: Path, missing: Collection[str] = (), decimal: str | None = None) -> TableFile:
    """Open a CSV or Parquet file.

    - `missing`: In CSV, texts that stand for missing values, beside the usual ones.
    - `decimal`: In CSV, the decimal sign, `POINT` or `COMMA`; by default found out.
    """
    content = path.read_bytes()
    for start, module in _COMPRESSED.items():
        if content.startswith(start):
            try:
                content = importlib.import_module(module).decompress(content)
            except (OSError, EOFError, ValueError, zlib.error, LZMAError) as error:
                raise ValueError(f"{path}: the compressed file is damaged: {error}") from None
    if content.startswith(b"PK\x03\x04"):
        raise ValueError(f"{path}: expected a CSV or Parquet file, got a ZIP archive or Excel workbook")
    if content.startswith(b"PAR1") or path.suffix == ".parquet":
        return ParquetFile(content, path)
    return CsvFile(content, path, missing, decimal)


def arrow() -> Any:
    """Return the package pyarrow, with its module for Parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    return pyarrow


class ParquetFile(TableFile):
    """A Parquet file, which declares the types of its columns."""

    def __init__(self, content: bytes, path: Path) -> None:
        pyarrow = arrow()
        try:
            self.data = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a readable Parquet file: {error}") from None
        self.path, self.n_rows = path, self.data.num_rows
        self.names = [name for name in self.data.column_names if not PANDAS_INDEX.fullmatch(name)]
        _check_shape(path, self.names, self.n_rows)

    def column(self, name: str, text: bool = False) -> Column:
        """Return a column."""
        found = Table.of(self.data.select([name])).columns[0]
        return as_text(found) if text else found

    def is_boolean(self, name: str) -> bool:
        """Whether this is the type of a column."""
        return str(self.data.schema.field(name).type) == "bool"


class CsvFile(TableFile):
    """A CSV file: a column is one of numbers if each of its fields is a number or missing, else of text or dates.

    Numbers may have decimal commas and grouped digits; the sign is found out from all columns of a file.
    """

    def __init__(self, content: bytes, path: Path, missing: Collection[str], decimal: str | None) -> None:
        marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        self.path, self.content, self.encoding = path, content, "utf-16" if marked else "utf-8-sig"
        self.missing, self.given = MISSING | {mark.strip().lower() for mark in missing}, decimal
        start = content[:_SNIFFED_BYTES].decode(self.encoding, errors="replace")
        self.delimiter = max(_DELIMITERS, key=lambda delimiter: _score(start, delimiter))
        self._fields = self._read()

    def _read(self) -> dict[str, str]:
        """Return the fields of each column below its name, with `_BETWEEN` between them."""
        rows = self._rows()
        _, header = next(rows, (0, []))
        names, n = [name.strip() for name in header], len(header)
        if any(names) and all(reads_as_number(name) for name in names if name):
            raise ValueError(f"{self.path}: expected column names in the first line, got only numbers")
        pieces: list[list[str]] = [[] for _ in names]
        self.n_rows = 0
        while chunk := list(itertools.islice(rows, _ROWS_PER_CHUNK)):
            for line, row in chunk:
                if len(row) != n:
                    expected = f"expected {n} field{'s' * (n > 1)} as in the header, got {len(row)}"
                    raise ValueError(f"{self.path}, line {line}: {expected}")
            self.n_rows += len(chunk)
            for piece, values in zip(pieces, zip(*(row for _, row in chunk), strict=True), strict=True):
                piece.append(_BETWEEN.join(values))
        self.names = [name for name in names if name]
        _check_shape(self.path, self.names, self.n_rows)
        if unnamed := [str(j + 1) for j, name in enumerate(names) if not name]:
            warnings.warn(f"{self.path}: left out, without a name: column {', '.join(unnamed)}", stacklevel=4)
        return {name: _BETWEEN.join(piece) for name, piece in zip(names, pieces, strict=True) if name}

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield rows that are not blank, with their lines."""
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding=self.encoding, newline="")
        # strict: a stray or unclosed quote is an error, not a reason to guess.
        reader = csv.reader(text, delimiter=self.delimiter, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                if len(row) > 1 or (row and row[0].strip()):
                    yield reader.line_num, row
        except csv.Error as error:
            hint = "; is a quotation mark missing?" if "limit" in str(error) else ""
            raise ValueError(f"{self.path}, line {reader.line_num}: {error}{hint}") from None
        except UnicodeDecodeError:
            hint = "save it so (in Excel 'CSV UTF-8', or with iconv -f WINDOWS-1252)"
            raise ValueError(f"{self.path}, after line {reader.line_num}: expected UTF-8 text; {hint}") from None

    def _values(self, name: str) -> list[str | None]:
        """Return stripped fields, None where missing."""
        stripped = map(str.strip, self._fields[name].split(_BETWEEN))
        return [None if value.lower() in self.missing else value for value in stripped]

    def column(self, name: str, text: bool = False) -> Column:
        """Return a column."""
        values = self._values(name)
        numbers = None if text else self._numbers(name, values)
        if numbers is not None:
            return numbers
        found = column_of_array(np.array(values, dtype=object), f"column {name!r}")
        return as_text(found) if text else found

    def is_boolean(self, name: str) -> bool:
        """Whether all fields are "true" or "false"."""
        return _are_booleans(self._values(name))

    def _numbers(self, name: str, values: list[str | None]) -> FloatArray | None:
        """Return the numbers that a column holds, or None if it holds anything else."""
        if _are_booleans(values):
            return np.array([np.nan if value is None else _BOOLEANS[value.lower()] for value in values])
        fields = self._fields[name]
        sign = self.decimal if "," in fields or "." in fields else POINT
        if "," in fields or sign == COMMA:
            possible = _possible_signs(values)
            if len(possible) == 1 and self.given is None:
                sign = min(possible)
            elif possible and sign is None:
                text = next(value for value in values if value is not None and "," in value)
                ways = " and ".join(f"{_in_python(text, own):.15g} with --decimal {own}" for own in (POINT, COMMA))
                raise ValueError(f"{self.path}: column {name!r}: {text!r} is {ways}: give one of the two")
        if "_" in fields:  # float() accepts 1_000, which a table hardly means as a number
            return None
        convert = partial(_in_python, sign=sign or POINT) if "," in fields or sign == COMMA else float
        try:
            return np.array([np.nan if value is None else convert(value) for value in values])
        except ValueError:
            return None

    @cached_property
    def decimal(self) -> str | None:
        """The decimal sign: a comma where some column of numbers allows no other, and none speaks for a point."""
        if self.given is not None or self.delimiter == ",":
            # Programs that write decimal commas separate the fields by something else.
            return self.given or POINT
        found = [_possible_signs(self._values(name)) for name, fields in self._fields.items() if "," in fields]
        sure = {min(own) for own in found if len(own) == 1}
        if sure == {COMMA}:
            warnings.warn(f"{self.path}: numbers are read with a decimal comma, as by --decimal comma", stacklevel=4)
        return min(sure) if len(sure) == 1 else None if any(found) else POINT


def _are_booleans(values: Iterable[str | None]) -> bool:
    found = {value.lower() for value in values if value is not None}
    return bool(found) and found <= _BOOLEANS.keys()


def _possible_signs(values: Iterable[str | None]) -> set[str]:
    """Return the decimal signs with which all values are numbers."""
    different = {value for value in values if value is not None}
    return {sign for sign, form in _NUMBERS.items() if all(map(form.fullmatch, different))}


def _in_python(text: str, sign: str) -> float:
    """Return the number in a text of some decimal sign; raise ValueError if there is none."""
    if _NUMBERS[sign].fullmatch(text):
        text = text.replace(",", "") if sign == POINT else text.replace(".", "").replace(",", ".")
    return float(text)


def _score(text: str, delimiter: str) -> tuple[bool, bool, int]:
    """Say how well a delimiter splits the first two rows: into equally many fields, and into most."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        sizes = [len(row) for row in itertools.islice(filter(None, reader), 2)] or [0]
    except csv.Error:
        sizes = [0]
    return sizes[0] > 1, len(set(sizes)) == 1, sizes[0]


def _check_shape(path: Path, names: Sequence[str], n_rows: int) -> None:
    """Raise unless there are columns of different names, and rows."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"{path}: {', '.join(map(repr, twice))} must be the name of one column, got more")
    if not names or not n_rows:
        raise ValueError(f"{path}: the file has no {'rows' if names else 'columns'}")
