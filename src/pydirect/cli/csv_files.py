"""CSV files of the command line: their fields, and columns as numbers, booleans or text.

They are read with the standard library alone, so that a file means the same on every machine. Numbers may have decimal
commas and grouped digits; the sign is found out from all columns of a file.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pydirect.cli.common import TableError, check_names
from pydirect.tables.dates import is_date

POINT, COMMA = "point", "comma"
MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null"})
DATES = "dates or times that are not all written like 2024-01-31 or 2024-01-31T12:30; write them so"
_DELIMITERS = ",;\t|"
_ROWS_PER_CHUNK = 20_000
_SNIFFED_BYTES = 2**16
# Between the fields of a column: no text that was decoded holds it. Lists of fields would take ten times the memory.
_BETWEEN = "\udfff"
_BOOLEANS = {"true": True, "false": False}
_NUMBER = re.compile(r"[+-]?([\d.,]+)(e[+-]?\d+)?", re.IGNORECASE)
# What a number's digits look like if the decimal sign is a point; commas may then group them.
_WITH_POINT = re.compile(r"\d+\.?\d*|\.\d+|[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_SWAPPED = str.maketrans(",.", ".,")
_UNIT = r"(?:[%€$£¥°]|EUR|USD|GBP|CHF|JPY)"
_DIGITS = r"[+-]?\d[\d.,]*"
_DECORATED = re.compile(rf"{_UNIT} ?{_DIGITS}|{_DIGITS} ?{_UNIT}|[+-]?\d{{1,3}}([ '’\u00a0\u202f]\d{{3}})+([.,]\d+)?")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE_OR_TIME = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4})( \d.*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
    rf"|\d{{1,2}}[- .]*{_MONTH}[- ,]*(\d{{2}}|\d{{4}})|{_MONTH} \d{{1,2}},? \d{{4}}",
    re.IGNORECASE,
)


# --- fields


@dataclass(frozen=True)
class CsvFile:
    """The bytes of a CSV file."""

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
        _, first = next(rows, (0, None))
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

    def fields(self, n_columns: int) -> list[str]:
        """Return the fields of each column below its name, with `_BETWEEN` between them."""
        pieces: list[list[str]] = [[] for _ in range(n_columns)]
        wrong: list[tuple[int, int]] = []
        rows = itertools.islice(self._rows(n_columns), 1, None)
        while chunk := list(itertools.islice(rows, _ROWS_PER_CHUNK)):
            wrong += [(line, len(row)) for line, row in chunk if len(row) != n_columns]
            for piece, values in zip(pieces, zip(*(row for _, row in chunk), strict=False), strict=False):
                piece.append(_BETWEEN.join(values))
        if wrong:
            (line, found), more = wrong[0], f" ({len(wrong)} such lines)" if len(wrong) > 1 else ""
            expected = f"expected {n_columns} field{'s' if n_columns > 1 else ''} as in the header, got {found}"
            raise TableError(f"{self.path}, line {line}: {expected}{more}")
        return [_BETWEEN.join(piece) for piece in pieces]

    def _rows(self, n_columns: int = 2) -> Iterator[tuple[int, list[str]]]:
        """Yield rows that are not blank, with their lines; two quotes are a missing value in files of one column."""
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding=self.encoding, newline="")
        # strict: a stray or unclosed quote is an error, not a reason to guess.
        reader = csv.reader(text, delimiter=self.delimiter, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                if len(row) > 1 or (row and (n_columns == 1 or row[0].strip())):
                    yield reader.line_num, row
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


def _delimiter_score(text: str, delimiter: str) -> tuple[bool, bool, int]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        sizes = [len(row) for row in itertools.islice(filter(None, reader), 2)]
    except csv.Error:
        sizes = []
    first = sizes[0] if sizes else 0
    return first > 1, len(set(sizes)) == 1, first


# --- columns


def read_columns(
    file: CsvFile, names: Sequence[str], as_text: Collection[str], missing: Collection[str], decimal: str | None
) -> tuple[list[np.ndarray | str], int, list[str]]:
    """Return columns of numbers, booleans or texts, or descriptions of unusable ones; the number of rows; and notes.

    - `as_text`: Names of columns that stay text.
    - `missing`: Texts that stand for missing values, beside the usual ones.
    - `decimal`: The decimal sign, `POINT` or `COMMA`; by default what is possible for the columns together.
    """
    missing = MISSING | {mark.strip().lower() for mark in missing} if missing else MISSING
    fields = file.fields(len(names))
    texts: dict[int, np.ndarray] = {}
    found: list[np.ndarray | str] = []
    for i, name in enumerate(names):
        values = fields[i].split(_BETWEEN)
        numbers = None if name in as_text else field_numbers(values, missing)
        if numbers is None:
            texts[i] = as_texts(values, missing)
        found.append(texts[i] if numbers is None else numbers)
    # Numbers with commas or several points: their decimal sign is that of the file.
    free = {i: different_texts(values) for i, values in texts.items() if names[i] not in as_text}
    possible = _possible_signs({i: s for i, s in free.items() if any("," in t or t.count(".") > 1 for t in s)})
    sign = decimal or usual_sign(possible.values(), file.delimiter)
    if sign == COMMA:
        # What was read as a fraction may be an integer: 1.234 is 1234 here.
        again = {i: as_texts(fields[i].split(_BETWEEN), missing) for i, v in enumerate(found) if _has_fractions(v)}
        signs = _possible_signs({i: different_texts(values) for i, values in again.items()})
        texts |= again
        possible |= {i: own for i, own in signs.items() if COMMA in own}
    notes = []
    for i in {**texts, **possible}:
        if i in possible:
            found[i] = numbers_read = read_numbers(texts[i], possible[i], sign)
            if names[i] and decimal is None and not isinstance(numbers_read, str):
                row, text = next((row, text) for row, text in enumerate(texts[i]) if text and {",", "."} & set(text))
                notes.append(f"column {names[i]!r}: {text!r} is read as {numbers_read[row]:.15g}")
        elif i in free:
            found[i] = interpreted(texts[i])
    return found, len(values), notes


def _has_fractions(values: np.ndarray | str) -> bool:
    if isinstance(values, str) or values.dtype == object:
        return False
    finite = values[np.isfinite(values)]
    return bool((finite != np.floor(finite)).any())


def different_texts(texts: np.ndarray) -> set[str]:
    """Return the different values of a column of text."""
    return {text for text in texts.tolist() if text is not None}


def field_numbers(values: Sequence[str], missing: Collection[str] = MISSING) -> np.ndarray | None:
    """Return numbers, NaN where missing, or None if a value is neither a number nor missing."""
    # float() accepts 1_000, which a table hardly means as a number.
    if "_" in "".join(values):
        return None
    # None of the usual missing values is a number but NaN.
    numbers = _floats(values, len(values)) if missing is MISSING else None
    if numbers is None:
        numbers = _floats(("nan" if v.strip().lower() in missing else v for v in values), len(values))
    return numbers


def _floats(values: Iterable[str], count: int) -> np.ndarray | None:
    try:
        return np.fromiter(map(float, values), dtype=np.float64, count=count)
    except ValueError:
        return None


def as_texts(values: Sequence[str], missing: Collection[str] = MISSING) -> np.ndarray:
    """Return stripped texts as an object array, None where missing."""
    stripped = (value.strip() for value in values)
    return np.array([None if value.lower() in missing else value for value in stripped], dtype=object)


def interpreted(values: np.ndarray) -> np.ndarray | str:
    """Return a column of texts as numbers, booleans or text, or a description of its contents."""
    different = different_texts(values)
    if not different:
        return np.full(len(values), np.nan)
    if all(value.lower() in _BOOLEANS for value in different):
        return np.array([None if value is None else _BOOLEANS[value.lower()] for value in values], dtype=object)
    if 2 * sum(_DATE_OR_TIME.fullmatch(value) is not None for value in different) > len(different):
        return values if all(map(is_date, different)) else DATES
    with_units = [text for text in different if _DECORATED.fullmatch(text)]
    if 2 * len(with_units) > len(different):
        return f"numbers such as {min(with_units)!r}; write them without signs and spaces"
    return values


# --- numbers with commas


def _possible_signs(texts: dict[int, set[str]]) -> dict[int, set[str]]:
    return {i: signs for i, different in texts.items() if (signs := decimal_signs(different)) is not None}


def decimal_signs(texts: Collection[str]) -> set[str] | None:
    """Return the decimal signs with which all texts are numbers; None if some text is no number."""
    signs = {POINT, COMMA}
    for text in texts:
        number = _NUMBER.fullmatch(text)
        digits = number[1] if number else ""
        own = {POINT} if _WITH_POINT.fullmatch(digits) else set()
        if _WITH_POINT.fullmatch(digits.translate(_SWAPPED)):
            own.add(COMMA)
        if not own:
            return None
        signs &= own
    return signs


def usual_sign(possible: Collection[set[str]], delimiter: str) -> str | None:
    """Return a file's decimal sign, given those possible for its columns of numbers with commas; None if unknown."""
    sure = set().union(*(signs for signs in possible if len(signs) == 1))
    if not sure and delimiter == ",":
        return POINT  # programs that write decimal commas separate the fields by something else
    return min(sure) if len(sure) == 1 else None


def read_numbers(texts: np.ndarray, possible: set[str], sign: str | None) -> np.ndarray | str:
    """Return the numbers in texts, given their possible signs and that of the file, or why they cannot be read."""
    if sign is None and len(possible) == 1:
        sign = min(possible)
    if sign in possible:
        return np.array([np.nan if text is None else _number(text, sign) for text in texts.tolist()])
    different = different_texts(texts)
    if len(possible) > 1:
        text = min(text for text in different if "," in text)
        readings = (f"{_number(text, s):.15g} with --decimal {s}" for s in (POINT, COMMA))
        return f"numbers such as {text!r}, which is {' and '.join(readings)}: give one of the two"
    examples = (min((t for t in different if decimal_signs([t]) == {s}), default=None) for s in (POINT, COMMA))
    return "numbers with another decimal sign than expected, such as " + " and ".join(repr(t) for t in examples if t)


def _number(text: str, sign: str) -> float:
    return float(text.replace(",", "") if sign == POINT else text.replace(".", "").replace(",", "."))


def is_number(value: str) -> bool:
    """Whether a text is a number, with a decimal point or comma."""
    return value.lower() not in MISSING and (field_numbers([value]) is not None or bool(decimal_signs([value])))
