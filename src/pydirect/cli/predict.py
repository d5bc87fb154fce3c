"""`pydirect predict`: a table and a model file in, predictions out."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pydirect._warnings import ignored
from pydirect.cli.common import CommandError, check_output
from pydirect.cli.info import (
    Prediction,
    as_classified,
    class_scores,
    load_for_tables,
    predictions_of,
    scores_of,
    scores_text,
)
from pydirect.cli.tables import InputTable, known_targets, read_inputs
from pydirect.tables.columns import TableWarning
from pydirect.tables.table import Table

_ROWS_PER_BLOCK = 10_000


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.output is not None:
        check_output(args.output, args.data, args.model)
    model, targets, missing = load_for_tables(args.model)
    table, inputs = read_inputs(args, args.data, model, missing)
    inputs.require(args.data, args.on_missing, args.on_unseen)
    used = ~inputs.skipped(args.on_missing, args.on_unseen)
    if not used.any():
        raise CommandError(f"{args.data}: every row lacks inputs, or has categories that did not occur in fitting")
    predict = _predicted_classes if hasattr(model, "predict_proba") else _predicted_numbers
    with ignored(TableWarning):  # the notes below say what is missing
        columns, scores = predict(args, model, inputs.X.rows(used), table.rows(used), targets)
    _write_columns({name: _with_gaps(values, used) for name, values in columns.items()}, args.output)
    for line in () if args.quiet else (*inputs.notes(args.on_missing, args.on_unseen), *scores):
        print(line, file=sys.stderr)
    return 0


def _predicted_numbers(
    args: argparse.Namespace, model: Any, X: Table, table: InputTable, targets: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the columns to write and the lines of scores."""
    predictions = predictions_of(model, X, args.interval, known_targets(table, targets))
    scores = [
        f"{name}: {scores_text(scores_of(name, prediction, args.interval))}"
        for name, prediction in zip(targets, predictions, strict=True)
        if not np.isnan(prediction.log_density).all()
    ]
    return _output_columns(predictions, targets, args.std), scores


def _predicted_classes(
    args: argparse.Namespace, model: Any, X: Table, table: InputTable, targets: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the most probable class and the probability of each class, and the line of scores."""
    (target,) = targets
    labels = np.full(len(X), None, dtype=object)
    if target in table.columns:
        text = model.classes_.dtype.kind == "U"
        labels[:] = [None if v is None or v != v else str(v) if text else v for v in table.columns[target].tolist()]
    found = as_classified(model, X, labels)
    columns = {"prediction": found.classes[found.probability.argmax(axis=1)]}
    columns |= {f"probability_{label}": found.probability[:, k] for k, label in enumerate(found.classes.tolist())}
    if args.std:
        logits = np.reshape(model.predict_logit(X, return_std=True)[1], (len(X), -1))
        names = found.classes[-1:] if logits.shape[1] == 1 else found.classes
        columns |= {f"logit_std_{label}": logits[:, k] for k, label in enumerate(names.tolist())}
    scores = [f"{target}: {scores_text(class_scores(target, found))}"] if (found.index() >= 0).any() else []
    return columns, scores


def _with_gaps(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the values in the rows that are used, NaN among numbers and None among labels in the others."""
    if used.all():
        return values
    gaps = np.full(len(used), np.nan) if values.dtype.kind == "f" else np.full(len(used), None)
    gaps[used] = values
    return gaps


def _output_columns(predictions: list[Prediction], targets: Sequence[str], std: bool) -> dict[str, np.ndarray]:
    columns = {}
    for name, prediction in zip(targets, predictions, strict=True):
        prefix = f"{name}_" if len(targets) > 1 else ""
        columns[f"{prefix}prediction"] = prediction.mean
        if std:
            columns[f"{prefix}std"] = prediction.std
        columns[f"{prefix}lower"] = prediction.lower
        columns[f"{prefix}upper"] = prediction.upper
    return columns


def _write_columns(columns: dict[str, np.ndarray], path: Path | None) -> None:
    from pydirect.persistence.container import atomic_open

    if path is None:
        for block in _csv_blocks(columns):
            sys.stdout.write(block)
        sys.stdout.flush()
    elif path.suffix == ".parquet":
        _write_parquet(columns, path)
    elif path.suffix in (".xlsx", ".xls", ".json", ".feather", ".arrow", ".png"):
        raise CommandError(f"{path}: predictions are written as CSV or .parquet, not {path.suffix}")
    else:
        with atomic_open(path) as file:
            file.writelines(block.encode("utf-8") for block in _csv_blocks(columns))


def _csv_blocks(columns: dict[str, np.ndarray]) -> Iterator[str]:
    """Yield CSV text, with enough digits to read the same numbers back."""
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(columns)
    yield header.getvalue()
    arrays = list(columns.values())
    for start in range(0, len(arrays[0]), _ROWS_PER_BLOCK):
        rows = zip(*(array[start : start + _ROWS_PER_BLOCK].tolist() for array in arrays), strict=True)
        block = io.StringIO()  # text may need quotes; csv writes floats by their repr
        csv.writer(block, lineterminator="\n").writerows(["" if v != v else v for v in row] for row in rows)
        yield block.getvalue()


def _write_parquet(columns: dict[str, np.ndarray], path: Path) -> None:
    from pydirect.persistence.container import atomic_open

    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CommandError('Writing Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    with atomic_open(path) as file:
        gaps_as_nulls = {name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()}
        pyarrow.parquet.write_table(pyarrow.table(gaps_as_nulls), file)
