"""Fields of text tables as numbers, booleans or text."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from pydirect.cli.number_styles import decimal_signs, decorated

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
