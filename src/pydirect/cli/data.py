"""What models take from a table: training data, targets, and inputs of a fitted model, and what is wrong in them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import CommandError, TableError, warn_user
from pydirect.cli.models import table_metadata
from pydirect.cli.tables import Frame, InputTable, place, read_data
from pydirect.tables.table import key_of


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


def _left_out(args: argparse.Namespace, table: InputTable, special: Sequence[str], inputs: Sequence[str]) -> np.ndarray:
    """Return a mask of the rows that the options leave out."""
    names = [*(special if args.drop_missing else []), *(inputs if args.on_missing == "skip" else [])]
    return np.any([np.zeros(table.n_rows, dtype=bool), *(table.missing(name) for name in names)], axis=0)


def _check(
    args: argparse.Namespace, table: InputTable, special: Sequence[str], inputs: Sequence[str], classes: bool
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


def _wrong_input(args: argparse.Namespace, table: InputTable, name: str) -> list[str]:
    """Return what keeps a column from being an input, if anything."""
    if not table.is_text(name) or name in args.category:
        return table.wrong_values(name)
    if not table.is_mostly_numbers(name):
        return []
    return [f"{problem}, --category {shlex.quote(name)} all for categories" for problem in table.wrong_numbers(name)]


def _negative(table: InputTable, name: str) -> list[str]:
    negative = table.numbers(name) < 0.0
    problem = f"column {name!r}: expected weights of at least 0, got a negative one in "
    return [problem + place(negative)] if negative.any() else []


# Largest number of different texts that are taken for classes without being told.
_MOST_CLASSES = 50


def is_classification(args: argparse.Namespace, table: InputTable) -> bool:
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


def wrong_targets(args: argparse.Namespace, table: InputTable, classes: bool) -> list[str]:
    """Return what keeps the target columns from being used, beside missing values."""
    dates = [name for name in args.target if table.is_text(name) and not table.wrong_dates(name)]
    if dates:
        return [f"column {name!r} holds dates; a target must be a number or a class" for name in dates]
    return [
        problem
        for name in args.target
        for problem in (_wrong_classes(args, table, name) if classes else table.wrong_numbers(name))
    ]


def _wrong_classes(args: argparse.Namespace, table: InputTable, name: str) -> list[str]:
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


def labels_of(table: InputTable, name: str) -> np.ndarray:
    """Return the labels of a column without missing values: text, booleans, integers if all are whole, or floats."""
    values = table.columns[name]
    if values.dtype == object:
        return values.astype(str)
    if name in table.booleans:
        return values.astype(bool)
    return values.astype(np.int64) if (values == np.round(values)).all() and np.abs(values).max() < 2**53 else values


def known_targets(table: InputTable, targets: Sequence[str]) -> np.ndarray:
    """Return the targets' values (n, k), NaN where the table has none."""
    y = np.full((table.n_rows, len(targets)), np.nan)
    for k, name in enumerate(targets):
        if name not in table.columns:
            continue
        if table.wrong_numbers(name):
            warn_user(f"column {name!r} does not hold numbers: no scores")
        else:
            y[:, k] = table.numbers(name)
    return y


@dataclass(frozen=True, eq=False)
class Inputs:
    """A model's inputs in a table, and masks (n_rows, n_columns) of missing values and of categories that are new."""

    frame: Frame
    missing: np.ndarray
    unseen: np.ndarray

    def require(self, path: Path, on_missing: str, on_unseen: str) -> None:
        """Raise an error that lists missing values and new categories, as far as these are errors."""
        problems = [f"column {name!r}: missing value in {place(rows)}" for name, rows in self._columns(self.missing)]
        if on_missing != "error":
            problems.clear()
        for name, rows in self._columns(self.unseen) if on_unseen == "error" else ():
            problems.append(f"column {name!r}: {self._first(name, rows)!r} did not occur in fitting, in {place(rows)}")
        if problems:
            raise TableError.of(path, problems)

    def skipped(self, on_missing: str, on_unseen: str) -> np.ndarray:
        """Return a mask of the rows to leave without prediction."""
        skipped = np.zeros(len(self.frame), dtype=bool)
        for mask, policy in ((self.missing, on_missing), (self.unseen, on_unseen)):
            skipped |= mask.any(axis=1) & (policy == "skip")
        return skipped

    def notes(self, on_missing: str, on_unseen: str) -> Iterator[str]:
        """Yield what was missing or new, and what became of these rows."""
        for mask, what, policy, else_ in (
            (self.missing, "inputs are missing", on_missing, "replaced by what the other columns suggest"),
            (self.unseen, "categories did not occur in fitting", on_unseen, "predicted from the other columns"),
        ):
            if mask.any():
                columns = ", ".join(f"{name} {rows.sum()}" for name, rows in self._columns(mask))
                became = "predictions left empty" if policy == "skip" else else_
                yield f"{what} in {mask.any(axis=1).sum()} of {len(mask)} rows ({columns}): {became}"

    def _columns(self, mask: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        for name, rows in zip(self.frame.columns, mask.T, strict=True):
            if rows.any():
                yield name, rows

    def _first(self, name: str, rows: np.ndarray) -> Any:
        return self.frame[name].tolist()[int(np.argmax(rows))]


def read_inputs(args: argparse.Namespace, path: Path, model: Any) -> tuple[InputTable, Inputs]:
    """Read a table and the inputs of a model in it; raise an error that says all that is wrong with them."""
    columns = model.columns_
    own = dict(zip(columns.names, columns.categories, strict=True))
    unused, numbers = {name for name, found in own.items() if found == ()}, {columns.names[j] for j in columns.numbers}
    dates = {columns.names[calendar.column] for calendar in columns.calendars}
    text = own.keys() - numbers - {name for name, found in own.items() if found and all(map(_is_number, found))}
    table = read_data(args, path, text, table_metadata(model).get("missing_values", []))
    table.require(name for name in own if name not in unused)
    problems_of = {**dict.fromkeys(numbers, table.wrong_numbers), **dict.fromkeys(dates, table.wrong_dates)}
    wrong = [problems_of.get(name, table.wrong_values)(name) for name in own if name not in unused]
    if problems := [problem for found in wrong for problem in found]:
        raise TableError.of(path, problems)
    nothing = np.full(table.n_rows, None)
    frame = Frame(
        {n: nothing if n in unused else table.numbers(n) if n in numbers else table.columns[n] for n in own},
        (table.n_rows, len(own)),
    )
    # Categories may have been missing in fitting too; rare ones share a column with new ones.
    missing_is_known = np.array([found is not None and (None in found or found == ()) for found in own.values()])
    pooled = np.isin(np.arange(len(own)), columns.pooled)
    return table, Inputs(frame, columns.missing(frame) & ~missing_is_known, columns.unseen(frame) & ~pooled)


def _is_number(category: str | None) -> bool:
    """Whether numbers are known by this category, however they are written."""
    try:
        return category is None or key_of(float(category)) == category
    except ValueError:
        return False
