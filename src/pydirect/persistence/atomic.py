"""Atomic writing of files: complete under their name, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO


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
    # Makes the renaming durable. Not every system can open a directory; the file is complete in any case.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
