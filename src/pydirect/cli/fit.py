"""`pydirect fit`: a table, or with --stream Parquet files of any size, in, a model file and a picture out."""

from __future__ import annotations

import argparse
import ast
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import pydirect
from pydirect._validation import as_count
from pydirect._warnings import ignored
from pydirect.cli.main import ARGUMENTS, LEVEL, MODELS
from pydirect.cli.predict import (
    Columns,
    absent,
    arguments_of,
    columns_of,
    parameters_of,
    predicted,
    scores_of,
    scores_text,
)
from pydirect.cli.tables import TableFile, read_table
from pydirect.estimators._estimator import OBJECTS
from pydirect.persistence.container import atomic_open
from pydirect.streams.parquet import ParquetSource
from pydirect.tables.buffer import Codebook, LabelCodes
from pydirect.tables.columns import TableWarning
from pydirect.tables.dates import Dates
from pydirect.tables.table import Table, reads_as_number

_MOST_CLASSES = 50  # different texts that are taken for classes without being told
_WORDS = {"true": True, "false": False, "none": None}


class FitRows(NamedTuple):
    """Rows to fit to: X, targets (n_rows,) or (n_rows, n_outputs), and further arguments of the fit, (n_rows,)."""

    X: Table
    y: NDArray[Any]
    given: Columns

    def part(self, chosen: NDArray[Any]) -> FitRows:
        """Return some of the rows."""
        return FitRows(self.X.rows(chosen), self.y[chosen], {name: own[chosen] for name, own in self.given.items()})


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    as_count(args.seed, "--seed", 0)
    arguments = {name: column for option, name in ARGUMENTS.items() if (column := getattr(args, option)) is not None}
    named = [*args.target, *args.drop, *args.category, *columns_of(arguments)]
    if twice := [name for name in dict.fromkeys(named) if named.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} is named twice among the options")
    if args.stream or args.checkpoint is not None:
        model, n_rows = _fit_stream(args, arguments)
        held_out: dict[str, Any] = {}
    else:
        file = read_table(args.data, args.missing_value, args.decimal)
        file.require(named)
        model = new_model(args, arguments, _holds_classes(args, file))
        rows = _read(args, file, arguments, hasattr(model, "predict_proba"))
        n_rows, fraction = len(rows.y), 0.1 if args.test_fraction is None else args.test_fraction
        held_out = _held_out(args, rows, model, fraction) if fraction else {}
        _fit(model, rows)
    arguments.pop("sample_weight", None)  # of the fit alone
    stored = {"targets": args.target, "arguments": arguments, "missing_values": args.missing_value}
    model.set_params(verbose=0)
    model.save(args.output, metadata={"command_line": stored | {"n_rows": n_rows, "held_out": held_out}})
    if not args.quiet:
        print(*(f"Held out, {line}" for line in scores_text(held_out)), summary_of(model), sep="\n")
        print(f"Written {args.output}, {args.output.stat().st_size} bytes, fitted to all {n_rows} rows.")


def summary_of(model: Any) -> str:
    """Return what a model has found, in words."""
    if hasattr(model, "summary"):
        return str(model.summary())
    return f"{model!r}: ELBO {model.elbo_:.2f} nats, {model.n_iter_} iterations."


# --- the model that the options describe


def new_model(args: argparse.Namespace, arguments: dict[str, Any], classes: bool) -> Any:
    """Return the unfitted estimator that the options describe."""
    name = MODELS[args.model][classes]
    if name is None:
        raise ValueError(f"--model {args.model}: its target must be {'a number' if classes else 'a class'}")
    if classes and len(args.target) > 1:
        raise ValueError("only one --target can hold classes")
    model = getattr(pydirect, name)(random_state=args.seed, verbose=0 if args.quiet else 1)
    for option, own in ARGUMENTS.items():
        parameter = parameters_of(model.fit).get(own)
        if own in arguments and parameter is None:
            raise ValueError(f"--{option}: not for --model {args.model}")
        if own not in arguments and parameter is not None and parameter.default is parameter.empty:
            raise ValueError(f"--{option}: needed for --model {args.model}")
        if option == "event" and parameter is not None and own not in arguments and not args.quiet:
            print("Without --event, the event is taken to have been seen at every time.", file=sys.stderr)
    for setting in args.set:
        key, _, value = setting.partition("=")
        model.set_params(**{key.strip(): _value(value.strip())})
    return model


def _value(text: str) -> Any:
    """Return the value that a setting says: as in Python, an object such as Polynomial(degree=3), or else text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        fields = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    except (ValueError, SyntaxError):
        return text
    kind = getattr(node.func, "id", "")
    if kind not in OBJECTS or node.args:
        raise ValueError(f"--set: expected an object such as Polynomial(degree=3), got {text}")
    return OBJECTS[kind](**fields)


# --- rows of a table


def _holds_classes(args: argparse.Namespace, file: TableFile) -> bool:
    """Whether the targets are classes."""
    if args.task is not None or None in MODELS[args.model]:
        return args.task == "classification" or MODELS[args.model][0] is None
    found = []
    for name in args.target:
        values = {label for label in file.labels(name) if label is not None}
        numeric = sum(not isinstance(value, str | bool) or reads_as_number(str(value)) for value in values)
        # What is wrong with others as numbers is said later.
        found.append(2 * numeric < len(values) <= _MOST_CLASSES and not isinstance(file.column(name), Dates))
        if numeric == len(values) == 2 and not args.quiet:
            hint = "--task classification fits probabilities"
            print(f"Column {name!r} holds only {' and '.join(map(str, sorted(values)))}: {hint}", file=sys.stderr)
    return any(found)


def _read(args: argparse.Namespace, file: TableFile, arguments: dict[str, Any], classes: bool) -> FitRows:
    """Return the rows to fit to; raise where targets or arguments are missing and may not be."""
    needed = [*args.target, *columns_of(arguments)]
    special = {*needed, *args.drop}
    inputs = [name for name in file.names if name not in special]
    if not inputs:
        raise ValueError("no columns are left to predict from")
    X, (given, lacks) = file.table(inputs, args.category), arguments_of(file, arguments)
    columns = [file.labels(name) if classes else file.numbers(name).tolist() for name in args.target]
    lacks = np.any([lacks, *map(absent, columns)], axis=0)
    if lacks.any() and not args.drop_missing:
        what = f"{' or '.join(map(repr, needed))}, first data row {np.argmax(lacks) + 1}"
        raise ValueError(f"{args.data}: {lacks.sum()} rows lack {what}; --drop-missing leaves them out")
    kept = np.flatnonzero(~lacks)
    y = np.column_stack([np.array([own[row] for row in kept]) for own in columns])
    y = y[:, 0] if len(columns) == 1 else y
    return FitRows(X.rows(kept), y, {name: own[kept] for name, own in given.items()})


def _fit(model: Any, rows: FitRows) -> None:
    model.fit(rows.X, rows.y, **rows.given)
    if model.interrupted_:
        raise KeyboardInterrupt  # the model would be usable in Python, but is not what the command was asked for


def _held_out(args: argparse.Namespace, rows: FitRows, model: Any, fraction: float) -> dict[str, Any]:
    """Return scores of a random part of the rows, by a fit to the others, and draw their predictions."""
    n = len(rows.y)
    n_test = max(1, round(fraction * n))
    if n_test >= n:
        raise ValueError(f"{args.data}: expected rows beside those held out, got {n} in all, {n_test} held out")
    order = np.random.default_rng(args.seed).permutation(n)
    train, test = rows.part(order[n_test:]), rows.part(order[:n_test])
    if not args.quiet:
        print(f"Fitting to {n - n_test} rows, {n_test} held out", file=sys.stderr)
    _fit(model, train)
    y = [test.y] if test.y.ndim == 1 else list(test.y.T)
    with ignored(TableWarning):  # of numbers that only rows held out lack
        outputs = predicted(model, test.X, test.given, LEVEL, y)
    if args.plot is not None:
        _draw(args, model, test, y, outputs)
    return scores_of(model, dict(zip(args.target, y, strict=True)), outputs, test.given, LEVEL)


def _draw(args: argparse.Namespace, model: Any, test: FitRows, y: list[NDArray[Any]], outputs: list[Columns]) -> None:
    """Draw held-out predictions: their intervals, or how often predicted classes are right."""
    from matplotlib.figure import Figure

    from pydirect.plotting import PredictionIntervalDisplay, ReliabilityDisplay

    figure = Figure(figsize=(6.4, 4.6 * len(y)), layout="constrained")
    for ax, name, own, columns in zip(np.ravel(figure.subplots(len(y))), args.target, y, outputs, strict=True):
        if "lower" in columns:
            ends = (columns["prediction"], columns["lower"], columns["upper"])
            PredictionIntervalDisplay(own, *ends, level=LEVEL).plot(ax=ax, target_name=name)
        else:
            ReliabilityDisplay.from_estimator(model, test.X, own, ax=ax, name=name)
    with atomic_open(args.plot) as file:
        figure.savefig(file, format=args.plot.suffix[1:].lower())


# --- streams


def _fit_stream(args: argparse.Namespace, arguments: dict[str, Any]) -> tuple[Any, int]:
    """Fit to Parquet files in blocks of rows; return the model and the number of rows."""
    for option in ("test_fraction", "plot", "decimal", "missing_value"):
        if getattr(args, option):
            raise ValueError(f"--{option.replace('_', '-')}: not with --stream")
    if not args.stream:
        raise ValueError("--checkpoint: only with --stream")
    classes = args.task == "classification"
    model = new_model(args, arguments, classes)
    if not hasattr(model, "fit_stream") or arguments.keys() - {"sample_weight"}:
        raise ValueError(f"--stream: not for --model {args.model}")
    if classes and args.checkpoint is not None:
        raise ValueError("--checkpoint: not with classes")
    if args.category:
        model.set_params(columns=(model.columns or pydirect.Columns()).set_params(categories=args.category))
    source = ParquetSource(
        args.data,
        tuple(args.target),
        args.weight,
        args.drop,
        one_dimensional=len(args.target) == 1,
        labels=LabelCodes() if classes else None,
        codes=Codebook(gaps=getattr(model.columns, "missing", "") != "raise"),
    )
    checkpoint = {} if args.checkpoint is None else {"checkpoint": args.checkpoint}
    model.fit_stream(source, drop_missing=args.drop_missing, **checkpoint)
    return model, source.n_rows
