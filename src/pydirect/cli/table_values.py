"""Fields of text tables as numbers, booleans or text; numbers with decimal commas, grouped digits, signs and units."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

POINT, COMMA = "point", "comma"
_NUMBER = re.compile(r"[+-]?([\d.,]+)(e[+-]?\d+)?", re.IGNORECASE)
# What a number's digits look like if the decimal sign is a point; commas may then group them.
_WITH_POINT = re.compile(r"\d+\.?\d*|\.\d+|[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_SWAPPED = str.maketrans(",.", ".,")
_UNIT = r"(?:[%€$£¥°]|EUR|USD|GBP|CHF|JPY)"
_DIGITS = r"[+-]?\d[\d.,]*"
_DECORATED = re.compile(rf"{_UNIT} ?{_DIGITS}|{_DIGITS} ?{_UNIT}|[+-]?\d{{1,3}}([ '’\u00a0\u202f]\d{{3}})+([.,]\d+)?")


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


def numbers_with(sign: str, texts: np.ndarray) -> np.ndarray:
    """Return the numbers in texts, given their decimal sign; NaN for None."""
    return np.array([np.nan if text is None else _number(text, sign) for text in texts.tolist()])


def _number(text: str, sign: str) -> float:
    return float(text.replace(",", "") if sign == POINT else text.replace(".", "").replace(",", "."))


def read_numbers(texts: np.ndarray, possible: set[str], sign: str | None) -> np.ndarray | str:
    """Return the numbers in texts, given their possible signs and that of the file, or why they cannot be read."""
    if sign is None and len(possible) == 1:
        sign = min(possible)
    if sign in possible:
        return numbers_with(sign, texts)
    different = {text for text in texts.tolist() if text is not None}
    if len(possible) > 1:
        text = min(text for text in different if "," in text)
        readings = (f"{_number(text, s):.15g} with --decimal {s}" for s in (POINT, COMMA))
        return f"numbers such as {text!r}, which is {' and '.join(readings)}: give one of the two"
    examples = (min((t for t in different if decimal_signs([t]) == {s}), default=None) for s in (POINT, COMMA))
    return "numbers with another decimal sign than expected, such as " + " and ".join(repr(t) for t in examples if t)


def decorated(texts: Collection[str]) -> str | None:
    """Describe numbers with units or separators that are not read, if most of the texts are such."""
    found = [text for text in texts if _DECORATED.fullmatch(text)]
    return (
        f"numbers such as {min(found)!r}; write them without signs and spaces" if 2 * len(found) > len(texts) else None
    )


MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null"})
_BOOLEANS = {"true": True, "false": False}
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE_OR_TIME = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4})( \d.*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
    rf"|\d{{1,2}}[- .]*{_MONTH}[- ,]*(\d{{2}}|\d{{4}})|{_MONTH} \d{{1,2}},? \d{{4}}",
    re.IGNORECASE,
)
DATES = "dates or times; turn them into numbers first, for example days since a fixed date"


def missing_marks(others: Collection[str] = ()) -> frozenset[str]:
    """Return the fields, in lower case, that stand for a missing value."""
    return MISSING | {mark.strip().lower() for mark in others}


def field_numbers(values: Sequence[str], missing: Collection[str] = MISSING) -> np.ndarray | None:
    """Return numbers, NaN where missing, or None if a value is neither a number nor missing."""
    # float() accepts 1_000, which a table hardly means as a number.
    if "_" in "".join(values):
        return None
    if missing is MISSING:  # none of which is a number but NaN
        try:
            return np.fromiter(map(float, values), dtype=np.float64, count=len(values))
        except ValueError:
            pass
    fields = ("nan" if value.strip().lower() in missing else value for value in values)
    try:
        return np.fromiter(map(float, fields), dtype=np.float64, count=len(values))
    except ValueError:
        return None


def is_number(value: str) -> bool:
    """Whether a text is a number, with a decimal point or comma."""
    return value.lower() not in MISSING and (field_numbers([value]) is not None or bool(decimal_signs([value])))


def as_texts(values: Sequence[str], missing: Collection[str] = MISSING) -> np.ndarray:
    """Return stripped texts as an object array, None where missing."""
    stripped = (value.strip() for value in values)
    return as_objects([None if value.lower() in missing else value for value in stripped])


def as_objects(values: list[Any]) -> np.ndarray:
    """Return a list as an object array of one dimension."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def interpreted(values: np.ndarray) -> np.ndarray | str:
    """Return a column as numbers, booleans or text, or a description of its contents if it is none of these."""
    if values.dtype != object:
        return values
    different = {value for value in values.tolist() if value is not None}
    if not different:
        return np.full(len(values), np.nan)
    if all(value.lower() in _BOOLEANS for value in different):
        return as_objects([None if value is None else _BOOLEANS[value.lower()] for value in values])
    if 2 * sum(_DATE_OR_TIME.fullmatch(value) is not None for value in different) > len(different):
        return DATES
    return decorated(different) or values


def is_missing(values: np.ndarray) -> np.ndarray:
    """Return a mask of the missing values, None among objects and NaN among numbers."""
    if values.dtype == object:
        return np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    return np.asarray(np.isnan(values))


def texts_among_numbers(values: np.ndarray) -> np.ndarray:
    """Return a mask of the texts that are not numbers, in a column of texts with None where missing."""
    wrong = (text is not None and not is_number(text) for text in values.tolist())
    return np.fromiter(wrong, dtype=bool, count=len(values))
