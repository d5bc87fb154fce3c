"""Target columns of a table: whether they hold classes or numbers, what is wrong with them, and their values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydirect.cli.common import CommandError, warn_user

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.tables import Table

# Largest number of different texts that are taken for classes without being told.
_MOST_CLASSES = 50


def is_classification(args: argparse.Namespace, table: Table) -> bool:
    """Whether the target column holds labels."""
    if args.task != "auto":
        wanted = args.task == "classification"
    else:
        wanted = any(table.is_text(name) or name in table.booleans for name in args.target)
    check_classification(args, wanted)
    if not wanted and args.task == "auto" and not args.quiet:
        for name in args.target:
            if name in table.columns and len(values := set(table.numbers(name)[~table.missing(name)].tolist())) == 2:
                suggest_classification(name, values)
    return bool(wanted)


def check_classification(args: argparse.Namespace, wanted: bool) -> None:
    """Raise unless the model and the number of targets are right for classes, if these are wanted."""
    if wanted and len(args.target) > 1:
        raise CommandError("several targets must all be numbers; only one --target can hold classes")
    if wanted and args.model == "network":
        raise CommandError("--model network: its target must be a number, not a class")


def suggest_classification(name: str, values: set[float]) -> None:
    """Say that a column of two numbers may hold classes."""
    numbers = " and ".join(f"{value:.15g}" for value in sorted(values))
    print(f"Column {name!r} holds only {numbers}: --task classification fits probabilities", file=sys.stderr)


def wrong_targets(args: argparse.Namespace, table: Table, classes: bool) -> list[str]:
    """Return what keeps the target columns from being used, beside missing values."""
    return [
        problem
        for name in args.target
        for problem in (_wrong_classes(args, table, name) if classes else table.wrong_numbers(name))
    ]


def _wrong_classes(args: argparse.Namespace, table: Table, name: str) -> list[str]:
    if found := table.wrong_values(name):
        return found
    if args.task == "auto" and table.is_mostly_numbers(name) and (wrong := table.wrong_numbers(name)):
        return [f"{wrong[0]}; --task classification takes each text for a class"]
    n_classes = len(set(table.columns[name][~table.missing(name)].tolist()))
    if args.task == "auto" and n_classes > _MOST_CLASSES:
        hint = "--task classification takes each for a class"
        return [f"column {name!r}: expected numbers or at most {_MOST_CLASSES} classes, got {n_classes} texts; {hint}"]
    if 2 * n_classes > table.n_rows and n_classes > 2:
        return [f"column {name!r}: expected classes, got {n_classes} different values in {table.n_rows} rows"]
    return []


def labels_of(table: Table, name: str) -> np.ndarray:
    """Return the labels of a column without missing values: text, booleans, integers if all are whole, or floats."""
    import numpy as np

    values = table.columns[name]
    if values.dtype == object:
        return values.astype(str)
    if name in table.booleans:
        return values.astype(bool)
    return values.astype(np.int64) if (values == np.round(values)).all() and np.abs(values).max() < 2**53 else values


def known_targets(table: Table, targets: Sequence[str]) -> np.ndarray:
    """Return the targets' values (n, k), NaN where the table has none."""
    import numpy as np

    y = np.full((table.n_rows, len(targets)), np.nan)
    for k, name in enumerate(targets):
        if name not in table.columns:
            continue
        if table.wrong_numbers(name):
            warn_user(f"column {name!r} does not hold numbers: no scores")
        else:
            y[:, k] = table.numbers(name)
    return y
