"""Tables of the command line: columns of numbers, booleans and text, what is wrong with them, and what models take.

A column of a CSV file is numeric if each of its fields is a number or missing, boolean (stored as 0 and 1) if all of
them are "true" or "false", and text otherwise. A Parquet file declares the types of its columns.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from lzma import LZMAError
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import CommandError, TableError, check_names, listed, warn_user
from pydirect.cli.csv_files import CsvFile, field_numbers, interpreted, is_number, read_columns
from pydirect.streams.rows import PANDAS_INDEX
from pydirect.tables.dates import is_date
from pydirect.tables.table import Table, column_of_array, key_of

# Texts are not taken for categories if most are numbers, and more different ones than this.
_FEW_NUMBERS = 10
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
_FOREIGN = {b"PK\x03\x04": "a ZIP archive or Excel workbook", b"\xd0\xcf\x11\xe0": "an Excel workbook"}


@dataclass(frozen=True, eq=False)
class InputTable:
    """Named columns of equal length, in the order of the file: float64, or text as objects with None if missing.

    `unusable` columns hold anything else, `booleans` are those of numbers that were read as true and false.
    """

    columns: dict[str, np.ndarray]
    unusable: dict[str, str]
    n_rows: int
    booleans: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of all columns, unusable ones last."""
        return [*self.columns, *self.unusable]

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        return name in self.columns and self.columns[name].dtype == object

    def is_mostly_numbers(self, name: str) -> bool:
        """Whether a column of text is one of numbers with slips: most rows hold numbers, more than a few different."""
        texts = [text for text in self.columns[name].tolist() if text is not None]
        numbers = [text for text in texts if is_number(text)] if self.is_text(name) else []
        return 2 * len(numbers) > len(texts) and len(set(numbers)) > _FEW_NUMBERS

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of a column's missing values."""
        values = self.columns[name]
        return np.array([value is None for value in values]) if values.dtype == object else np.isnan(values)

    def numbers(self, name: str) -> np.ndarray:
        """Return a column in which `wrong_numbers` finds nothing as numbers, NaN where missing."""
        values = self.columns[name]
        if values.dtype != object:
            return values
        numbers = field_numbers(["" if text is None else text for text in values.tolist()])
        assert numbers is not None
        return numbers

    def make_text(self, name: str) -> None:
        """Turn numbers into the texts by which they are known as categories."""
        if name in self.columns and not self.is_text(name):
            values = self.columns[name].tolist()
            self.columns[name] = np.array([None if v != v else key_of(v) for v in values], dtype=object)

    def inputs(self, names: Iterable[str]) -> Table:
        """Return some columns as models take them."""
        chosen = list(names)
        return Table([column_of_array(self.columns[name], f"column {name!r}") for name in chosen], chosen)

    def rows(self, chosen: np.ndarray) -> InputTable:
        """Return some of the rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        n_rows = int(chosen.sum()) if chosen.dtype == bool else len(chosen)
        return InputTable(columns, self.unusable, n_rows, self.booleans, self.notes)

    # --- what is wrong

    def require(self, names: Iterable[str]) -> None:
        """Raise TableError unless the columns exist; all absent ones are named."""
        present = set(self.names)
        absent = [name for name in names if name not in present]
        if absent:
            word = "column" if len(absent) == 1 else "columns"
            raise TableError(f"no {word} {listed(absent)} in the data (it has {listed(self.names)})")

    def wrong_values(self, name: str) -> list[str]:
        """Return what keeps a column from being used, if anything; missing values do not."""
        if name in self.unusable:
            return [f"column {name!r} holds {self.unusable[name]}"]
        values = self.columns[name]
        if values.dtype == object:
            return []
        return self._wrong(name, np.isinf(values), "expected finite numbers")

    def wrong_numbers(self, name: str) -> list[str]:
        """Return what keeps a column from being used as numbers, if anything; missing values do not."""
        if not self.is_text(name):
            return self.wrong_values(name)
        wrong = np.array([text is not None and not is_number(text) for text in self.columns[name].tolist()])
        hint = (
            f"; --missing-value {shlex.quote(self.columns[name][np.argmax(wrong)] or '')} takes it for a missing value"
        )
        return [problem + hint for problem in self._wrong(name, wrong, "expected numbers")]

    def wrong_dates(self, name: str) -> list[str]:
        """Return what keeps a column from being used as dates, if anything; missing values do not."""
        values = self.columns.get(name, np.empty(0)).tolist()
        wrong = np.array([v is not None and v == v and not (isinstance(v, str) and is_date(v)) for v in values])
        return self._wrong(name, wrong, "expected dates such as 2024-01-31") if values else self.wrong_values(name)

    def missing_values(self, name: str) -> list[str]:
        """Return where a column lacks values, if anywhere."""
        missing = self.missing(name)
        return [f"column {name!r}: missing value in {place(missing)}"] if missing.any() else []

    def _wrong(self, name: str, wrong: np.ndarray, expected: str) -> list[str]:
        if not wrong.any():
            return []
        value = self.columns[name].tolist()[int(np.argmax(wrong))]
        return [f"column {name!r}: {expected}, got {value!r} in {place(wrong)}"]


def place(mask: np.ndarray) -> str:
    """Return the first row of a mask in words, and the number of such rows if there are more."""
    row, count = int(np.argmax(mask)) + 1, int(mask.sum())
    return f"data row {row}" + (f" ({count} such rows)" if count > 1 else "")


# --- files


def read_data(
    args: argparse.Namespace, path: Path, text_columns: Collection[str] = (), missing: Collection[str] = ()
) -> InputTable:
    """Read a table as the options say, with `missing` as further missing values, and print notes about it."""
    table = read_table(path, text_columns, {*args.missing_value, *missing}, args.decimal)
    for note in [] if getattr(args, "quiet", False) else table.notes:
        print(f"{path.name}: {note}", file=sys.stderr)
    return table


def read_table(
    path: str | os.PathLike[str],
    text_columns: Collection[str] = (),
    missing: Collection[str] = (),
    decimal: str | None = None,
) -> InputTable:
    """Read a CSV or Parquet file."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        content = _decompressed(file.read(), name)
    if content.startswith(b"PAR1") or name.endswith(".parquet"):
        return read_parquet(content, name)
    return _read_csv(CsvFile(content, name), text_columns, missing, decimal)


def _decompressed(content: bytes, path: str) -> bytes:
    """Return a file's content, uncompressed if it begins like a compressed file."""
    for start, module in _COMPRESSED.items():
        if content.startswith(start):
            try:
                return bytes(importlib.import_module(module).decompress(content))
            except (OSError, EOFError, ValueError, zlib.error, LZMAError) as error:
                raise TableError(f"{path}: the compressed file is damaged: {error}") from None
    for start, kind in _FOREIGN.items():
        if content.startswith(start):
            raise TableError(f"{path}: expected a CSV or Parquet file, got {kind}")
    return content


def _table(columns: Iterable[tuple[str, np.ndarray | str]], n_rows: int, notes: list[str]) -> InputTable:
    """Return a table of columns of numbers, booleans or texts, None where missing, and of unusable ones in words."""
    table = InputTable({}, {}, n_rows, notes=notes)
    for name, values in columns:
        if isinstance(values, str):
            table.unusable[name] = values
            continue
        if values.dtype == object and isinstance(next((value for value in values if value is not None), None), bool):
            table.booleans.add(name)
            values = values.astype(np.float64)  # None becomes NaN
        table.columns[name] = values
    return table


def _read_csv(
    file: CsvFile, text_columns: Collection[str], missing: Collection[str], decimal: str | None
) -> InputTable:
    names = file.header()
    columns, n_rows, notes = read_columns(file, names, text_columns, missing, decimal)
    if unnamed := [str(i + 1) for i, name in enumerate(names) if not name]:
        notes.insert(0, f"without a name, left out: column {', '.join(unnamed)}")
    return _table([pair for pair in zip(names, columns, strict=True) if pair[0]], n_rows, notes)


def read_parquet(content: bytes, path: str) -> InputTable:
    """Return the table in the bytes of a Parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Reading Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    try:
        data = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{path}: not a readable Parquet file: {error}") from None
    kept = [i for i, name in enumerate(data.column_names) if not PANDAS_INDEX.fullmatch(name)]
    check_names([data.column_names[i] for i in kept], path)
    if not kept or data.num_rows == 0:
        raise TableError(f"{path}: the file has no {'rows' if kept else 'columns'}")
    return _table([(data.column_names[i], _values_of(data.column(i))) for i in kept], data.num_rows, [])


def _values_of(values: Any) -> np.ndarray | str:
    from pyarrow import float64, types

    kind = values.type
    if types.is_dictionary(kind):
        return _values_of(values.cast(kind.value_type))
    if str(kind) in {"string", "large_string", "string_view"}:
        return interpreted(np.array(values.to_pylist(), dtype=object))
    if types.is_boolean(kind) and values.null_count < len(values):
        return np.array(values.to_pylist(), dtype=object)
    if any(is_kind(kind) for is_kind in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)):
        # Integers beyond 2**53 lose their last digits, like any number in a float64 column.
        return np.array(values.cast(float64(), safe=False).to_numpy(), dtype=np.float64)
    if types.is_null(kind):
        return np.full(len(values), np.nan)
    if types.is_timestamp(kind) or types.is_date(kind):
        zone = f"[{kind.tz}]" if getattr(kind, "tz", None) else ""  # behind each time, as in RFC 9557
        return np.array([v if v is None else v.isoformat() + zone for v in values.to_pylist()], dtype=object)
    return f"values of type {kind}"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training data: X (n, p), y (n, k) or class labels (n,), weights (n,) or None, and the number of rows left out."""

    X: Table
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
    return TrainingData(table.inputs(inputs), y, weights, int(left_out.sum()))


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

    table: InputTable
    X: Table
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
        skipped = np.zeros(len(self.X), dtype=bool)
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
        for name, rows in zip(self.X.names or (), mask.T, strict=True):
            if rows.any():
                yield name, rows

    def _first(self, name: str, rows: np.ndarray) -> Any:
        return self.table.columns[name].tolist()[int(np.argmax(rows))]


def read_inputs(
    args: argparse.Namespace, path: Path, model: Any, missing: Collection[str]
) -> tuple[InputTable, Inputs]:
    """Read a table and the inputs of a model in it; raise an error that says all that is wrong with them.

    `missing`: texts that stood for missing values in fitting.
    """
    columns = model.columns_
    own = dict(zip(columns.names, columns.categories, strict=True))
    unused, numbers = {name for name, found in own.items() if found == ()}, {columns.names[j] for j in columns.numbers}
    dates = {columns.names[calendar.column] for calendar in columns.calendars}
    text = own.keys() - numbers - {name for name, found in own.items() if found and all(map(_is_number, found))}
    table = read_data(args, path, text, missing)
    table.require(name for name in own if name not in unused)
    problems_of = {**dict.fromkeys(numbers, table.wrong_numbers), **dict.fromkeys(dates, table.wrong_dates)}
    wrong = [problems_of.get(name, table.wrong_values)(name) for name in own if name not in unused]
    if problems := [problem for found in wrong for problem in found]:
        raise TableError.of(path, problems)
    nothing = np.full(table.n_rows, None)
    used = {n: nothing if n in unused else table.numbers(n) if n in numbers else table.columns[n] for n in own}
    X = replace(table, columns=used).inputs(own)
    # Categories may have been missing in fitting too; rare ones share a column with new ones.
    missing_is_known = np.array([found is not None and (None in found or found == ()) for found in own.values()])
    pooled = np.isin(np.arange(len(own)), columns.pooled)
    return table, Inputs(table, X, columns.missing(X) & ~missing_is_known, columns.unseen(X) & ~pooled)


def _is_number(category: str | None) -> bool:
    """Whether numbers are known by this category, however they are written."""
    try:
        return category is None or key_of(float(category)) == category
    except ValueError:
        return False
