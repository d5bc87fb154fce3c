"""The container file of everything that the package saves: a JSON header and named arrays, without pickle.

A file holds a *kind* (``"model"``, ``"statistics"``, ...), a JSON header and any number of named arrays. Reading a file
runs no code from it.

Layout, all integers little-endian::

    bytes 0-7     magic
    bytes 8-11    format version (uint32)
    bytes 12-15   reserved, zero (uint32)
    bytes 16-23   length of the JSON text in bytes (uint64)
    bytes 24-31   size of the whole file in bytes (uint64)
    bytes 32-63   BLAKE2b digest of bytes 0-31 followed by the JSON text
    from byte 64  JSON text (ASCII): {"kind": ..., "header": {...}, "arrays": [...]}
    then          the arrays in the order of the table, raw, little-endian, each at a multiple of 64

Every entry of the array table gives name, dtype, shape, order in memory, offset from the start of the data, number of
bytes and BLAKE2b digest. The order is kept because BLAS rounds products of C- and Fortran-ordered arrays differently.
The gaps between arrays are zero bytes, each offset has exactly one valid value, and nothing follows the last array. So
each byte of the file is covered: by the first digest, by an array's digest, or by having to be zero.
Separate digests let `describe` verify the header without reading the data.

BLAKE2b rather than CRC-32: CRC-32 accepts one in 2**32 damaged files, is fooled by splices of valid data, and saves
little, since a disk is slower than either. The digests detect damage; they are not signatures.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from pydirect.persistence.atomic import atomic_open
from pydirect.persistence.errors import CorruptFileError, FileFormatError, KindError, VersionError
from pydirect.persistence.header import (
    MAX_JSON_BYTES,
    Entry,
    aligned,
    array_table,
    bytes_of,
    digest_of,
    encode_header,
    parse_header,
    parse_table,
    storable,
)

FORMAT_VERSION = 1
# As in PNG: a byte above 127, both line endings and Ctrl-Z show a file that went through a text-mode transfer.
_MAGIC = b"\x89PDR\r\n\x1a\n"
_PREFIX = struct.Struct("<8sIIQQ32s")
_SIGNED_BYTES = 32


@dataclass(frozen=True)
class ArrayInfo:
    """Element type, shape and size of one array.

    Attributes
    ----------
    dtype : str
        NumPy name of the element type, for example ``"float64"``.
    shape : tuple of int
        Shape of the array.
    nbytes : int
        Number of bytes of its elements.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Description:
    """Description of a file without its data, as returned by `describe`.

    Attributes
    ----------
    kind : str
        Kind of the content.
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
    """Whole content of a file, as returned by `read`.

    Attributes
    ----------
    kind : str
        Kind of the content.
    header : dict
        The header that was given to `write`; tuples have become lists.
    arrays : dict of str to ndarray
        Writable arrays in native byte order, shapes and order in memory as written.
    """

    kind: str
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class _Contents:
    kind: str
    header: dict[str, Any]
    entries: list[Entry]
    data_start: int
    file_size: int


# ---------------------------------------------------------------------------------------------------------- writing


def write(
    path: str | os.PathLike[str], kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray] | None = None
) -> None:
    """Write a file, which replaces an existing one only when it is complete.

    Parameters
    ----------
    path : path-like
        File to write. A symbolic link is followed.
    kind : str
        What the file holds; `read` can require it.
    header : dict
        Strings, integers, finite floats, booleans and None in dicts with string keys and in lists, nested at most 64
        levels deep. Tuples come back as lists, NumPy scalars as Python ones. A float that may be infinite or NaN
        belongs in `arrays`, as a 0-d array.
    arrays : dict of str to ndarray, optional
        Arrays of any shape with boolean, integer, float or complex elements. They are stored little-endian
        and C-ordered, or Fortran-ordered if they are Fortran-contiguous.

    Raises
    ------
    TypeError
        If an argument, a header value or an array is of a type that cannot be stored.
    ValueError
        If a header float is not finite, or the header is too deep or too large.
    OSError
        If the file cannot be written. An existing file is then unchanged, and no other file remains.
    """
    prepared = {name: storable(name, array) for name, array in _checked_arrays(arrays).items()}
    table = array_table(prepared)
    text = encode_header(_checked_kind(kind), header, table)
    data_size = table[-1]["offset"] + table[-1]["nbytes"] if table else None
    with atomic_open(path) as file:
        _write_all(file, text, prepared, _file_size(len(text), data_size))


def _write_all(file: BinaryIO, text: bytes, arrays: dict[str, np.ndarray], file_size: int) -> None:
    file.write(_signed_prefix(text, file_size))
    file.write(text)
    position = _PREFIX.size + len(text)
    for array in arrays.values():
        file.write(bytes(aligned(position) - position))
        file.write(bytes_of(array))
        position = aligned(position) + array.nbytes


def _signed_prefix(text: bytes, file_size: int) -> bytes:
    unsigned = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, len(text), file_size, b"")[:_SIGNED_BYTES]
    return unsigned + digest_of(unsigned, text)


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


# ---------------------------------------------------------------------------------------------------------- reading


def read(path: str | os.PathLike[str], kind: str | tuple[str, ...] | None = None) -> Document:
    """Read a file made by `write` and verify every byte of it.

    Sizes are compared with the size of the file before memory is allocated for the data.

    Parameters
    ----------
    path : path-like
        File to read.
    kind : str or tuple of str, optional
        Accepted kind or kinds; all by default.

    Returns
    -------
    document : Document
        Kind, header and arrays.

    Raises
    ------
    FileFormatError
        If the file is not a pydirect file; as `CorruptFileError` if it was truncated or altered, as `VersionError` if a
        later version of the package wrote it, as `KindError` if it is of another kind.
    OSError
        If the file cannot be opened or read.
    """
    with _open_regular(path) as file:
        contents = _read_contents(file, path)
        _check_kind(contents.kind, kind, path)
        return Document(contents.kind, contents.header, _read_arrays(file, contents, path))


def describe(path: str | os.PathLike[str]) -> Description:
    """Read the header of a file without its data.

    The header is verified in full and the sizes are compared with the size of the file. The arrays are not read, so
    that damage inside them goes unnoticed.

    Parameters
    ----------
    path : path-like
        File to describe.

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
    # Opening a pipe would wait for a writer, and a device has no size to compare with.
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileFormatError(path, "not a regular file")
    return open(path, "rb")


def _read_contents(file: io.BufferedReader, path: str | os.PathLike[str]) -> _Contents:
    file_size = os.fstat(file.fileno()).st_size
    text = _read_json_text(file, file_size, path)
    document = parse_header(text, path)
    entries = parse_table(document["arrays"], path)
    expected = _file_size(len(text), entries[-1].offset + entries[-1].nbytes if entries else None)
    if file_size != expected:
        raise CorruptFileError(path, f"the arrays end at byte {expected}, the file at byte {file_size}")
    return _Contents(document["kind"], document["header"], entries, aligned(_PREFIX.size + len(text)), file_size)


def _read_json_text(file: io.BufferedReader, file_size: int, path: str | os.PathLike[str]) -> bytes:
    prefix = file.read(_PREFIX.size)
    _check_magic(prefix, path)
    _, version, reserved, text_size, stated_size, digest = _PREFIX.unpack(prefix)
    _check_version(version, path)
    if stated_size != file_size:
        word = "truncated" if file_size < stated_size else "altered"
        raise CorruptFileError(path, f"{word}: expected {stated_size} bytes, got {file_size}")
    if reserved or text_size > min(MAX_JSON_BYTES, file_size - _PREFIX.size):
        raise CorruptFileError(path, "altered: impossible values in the first 32 bytes")
    text = file.read(text_size)
    if digest_of(prefix[:_SIGNED_BYTES], text) != digest:
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


def _read_array(file: io.BufferedReader, entry: Entry, path: str | os.PathLike[str]) -> np.ndarray:
    array = np.empty(entry.shape, dtype=entry.dtype, order=entry.order)
    raw = bytes_of(array)
    if file.readinto(raw) != entry.nbytes:
        raise CorruptFileError(path, f"truncated inside array {entry.name!r}")
    if digest_of(raw).hex() != entry.digest:
        raise CorruptFileError(path, f"altered: array {entry.name!r} does not match its checksum")
    # NumPy does not check the bytes of booleans; values other than 0 and 1 would give wrong counts later.
    if entry.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
        raise CorruptFileError(path, f"array {entry.name!r}: a boolean is neither 0 nor 1")
    return array.astype(entry.dtype.newbyteorder("="), copy=False)


def _file_size(text_size: int, data_size: int | None) -> int:
    """Return the size of a file from the sizes of its JSON text and its data, None without arrays."""
    header_end = _PREFIX.size + text_size
    return header_end if data_size is None else aligned(header_end) + data_size
