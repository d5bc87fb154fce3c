"""The container file of everything that the package saves: a JSON header and named arrays, without pickle.

A file is an uncompressed ``.npz``: a zip archive with the member ``header.json`` first, {"format_version": ..., "kind":
..., "header": {...}}, then one ``.npy`` member per array, which ``numpy.load(path, allow_pickle=False)`` reads too. The
archive's comment, the last bytes of the file, is the BLAKE2b digest of all bytes before it: `read` verifies each byte
of the file.

BLAKE2b besides the CRC-32 of each member: CRC-32 accepts one in 2**32 damaged files and does not cover the archive's
own fields. The digest detects damage; it is not a signature.
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
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np


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
    """The file was truncated or altered after it was written.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        What is wrong with it.
    """


class VersionError(FileFormatError):
    """The file was written by a later version of the package.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        What is wrong with it.
    """


class KindError(FileFormatError):
    """The file is valid but of another kind than expected.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        What is wrong with it.
    """


@contextlib.contextmanager
def atomic_open(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name only if the ``with`` block succeeds.

    The bytes go to a temporary file in the same directory, are flushed to the disk, and replace `path` in one step. If
    the block raises anything, the temporary file is removed and an existing `path` remains unchanged.

    Parameters
    ----------
    path : path-like
        File to write. A symbolic link is followed; the permissions of an existing file are kept.

    Yields
    ------
    file : binary file
        File object to write to.

    Raises
    ------
    OSError
        If `path` exists and is not a regular file, or the file cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from pydirect.persistence import atomic_open
    >>> with atomic_open("numbers.bin") as file:
    ...     n_bytes, there_already = file.write(b"123"), Path("numbers.bin").exists()
    >>> there_already, Path("numbers.bin").read_bytes()
    (False, b'123')
    """
    target = os.path.realpath(path)
    # A device or a pipe would be replaced by a regular file instead of being written to.
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "Cannot write: not a regular file", os.fspath(path))
    temporary = os.path.join(os.path.dirname(target), f".pydirect-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename = os.fspath(path)  # the name that the caller knows
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(os.path.dirname(target))


def _sync_directory(directory: str) -> None:
    # Makes the renaming durable. Not every system can open a directory; the file is complete in any case.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


FORMAT_VERSION = 1
# Parsed JSON takes many times the memory of its text, so the text is bounded; bulk data belongs in arrays.
MAX_JSON_BYTES = 16 * 2**20
_MAX_DEPTH = 64
# The closing quote is optional so that an unterminated string is consumed in one step, without backtracking.
_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


# ---------------------------------------------------------------------------------------------------------- writing


def _encode_header(kind: str, header: dict[str, Any]) -> bytes:
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
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise TypeError(f"{where}: expected keys of type str, got {odd[0]!r}")
        return {str(key): _plain(v, f"{where}[{key!r}]", depth + 1) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}: expected a finite float, got {value}; store it as a 0-d array")
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"{where}: expected str, int, float, bool, None, list or dict, got {type(value).__name__}")


# ---------------------------------------------------------------------------------------------------------- reading


def _parse_header(text: bytes, path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return kind and header from a JSON text, or raise if it is not valid or of a later version."""
    # Counted before parsing: the parser recurses, and the file must not decide how deep.
    symbols = np.frombuffer(_JSON_STRING.sub(b"", text), dtype="S1")
    steps = np.isin(symbols, (b"[", b"{")).astype(np.int8) - np.isin(symbols, (b"]", b"}"))
    if np.cumsum(steps, dtype=np.int32).max(initial=0) > _MAX_DEPTH + 1:
        raise ValueError(f"the header is nested deeper than {_MAX_DEPTH} levels")
    try:
        document = json.loads(
            text.decode("ascii"), parse_constant=_parse_float, parse_float=_parse_float, object_pairs_hook=_parse_object
        )
    except ValueError as error:
        raise ValueError(f"the header is not valid: {error}") from None
    version = document.get("format_version") if isinstance(document, dict) else None
    if type(version) is int and version > FORMAT_VERSION:
        raise VersionError(path, f"written by a later version of pydirect, in file format {version}")
    match document:
        case {"format_version": int(), "kind": str(kind), "header": dict(header)} if len(document) == 3 and kind:
            if type(version) is int and version == FORMAT_VERSION:
                return kind, header
    raise ValueError("the header is not valid: expected format_version, kind and header")


def _parse_float(literal: str) -> float:
    # 1e999 is valid JSON that Python reads as infinity.
    if not math.isfinite(value := float(literal)):
        raise ValueError(f"expected a finite float, got {literal}")
    return value


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


_HEADER = "header.json"
_START = b"PK\x03\x04"
_DIGEST_CHARACTERS = 64
_MEMBER_NAME = re.compile(r"[\w.\-]{1,1000}\.npy", re.ASCII)
_INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_REAL = ["float16", "float32", "float64", "complex64", "complex128"]
_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ["bool", *_INTEGERS, *_REAL]}
_DESCRIPTIONS = {dtype.str: dtype for dtype in _DTYPES.values()}
_NPY_PREFIX = b"\x93NUMPY\x01\x00"
_LAYOUT = re.compile(
    rb"\{'descr': '([<|]\w{2,4})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,19}(?:, |,?(?=\))))*)\), \} *\n"
)
_MAX_NDIM = 32
_MAX_ARRAY_BYTES = 2**63 - 1
_BLOCK = 2**20
# What `zipfile` raises for archives that are not valid.
_INVALID = (zipfile.BadZipFile, EOFError, NotImplementedError, OverflowError, RuntimeError, ValueError, struct.error)


@dataclass(frozen=True, eq=False)
class Document:
    """Whole content of a file: kind, header (tuples have become lists) and writable arrays in native byte order."""

    kind: str
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


# ---------------------------------------------------------------------------------------------------------- writing


def write(
    path: str | os.PathLike[str], kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray] | None = None
) -> None:
    """Write a file, which replaces an existing one only when it is complete.

    `kind`: what the file holds; `read` can require it. `header`: strings, integers, finite floats, booleans and None in
    dicts and lists, at most 64 levels deep. `arrays`: boolean, integer, float or complex, by names of ASCII letters,
    digits, ``_``, ``.`` and ``-``; stored C-ordered, or Fortran-ordered if they are Fortran-contiguous. Raises
    TypeError, ValueError or OSError and leaves an existing file as it is if anything cannot be stored.

    Examples
    --------
    >>> from pydirect.persistence import read, write
    >>> write("own.pydirect", "measurement", {"unit": "mm"})
    >>> read("own.pydirect").kind
    'measurement'
    """
    if not isinstance(kind, str) or not kind:
        raise TypeError(f"kind: expected a non-empty str, got {kind!r}")
    prepared = _storable(arrays)
    text = _encode_header(kind, header)
    with atomic_open(path) as file:
        _write_all(file, text, prepared)


def _write_all(file: BinaryIO, text: bytes, arrays: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = bytes(_DIGEST_CHARACTERS)
        archive.writestr(_member(_HEADER), text)
        for name, array in arrays.items():
            with archive.open(_member(f"{name}.npy"), "w", force_zip64=array.nbytes >= 2**31) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    digest = _digest(file, file.seek(0, os.SEEK_END) - _DIGEST_CHARACTERS)
    file.seek(-_DIGEST_CHARACTERS, os.SEEK_END)
    file.write(digest)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # dated 1980: the same content gives the same bytes
    info.create_system = 3
    info.external_attr = 0o644 << 16
    return info


def _storable(arrays: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Return arrays as they are stored: little-endian, C-ordered unless Fortran-contiguous."""
    if not isinstance(arrays, dict | None):
        raise TypeError(f"arrays: expected a dict of ndarray, got {type(arrays).__name__}")
    result = {}
    for name, array in (arrays or {}).items():
        if not isinstance(name, str) or not _MEMBER_NAME.fullmatch(f"{name}.npy"):
            raise TypeError(f"arrays: expected names of letters, digits, '_', '.' and '-', got {name!r}")
        # A masked array would silently lose its mask.
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"arrays[{name!r}]: expected a numpy.ndarray, got {type(array).__name__}")
        dtype = _DTYPES.get(array.dtype.name)
        if dtype is None:
            raise TypeError(f"arrays[{name!r}]: expected dtype in {{{', '.join(_DTYPES)}}}, got {array.dtype}")
        result[name] = np.asarray(array, dtype=dtype, order="F" if array.flags.fnc else "C")
    return result


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the digest of the first bytes of a file."""
    file.seek(0)
    state = hashlib.blake2b(digest_size=_DIGEST_CHARACTERS // 2)
    while size > 0 and (block := file.read(min(size, _BLOCK))):
        state.update(block)
        size -= len(block)
    return state.hexdigest().encode("ascii")


# ---------------------------------------------------------------------------------------------------------- reading


def read(path: str | os.PathLike[str], kind: str | tuple[str, ...] | None = None) -> Document:
    """Read a file made by `write` and verify every byte of it; sizes are verified before memory is allocated.

    `kind`: accepted kind or kinds; all by default. Raises FileFormatError if the file is not a pydirect file: as
    CorruptFileError if it was truncated or altered, as VersionError if a later version of the package wrote it, as
    KindError if it is of another kind.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.persistence import read, write
    >>> write("own.pydirect", "measurement", {"unit": "mm"}, {"lengths": np.array([1.0, 2.0])})
    >>> document = read("own.pydirect", "measurement")
    >>> document.header, document.arrays["lengths"].tolist()
    ({'unit': 'mm'}, [1.0, 2.0])
    """
    with _opened(path) as (file, archive):
        found, header = _header(archive, path)
        names = (kind,) if isinstance(kind, str) else kind
        if names is not None and found not in names:
            raise KindError(path, f"expected a file of kind {' or '.join(map(repr, names))}, got {found!r}")
        if _digest(file, os.fstat(file.fileno()).st_size - _DIGEST_CHARACTERS) != archive.comment:
            raise ValueError("the file does not match its checksum")
        arrays = {}
        for info in archive.infolist()[1:]:
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as member:
                try:
                    arrays[name] = _read_array(member, info.file_size)
                except ValueError as error:
                    raise ValueError(f"array {name!r}: {error}") from None
        return Document(found, header, arrays)


@contextlib.contextmanager
def sound_contents(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn errors of a whole file's contents, of which no `what` can be made, into `CorruptFileError`."""
    try:
        with np.errstate(over="raise", invalid="raise"):  # no fitted model's numbers overflow
            yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        reason = f"the file is whole but its contents do not make {what} ({type(error).__name__}: {error})"
        raise CorruptFileError(path, reason) from error


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[io.BufferedReader, zipfile.ZipFile]]:
    """Open a file and its archive; whatever is wrong with the archive inside the block becomes a `FileFormatError`."""
    # Opening a pipe would wait for a writer, and a device has no size to compare with.
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileFormatError(path, "not a regular file")
    with open(path, "rb") as file:
        start = file.read(30 + len(_HEADER))
        if not start.startswith(_START) or (len(start) > 30 and not start.endswith(_HEADER.encode())):
            raise FileFormatError(path, "not a pydirect file" if start else "empty file")
        try:
            with zipfile.ZipFile(file) as archive:
                yield file, archive
        except FileFormatError:
            raise
        except OSError as error:  # places before the start of the file
            if error.errno != errno.EINVAL:
                raise
            raise CorruptFileError(path, "truncated or altered: impossible places in the archive") from None
        except _INVALID as error:
            raise CorruptFileError(path, f"truncated or altered: {error}") from None


def _header(archive: zipfile.ZipFile, path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return kind and header of an archive whose members have possible names and places."""
    size, members = os.stat(path).st_size, archive.infolist()
    names = [info.filename for info in members]
    if names[:1] != [_HEADER] or len(archive.comment) != _DIGEST_CHARACTERS:
        raise ValueError("the header or the checksum is missing")
    for info in members:
        if info is not members[0] and not _MEMBER_NAME.fullmatch(info.filename):
            raise ValueError(f"{info.filename!r} is not the name of an array")
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored or info.flag_bits or info.header_offset + info.file_size > size:
            raise ValueError(f"member {info.filename!r} is not stored as it should be")
    if len(set(names)) != len(names):
        raise ValueError("an array occurs twice")
    if members[0].file_size > MAX_JSON_BYTES:
        raise ValueError(f"the header has more than {MAX_JSON_BYTES} bytes")
    return _parse_header(archive.read(_HEADER), path)


def _read_array(member: Any, size: int) -> np.ndarray:
    """Read an array, for whose data there is memory only if their size fits its description."""
    # Parsed here, not by NumPy, which evaluates literals of any depth and warns of old dialects.
    prefix, length = member.read(8), int.from_bytes(member.read(2), "little")
    found = _LAYOUT.fullmatch(member.read(length)) if prefix == _NPY_PREFIX else None
    if found is None:
        raise ValueError("its description is not valid")
    dtype = _DESCRIPTIONS.get(found[1].decode())
    if dtype is None:
        raise ValueError(f"unknown dtype {found[1].decode()!r}")
    shape = tuple(map(int, found[3].replace(b",", b" ").split()))
    if len(shape) > _MAX_NDIM:
        raise ValueError("impossible shape")
    # NumPy refuses an empty array whose other lengths overflow, such as (0, 2**62, 2**62).
    addressable = math.prod(max(length, 1) for length in shape) * dtype.itemsize <= _MAX_ARRAY_BYTES
    nbytes = size - member.tell()
    if math.prod(shape) * dtype.itemsize != nbytes or not addressable:
        raise ValueError(f"{nbytes} bytes do not fit shape {shape} of {dtype}")
    array = np.empty(shape, dtype=dtype, order="F" if found[2] == b"True" else "C")
    raw = array.reshape(-1, order="A").view(np.uint8)
    for start in range(0, len(raw), _BLOCK):
        block = raw[start : start + _BLOCK]
        if member.readinto(block.data) != len(block):
            raise ValueError("its data end too early")
    # NumPy does not check the bytes of booleans; values other than 0 and 1 would give wrong counts later.
    if dtype.kind == "b" and raw.max(initial=0) > 1:
        raise ValueError("a boolean is neither 0 nor 1")
    return array.astype(dtype.newbyteorder("="), copy=False)
