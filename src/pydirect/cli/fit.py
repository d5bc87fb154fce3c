"""`pydirect fit`: a table in, a model file out."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydirect.cli.common import (
    DEFAULT_LEVEL,
    DEFAULT_TEST_FRACTION,
    CommandError,
    check_output,
    fraction,
    is_classification,
    labels_of,
    natural,
    numbers_text,
    positive,
    print_lines,
    warn_user,
)
from pydirect.cli.predict import predictions_of
from pydirect.cli.scoring import Classified, as_classified, scores_of, scores_text

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.cli.tables import Table


def add_fit(commands: Any) -> None:
    """Add the command `fit`."""
    command = commands.add_parser(
        "fit",
        help="fit a model to a table",
        description="Fit a model that predicts the target columns of a table from its other columns.",
        epilog="Text columns become one column of zeros and ones per category. Rows with missing values are an error "
        "unless --drop-missing is given. Scores on held-out rows come from a fit to the other rows; the model that is "
        "written is fitted to all.",
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
    _add_model_options(command)
    command.add_argument(
        "--drop",
        action="extend",
        nargs="+",
        default=[],
        metavar="COL",
        help="columns to leave out; give the file before this",
    )
    command.add_argument("--weight", metavar="COL", help="column with the weights of the rows")
    command.add_argument("--drop-missing", action="store_true", help="leave out rows with missing values")
    command.add_argument(
        "--test-fraction", type=fraction, metavar="F", help="part of the rows to hold out (default: 0.1)"
    )
    command.add_argument(
        "--stream",
        action="store_true",
        help="read Parquet files of numbers block by block, however large; no rows are held out",
    )
    command.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="with --stream: keep what has been summed there; the same command goes on from it",
    )
    command.add_argument("--seed", type=natural, default=0, help="seed of everything random (default: 0)")
    command.add_argument("--threads", type=positive, metavar="N", help="number of threads (default: all allowed)")
    command.add_argument("--plot", type=Path, metavar="IMAGE", help="picture of the held-out predictions and the fit")
    command.add_argument("--quiet", action="store_true", help="no progress and no summary")
    command.set_defaults(run=_fit)


def _add_model_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model",
        choices=["direct", "network", "dvi", "monte-carlo"],
        default="direct",
        help="basis functions, a network with quadratic activations, or a network of rectified linear units with "
        "Gaussian weights, trained by deterministic variational inference or from draws (default: %(default)s)",
    )
    command.add_argument(
        "--hidden",
        type=positive,
        nargs="+",
        metavar="H",
        help="units of a network's hidden layers; give the file before this (default: 16 8; 50 for rectified units)",
    )
    command.add_argument(
        "--posterior",
        choices=["normal", "laplace", "logistic", "radial"],
        help="law of the weights of --model monte-carlo (default: normal)",
    )
    command.add_argument(
        "--basis",
        choices=["decorrelated", "raw"],
        help="basis of the weights (default: decorrelated)",
    )
    command.add_argument(
        "--features",
        choices=["auto", "nystroem", "fourier", "linear", "polynomial"],
        help="features of the inputs (default: nystroem in the decorrelated basis, fourier in the raw one)",
    )
    command.add_argument(
        "--n-features", type=positive, metavar="N", help="number of nystroem or fourier features (default: 2000)"
    )
    command.add_argument("--degree", type=positive, metavar="D", help="degree of the polynomials (default: 2)")


# -------------------------------------------------------------------------------------------------------------- fit


@dataclass(frozen=True, eq=False)
class _Training:
    """What a model is fitted to: X (n, p), y (n, k), or labels (n,) of classes, weights (n,) or None."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    encoder: TableEncoder
    n_dropped: int

    def rows(self, chosen: np.ndarray) -> _Training:
        weights = None if self.weights is None else self.weights[chosen]
        return _Training(self.X[chosen], self.y[chosen], weights, self.encoder, self.n_dropped)

    @property
    def classes(self) -> bool:
        """Whether the target is a class."""
        return self.y.ndim == 1


def _fit(args: argparse.Namespace) -> int:
    _check_fit_options(args)
    if args.stream:
        return _fit_stream(args)
    if args.test_fraction is None:
        args.test_fraction = DEFAULT_TEST_FRACTION
    data = _training_data(args)
    scored: list[Any] = _hold_out(args, data) if args.test_fraction > 0.0 else []
    model = _fitted(args, data, "all rows" if scored else "")
    # Without held-out rows there are no predictions to score.
    held_out = [
        scores_of(name, prediction, DEFAULT_LEVEL) for name, prediction in zip(args.target, scored, strict=False)
    ]
    model.save(args.output, metadata=_metadata(args, data, held_out))
    if not args.quiet:
        _print_summary(args, data, model, held_out)
    if args.plot is not None:
        _plot(args, model, scored)
    return 0


def _check_fit_options(args: argparse.Namespace) -> None:
    if args.hidden is not None and args.model == "direct":
        raise CommandError("--hidden: only for --model network, dvi or monte-carlo")
    for option in ("basis", "features", "n_features", "degree") if args.model != "direct" else ():
        if getattr(args, option) is not None:
            raise CommandError(f"--{option.replace('_', '-')}: not for --model {args.model}")
    if args.posterior is not None and args.model != "monte-carlo":
        raise CommandError("--posterior: only for --model monte-carlo")
    if args.n_features is not None and args.features not in (None, "auto", "nystroem", "fourier"):
        raise CommandError("--n-features: only for --features nystroem or fourier")
    if args.degree is not None and args.features != "polynomial":
        raise CommandError("--degree: only for --features polynomial")
    if args.stream:
        _check_stream_options(args)
    elif args.checkpoint is not None:
        raise CommandError("--checkpoint: only with --stream")
    named = [*args.target, *args.drop, *([args.weight] if args.weight is not None else [])]
    twice = [name for i, name in enumerate(named) if name in named[:i]]
    if twice:
        raise CommandError(f"column {twice[0]!r} is named twice among --target, --drop and --weight")
    check_output(args.output, args.data)
    if args.plot is not None:
        check_output(args.plot, args.data)
        if args.plot.absolute() == args.output.absolute():
            raise CommandError(f"{args.plot}: named for both --output and --plot")
        _check_picture(args.plot)


def _check_stream_options(args: argparse.Namespace) -> None:
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


def _check_picture(path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError('--plot requires matplotlib. Install it with: pip install "pydirect[plot]"') from None
    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise CommandError(f"{path}: expected a name that ends in {', '.join('.' + name for name in formats)}")


def _training_data(args: argparse.Namespace) -> _Training:
    import numpy as np

    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.cli.tables import read_table

    full = read_table(args.data)
    special = [*args.target, *([args.weight] if args.weight is not None else [])]
    full.require([*special, *args.drop])
    inputs = [name for name in full.names if name not in {*special, *args.drop}]
    if not inputs:
        raise CommandError("no columns are left to predict from")
    _check_usable(full, inputs)
    table = _without_missing(full, [*special, *inputs], args.drop_missing)
    encoder = TableEncoder.fit(table, inputs)
    if is_classification(args, table):
        y = labels_of(table, args.target[0])
    else:
        y = np.column_stack([table.numbers(name) for name in args.target])
    weights = None if args.weight is None else _weights(table, args.weight)
    return _Training(encoder.transform(table), y, weights, encoder, full.n_rows - table.n_rows)


def _check_usable(table: Table, inputs: Iterable[str]) -> None:
    from pydirect.cli.tables import TableError

    for name in inputs:
        try:
            table.column(name)
        except TableError as error:
            raise CommandError(f"{error}; or leave it out with --drop {name!r}") from None


def _without_missing(table: Table, names: Sequence[str], drop: bool) -> Table:
    from pydirect.cli.tables import TableError

    if drop:
        return table.drop_missing(names)
    try:
        table.require_complete(names)
    except TableError as error:
        raise CommandError(f"{error}; --drop-missing leaves such rows out") from None
    return table


def _weights(table: Table, name: str) -> np.ndarray:
    weights = table.numbers(name)
    if (weights < 0.0).any() or not weights.any():
        raise CommandError(f"column {name!r}: expected weights of at least 0, some of them positive")
    return weights


def _hold_out(args: argparse.Namespace, data: _Training) -> list[Any]:
    """Fit to a random part of the rows and predict the others; return the predictions, one for each target."""
    import numpy as np

    n = len(data.X)
    n_test = max(1, round(args.test_fraction * n))
    if n - n_test < 2:
        raise CommandError(f"{n} rows are too few to hold some out; use --test-fraction 0")
    order = np.random.default_rng(args.seed).permutation(n)
    train, test = data.rows(order[n_test:]), data.rows(order[:n_test])
    model = _fitted(args, train, f"{n - n_test} rows, {n_test} held out")
    if data.classes:
        return [as_classified(model, test.X, test.y)]
    return predictions_of(model, test.X, DEFAULT_LEVEL, test.y)


def _fit_stream(args: argparse.Namespace) -> int:
    """Fit to Parquet files that need not fit into memory."""
    from sklearn.exceptions import ConvergenceWarning

    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.streams.rows import LabelCodes
    from pydirect.streams.sources import ParquetSource

    classes = args.task == "classification"
    if classes and len(args.target) > 1:
        raise CommandError("--task classification: one --target at a time")
    labels = LabelCodes() if classes else None
    source = ParquetSource(args.data, tuple(args.target), args.weight, args.drop, len(args.target) == 1, labels)
    model = _new_model(args, classes)
    kept = {} if classes else {"checkpoint": args.checkpoint}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit_stream(source, drop_missing=args.drop_missing, **kept)
    model.set_params(verbose=0)
    if not _converged(model):
        warn_user("the fit did not converge; its result may still improve")
    table = {
        "encoder": TableEncoder.numeric(source.names).to_header(),
        "targets": list(args.target),
        "weight": args.weight,
        "n_rows": source.n_rows,
        "held_out": [],
    }
    model.save(args.output, metadata={"table": table})
    if not args.quiet:
        used = source.n_rows if args.weight is not None else model.n_samples_
        n_used = int(used if classes else model.statistics_.n_rows)
        left_out = f" ({source.n_rows - n_used} with missing values or no weight left out)"
        rows = f"{n_used}{left_out if n_used < source.n_rows else ''}"
        print_lines(
            [
                ("rows", rows),
                ("columns", str(len(source.names))),
                ("model", _structure(model)),
                *_fit_lines(args, model),
            ]
        )
    return 0


def _fitted(args: argparse.Namespace, data: _Training, what: str) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    if what and not args.quiet:
        print(f"Fitting to {what}", file=sys.stderr)
    model = _new_model(args, data.classes)
    y = data.y[:, 0] if not data.classes and data.y.shape[1] == 1 else data.y
    with warnings.catch_warnings():
        # Said below in fewer words.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, y, sample_weight=data.weights)
    if model.interrupted_:
        # A usable model in Python, but not what was asked for here: nothing is written.
        raise KeyboardInterrupt
    model.set_params(verbose=0)  # whoever loads it decides anew
    if not _converged(model):
        warn_user(f"the fit{' to ' + what if what else ''} did not converge; its result may still improve")
    return model


def _new_model(args: argparse.Namespace, classes: bool) -> Any:
    import pydirect

    common = {"n_threads": args.threads, "random_state": args.seed, "verbose": 0 if args.quiet else 1}
    if args.model == "network":
        given = {"hidden_layer_sizes": args.hidden}
        estimator: Any = pydirect.QuadraticBNNRegressor
    elif args.model == "dvi":
        given = {"hidden_layer_sizes": args.hidden}
        estimator = pydirect.DVIClassifier if classes else pydirect.DVIRegressor
    elif args.model == "monte-carlo":
        given = {"hidden_layer_sizes": args.hidden, "posterior": args.posterior}
        estimator = pydirect.MonteCarloBNNClassifier if classes else pydirect.MonteCarloBNNRegressor
    else:
        names = ("features", "basis", "n_features", "degree")
        given = {name: getattr(args, name) for name in names}
        estimator = pydirect.DirectClassifier if classes else pydirect.DirectRegressor
    return estimator(**common, **{name: value for name, value in given.items() if value is not None})


def _converged(model: Any) -> bool:
    import numpy as np

    return bool(np.all(model.converged_))


def _metadata(args: argparse.Namespace, data: _Training, held_out: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "table": {
            "encoder": data.encoder.to_header(),
            "targets": list(args.target),
            "weight": args.weight,
            "n_rows": len(data.X),
            "held_out": held_out,
        }
    }


def _print_summary(args: argparse.Namespace, data: _Training, model: Any, held_out: list[dict[str, Any]]) -> None:
    dropped = f" ({data.n_dropped} with missing values left out)" if data.n_dropped else ""
    n_columns, n_inputs = len(data.encoder.names), data.X.shape[1]
    encoded = f", {n_inputs} after encoding text" if data.encoder.text_columns else ""
    lines = [("rows", f"{len(data.X)}{dropped}"), ("columns", f"{n_columns}{encoded}"), ("model", _structure(model))]
    for scores in held_out:
        lines.append((f"held out, {scores['target']}", scores_text(scores)))
    if held_out:
        lines.append(("", f"the model below was then fitted to all {len(data.X)} rows"))
    print_lines(lines + _fit_lines(args, model))


def _fit_lines(args: argparse.Namespace, model: Any) -> list[tuple[str, str]]:
    """Return what the summary says of the fit and the file."""
    return [
        ("classes", ", ".join(map(str, model.classes_)))
        if hasattr(model, "classes_")
        else ("noise sd", numbers_text(noise_deviation(model))),
        ("ELBO", numbers_text(model.elbo_)),
        ("converged", f"{'yes' if _converged(model) else 'no'}, {_iterations(model)} iterations"),
        ("written", f"{args.output} ({os.path.getsize(args.output)} bytes)"),
    ]


def _structure(model: Any) -> str:
    return f"{kind_of_model(model)}, {count_weights(model)} weights"


def kind_of_model(model: Any) -> str:
    """Return the kind of a model in words."""
    if hasattr(model, "coefs_"):
        return f"network with {', '.join(map(str, model.posteriors_[0].shape.hidden_layer_sizes))} hidden units"
    if is_gaussian_network(model):
        network = model.posteriors_[0].network
        return f"{network.activation} network with {', '.join(map(str, network.hidden_layer_sizes))} hidden units"
    kind: str = model.features_.kind
    return f"{kind} features" if kind != "polynomial" else f"{kind} features of degree {model.degree}"


def is_gaussian_network(model: Any) -> bool:
    """Whether the model is a network with continuous weights."""
    return hasattr(model.posteriors_[0], "network")


def count_weights(model: Any) -> int:
    """Return the number of weights."""
    if is_gaussian_network(model):
        return int(model.posteriors_[0].network.n_weights)
    return int(model.features_.n_weights if hasattr(model, "features_") else model.posteriors_[0].weights.n_weights)


def noise_deviation(model: Any) -> np.ndarray:
    """Return the noise's standard deviation for each output."""
    import numpy as np

    return np.asarray(np.sqrt(model.noise_variance_))


def _iterations(model: Any) -> int:
    import numpy as np

    return int(np.max(model.n_iter_))


def _plot(args: argparse.Namespace, model: Any, scored: list[Any]) -> None:
    from matplotlib.figure import Figure

    from pydirect.persistence.container import atomic_open
    from pydirect.plotting import CalibrationDisplay, ELBODisplay, PredictionIntervalDisplay, ReliabilityDisplay

    n_rows, n_columns = max(1, len(scored)), 1 if not scored else 2 if hasattr(model, "classes_") else 3
    figure = Figure(figsize=(5.2 * n_columns, 4.2 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for row, name, p in zip(axes, args.target, scored, strict=False):
        if isinstance(p, Classified):
            ReliabilityDisplay(*p.events(), name=name).plot(ax=row[0])
            continue
        intervals = PredictionIntervalDisplay(p.y, p.mean, p.lower, p.upper, level=DEFAULT_LEVEL)
        intervals.plot(ax=row[0], target_name=name)
        CalibrationDisplay(p.pit).plot(ax=row[1])
    ELBODisplay.from_estimator(model, ax=axes[0, -1])
    for row in axes[1:]:
        row[-1].remove()
    with atomic_open(args.plot) as file:
        figure.savefig(file, format=args.plot.suffix[1:].lower())
