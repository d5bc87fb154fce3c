"""Saved files: one container with arrays and a versioned JSON header, no pickle."""

from pydirect.persistence.container import (
    CorruptFileError,
    Document,
    FileFormatError,
    KindError,
    VersionError,
    atomic_open,
    read,
    write,
)

__all__ = [
    "CorruptFileError",
    "Document",
    "FileFormatError",
    "KindError",
    "VersionError",
    "atomic_open",
    "read",
    "write",
]
