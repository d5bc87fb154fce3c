"""`pydirect fit --stream`: a fit to Parquet files that need not fit into memory."""

from __future__ import annotations

import argparse
from typing import Any

from pydirect.cli.common import CommandError, check_output, print_lines, shortened
from pydirect.cli.fit_model import convergence_warnings_ignored, finish, new_model
from pydirect.cli.fit_summary import REPLACED, column_lines, fit_lines, structure
from pydirect.cli.model_files import new_metadata
from pydirect.cli.targets import check_classification


def check_stream_options(args: argparse.Namespace) -> None:
    """Raise unless the options can be combined with --stream."""
    for option, given in (
        ("--test-fraction", args.test_fraction),
        ("--plot", args.plot is not None),
        (f"--model {args.model}", args.model != "direct"),
        ("--missing-value", bool(args.missing_value)),
        ("--decimal", args.decimal is not None),
    ):
        if given:
            raise CommandError(f"{option}: not with --stream")
    if not args.data.is_dir() and args.data.suffix != ".parquet":
        raise CommandError(f"{args.data}: --stream reads .parquet files and folders of them")
    if args.checkpoint is not None:
        check_output(args.checkpoint, args.data)
        if args.checkpoint.absolute() == args.output.absolute():
            raise CommandError(f"{args.checkpoint}: named for both --output and --checkpoint")


def fit_stream(args: argparse.Namespace) -> int:
    """Fit to Parquet files in blocks of rows."""
    from pydirect.streams.codes import TableCodes
    from pydirect.streams.labels import LabelCodes
    from pydirect.streams.parquet import ParquetSource

    classes = args.task == "classification" or (args.task == "auto" and _holds_labels(args))
    check_classification(args, classes)
    if classes and args.checkpoint is not None:
        raise CommandError("--checkpoint: not with classes and --stream")
    source = ParquetSource(
        args.data,
        tuple(args.target),
        args.weight,
        args.drop,
        one_dimensional=len(args.target) == 1,
        labels=LabelCodes() if classes else None,
        codes=TableCodes(gaps=args.on_missing != "error"),
    )
    model = new_model(args, classes)
    if args.category:
        model.set_params(categories=args.category)
    if args.on_missing == "error":
        model.set_params(missing="raise")
    checkpoint = {} if classes else {"checkpoint": args.checkpoint}
    with convergence_warnings_ignored():
        model.fit_stream(source, drop_missing=args.drop_missing or args.on_missing == "skip", **checkpoint)
    finish(model, "the fit")
    model.save(args.output, metadata=new_metadata(args, source.n_rows, []))
    if not args.quiet:
        rows = ("rows", _rows_text(source.n_rows, _n_used(args, model, source.n_rows)))
        lacking = [source.names[j] for j in model.columns_.lacking]
        missing = [("missing", f"{shortened(lacking)}: {REPLACED}")] if lacking and not args.drop_missing else []
        print_lines([rows, *column_lines(model), *missing, ("model", structure(model)), *fit_lines(args, model)])
    return 0


def _holds_labels(args: argparse.Namespace) -> bool:
    """Whether a target column of the first file holds text or booleans."""
    from pyarrow import parquet, types

    file = min(args.data.rglob("[!_.]*.parquet"), default=None) if args.data.is_dir() else args.data
    schema = {} if file is None else {column.name: column.type for column in parquet.read_schema(file)}
    text = (types.is_string, types.is_large_string, types.is_string_view, types.is_boolean, types.is_dictionary)
    return any(is_kind(schema[name]) for name in args.target if name in schema for is_kind in text)


def _n_used(args: argparse.Namespace, model: Any, n_rows: int) -> int:
    """Return the number of rows that were fitted to, as far as the model knows it."""
    if hasattr(model, "statistics_"):
        return int(model.statistics_.n_rows)
    return n_rows if args.weight is not None else int(model.n_samples_)


def _rows_text(n_rows: int, n_used: int) -> str:
    return f"{n_used} ({n_rows - n_used} with missing values or no weight left out)" if n_used < n_rows else f"{n_used}"
