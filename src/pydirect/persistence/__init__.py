"""Saved files: one container with arrays and a versioned JSON header, no pickle."""

from pydirect.persistence.container import (
    CorruptFileError as CorruptFileError,
    Document as Document,
    FileFormatError as FileFormatError,
    KindError as KindError,
    VersionError as VersionError,
    atomic_open as atomic_open,
    read as read,
    write as write,
)
