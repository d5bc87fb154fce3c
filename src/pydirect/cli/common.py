"""What the commands share: errors, argument types, checks of output files, lines of output."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

DEFAULT_LEVEL = 0.9
DEFAULT_TEST_FRACTION = 0.1
DIRECT_POSTERIORS = ("gaussian", "sequential", "mean-field")
NETWORK_POSTERIORS = ("normal", "laplace", "logistic", "radial")


class CommandError(ValueError):
    """The command cannot be carried out as given; the message is for the user."""


class TableError(CommandError):
    """A table cannot be used; the message says where and why, `details` name each problem if there are several."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)

    @classmethod
    def of(cls, table: object, problems: Sequence[str], hints: Sequence[str] = ()) -> TableError:
        """Return one error for all problems of a table, with hints at what to do."""
        if len(problems) == 1:
            return cls(f"{table}: {'; '.join([*problems, *hints])}")
        return cls(f"{table}: {len(problems)} problems", [*problems, *hints])


def report_failure(message: str, code: int = 2, details: Sequence[str] = ()) -> int:
    """Print an error, and details below it, and return the exit code."""
    lines = [f"pydirect: error: {' '.join(message.split())}", *(f"  {' '.join(line.split())}" for line in details)]
    print("\n".join(lines), file=sys.stderr)
    return code


def warn_user(message: str) -> None:
    """Print a warning on standard error."""
    print(f"pydirect: warning: {' '.join(message.split())}", file=sys.stderr)


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Show each warning as one line, once, without its place in the source."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            warn_user(str(message))
        shown.add(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def discard_output() -> None:
    """Redirect further output to the null device, after a pipe has closed."""
    # The interpreter flushes standard output once more on exit, which would fail again and be reported.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def check_names(names: list[str], path: str) -> None:
    """Raise TableError unless the names of columns are distinct."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise TableError(f"{path}: column name{'s' if len(twice) > 1 else ''} {listed(twice)} occurs more than once")


def listed(names: Iterable[str]) -> str:
    """Return names in quotation marks, cut after ten."""
    return shortened(list(map(repr, names)), 10)


def shortened(items: Sequence[str], limit: int = 8) -> str:
    """Return items separated by commas, cut after `limit`."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return ", ".join(items[:limit]) + more


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        print(f"{label:{width}}  {text}")
