"""Target columns of a table: whether they hold classes or numbers, and their values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydirect.cli.common import CommandError, warn_user

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.tables import Table


def is_classification(args: argparse.Namespace, table: Table) -> bool:
    """Whether the target column holds labels."""
    if args.task != "auto":
        wanted = args.task == "classification"
    else:
        wanted = any(table.column(name).dtype == object or name in table.booleans for name in args.target)
    if wanted and len(args.target) > 1:
        raise CommandError("several targets must all be numbers; only one --target can hold classes")
    if wanted and args.model == "network":
        raise CommandError("--model network: its target must be a number, not a class")
    for name in [] if wanted or args.task != "auto" or args.model == "network" or args.quiet else args.target:
        if set(table.column(name).tolist()) == {0.0, 1.0}:
            print(f"Column {name!r} holds only 0 and 1: --task classification fits probabilities", file=sys.stderr)
    return bool(wanted)


def labels_of(table: Table, name: str) -> np.ndarray:
    """Return the labels of a column without missing values: text, booleans, integers if all are whole, or floats."""
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


def known_targets(table: Table, targets: Sequence[str]) -> np.ndarray:
    """Return the targets' values (n, k), NaN where the table has none."""
    import numpy as np

    y = np.full((table.n_rows, len(targets)), np.nan)
    for k, name in enumerate(targets):
        values = table.columns.get(name, y[:, k])
        if values.dtype == object:
            warn_user(f"column {name!r} does not hold numbers: no scores")
        else:
            y[:, k] = values
    return y
