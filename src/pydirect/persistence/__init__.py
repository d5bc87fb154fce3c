"""Saved files: one container with arrays and a versioned JSON header, no pickle."""

from pydirect.persistence.container import (
    ArrayInfo,
    CorruptFileError,
    Description,
    Document,
    FileFormatError,
    KindError,
    VersionError,
    atomic_open,
    describe,
    read,
    write,
)

__all__ = [
    "ArrayInfo",
    "CorruptFileError",
    "Description",
    "Document",
    "FileFormatError",
    "KindError",
    "VersionError",
    "atomic_open",
    "describe",
    "read",
    "write",
]
