"""Errors of files: not a pydirect file, damaged, of a later version, of another kind."""

from __future__ import annotations

import os


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
