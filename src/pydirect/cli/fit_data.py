"""Training data of `pydirect fit`: inputs, targets and row weights of a table, and all that is wrong with them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydirect.cli.common import CommandError, TableError
from pydirect.cli.table_options import read_data
from pydirect.cli.targets import is_classification, labels_of, wrong_targets

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.tables import Frame, Table


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training data: X (n, p), y (n, k) or class labels (n,), weights (n,) or None, and the number of rows left out."""

    X: Frame
    y: np.ndarray
    weights: np.ndarray | None
    n_dropped: int

    def rows(self, chosen: np.ndarray) -> TrainingData:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[chosen]
        return TrainingData(self.X.rows(chosen), self.y[chosen], weights, self.n_dropped)

    @property
    def classes(self) -> bool:
        """Whether the target is a class."""
        return self.y.ndim == 1


def training_data(args: argparse.Namespace) -> TrainingData:
    """Read the table that the options name, check its inputs, targets and weights, and leave out rows."""
    import numpy as np

    full = read_data(args, args.data, args.category)
    special = [*args.target, *([args.weight] if args.weight is not None else [])]
    full.require([*special, *args.drop, *args.category])
    inputs = [name for name in full.names if name not in {*special, *args.drop}]
    if not inputs:
        raise CommandError("no columns are left to predict from")
    for name in args.category:
        full.make_text(name)
    classes = is_classification(args, full)
    _check(args, full, special, inputs, classes)
    left_out = _left_out(args, full, special, inputs)
    if left_out.all():
        raise TableError(f"{args.data}: every row lacks a value of {', '.join(special)} or an input")
    table = full.rows(~left_out)
    y = labels_of(table, args.target[0]) if classes else np.column_stack([table.numbers(name) for name in args.target])
    weights = None if args.weight is None else table.numbers(args.weight)
    if weights is not None and not weights.any():
        raise TableError(f"{args.data}: column {args.weight!r}: expected some positive weights, got only zeros")
    return TrainingData(table.frame(inputs), y, weights, int(left_out.sum()))


def _left_out(args: argparse.Namespace, table: Table, special: Sequence[str], inputs: Sequence[str]) -> np.ndarray:
    """Return a mask of the rows that the options leave out."""
    import numpy as np

    names = [*(special if args.drop_missing else []), *(inputs if args.on_missing == "skip" else [])]
    return np.any([np.zeros(table.n_rows, dtype=bool), *(table.missing(name) for name in names)], axis=0)


def _check(
    args: argparse.Namespace, table: Table, special: Sequence[str], inputs: Sequence[str], classes: bool
) -> None:
    """Raise an error that says all that keeps the table from being fitted to, and what to do about it."""
    problems, hints = wrong_targets(args, table, classes), []
    if args.weight is not None:
        problems += table.wrong_numbers(args.weight) or _negative(table, args.weight)
    wrong = {name: found for name in inputs if (found := _wrong_input(args, table, name))}
    problems += [problem for found in wrong.values() for problem in found]
    lacking = [p for name in special if name not in table.unusable for p in table.missing_values(name)]
    if lacking and not args.drop_missing:
        problems += lacking
        hints.append(f"--drop-missing leaves out rows without {' and '.join(map(repr, special))}")
    if args.on_missing == "error":
        problems += [p for name in inputs if name not in table.unusable for p in table.missing_values(name)]
    if wrong:
        hints.append(f"leave out columns with --drop {shlex.join(wrong)}")
    if problems:
        raise TableError.of(args.data, problems, hints)


def _wrong_input(args: argparse.Namespace, table: Table, name: str) -> list[str]:
    """Return what keeps a column from being an input, if anything."""
    if not table.is_text(name) or name in args.category:
        return table.wrong_values(name)
    if not table.is_mostly_numbers(name):
        return []
    return [f"{problem}, --category {shlex.quote(name)} all for categories" for problem in table.wrong_numbers(name)]


def _negative(table: Table, name: str) -> list[str]:
    from pydirect.cli.tables import place

    negative = table.numbers(name) < 0.0
    problem = f"column {name!r}: expected weights of at least 0, got a negative one in "
    return [problem + place(negative)] if negative.any() else []
