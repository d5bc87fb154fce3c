"""The JSON header of a file, and its checks."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any

import numpy as np

from pydirect.persistence.errors import CorruptFileError, VersionError

FORMAT_VERSION = 1
# Parsed JSON takes many times the memory of its text, so the text is bounded; bulk data belongs in arrays.
MAX_JSON_BYTES = 16 * 2**20
_MAX_DEPTH = 64
# The closing quote is optional so that an unterminated string is consumed in one step, without backtracking.
_JSON_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


# ---------------------------------------------------------------------------------------------------------- writing


def encode_header(kind: str, header: dict[str, Any]) -> bytes:
    """Return the JSON text of a file, or raise if the header cannot be stored."""
    if not isinstance(header, dict):
        raise TypeError(f"header: expected a dict, got {type(header).__name__}")
    document = {"format_version": FORMAT_VERSION, "kind": kind, "header": _plain(header, "header", 1)}
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"header: expected at most {MAX_JSON_BYTES} bytes of JSON, got {len(text)}; use arrays")
    return text


def _plain(value: Any, where: str, depth: int) -> Any:
    """Return `value` in Python's own types, or raise with the place that cannot be stored."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"header: expected at most {_MAX_DEPTH} nested levels, got more")
    if isinstance(value, dict):
        return {_plain_key(k, where): _plain(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    return _plain_scalar(value, where)


def _plain_key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{where}: expected keys of type str, got {key!r}")
    return str(key)


def _plain_scalar(value: Any, where: str) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return _finite(float(value), where)
    raise TypeError(f"{where}: expected str, int, float, bool, None, list or dict, got {type(value).__name__}")


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{where}: expected a finite float, got {value}; store it as a 0-d array")
    return value


# ---------------------------------------------------------------------------------------------------------- reading


def parse_header(text: bytes, path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return kind and header from a JSON text, or raise if it is not valid or of a later version."""
    # Counted before parsing: the parser recurses, and the file must not decide how deep.
    if _nesting(text) > _MAX_DEPTH + 1:
        raise CorruptFileError(path, f"the header is nested deeper than {_MAX_DEPTH} levels")
    try:
        document = json.loads(
            text.decode("ascii"),
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            object_pairs_hook=_parse_object,
        )
    except ValueError as error:
        raise CorruptFileError(path, f"the header is not valid: {error}") from None
    version = document.get("format_version") if isinstance(document, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise VersionError(
            path, f"written by a later version of pydirect (file format {version}, readable up to {FORMAT_VERSION})"
        )
    if version != FORMAT_VERSION or type(version) is not int or not _is_envelope(document):
        raise CorruptFileError(path, "the header is not valid: expected format_version, kind and header")
    return document["kind"], document["header"]


def _nesting(text: bytes) -> int:
    """Return the depth of nested brackets in a JSON text, outside of strings."""
    depth = deepest = 0
    for match in _JSON_NESTING.finditer(text):
        first = match.group()[:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed")


def _parse_float(literal: str) -> float:
    # 1e999 is valid JSON that Python reads as infinity.
    return _finite(float(literal), "number")


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _is_envelope(document: dict[str, Any]) -> bool:
    return (
        document.keys() == {"format_version", "kind", "header"}
        and isinstance(document["kind"], str)
        and document["kind"] != ""
        and isinstance(document["header"], dict)
    )
