"""One container file for everything that the package saves.

A file holds a *kind* (``"model"``, ``"statistics"``, ...), a JSON header and any number of named arrays. There is no
pickle in it: reading a file runs no code from it.

Layout, all integers little-endian::

    bytes 0-7     magic
    bytes 8-11    format version (uint32)
    bytes 12-15   reserved, zero (uint32)
    bytes 16-23   length of the JSON text in bytes (uint64)
    bytes 24-31   size of the whole file in bytes (uint64)
    bytes 32-63   BLAKE2b digest of bytes 0-31 followed by the JSON text
    from byte 64  JSON text (ASCII): {"kind": ..., "header": {...}, "arrays": [...]}
    then          the arrays in the order of the table, raw, C-ordered, little-endian, each at a multiple of 64

Every entry of the array table gives name, dtype, shape, offset from the start of the data, number of bytes and BLAKE2b
digest. The gaps between arrays are zero bytes, an offset has exactly one legal value, and nothing follows the last
array. So each byte of the file is covered: by the first digest, by an array's digest, or by having to be zero.
Splitting the digests this way lets `describe` vouch for the header without touching the data.

BLAKE2b rather than CRC-32: CRC-32 lets one in 2**32 damaged files through, is fooled by splices of valid data, and
saves little, since a disk is slower than either. The digests detect damage; they are not signatures and do not tell who
wrote a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

FORMAT_VERSION = 1
# As in PNG: a byte above 127, both line endings and Ctrl-Z show a file that went through a text-mode transfer.
_MAGIC = b"\x89PDR\r\n\x1a\n"
_PREFIX = struct.Struct("<8sIIQQ32s")
_SIGNED_BYTES = 32
_DIGEST_BYTES = 32
_ALIGNMENT = 64
# Parsed JSON takes many times the room of its text, so the text itself is bounded; bulk data belongs in arrays.
_MAX_JSON_BYTES = 16 * 2**20
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
_ENTRY_KEYS = {"name", "dtype", "shape", "offset", "nbytes", "digest"}
# The closing quote is optional so that an unterminated string is consumed in one step instead of being tried anew at
# each of its quotes.
_JSON_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)


class FileFormatError(ValueError):
    """A file cannot be read as a pydirect file.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        What is wrong with it.

    Attributes
    ----------
    path : str
        The file.
    reason : str
        What is wrong with it.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(os.fspath(path), reason)
        self.path = os.fspath(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class CorruptFileError(FileFormatError):
    """The file was truncated or altered after it was written."""


class VersionError(FileFormatError):
    """The file was written by a later version of the package."""


class KindError(FileFormatError):
    """The file is sound but holds something other than what was asked for."""


@dataclass(frozen=True)
class ArrayInfo:
    """What the header says of one array.

    Attributes
    ----------
    dtype : str
        NumPy name of the element type, for example ``"float64"``.
    shape : tuple of int
        Shape of the array.
    nbytes : int
        Number of bytes that its elements take.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Description:
    """A file without its data, as returned by `describe`.

    Attributes
    ----------
    kind : str
        What the file holds.
    header : dict
        The header that was given to `write`.
    arrays : dict of str to ArrayInfo
        Element type, shape and size of each array.
    format_version : int
        Version of the file format.
    file_size : int
        Size of the file in bytes.
    """

    kind: str
    header: dict[str, Any]
    arrays: dict[str, ArrayInfo]
    format_version: int
    file_size: int


@dataclass(frozen=True, eq=False)
class Document:
    """A file's whole content, as returned by `read`.

    Attributes
    ----------
    kind : str
        What the file holds.
    header : dict
        The header that was given to `write`; tuples have become lists.
    arrays : dict of str to ndarray
        Writable C-ordered arrays in native byte order, shapes as written.
    """

    kind: str
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    digest: str


@dataclass(frozen=True)
class _Contents:
    kind: str
    header: dict[str, Any]
    entries: list[_Entry]
    data_start: int
    file_size: int


# ---------------------------------------------------------------------------------------------------------- writing


def write(
    path: str | os.PathLike[str], kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray] | None = None
) -> None:
    """Write a file, replacing an existing one only when the new one is complete.

    Parameters
    ----------
    path : path-like
        File to write. A symbolic link is followed.
    kind : str
        What the file holds; `read` can insist on it.
    header : dict
        Strings, integers, finite floats, booleans and None in dicts with string keys and in lists, nested at most 64
        deep. Tuples come back as lists, NumPy scalars as Python ones. A float that may be infinite or NaN belongs in
        `arrays`, as a 0-d array.
    arrays : dict of str to ndarray, optional
        Arrays of any shape with boolean, integer, float or complex elements. They are stored C-ordered and
        little-endian, whatever their layout in memory.

    Raises
    ------
    TypeError
        If an argument, a header value or an array is of a type that cannot be stored.
    ValueError
        If a header float is not finite, or the header is too deep or too large.
    OSError
        If the file cannot be written. The old file, if any, is then untouched and nothing else is left behind.
    """
    prepared = {name: _storable(name, array) for name, array in _checked_arrays(arrays).items()}
    table = _table(prepared)
    text = _encode_json(_checked_kind(kind), _plain_header(header), table)
    data_size = table[-1]["offset"] + table[-1]["nbytes"] if table else None
    with atomic_open(path) as file:
        _write_all(file, text, prepared, _file_size(len(text), data_size))


@contextlib.contextmanager
def atomic_open(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name only when the ``with`` block ends well.

    The bytes go to a temporary file in the same directory, are flushed to the disk, and take the place of `path` in one
    step. If the block raises, whatever it is, the temporary file is removed and an existing `path` stays as it was.

    Parameters
    ----------
    path : path-like
        File to write. A symbolic link is followed; the permissions of an existing file are kept.

    Yields
    ------
    file : binary file
        The file to write to.

    Raises
    ------
    OSError
        If `path` exists and is not a regular file, or the file cannot be written.
    """
    target = os.path.realpath(path)
    # A device or a pipe would be replaced by a regular file, not written to.
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "Cannot write: not a regular file", os.fspath(path))
    temporary = os.path.join(os.path.dirname(target), f".pydirect-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _copy_mode(target, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename = os.fspath(path)  # the name that the caller knows
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(os.path.dirname(target))


def _copy_mode(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.chmod(target, os.stat(source).st_mode & 0o7777)


def _sync_directory(directory: str) -> None:
    # Makes the renaming itself durable. Not every system can open a directory; the file is whole either way.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_all(file: BinaryIO, text: bytes, arrays: dict[str, np.ndarray], file_size: int) -> None:
    file.write(_signed_prefix(text, file_size))
    file.write(text)
    position = _PREFIX.size + len(text)
    for array in arrays.values():
        file.write(bytes(_aligned(position) - position))
        file.write(_bytes_of(array))
        position = _aligned(position) + array.nbytes


def _signed_prefix(text: bytes, file_size: int) -> bytes:
    unsigned = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, len(text), file_size, b"")[:_SIGNED_BYTES]
    return unsigned + _digest(unsigned, text)


def _checked_kind(kind: str) -> str:
    if not isinstance(kind, str) or not kind:
        raise TypeError(f"kind: expected a non-empty str, got {kind!r}")
    return kind


def _checked_arrays(arrays: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    if arrays is None:
        return {}
    if not isinstance(arrays, dict):
        raise TypeError(f"arrays: expected a dict of ndarray, got {type(arrays).__name__}")
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(f"arrays: expected names of type str, got {name!r}")
    return arrays


def _storable(name: str, array: np.ndarray) -> np.ndarray:
    # A masked array would lose its mask without a word.
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"arrays[{name!r}]: expected a numpy.ndarray, got {type(array).__name__}")
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise TypeError(f"arrays[{name!r}]: expected dtype in {{{', '.join(_DTYPES)}}}, got {array.dtype}")
    if array.ndim > _MAX_NDIM:
        raise ValueError(f"arrays[{name!r}]: expected at most {_MAX_NDIM} dimensions, got {array.ndim}")
    return np.asarray(array, dtype=dtype, order="C")


def _table(arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    table, offset = [], 0
    for name, array in arrays.items():
        offset = _aligned(offset)
        table.append(
            {
                "name": name,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "offset": offset,
                "nbytes": array.nbytes,
                "digest": _digest(_bytes_of(array)).hex(),
            }
        )
        offset += array.nbytes
    return table


def _encode_json(kind: str, header: dict[str, Any], table: list[dict[str, Any]]) -> bytes:
    document = {"kind": kind, "header": header, "arrays": table}
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > _MAX_JSON_BYTES:
        raise ValueError(f"header: expected at most {_MAX_JSON_BYTES} bytes of JSON, got {len(text)}; use arrays")
    return text


def _plain_header(header: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(header, dict):
        raise TypeError(f"header: expected a dict, got {type(header).__name__}")
    plain: dict[str, Any] = _plain(header, "header", 1)
    return plain


def _plain(value: Any, where: str, depth: int) -> Any:
    """Return `value` with Python's own types only, or raise naming the place that cannot be stored."""
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


def read(path: str | os.PathLike[str], kind: str | tuple[str, ...] | None = None) -> Document:
    """Read a file that `write` made, after checking every byte of it.

    Sizes are compared with the size of the file before any memory is taken for the data.

    Parameters
    ----------
    path : path-like
        File to read.
    kind : str or tuple of str, optional
        Kind, or kinds, to accept. All are accepted by default.

    Returns
    -------
    document : Document
        Kind, header and arrays.

    Raises
    ------
    FileFormatError
        If the file is not a pydirect file; as `CorruptFileError` if it was truncated or altered, as `VersionError` if a
        later version of the package wrote it, as `KindError` if it holds something else.
    OSError
        If the file cannot be opened or read.
    """
    with _open_regular(path) as file:
        contents = _read_contents(file, path)
        _check_kind(contents.kind, kind, path)
        return Document(contents.kind, contents.header, _read_arrays(file, contents, path))


def describe(path: str | os.PathLike[str]) -> Description:
    """Read what a file says of itself, without its data.

    The header is checked in full and the sizes are compared with the size of the file; the arrays' bytes are not read,
    so damage inside them goes unnoticed here.

    Parameters
    ----------
    path : path-like
        File to look at.

    Returns
    -------
    description : Description
        Kind, header, and element type and shape of each array.

    Raises
    ------
    FileFormatError
        As for `read`.
    OSError
        If the file cannot be opened or read.
    """
    with _open_regular(path) as file:
        contents = _read_contents(file, path)
    arrays = {e.name: ArrayInfo(e.dtype.name, e.shape, e.nbytes) for e in contents.entries}
    return Description(contents.kind, contents.header, arrays, FORMAT_VERSION, contents.file_size)


def _open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    # Opening a pipe would wait for a writer, and a device has no size to check against.
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileFormatError(path, "not a regular file")
    return open(path, "rb")


def _read_contents(file: io.BufferedReader, path: str | os.PathLike[str]) -> _Contents:
    file_size = os.fstat(file.fileno()).st_size
    text = _read_json_text(file, file_size, path)
    document = _parse_json(text, path)
    entries = _parse_table(document["arrays"], path)
    expected = _file_size(len(text), entries[-1].offset + entries[-1].nbytes if entries else None)
    if file_size != expected:
        raise CorruptFileError(path, f"the arrays end at byte {expected}, the file at byte {file_size}")
    return _Contents(document["kind"], document["header"], entries, _aligned(_PREFIX.size + len(text)), file_size)


def _read_json_text(file: io.BufferedReader, file_size: int, path: str | os.PathLike[str]) -> bytes:
    prefix = file.read(_PREFIX.size)
    _check_magic(prefix, path)
    _, version, reserved, text_size, stated_size, digest = _PREFIX.unpack(prefix)
    _check_version(version, path)
    if stated_size != file_size:
        word = "truncated" if file_size < stated_size else "altered"
        raise CorruptFileError(path, f"{word}: expected {stated_size} bytes, got {file_size}")
    if reserved or text_size > min(_MAX_JSON_BYTES, file_size - _PREFIX.size):
        raise CorruptFileError(path, "altered: impossible values in the first 32 bytes")
    text = file.read(text_size)
    if _digest(prefix[:_SIGNED_BYTES], text) != digest:
        raise CorruptFileError(path, "altered: the header does not match its checksum")
    return text


def _check_magic(prefix: bytes, path: str | os.PathLike[str]) -> None:
    if not prefix.startswith(_MAGIC):
        raise FileFormatError(path, "not a pydirect file" if prefix else "empty file")
    if len(prefix) < _PREFIX.size:
        raise CorruptFileError(path, f"truncated: expected at least {_PREFIX.size} bytes, got {len(prefix)}")


def _check_version(version: int, path: str | os.PathLike[str]) -> None:
    if version > FORMAT_VERSION:
        raise VersionError(
            path, f"written by a later version of pydirect (file format {version}, readable up to {FORMAT_VERSION})"
        )
    if version < 1:
        raise CorruptFileError(path, f"altered: file format version {version} does not exist")


def _check_kind(kind: str, accepted: str | tuple[str, ...] | None, path: str | os.PathLike[str]) -> None:
    if accepted is None:
        return
    names = (accepted,) if isinstance(accepted, str) else accepted
    if kind not in names:
        raise KindError(path, f"expected a file of kind {' or '.join(map(repr, names))}, got {kind!r}")


def _parse_json(text: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    # Counted before parsing: the parser recurses, and how deep it may do so safely is not for the file to decide.
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
    """Return the depth of nested brackets in a JSON text, strings left aside."""
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
    # 1e999 is correct JSON that Python reads as infinity.
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


def _parse_table(table: list[Any], path: str | os.PathLike[str]) -> list[_Entry]:
    entries: list[_Entry] = []
    names: set[str] = set()
    end = 0
    for item in table:
        entry = _parse_entry(item, path)
        if entry.name in names:
            raise CorruptFileError(path, f"array {entry.name!r} occurs twice")
        if entry.offset != _aligned(end):
            raise CorruptFileError(path, f"array {entry.name!r}: expected offset {_aligned(end)}, got {entry.offset}")
        names.add(entry.name)
        entries.append(entry)
        end = entry.offset + entry.nbytes
    return entries


def _parse_entry(item: Any, path: str | os.PathLike[str]) -> _Entry:
    if not isinstance(item, dict) or item.keys() != _ENTRY_KEYS or not isinstance(item["name"], str):
        raise CorruptFileError(path, "an entry of the array table is not valid")
    name, dtype, shape = item["name"], item["dtype"], item["shape"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise CorruptFileError(path, f"array {name!r}: unknown dtype {dtype!r}")
    if not isinstance(shape, list) or len(shape) > _MAX_NDIM or not all(map(_is_size, shape)):
        raise CorruptFileError(path, f"array {name!r}: impossible shape")
    if not _is_size(item["offset"]) or not _is_size(item["nbytes"]) or not isinstance(item["digest"], str):
        raise CorruptFileError(path, f"array {name!r}: offset, nbytes or digest is not valid")
    if item["nbytes"] != math.prod(shape) * _DTYPES[dtype].itemsize or not _addressable(shape, _DTYPES[dtype]):
        raise CorruptFileError(path, f"array {name!r}: {item['nbytes']} bytes do not fit shape {shape} of {dtype}")
    return _Entry(name, _DTYPES[dtype], tuple(shape), item["offset"], item["nbytes"], item["digest"])


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_ARRAY_BYTES


def _addressable(shape: list[int], dtype: np.dtype) -> bool:
    # NumPy refuses an empty array whose other lengths overflow, such as (0, 2**62, 2**62).
    return math.prod(max(length, 1) for length in shape) * dtype.itemsize <= _MAX_ARRAY_BYTES


def _read_arrays(file: io.BufferedReader, contents: _Contents, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    arrays = {}
    position = file.tell()
    for entry in contents.entries:
        start = contents.data_start + entry.offset
        if any(file.read(start - position)):
            raise CorruptFileError(path, f"altered: stray bytes before array {entry.name!r}")
        arrays[entry.name] = _read_array(file, entry, path)
        position = start + entry.nbytes
    return arrays


def _read_array(file: io.BufferedReader, entry: _Entry, path: str | os.PathLike[str]) -> np.ndarray:
    array = np.empty(entry.shape, dtype=entry.dtype)
    raw = _bytes_of(array)
    if file.readinto(raw) != entry.nbytes:
        raise CorruptFileError(path, f"truncated inside array {entry.name!r}")
    if _digest(raw).hex() != entry.digest:
        raise CorruptFileError(path, f"altered: array {entry.name!r} does not match its checksum")
    # NumPy takes a boolean's byte on trust; any value but 0 and 1 would give wrong counts later.
    if entry.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise CorruptFileError(path, f"array {entry.name!r}: a boolean is neither 0 nor 1")
    return array.astype(entry.dtype.newbyteorder("="), copy=False)


# ----------------------------------------------------------------------------------------------------------- shared


def _bytes_of(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-ordered array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _digest(*parts: bytes | memoryview) -> bytes:
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(part)
    return state.digest()


def _file_size(text_size: int, data_size: int | None) -> int:
    """Return the size of a file from that of its JSON text and of its data, None when there are no arrays."""
    header_end = _PREFIX.size + text_size
    return header_end if data_size is None else _aligned(header_end) + data_size


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT
