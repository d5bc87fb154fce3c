"""`pydirect fit`: a table in, a model file out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydirect.cli.common import DEFAULT_LEVEL, CommandError, check_output, fraction, natural, positive
from pydirect.cli.fit_data import TrainingData, training_data
from pydirect.cli.fit_model import add_model_options, check_model_options, fitted
from pydirect.cli.fit_picture import check_picture, draw_fit
from pydirect.cli.fit_stream import check_stream_options, fit_stream
from pydirect.cli.fit_summary import print_summary
from pydirect.cli.model_files import new_metadata
from pydirect.cli.scoring import as_classified, predictions_of, scores_of
from pydirect.cli.table_options import add_reading_options

DEFAULT_TEST_FRACTION = 0.1


def add_fit(commands: Any) -> None:
    """Add the command `fit`."""
    command = commands.add_parser(
        "fit",
        help="fit a model to a table",
        description="Fit a model that predicts the target columns of a table from its other columns.",
        epilog="Text columns become one column of zeros and ones per category, at most 50 of them. Missing inputs are "
        "replaced by what the other columns suggest; missing targets are an error unless --drop-missing is given. "
        "Scores on held-out rows come from a fit to the other rows; the model that is written is fitted to all.",
    )
    command.add_argument("data", type=Path, help="CSV or Parquet file with named columns; with --stream a folder too")
    command.add_argument(
        "--target", action="append", required=True, metavar="COL", help="column to predict; repeatable"
    )
    command.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL", help="model file to write")
    command.add_argument(
        "--task",
        choices=["auto", "regression", "classification"],
        default="auto",
        help="whether the target is a number or a class (default: a class where the column holds text, or true "
        "and false)",
    )
    add_model_options(command)
    command.add_argument(
        "--drop",
        action="extend",
        nargs="+",
        default=[],
        metavar="COL",
        help="columns to leave out; give the file before this",
    )
    command.add_argument(
        "--category",
        action="extend",
        nargs="+",
        default=[],
        metavar="COL",
        help="columns of numbers that are categories, such as codes; give the file before this",
    )
    command.add_argument("--weight", metavar="COL", help="column with the weights of the rows")
    command.add_argument(
        "--drop-missing",
        action="store_true",
        help="leave out rows without target or weight, with --stream also those without inputs (default: an error)",
    )
    command.add_argument(
        "--on-missing",
        choices=["impute", "skip", "error"],
        default="impute",
        help="what to do with rows that lack inputs: replace these, leave the rows out, or stop (default: %(default)s)",
    )
    add_reading_options(command)
    command.add_argument(
        "--test-fraction", type=fraction, metavar="F", help="fraction of the rows to hold out (default: 0.1)"
    )
    command.add_argument(
        "--stream",
        action="store_true",
        help="read Parquet files block by block, however large; no rows are held out",
    )
    command.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="with --stream: file for the sums so far; the same command continues from it",
    )
    command.add_argument("--seed", type=natural, default=0, help="random seed (default: 0)")
    command.add_argument("--threads", type=positive, metavar="N", help="number of threads (default: all allowed)")
    command.add_argument("--plot", type=Path, metavar="IMAGE", help="picture of the held-out predictions and the fit")
    command.add_argument("--quiet", action="store_true", help="no progress and no summary")
    command.set_defaults(run=_fit)


def _fit(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.stream:
        return fit_stream(args)
    if args.test_fraction is None:
        args.test_fraction = DEFAULT_TEST_FRACTION
    data = training_data(args)
    scored: list[Any] = _hold_out(args, data) if args.test_fraction > 0.0 else []
    model = fitted(args, data, "all rows" if scored else "")
    # Without held-out rows there are no predictions to score.
    held_out = [
        scores_of(name, prediction, DEFAULT_LEVEL) for name, prediction in zip(args.target, scored, strict=False)
    ]
    model.save(args.output, metadata=new_metadata(args, len(data.X), held_out))
    if not args.quiet:
        print_summary(args, data, model, held_out)
    if args.plot is not None:
        draw_fit(args, model, scored)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    check_model_options(args)
    if args.stream:
        check_stream_options(args)
    elif args.checkpoint is not None:
        raise CommandError("--checkpoint: only with --stream")
    named = [*args.target, *args.drop, *([args.weight] if args.weight is not None else [])]
    twice = [name for i, name in enumerate(named) if name in named[:i] or name in args.category]
    if twice:
        raise CommandError(f"column {twice[0]!r} is named twice among --target, --drop, --weight and --category")
    check_output(args.output, args.data)
    if args.plot is not None:
        check_output(args.plot, args.data)
        if args.plot.absolute() == args.output.absolute():
            raise CommandError(f"{args.plot}: named for both --output and --plot")
        check_picture(args.plot)


def _hold_out(args: argparse.Namespace, data: TrainingData) -> list[Any]:
    """Fit to a random part of the rows; return predictions of the others, one per target."""
    import numpy as np

    n = len(data.X)
    n_test = max(1, round(args.test_fraction * n))
    if n - n_test < 2:
        raise CommandError(f"{n} rows are too few to hold some out; use --test-fraction 0")
    order = np.random.default_rng(args.seed).permutation(n)
    train, test = data.rows(order[n_test:]), data.rows(order[:n_test])
    model = fitted(args, train, f"{n - n_test} rows, {n_test} held out")
    if data.classes:
        return [as_classified(model, test.X, test.y)]
    return predictions_of(model, test.X, DEFAULT_LEVEL, test.y)
