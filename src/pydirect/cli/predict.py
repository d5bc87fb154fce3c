"""`pydirect predict`: a table and a model file in, predictions out; and the scores of predictions."""

from __future__ import annotations

import argparse
import contextlib
import csv
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

import pydirect
from pydirect._validation import FloatArray
from pydirect._warnings import ignored
from pydirect.cli.tables import TableFile, arrow, missing_rows, read_table
from pydirect.metrics import concordance_index, coverage, expected_calibration_error
from pydirect.persistence.container import atomic_open
from pydirect.tables.columns import TableWarning
from pydirect.tables.table import Table

_ROWS_PER_BLOCK = 8192
_SUFFIXES = ("", ".csv", ".txt", ".parquet")
Columns = dict[str, NDArray[Any]]


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.output is not None and args.output.suffix not in _SUFFIXES:
        raise ValueError(f"{args.output}: predictions are written as CSV or .parquet, not {args.output.suffix}")
    model, stored = load(args.model)
    file, X = read_inputs(args, model, stored)
    needed = stored["arguments"].keys() & parameters_of(model.predict).keys()
    columns = {name: stored["arguments"].pop(name) for name in needed}
    given, lacks = arguments_of(file, columns)
    unknown = unknown_rows(model, X)
    used = ~(lacks | (missing_rows(X) if model.columns_.gaps is None else lacks) | (unknown & args.skip_unknown))
    if not used.any():
        raise ValueError(f"{args.data}: no row has what the model needs to predict it")
    targets, y = stored["targets"], []
    if {*targets, *columns_of(stored["arguments"])} <= {*file.names}:  # the others are needed to score
        more, incomplete = arguments_of(file, stored["arguments"])
        given, y = given | more, [known_targets(model, file, name, ~incomplete)[used] for name in targets]
    given = {name: values[used] for name, values in given.items()}
    with ignored(TableWarning):  # what is missing is said below
        outputs = predicted(model, X.rows(used), given, args.interval, y)
    targets = targets if len(targets) == len(outputs) else [f"output{k}" for k in range(len(outputs))]
    written = {
        f"{name}_{column}" if len(outputs) > 1 else column: _with_gaps(values, used)
        for name, output in zip(targets, outputs, strict=True)
        for column, values in output.items()
        if column != "log_density"
    }
    _write(written, args.output)
    if args.quiet:
        return
    for rows, what, empty in (
        (unknown, "lack inputs or have new categories", args.skip_unknown),
        (lacks, f"lack {' or '.join(columns_of(columns))}", True),
    ):
        if rows.any():
            became = "predictions left empty" if empty else "predicted from their other columns"
            first = int(np.argmax(rows)) + 1
            print(f"{rows.sum()} of {len(rows)} rows {what}, first data row {first}: {became}", file=sys.stderr)
    scores = scores_of(model, dict(zip(targets, y, strict=False)), outputs, given, args.interval)
    print(*scores_text(scores), sep="\n", end="\n" if scores else "", file=sys.stderr)


# --- models


def load(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return a model that knows the names of its columns, and what `fit` has stored beside it."""
    model = pydirect.load(path)
    if model.columns_.names is None:
        raise ValueError(f"{path}: the model does not know the names of its columns: fit it to a data frame")
    return model, stored_by_fit(model)


def stored_by_fit(model: Any) -> dict[str, Any]:
    """Return names of targets, columns of further arguments, marks of missing values and held-out scores."""
    nothing: dict[str, Any] = {"targets": [], "arguments": {}, "missing_values": [], "held_out": {}}
    stored = model.metadata_.get("command_line")
    return nothing | stored if isinstance(stored, dict) else nothing


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return a function's parameters by name."""
    return inspect.signature(function).parameters


# --- inputs


def read_inputs(args: argparse.Namespace, model: Any, stored: dict[str, Any]) -> tuple[TableFile, Table]:
    """Read a table, and the inputs of a model in it."""
    columns = model.columns_
    file = read_table(args.data, {*args.missing_value, *stored["missing_values"]}, args.decimal)
    own = dict(zip(columns.names, columns.categories, strict=True))
    X = file.table(columns.names, {name for name in own if own[name]}, {name for name in own if own[name] == ()})
    return file, X


def columns_of(arguments: dict[str, Any]) -> list[str]:
    """Return the columns of a file that hold arguments of a model: one each, or several of groups."""
    return [name for own in arguments.values() for name in np.ravel(own).tolist()]


def arguments_of(file: TableFile, columns: dict[str, Any]) -> tuple[Columns, NDArray[np.bool_]]:
    """Return arguments of a model by the columns of a file that hold them, and which rows lack any."""
    file.require(columns_of(columns))
    lacks, found = np.zeros(file.n_rows, dtype=bool), {}
    for name, column in columns.items():
        if name == "groups":
            found[name] = np.stack([np.array(file.labels(own), dtype=object) for own in column], axis=1)
        else:
            found[name] = file.numbers(column, "1 and 0, or true and false" if name == "event" else "numbers")
        lacks |= np.any([absent(own) for own in np.atleast_2d(found[name].T)], axis=0)
    return found, lacks


def absent(labels: Iterable[Any]) -> NDArray[np.bool_]:
    """Return which labels or numbers are None or NaN."""
    return np.array([label is None or label != label for label in labels])


def unknown_rows(model: Any, X: Table) -> NDArray[np.bool_]:
    """Return which rows have values that the model has not seen in its fit: missing ones, or new categories."""
    columns = model.columns_
    # Categories may have been missing in the fit too; rare ones share a column with new ones.
    known = np.array([own is not None and (not own or None in own) for own in columns.categories])
    pooled = np.isin(np.arange(columns.n_columns), columns.pooled)
    return np.any((columns.missing(X) & ~known) | (columns.unseen(X) & ~pooled), axis=1)


def known_targets(model: Any, file: TableFile, name: str, complete: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the values of a target in complete rows: numbers or labels; NaN or None where unknown."""
    if hasattr(model, "classes_"):
        return np.where(complete, np.array(file.labels(name), dtype=object), np.array(None))
    try:
        return np.where(complete, file.numbers(name), np.nan)
    except ValueError as error:
        warnings.warn(f"no scores: {error}", stacklevel=2)
        return np.full(file.n_rows, np.nan)


# --- predictions and scores


def predicted(model: Any, X: Table, given: Columns, level: float, y: Sequence[NDArray[Any]] = ()) -> list[Columns]:
    """Return for every target columns of predictions, and ``"log_density"`` of known targets, NaN for others.

    - `given`: Arguments of the model's methods, such as exposure.
    - `y`: Targets, an array for each; without them there are no densities.
    """
    parts = []
    for begin in range(0, len(X), _ROWS_PER_BLOCK):
        rows = slice(begin, begin + _ROWS_PER_BLOCK)
        own = {name: values[rows] for name, values in given.items()}
        parts.append(_block(model, X.rows(rows), own, level, [target[rows] for target in y]))
    return [
        {name: np.concatenate([part[name] for part in output]) for name in output[0]}
        for output in zip(*parts, strict=True)
    ]


def _block(model: Any, X: Table, given: Columns, level: float, y: Sequence[NDArray[Any]]) -> list[Columns]:
    """Return the columns of a block of rows: of classes, of distributions, or of intervals alone."""
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(X)
        columns = {f"probability_{label}": p[:, k] for k, label in enumerate(model.classes_.tolist())}
        return [{"prediction": model.classes_[p.argmax(axis=1)], **columns}]
    if hasattr(model, "predict_distribution"):
        found = _ask(model.predict_distribution, given, X)
        outputs = found if isinstance(found, list) else [found]
        return [_of_distribution(own, level, y[k] if y else None) for k, own in enumerate(outputs)]
    lower, upper = _ask(model.predict_interval, given, X, level=level)
    found = _ask(model.predict, given | {"return_std": True}, X)
    mean, *std = found if isinstance(found, tuple) else (found,)
    columns = {"prediction": mean, **({"std": std[0]} if std else {}), "lower": lower, "upper": upper}
    if y and hasattr(model, "log_predictive_density"):
        known, density = np.isfinite(y[0]), np.full(len(X), np.nan)
        own = {name: values[known] for name, values in given.items()}
        density[known] = _ask(model.log_predictive_density, own, X.rows(known), y[0][known])
        columns["log_density"] = density
    return [columns]


def _ask(method: Callable[..., Any], given: dict[str, Any], *arguments: Any, **options: Any) -> Any:
    """Call a method with those of the given arguments that it takes."""
    taken = parameters_of(method)
    return method(*arguments, **options, **{name: values for name, values in given.items() if name in taken})


def _of_distribution(distribution: Any, level: float, y: FloatArray | None) -> Columns:
    lower, upper = distribution.interval(level)
    columns = {"prediction": distribution.mean, "std": distribution.std, "lower": lower, "upper": upper}
    if y is not None:
        density = getattr(distribution, "log_density", None) or distribution.log_probability
        known = np.isfinite(y)
        columns["log_density"] = np.where(known, density(np.where(known, y, lower)), np.nan)
    return columns


def scores_of(
    model: Any, y: dict[str, NDArray[Any]], outputs: Sequence[Columns], given: Columns, level: float
) -> dict[str, dict[str, float]]:
    """Score the rows whose targets `y` are known: for each target with such rows, scores by name."""
    score = _class_scores if hasattr(model, "predict_proba") else _number_scores
    found = {name: score(model, y[name], own, given, level) for name, own in zip(y, outputs, strict=False)}
    return {name: own for name, own in found.items() if own}


def _class_scores(model: Any, y: NDArray[Any], columns: Columns, given: Columns, level: float) -> dict[str, float]:
    number = {str(label): k for k, label in enumerate(model.classes_.tolist())}
    index = np.array([number.get(str(label), -1) for label in y])
    known = index >= 0
    p, index = np.column_stack([*columns.values()][1:])[known].astype(np.float64), index[known]
    if not known.any():
        return {}
    right, least = p.argmax(axis=1) == index, np.finfo(np.float64).tiny
    return {
        "rows": len(p),
        "accuracy": float(right.mean()),
        "log loss": float(-np.log(np.maximum(p[np.arange(len(p)), index], least)).mean()),
        "calibration error": expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0)),
    }


def _number_scores(model: Any, y: NDArray[Any], columns: Columns, given: Columns, level: float) -> dict[str, float]:
    known = np.isfinite(y)
    if not known.any():
        return {}
    own = {name: values[known] for name, values in columns.items()}
    found: dict[str, float] = {"rows": int(known.sum())}
    if "event" in given:
        with contextlib.suppress(ValueError):  # where events do not tell the order of any rows
            found["concordance"] = concordance_index(y[known], given["event"][known], own["prediction"])
    else:
        found["RMSE"] = float(np.sqrt(np.mean((y[known] - own["prediction"]) ** 2)))
        found[f"coverage of {100 * level:g}% intervals"] = coverage(y[known], own["lower"], own["upper"])
    if "log_density" in own:
        found["NLPD"] = -float(own["log_density"].mean())
    return found


def scores_text(scores: dict[str, Any]) -> Iterator[str]:
    """Yield a line of text for every target's scores."""
    for target, own in scores.items():
        values = ", ".join(f"{name} {value:.6g}" for name, value in own.items() if name != "rows")
        yield f"{target}: {values}, of {own['rows']} rows"


# --- files


def _with_gaps(values: NDArray[Any], used: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the values in the rows that are used, NaN among numbers and None among labels in the others."""
    if used.all():
        return values
    gaps = np.full(len(used), np.nan) if values.dtype.kind == "f" else np.full(len(used), None)
    gaps[used] = values
    return gaps


def _write(columns: Columns, path: Path | None) -> None:
    if path in (None, Path("-")):
        _write_csv(columns, sys.stdout)
    elif path.suffix != ".parquet":
        with atomic_open(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            _write_csv(columns, text)
            text.detach()
    else:
        pyarrow = arrow()
        with atomic_open(path) as file:
            gaps_as_nulls = {name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()}
            pyarrow.parquet.write_table(pyarrow.table(gaps_as_nulls), file)


def _write_csv(columns: Columns, file: TextIO) -> None:
    """Write CSV, with enough digits to read the same numbers back: csv writes floats by their repr."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*(values.tolist() for values in columns.values()), strict=True):
        writer.writerow(["" if value != value else value for value in row])
