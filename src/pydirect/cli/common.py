"""What the commands share: errors, options, tables of rows, lines of output."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.cli.tables import Table

_N = TypeVar("_N", int, float)
DEFAULT_LEVEL = 0.9
DEFAULT_TEST_FRACTION = 0.1


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
    """Show warnings as one line each, without the place in the source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        warn_user(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def discard_output() -> None:
    """Send what is still written to nowhere, after a pipe has closed."""
    # The interpreter flushes standard output once more on exit, which would fail again and be reported.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _number(convert: Callable[[str], _N], is_right: Callable[[_N], bool], expected: str) -> Callable[[str], _N]:
    """Return a converter for argparse that says what it expected."""

    def number(text: str) -> _N:
        """Return the number that a text holds."""
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
    """Find out before the work rather than after it that its result has nowhere to go."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise CommandError(f"{path}: expected a file in an existing directory")
    if not os.access(path.absolute().parent, os.W_OK):
        raise CommandError(f"{path}: no permission to write in its directory")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise CommandError(f"{path}: would overwrite the input")


def is_classification(args: argparse.Namespace, table: Table) -> bool:
    """Whether the target column holds labels."""
    if args.task != "auto":
        wanted = args.task == "classification"
    else:
        wanted = any(table.column(name).dtype == object or name in table.booleans for name in args.target)
    if wanted and len(args.target) > 1:
        raise CommandError("several targets must all be numbers; classes are told for one --target at a time")
    if wanted and args.model == "network":
        raise CommandError("--model network: its target must be a number, not a class")
    for name in [] if wanted or args.task != "auto" or args.model == "network" or args.quiet else args.target:
        if set(table.column(name).tolist()) == {0.0, 1.0}:
            print(f"Column {name!r} holds only 0 and 1: --task classification fits probabilities", file=sys.stderr)
    return bool(wanted)


def labels_of(table: Table, name: str) -> np.ndarray:
    """Return the classes of a complete column: text, booleans, or numbers, integers where all are."""
    import numpy as np

    values = table.column(name)
    if values.dtype == object:
        return values.astype(str)
    numbers = table.numbers(name)
    if name in table.booleans:
        return numbers.astype(bool)
    return (
        numbers.astype(np.int64) if (numbers == np.round(numbers)).all() and np.abs(numbers).max() < 2**53 else numbers
    )


def numbers_text(values: Any) -> str:
    """Return numbers as people read them, separated by commas."""
    import numpy as np

    return ", ".join(f"{value:.6g}" for value in np.ravel(values))


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        print(f"{label:{width}}  {text}")


def known_targets(table: Table, targets: Sequence[str]) -> np.ndarray:
    """Return the targets' values (n, k) as far as the table has them, NaN otherwise."""
    import numpy as np

    y = np.full((table.n_rows, len(targets)), np.nan)
    for k, name in enumerate(targets):
        values = table.columns.get(name, y[:, k])
        if values.dtype == object:
            warn_user(f"column {name!r} does not hold numbers: no scores")
        else:
            y[:, k] = values
    return y


def load_for_tables(path: Path) -> tuple[Any, TableEncoder, list[str]]:
    """Return a model, the encoder of its inputs and the names of its targets."""
    import pydirect
    from pydirect.cli.table_encoder import TableEncoder

    model = pydirect.load(path)
    n_targets = _n_targets(model)
    stored = table_metadata(model)
    if stored is not None:
        if len(stored["targets"]) != n_targets:
            raise CommandError(f"{path}: the model has {n_targets} targets, got names for {len(stored['targets'])}")
        return model, TableEncoder.from_header(stored["encoder"]), stored["targets"]
    if not hasattr(model, "feature_names_in_"):
        raise CommandError(
            f"{path}: the model does not know the names of its columns: fit it to a data frame, or use pydirect.load "
            "in Python, with quantize and to_c instead of export"
        )
    return model, TableEncoder.numeric(map(str, model.feature_names_in_)), [f"output{k}" for k in range(n_targets)]


def _n_targets(model: Any) -> int:
    import numpy as np

    return 1 if hasattr(model, "classes_") else int(np.size(model.noise_variance_))


def table_metadata(model: Any) -> dict[str, Any] | None:
    """Return what a model file says of the table that it was fitted to, if anything."""
    stored = (getattr(model, "metadata_", None) or {}).get("table")
    sound = isinstance(stored, dict) and "encoder" in stored and isinstance(stored.get("targets"), list)
    return stored if sound else None
