"""`pydirect predict`: a table and a model file in, predictions out."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydirect.cli.common import DEFAULT_LEVEL, CommandError, check_output, level
from pydirect.cli.model_files import load_for_tables
from pydirect.cli.scoring import Prediction, as_classified, class_scores, predictions_of, scores_of, scores_text
from pydirect.cli.targets import known_targets

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.tables import Table

_ROWS_PER_BLOCK = 10_000


def add_predict(commands: Any) -> None:
    """Add the command `predict`."""
    command = commands.add_parser(
        "predict",
        help="predict with a model",
        description="Write predictions for the rows of a table, in their order: columns prediction, lower and upper, "
        "prefixed with the target's name and an underscore if there are several targets; for a classifier prediction "
        "and probability_CLASS for each class. Columns are found by name. If the table has the targets too, scores go "
        "to standard error.",
    )
    command.add_argument("model", type=Path, help="model file")
    command.add_argument("data", type=Path, help="CSV or Parquet file")
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="CSV or .parquet file to write (default: CSV on standard output)",
    )
    command.add_argument(
        "--interval", type=level, default=DEFAULT_LEVEL, metavar="P", help="probability of the interval (default: 0.9)"
    )
    command.add_argument("--std", action="store_true", help="add a column std, the predictive standard deviation")
    command.set_defaults(run=_predict)


def _predict(args: argparse.Namespace) -> int:
    import numpy as np

    from pydirect.cli.table_files import read_table

    if args.output is not None:
        check_output(args.output, args.data, args.model)
    model, encoder, targets = load_for_tables(args.model)
    table = read_table(args.data, text_columns=encoder.text_columns)
    X = encoder.transform(table)
    if hasattr(model, "predict_proba"):
        return _predict_classes(args, model, X, table, targets[0])
    predictions = predictions_of(model, X, args.interval, known_targets(table, targets))
    _write_columns(_output_columns(predictions, targets, args.std), args.output)
    for name, prediction in zip(targets, predictions, strict=True):
        if not np.isnan(prediction.log_density).all():
            print(f"{name}: {scores_text(scores_of(name, prediction, args.interval))}", file=sys.stderr)
    return 0


def _predict_classes(args: argparse.Namespace, model: Any, X: np.ndarray, table: Table, target: str) -> int:
    """Write the most probable class and the probability of each class."""
    import numpy as np

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
    _write_columns(columns, args.output)
    if (found.index() >= 0).any():
        print(f"{target}: {scores_text(class_scores(target, found))}", file=sys.stderr)
    return 0


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
    from pydirect.persistence.atomic import atomic_open

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
        if arrays[0].dtype.kind != "U":
            yield "".join(",".join(map(repr, row)) + "\n" for row in rows)
            continue
        block = io.StringIO()  # text may need quotes; csv writes floats by their repr too
        csv.writer(block, lineterminator="\n").writerows(rows)
        yield block.getvalue()


def _write_parquet(columns: dict[str, np.ndarray], path: Path) -> None:
    from pydirect.persistence.atomic import atomic_open

    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CommandError('Writing Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    with atomic_open(path) as file:
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
