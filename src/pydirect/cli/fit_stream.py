"""`pydirect fit --stream`: a fit to Parquet files that need not fit into memory."""

from __future__ import annotations

import argparse
from typing import Any

from pydirect.cli.common import CommandError, check_output, print_lines
from pydirect.cli.fit_model import convergence_warnings_ignored, finish, new_model
from pydirect.cli.fit_summary import fit_lines, structure
from pydirect.cli.model_files import new_metadata


def check_stream_options(args: argparse.Namespace) -> None:
    """Raise unless the options can be combined with --stream."""
    for option, given in (
        ("--test-fraction", args.test_fraction),
        ("--plot", args.plot is not None),
        (f"--model {args.model}", args.model != "direct"),
        ("--checkpoint with --task classification", args.task == "classification" and args.checkpoint is not None),
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
    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.streams.labels import LabelCodes
    from pydirect.streams.parquet import ParquetSource

    classes = args.task == "classification"
    if classes and len(args.target) > 1:
        raise CommandError("--task classification: one --target at a time")
    labels = LabelCodes() if classes else None
    source = ParquetSource(args.data, tuple(args.target), args.weight, args.drop, len(args.target) == 1, labels)
    model = new_model(args, classes)
    checkpoint = {} if classes else {"checkpoint": args.checkpoint}
    with convergence_warnings_ignored():
        model.fit_stream(source, drop_missing=args.drop_missing, **checkpoint)
    finish(model, "the fit")
    model.save(args.output, metadata=new_metadata(args, TableEncoder.numeric(source.names), source.n_rows, []))
    if not args.quiet:
        rows = ("rows", _rows_text(source.n_rows, _n_used(args, model, source.n_rows)))
        columns = ("columns", str(len(source.names)))
        print_lines([rows, columns, ("model", structure(model)), *fit_lines(args, model)])
    return 0


def _n_used(args: argparse.Namespace, model: Any, n_rows: int) -> int:
    """Return the number of rows that were fitted to, as far as the model knows it."""
    if hasattr(model, "statistics_"):
        return int(model.statistics_.n_rows)
    return n_rows if args.weight is not None else int(model.n_samples_)


def _rows_text(n_rows: int, n_used: int) -> str:
    return f"{n_used} ({n_rows - n_used} with missing values or no weight left out)" if n_used < n_rows else f"{n_used}"
