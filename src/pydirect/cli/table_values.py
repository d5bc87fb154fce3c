"""Fields of text tables as numbers, booleans or text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

_MISSING = frozenset({"", "na", "n/a", "nan", "null"})
_BOOLEANS = {"true": True, "false": False}
_DATE_OR_TIME = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4})( \d.*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
DATES = "dates or times; turn them into numbers first, for example days since a fixed date"
_COMMAS = "numbers with decimal commas; write them with decimal points"


def field_numbers(values: Sequence[str]) -> np.ndarray | None:
    """Return numbers, NaN where missing, or None if a value is neither a number nor missing."""
    # float() accepts 1_000, which a table hardly means as a number.
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


def _number_or_nan(value: str) -> float:
    return np.nan if value.strip().lower() in _MISSING else float(value)


def is_number(value: str) -> bool:
    """Whether a text is a number."""
    return value.lower() not in _MISSING and field_numbers([value]) is not None


def as_texts(values: Sequence[str]) -> np.ndarray:
    """Return stripped texts as an object array, None where missing."""
    stripped = (value.strip() for value in values)
    return as_objects([None if value.lower() in _MISSING else value for value in stripped])


def as_objects(values: list[Any]) -> np.ndarray:
    """Return a list as an object array of one dimension."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def interpreted(values: np.ndarray) -> np.ndarray | str:
    """Return a column as numbers, booleans or text, or a description of its contents if it is none of these."""
    if values.dtype != object:
        return values
    different = {value for value in values if value is not None}
    if not different:
        return np.full(len(values), np.nan)
    if all(value.lower() in _BOOLEANS for value in different):
        return as_objects([None if value is None else _BOOLEANS[value.lower()] for value in values])
    if all(_DATE_OR_TIME.fullmatch(value) for value in different):
        return DATES
    # Plain numbers count as well, since a column may hold 3 next to 2,5.
    if any(map(_DECIMAL_COMMA.fullmatch, different)) and all(is_number(v.replace(",", ".")) for v in different):
        return _COMMAS
    return values


def is_missing(values: np.ndarray) -> np.ndarray:
    """Return a mask of the missing values, None among objects and NaN among numbers."""
    if values.dtype == object:
        return np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    return np.asarray(np.isnan(values))


def first_text(values: np.ndarray) -> tuple[int, str]:
    """Return row and value of the first text that is not a number, or else of the first text."""
    texts = [(row, value) for row, value in enumerate(values) if value is not None]
    return next((item for item in texts if not is_number(item[1])), texts[0])
