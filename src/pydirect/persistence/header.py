"""The header of a container file: JSON text with the user's header and the table of arrays, and their checks."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pydirect.persistence.errors import CorruptFileError

_DIGEST_BYTES = 32
_ALIGNMENT = 64
# Parsed JSON takes many times the memory of its text, so the text is bounded; bulk data belongs in arrays.
MAX_JSON_BYTES = 16 * 2**20
_MAX_DEPTH = 64
_MAX_NDIM = 32
_MAX_ARRAY_BYTES = 2**63 - 1
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
}
_ENTRY_KEYS = {"name", "dtype", "shape", "order", "offset", "nbytes", "digest"}
# The closing quote is optional so that an unterminated string is consumed in one step, without backtracking.
_JSON_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One entry of the array table."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    offset: int
    nbytes: int
    digest: str


# ---------------------------------------------------------------------------------------------------------- writing


def storable(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array as it is stored: little-endian, C-ordered unless it is Fortran-contiguous."""
    # A masked array would silently lose its mask.
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"arrays[{name!r}]: expected a numpy.ndarray, got {type(array).__name__}")
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise TypeError(f"arrays[{name!r}]: expected dtype in {{{', '.join(_DTYPES)}}}, got {array.dtype}")
    if array.ndim > _MAX_NDIM:
        raise ValueError(f"arrays[{name!r}]: expected at most {_MAX_NDIM} dimensions, got {array.ndim}")
    return np.asarray(array, dtype=dtype, order="F" if array.flags.fnc else "C")


def array_table(arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the table of the arrays: names, types, shapes, places and digests."""
    table, offset = [], 0
    for name, array in arrays.items():
        offset = aligned(offset)
        table.append(
            {
                "name": name,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "order": "F" if array.flags.fnc else "C",
                "offset": offset,
                "nbytes": array.nbytes,
                "digest": digest_of(bytes_of(array)).hex(),
            }
        )
        offset += array.nbytes
    return table


def encode_header(kind: str, header: dict[str, Any], table: list[dict[str, Any]]) -> bytes:
    """Return the JSON text of a file, or raise if the header cannot be stored."""
    document = {"kind": kind, "header": _plain_header(header), "arrays": table}
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"header: expected at most {MAX_JSON_BYTES} bytes of JSON, got {len(text)}; use arrays")
    return text


def _plain_header(header: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(header, dict):
        raise TypeError(f"header: expected a dict, got {type(header).__name__}")
    plain: dict[str, Any] = _plain(header, "header", 1)
    return plain


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


def parse_header(text: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return kind, header and array table from a JSON text, or raise if it is not valid."""
    # Counted before parsing: the parser recurses, and the file must not decide how deep.
    if _nesting(text) > _MAX_DEPTH + 1:
        raise CorruptFileError(path, f"the header is nested deeper than {_MAX_DEPTH} levels")
    try:
        document: dict[str, Any] = json.loads(
            text.decode("ascii"),
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            object_pairs_hook=_parse_object,
        )
    except ValueError as error:
        raise CorruptFileError(path, f"the header is not valid: {error}") from None
    if not _is_envelope(document):
        raise CorruptFileError(path, "the header is not valid: expected kind, header and arrays")
    return document


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


def _is_envelope(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and document.keys() == {"kind", "header", "arrays"}
        and isinstance(document["kind"], str)
        and document["kind"] != ""
        and isinstance(document["header"], dict)
        and isinstance(document["arrays"], list)
    )


def parse_table(table: list[Any], path: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of an array table, or raise if it is not valid."""
    entries: list[Entry] = []
    names: set[str] = set()
    end = 0
    for item in table:
        entry = _parse_entry(item, path)
        if entry.name in names:
            raise CorruptFileError(path, f"array {entry.name!r} occurs twice")
        if entry.offset != aligned(end):
            raise CorruptFileError(path, f"array {entry.name!r}: expected offset {aligned(end)}, got {entry.offset}")
        names.add(entry.name)
        entries.append(entry)
        end = entry.offset + entry.nbytes
    return entries


def _parse_entry(item: Any, path: str | os.PathLike[str]) -> Entry:
    if not isinstance(item, dict) or item.keys() != _ENTRY_KEYS or not isinstance(item["name"], str):
        raise CorruptFileError(path, "an entry of the array table is not valid")
    name, dtype, shape = item["name"], item["dtype"], item["shape"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CorruptFileError(path, f"array {name!r}: unknown dtype {dtype!r}")
    if not isinstance(shape, list) or len(shape) > _MAX_NDIM or not all(map(_is_size, shape)):
        raise CorruptFileError(path, f"array {name!r}: impossible shape")
    if item["order"] not in ("C", "F"):
        raise CorruptFileError(path, f"array {name!r}: unknown order {item['order']!r}")
    if not _is_size(item["offset"]) or not _is_size(item["nbytes"]) or not isinstance(item["digest"], str):
        raise CorruptFileError(path, f"array {name!r}: offset, nbytes or digest is not valid")
    if item["nbytes"] != math.prod(shape) * _DTYPES[dtype].itemsize or not _addressable(shape, _DTYPES[dtype]):
        raise CorruptFileError(path, f"array {name!r}: {item['nbytes']} bytes do not fit shape {shape} of {dtype}")
    return Entry(name, _DTYPES[dtype], tuple(shape), item["order"], item["offset"], item["nbytes"], item["digest"])


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_ARRAY_BYTES


def _addressable(shape: list[int], dtype: np.dtype) -> bool:
    # NumPy refuses an empty array whose other lengths overflow, such as (0, 2**62, 2**62).
    return math.prod(max(length, 1) for length in shape) * dtype.itemsize <= _MAX_ARRAY_BYTES


# ----------------------------------------------------------------------------------------------------------- shared


def bytes_of(array: np.ndarray) -> memoryview:
    """Return a view of the bytes of a contiguous array, in the order of memory."""
    return array.reshape(-1, order="A").view(np.uint8).data


def digest_of(*parts: bytes | memoryview) -> bytes:
    """Return the BLAKE2b digest of concatenated parts."""
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(part)
    return state.digest()


def aligned(position: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-position // _ALIGNMENT) * _ALIGNMENT
