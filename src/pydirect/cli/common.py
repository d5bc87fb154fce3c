"""What the commands share: errors, argument types, checks of output files, lines of output."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

_N = TypeVar("_N", int, float)
DEFAULT_LEVEL = 0.9


class CommandError(ValueError):
    """The command cannot be carried out as given; the message is for the user."""


def report_failure(message: str, code: int = 2) -> int:
    """Print an error and return the exit code."""
    print(f"pydirect: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def warn_user(message: str) -> None:
    """Print a warning on standard error."""
    print(f"pydirect: warning: {' '.join(message.split())}", file=sys.stderr)


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Show each warning as one line, without its place in the source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        warn_user(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def discard_output() -> None:
    """Redirect further output to the null device, after a pipe has closed."""
    # The interpreter flushes standard output once more on exit, which would fail again and be reported.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _number(convert: Callable[[str], _N], is_right: Callable[[_N], bool], expected: str) -> Callable[[str], _N]:
    """Return an argparse type whose error message says what was expected."""

    def number(text: str) -> _N:
        """Return the number in a text."""
        with contextlib.suppress(ValueError):
            if is_right(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return number


natural = _number(int, lambda value: value >= 0, "an integer of at least 0")
positive = _number(int, lambda value: value >= 1, "an integer of at least 1")
fraction = _number(float, lambda value: 0.0 <= value < 1.0, "a number from 0 to below 1")
level = _number(float, lambda value: 0.0 < value < 1.0, "a number between 0 and 1")


def check_output(path: Path, *inputs: Path) -> None:
    """Raise before the work, rather than after it, if its result cannot be written."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise CommandError(f"{path}: expected a file in an existing directory")
    if not os.access(path.absolute().parent, os.W_OK):
        raise CommandError(f"{path}: no permission to write in its directory")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise CommandError(f"{path}: would overwrite the input")


def numbers_text(values: Any) -> str:
    """Return numbers as text, separated by commas."""
    import numpy as np

    return ", ".join(f"{value:.6g}" for value in np.ravel(values))


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        print(f"{label:{width}}  {text}")
