"""Warnings that one thread can ignore: `warnings.catch_warnings` changes the filters of the whole process."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IGNORED: ContextVar[tuple[type[Warning], ...]] = ContextVar("_IGNORED", default=())


def warn(message: str, category: type[Warning], stacklevel: int | None = None) -> None:
    """Call `warnings.warn` unless the category is ignored, by default at the first line outside of the package.

    `stacklevel`: as there, seen from the caller.
    """
    if not issubclass(category, _IGNORED.get()):
        warnings.warn(message, category, stacklevel=level_of_user() if stacklevel is None else stacklevel + 1)


def level_of_user() -> int:
    """Return the `stacklevel` of the first line outside of the package, seen from the caller."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "pydirect":
        frame, level = frame.f_back, level + 1
    return level


@contextmanager
def ignored(category: type[Warning] = Warning) -> Iterator[None]:
    """Context in which `warn` is silent for a category, in this thread and in those that `for_each` starts."""
    token = _IGNORED.set((*_IGNORED.get(), category))
    try:
        yield
    finally:
        _IGNORED.reset(token)
