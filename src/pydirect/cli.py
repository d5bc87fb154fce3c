"""The ``pydirect`` command: fit a model to a table, predict with it, look into its file.

Exit codes: 0 when done, also when a fit stopped before it converged (a warning says so); 2 for wrong usage or unusable
input, with one line on standard error; 130 after Ctrl-C; 141 when the reader of the output went away.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

# NumPy and the estimators take a noticeable time to import, and `--help` needs none of them: every other import of this
# module is inside the function that needs it.
if TYPE_CHECKING:
    import numpy as np

    from pydirect.tables import Table, TableEncoder

__all__ = ["main"]

_N = TypeVar("_N", int, float)
_LEVEL = 0.9
_TEST_FRACTION = 0.1
_ROWS_PER_BATCH = 8192
_ROWS_PER_BLOCK = 10_000
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class CommandError(ValueError):
    """The command cannot be carried out as given; the message is for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments, without the name of the program. ``sys.argv[1:]`` by default.

    Returns
    -------
    code : int
        Exit code; see the module's docstring.
    """
    try:
        return _run(argv)
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "interrupted", _INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        return _BROKEN_PIPE
    except MemoryError as error:
        return _fail(f"not enough memory: {error}")
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except (ValueError, ImportError) as error:
        return _fail(str(error))


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:
        # argparse ends the process itself after --help and --version.
        return int(stop.code or 0)
    with _short_warnings():
        code: int = args.run(args)
    sys.stdout.flush()
    return code


def _fail(message: str, code: int = 2) -> int:
    print(f"pydirect: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _warn(message: str) -> None:
    print(f"pydirect: warning: {' '.join(message.split())}", file=sys.stderr)


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Show warnings as one line each, without the place in the source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _warn(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _discard_output() -> None:
    # The interpreter flushes standard output once more on exit, which would fail again and be reported.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -------------------------------------------------------------------------------------------------------- arguments


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from pydirect import __version__

        print(f"pydirect {__version__}")
        parser.exit()


def _number(convert: Callable[[str], _N], is_right: Callable[[_N], bool], expected: str) -> Callable[[str], _N]:
    """Return a converter for argparse that says what it expected."""

    def number(text: str) -> _N:
        """Return the number that a text holds."""
        with contextlib.suppress(ValueError):
            if is_right(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return number


_natural = _number(int, lambda value: value >= 0, "an integer of at least 0")
positive = _number(int, lambda value: value >= 1, "an integer of at least 1")
_fraction = _number(float, lambda value: 0.0 <= value < 1.0, "a number from 0 to below 1")
level = _number(float, lambda value: 0.0 < value < 1.0, "a number between 0 and 1")


def _parser() -> argparse.ArgumentParser:
    from pydirect.cli_export import add_export  # which is built on this module

    parser = _Parser(
        prog="pydirect", description="Bayesian regression and classification with discrete weights, from tables."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    _add_fit(commands)
    _add_predict(commands)
    _add_info(commands)
    add_export(commands)
    _add_demo(commands)
    command = commands.add_parser("show-config", help="show how pydirect was built and what it runs on")
    command.set_defaults(run=_show_config)
    return parser


def _add_fit(commands: Any) -> None:
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
        "--test-fraction", type=_fraction, metavar="F", help="part of the rows to hold out (default: 0.1)"
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
    command.add_argument("--seed", type=_natural, default=0, help="seed of everything random (default: 0)")
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


def _add_predict(commands: Any) -> None:
    command = commands.add_parser(
        "predict",
        help="predict with a model",
        description="Write predictions for the rows of a table, in their order: columns prediction, lower and upper, "
        "each after the target's name and an underscore when there are several targets; of a classifier prediction and "
        "probability_CLASS for every class. Columns are found by name. If the targets are among "
        "them, scores go to standard error.",
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
        "--interval", type=level, default=_LEVEL, metavar="P", help="probability of the interval (default: 0.9)"
    )
    command.add_argument("--std", action="store_true", help="add a column std, the predictive standard deviation")
    command.set_defaults(run=_predict)


def _add_info(commands: Any) -> None:
    command = commands.add_parser("info", help="show what a file holds")
    command.add_argument("model", type=Path, help="file written by pydirect")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_info)


def _add_demo(commands: Any) -> None:
    command = commands.add_parser("demo", help="an example on real data, beside other models")
    command.add_argument("--output-dir", type=Path, default=Path(), metavar="DIR", help="(default: here)")
    command.add_argument("--quiet", action="store_true", help="no progress, only the results")
    command.add_argument("--seed", type=_natural, default=0, help="seed of the split and the fits (default: 0)")
    command.set_defaults(run=_demo)


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
        args.test_fraction = _TEST_FRACTION
    data = _training_data(args)
    scored: list[Any] = _hold_out(args, data) if args.test_fraction > 0.0 else []
    model = _fitted(args, data, "all rows" if scored else "")
    # Without held-out rows there are no predictions to score.
    held_out = [_scores(name, prediction, _LEVEL) for name, prediction in zip(args.target, scored, strict=False)]
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


def check_output(path: Path, *inputs: Path) -> None:
    """Find out before the work rather than after it that its result has nowhere to go."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise CommandError(f"{path}: expected a file in an existing directory")
    if not os.access(path.absolute().parent, os.W_OK):
        raise CommandError(f"{path}: no permission to write in its directory")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise CommandError(f"{path}: would overwrite the input")


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

    from pydirect.tables import TableEncoder, read_table

    full = read_table(args.data)
    special = [*args.target, *([args.weight] if args.weight is not None else [])]
    full.require([*special, *args.drop])
    inputs = [name for name in full.names if name not in {*special, *args.drop}]
    if not inputs:
        raise CommandError("no columns are left to predict from")
    _check_usable(full, inputs)
    table = _without_missing(full, [*special, *inputs], args.drop_missing)
    encoder = TableEncoder.fit(table, inputs)
    if _is_classification(args, table):
        y = labels_of(table, args.target[0])
    else:
        y = np.column_stack([table.numbers(name) for name in args.target])
    weights = None if args.weight is None else _weights(table, args.weight)
    return _Training(encoder.transform(table), y, weights, encoder, full.n_rows - table.n_rows)


def _is_classification(args: argparse.Namespace, table: Table) -> bool:
    if args.task != "auto":
        wanted = args.task == "classification"
    else:
        wanted = any(table.column(name).dtype == object or name in table.booleans for name in args.target)
    if wanted and len(args.target) > 1:
        raise CommandError("several targets must all be numbers; classes are told for one --target at a time")
    if wanted and args.model == "network":
        raise CommandError("--model network: its target must be a number, not a class")
    for name in [] if wanted or args.task != "auto" or args.model == "network" or args.quiet else args.target:
        if set(table.column(name).tolist()) == {0.0, 1.0}:
            print(f"Column {name!r} holds only 0 and 1: --task classification fits probabilities", file=sys.stderr)
    return bool(wanted)


def labels_of(table: Table, name: str) -> np.ndarray:
    """Return the classes of a complete column: text, booleans, or numbers, integers where all are."""
    import numpy as np

    values = table.column(name)
    if values.dtype == object:
        return values.astype(str)
    numbers = table.numbers(name)
    if name in table.booleans:
        return numbers.astype(bool)
    return (
        numbers.astype(np.int64) if (numbers == np.round(numbers)).all() and np.abs(numbers).max() < 2**53 else numbers
    )


def _check_usable(table: Table, inputs: Iterable[str]) -> None:
    from pydirect.tables import TableError

    for name in inputs:
        try:
            table.column(name)
        except TableError as error:
            raise CommandError(f"{error}; or leave it out with --drop {name!r}") from None


def _without_missing(table: Table, names: Sequence[str], drop: bool) -> Table:
    from pydirect.tables import TableError

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
        return [_classified(model, test.X, test.y)]
    return _predictions(model, test.X, _LEVEL, test.y)


def _fit_stream(args: argparse.Namespace) -> int:
    """Fit to Parquet files that need not fit into memory."""
    from sklearn.exceptions import ConvergenceWarning

    from pydirect.streams import LabelCodes, ParquetSource
    from pydirect.tables import TableEncoder

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
        _warn("the fit did not converge; its result may still improve")
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
        _warn(f"the fit{' to ' + what if what else ''} did not converge; its result may still improve")
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
        lines.append((f"held out, {scores['target']}", _scores_text(scores)))
    if held_out:
        lines.append(("", f"the model below was then fitted to all {len(data.X)} rows"))
    print_lines(lines + _fit_lines(args, model))


def _fit_lines(args: argparse.Namespace, model: Any) -> list[tuple[str, str]]:
    """Return what the summary says of the fit and the file."""
    return [
        ("classes", ", ".join(map(str, model.classes_)))
        if hasattr(model, "classes_")
        else ("noise sd", _numbers_text(_noise_sd(model))),
        ("ELBO", _numbers_text(model.elbo_)),
        ("converged", f"{'yes' if _converged(model) else 'no'}, {_iterations(model)} iterations"),
        ("written", f"{args.output} ({os.path.getsize(args.output)} bytes)"),
    ]


def _structure(model: Any) -> str:
    return f"{_kind_of_model(model)}, {_n_weights(model)} weights"


def _kind_of_model(model: Any) -> str:
    if hasattr(model, "coefs_"):
        return f"network with {', '.join(map(str, model.posteriors_[0].shape.hidden_layer_sizes))} hidden units"
    if _is_gaussian_network(model):
        network = model.posteriors_[0].network
        return f"{network.activation} network with {', '.join(map(str, network.hidden_layer_sizes))} hidden units"
    kind: str = model.features_.kind
    return f"{kind} features" if kind != "polynomial" else f"{kind} features of degree {model.degree}"


def _is_gaussian_network(model: Any) -> bool:
    return hasattr(model.posteriors_[0], "network")


def _n_weights(model: Any) -> int:
    if _is_gaussian_network(model):
        return int(model.posteriors_[0].network.n_weights)
    return int(model.features_.n_weights if hasattr(model, "features_") else model.posteriors_[0].weights.n_weights)


def _noise_sd(model: Any) -> np.ndarray:
    import numpy as np

    return np.asarray(np.sqrt(model.noise_variance_))


def _iterations(model: Any) -> int:
    import numpy as np

    return int(np.max(model.n_iter_))


def _numbers_text(values: Any) -> str:
    import numpy as np

    return ", ".join(f"{value:.6g}" for value in np.ravel(values))


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        print(f"{label:{width}}  {text}")


def _plot(args: argparse.Namespace, model: Any, scored: list[Any]) -> None:
    from matplotlib.figure import Figure

    from pydirect.persistence import atomic_open
    from pydirect.plotting import CalibrationDisplay, ELBODisplay, PredictionIntervalDisplay, ReliabilityDisplay

    n_rows, n_columns = max(1, len(scored)), 1 if not scored else 2 if hasattr(model, "classes_") else 3
    figure = Figure(figsize=(5.2 * n_columns, 4.2 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for row, name, p in zip(axes, args.target, scored, strict=False):
        if isinstance(p, _Classified):
            ReliabilityDisplay(*p.events(), name=name).plot(ax=row[0])
            continue
        intervals = PredictionIntervalDisplay(p.y, p.mean, p.lower, p.upper, level=_LEVEL)
        intervals.plot(ax=row[0], target_name=name)
        CalibrationDisplay(p.pit).plot(ax=row[1])
    ELBODisplay.from_estimator(model, ax=axes[0, -1])
    for row in axes[1:]:
        row[-1].remove()
    with atomic_open(args.plot) as file:
        figure.savefig(file, format=args.plot.suffix[1:].lower())


# ---------------------------------------------------------------------------------------------------------- predict


@dataclass(frozen=True, eq=False)
class _Prediction:
    """Predictions of one target, all of shape (n,); the last three are NaN in rows where its value is not known."""

    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    y: np.ndarray
    log_density: np.ndarray
    pit: np.ndarray


def _predictions(model: Any, X: np.ndarray, level: float, y: np.ndarray) -> list[_Prediction]:
    """Predict the rows of X (n, p) and compare with y (n, k), NaN where unknown; one prediction for each target."""
    import numpy as np

    batches = []
    for start in range(0, len(X), _ROWS_PER_BATCH):
        rows = slice(start, start + _ROWS_PER_BATCH)
        batches.append(_predict_batch(model, X[rows], level, y[rows]))
    return [
        _Prediction(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
        for pieces in zip(*batches, strict=True)
    ]


def _predict_batch(model: Any, X: np.ndarray, level: float, y: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    with warnings.catch_warnings():
        # A model fitted to a frame knows its columns' names, and by these X was put together.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        distributions = model.predict_distribution(X)
    if not isinstance(distributions, list):
        distributions = [distributions]
    return [
        (d.mean, d.std, *d.interval(level), known, *_compared(d, known))
        for d, known in zip(distributions, y.T, strict=True)
    ]


def _compared(distribution: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log density and PIT of y (n,), NaN where it is."""
    import numpy as np

    known = np.isfinite(y)
    if not known.any():
        return np.full(len(y), np.nan), np.full(len(y), np.nan)
    filled = np.where(known, y, distribution.mean)
    return np.where(known, distribution.log_density(filled), np.nan), np.where(known, distribution.cdf(filled), np.nan)


@dataclass(frozen=True, eq=False)
class _Classified:
    """Probabilities (n, n_classes) of the classes, and the right ones (n,), None where it is not known."""

    classes: np.ndarray
    probability: np.ndarray
    labels: np.ndarray

    def index(self) -> np.ndarray:
        """Return the number of the right class, -1 where it is not known or not among them."""
        import numpy as np

        number = {label: k for k, label in enumerate(self.classes.tolist())}
        return np.array([number.get(label, -1) for label in self.labels.tolist()])

    def events(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether a class was right, and how probable it was: the second of two, or of more every one in turn."""
        import numpy as np

        first = 1 if len(self.classes) == 2 else 0
        happened = self.index()[:, None] == np.arange(first, len(self.classes))
        return happened.ravel(), self.probability[:, first:].ravel()


def _classified(model: Any, X: np.ndarray, labels: np.ndarray) -> _Classified:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return _Classified(model.classes_, model.predict_proba(X), labels)


def _class_scores(target: str, prediction: _Classified) -> dict[str, Any]:
    """Score the rows whose class is known to the model."""
    import numpy as np

    from pydirect.metrics import expected_calibration_error

    index = prediction.index()
    known = index >= 0
    p, index = prediction.probability[known], index[known]
    right = p.argmax(axis=1) == index
    return {
        "target": target,
        "n_rows": len(p),
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(np.maximum(p[np.arange(len(p)), index], 1e-300)).mean()),
        "calibration_error": expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0)),
    }


def _scores(target: str, prediction: _Prediction | _Classified, level: float) -> dict[str, Any]:
    """Score the rows where the target is known; there must be some."""
    import numpy as np

    from pydirect.metrics import coverage

    if isinstance(prediction, _Classified):
        return _class_scores(target, prediction)
    known = np.isfinite(prediction.y)
    y = prediction.y[known]
    return {
        "target": target,
        "n_rows": len(y),
        "rmse": float(np.sqrt(np.mean((y - prediction.mean[known]) ** 2))),
        "nlpd": -float(np.mean(prediction.log_density[known])),
        "level": level,
        "coverage": float(coverage(y, prediction.lower[known], prediction.upper[known])),
    }


def _scores_text(scores: dict[str, Any]) -> str:
    if "accuracy" in scores:
        return (
            f"accuracy {scores['accuracy']:.1%} of {scores['n_rows']} rows, log loss {scores['log_loss']:.6g}, "
            f"calibration error {scores['calibration_error']:.6g}"
        )
    return (
        f"RMSE {scores['rmse']:.6g}, NLPD {scores['nlpd']:.6g}, {scores['coverage']:.1%} of {scores['n_rows']} rows "
        f"inside the {100 * scores['level']:g}% interval"
    )


def _predict(args: argparse.Namespace) -> int:
    import numpy as np

    from pydirect.tables import read_table

    if args.output is not None:
        check_output(args.output, args.data, args.model)
    model, encoder, targets = load_for_tables(args.model)
    table = read_table(args.data, text_columns=encoder.text_columns)
    X = encoder.transform(table)
    if hasattr(model, "predict_proba"):
        return _predict_classes(args, model, X, table, targets[0])
    predictions = _predictions(model, X, args.interval, known_targets(table, targets))
    _write_columns(_output_columns(predictions, targets, args.std), args.output)
    for name, prediction in zip(targets, predictions, strict=True):
        if not np.isnan(prediction.log_density).all():
            print(f"{name}: {_scores_text(_scores(name, prediction, args.interval))}", file=sys.stderr)
    return 0


def _predict_classes(args: argparse.Namespace, model: Any, X: np.ndarray, table: Table, target: str) -> int:
    """Write the most probable class and the probability of each."""
    import numpy as np

    labels = np.full(len(X), None, dtype=object)
    if target in table.columns:
        text = model.classes_.dtype.kind == "U"
        labels[:] = [None if v is None or v != v else str(v) if text else v for v in table.columns[target].tolist()]
    found = _classified(model, X, labels)
    columns = {"prediction": found.classes[found.probability.argmax(axis=1)]}
    columns |= {f"probability_{label}": found.probability[:, k] for k, label in enumerate(found.classes.tolist())}
    if args.std:
        logits = np.reshape(model.predict_logit(X, return_std=True)[1], (len(X), -1))
        names = found.classes[-1:] if logits.shape[1] == 1 else found.classes
        columns |= {f"logit_std_{label}": logits[:, k] for k, label in enumerate(names.tolist())}
    _write_columns(columns, args.output)
    if (found.index() >= 0).any():
        print(f"{target}: {_scores_text(_class_scores(target, found))}", file=sys.stderr)
    return 0


def known_targets(table: Table, targets: Sequence[str]) -> np.ndarray:
    """Return the targets' values (n, k) as far as the table has them, NaN otherwise."""
    import numpy as np

    y = np.full((table.n_rows, len(targets)), np.nan)
    for k, name in enumerate(targets):
        values = table.columns.get(name, y[:, k])
        if values.dtype == object:
            _warn(f"column {name!r} does not hold numbers: no scores")
        else:
            y[:, k] = values
    return y


def load_for_tables(path: Path) -> tuple[Any, TableEncoder, list[str]]:
    """Return a model, the encoder of its inputs and the names of its targets."""
    import pydirect
    from pydirect.tables import TableEncoder

    model = pydirect.load(path)
    n_targets = _n_targets(model)
    stored = _table_metadata(model)
    if stored is not None:
        if len(stored["targets"]) != n_targets:
            raise CommandError(f"{path}: the model has {n_targets} targets, got names for {len(stored['targets'])}")
        return model, TableEncoder.from_header(stored["encoder"]), stored["targets"]
    if not hasattr(model, "feature_names_in_"):
        raise CommandError(
            f"{path}: the model does not know the names of its columns: fit it to a data frame, or use pydirect.load "
            "in Python, with quantize and to_c instead of export"
        )
    return model, TableEncoder.numeric(map(str, model.feature_names_in_)), [f"output{k}" for k in range(n_targets)]


def _n_targets(model: Any) -> int:
    import numpy as np

    return 1 if hasattr(model, "classes_") else int(np.size(model.noise_variance_))


def _table_metadata(model: Any) -> dict[str, Any] | None:
    stored = (getattr(model, "metadata_", None) or {}).get("table")
    sound = isinstance(stored, dict) and "encoder" in stored and isinstance(stored.get("targets"), list)
    return stored if sound else None


def _output_columns(predictions: list[_Prediction], targets: Sequence[str], std: bool) -> dict[str, np.ndarray]:
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
    from pydirect.persistence import atomic_open

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
    """Yield CSV text, numbers with as many digits as it takes to read the same number back."""
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
    from pydirect.persistence import atomic_open

    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CommandError('Writing Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    with atomic_open(path) as file:
        pyarrow.parquet.write_table(pyarrow.table(columns), file)


# ------------------------------------------------------------------------------------------------------ info and co


def _info(args: argparse.Namespace) -> int:
    facts = _json_value(_facts(args.model))
    if args.json:
        print(json.dumps(facts, indent=2, allow_nan=False))
    else:
        print_lines([(name.replace("_", " "), _fact_text(value)) for name, value in _readable(facts).items()])
    return 0


def _readable(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that are known, the nested ones in words."""
    known = {name: value for name, value in facts.items() if value not in (None, [])}
    arrays = facts["arrays"]
    known["arrays"] = [f"{name} {array['dtype']} {tuple(array['shape'])}" for name, array in arrays.items()]
    if "class" in known:
        # A model's are many, and its facts say what matters of them.
        n_bytes = sum(array["nbytes"] for array in arrays.values())
        known["arrays"] = f"{len(arrays)}, {n_bytes} bytes together; --json lists them"
        known["parameters"] = _changed_parameters(facts["class"], facts["parameters"]) or "defaults"
        known["converged"] = "yes" if facts["converged"] else "no"
    if "held_out" in known:
        known["held_out"] = [f"{scores['target']}: {_scores_text(scores)}" for scores in known["held_out"]]
    return known


def _changed_parameters(estimator: str, parameters: dict[str, Any]) -> dict[str, Any]:
    import pydirect

    defaults = _json_value(getattr(pydirect, estimator)().get_params())
    return {name: value for name, value in parameters.items() if value != defaults.get(name)}


def _facts(path: Path) -> dict[str, Any]:
    """Return what a file holds: of any kind its layout, of a model its parameters and results too."""
    from pydirect.persistence import describe

    description = describe(path)
    arrays = {
        name: {"dtype": info.dtype, "shape": list(info.shape), "nbytes": info.nbytes}
        for name, info in description.arrays.items()
    }
    facts = {
        "file": str(path),
        "file_size": description.file_size,
        "kind": description.kind,
        "format_version": description.format_version,
        "library_version": description.header.get("library"),
    }
    return {**facts, **_model_facts(path), "arrays": arrays}


def _model_facts(path: Path) -> dict[str, Any]:
    import numpy as np

    import pydirect
    from pydirect.persistence import KindError

    try:
        model = pydirect.load(path)
    except KindError:
        return {}
    stored = _table_metadata(model) or {}
    return {
        "class": type(model).__name__,
        "parameters": model.get_params(),
        "columns": _column_names(model, stored),
        "targets": stored.get("targets"),
        "weight_column": stored.get("weight"),
        "rows": stored.get("n_rows"),
        "held_out": stored.get("held_out"),
        "structure": _kind_of_model(model),
        "weights": _n_weights(model),
        "levels_per_weight": None
        if _is_gaussian_network(model)
        else int(np.max([posterior.weights.n_levels for posterior in model.posteriors_])),
        "sparsity": model.sparsity_,
        "noise_sd": _noise_sd(model) if hasattr(model, "noise_variance_") else None,
        "classes": getattr(model, "classes_", None),
        "elbo": model.elbo_,
        "iterations": model.n_iter_,
        "converged": model.converged_,
    }


def _column_names(model: Any, stored: dict[str, Any]) -> list[str] | None:
    from pydirect.tables import TableEncoder

    if stored:
        return TableEncoder.from_header(stored["encoder"]).names
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _json_value(value: Any) -> Any:
    """Return `value` in JSON's types: arrays as lists, numbers that JSON lacks as null, strangers by their repr."""
    import numpy as np

    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _json_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else repr(value)


def _fact_text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}={_fact_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_fact_text, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _demo(args: argparse.Namespace) -> int:
    from pydirect.demo import run

    code: int = run(output_dir=args.output_dir, quiet=args.quiet, seed=args.seed)
    return code


def _show_config(_: argparse.Namespace) -> int:
    import pydirect

    pydirect.show_config()
    return 0
