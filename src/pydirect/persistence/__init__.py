"""Saved files: one container with arrays and a versioned JSON header, no pickle."""

from pydirect.persistence.atomic import atomic_open
from pydirect.persistence.container import ArrayInfo, Description, Document, describe, read, write
from pydirect.persistence.errors import CorruptFileError, FileFormatError, KindError, VersionError

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
