"""Texts that are numbers to a reader but not to a program: with decimal commas, grouped digits, signs and units."""

from __future__ import annotations

import re
from collections.abc import Collection

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
    """Return the decimal signs with which all texts are numbers: ``"point"``, ``"comma"``, both, or neither.

    Returns None if some text is no number with either sign.
    """
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
    """Return the numbers in a column of texts, or why they cannot be read.

    `possible`: the decimal signs with which all of them are numbers. `sign`: that of the file, None if unknown.
    """
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
