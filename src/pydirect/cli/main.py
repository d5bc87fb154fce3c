"""The ``pydirect`` command: fit a model to a table, predict with it, inspect its file, export it.

Exit codes: 0 for success, also if a fit stopped before it converged (with a warning); 2 for wrong usage or unusable
input, with the reason on standard error; 130 after Ctrl-C; 141 if the reader of the output closed the pipe.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pydirect

LEVEL = 0.9
_INTERRUPTED, _BROKEN_PIPE = 130, 141
# Estimators of numbers and of classes.
MODELS: dict[str, tuple[str | None, str | None]] = {
    "direct": ("DirectRegressor", "DirectClassifier"),
    "pooled": ("PooledRegressor", "PooledClassifier"),
    "counts": ("DirectCountRegressor", None),
    "survival": ("DirectSurvivalRegressor", None),
    "mixed": ("DirectMixedRegressor", None),
    "ordinal": (None, "DirectOrdinalClassifier"),
    "network": ("QuadraticBNNRegressor", None),
    "dvi": ("DVIRegressor", "DVIClassifier"),
    "monte-carlo": ("MonteCarloBNNRegressor", "MonteCarloBNNClassifier"),
}
# Columns that models take beside X and y: options, and arguments of `fit`.
ARGUMENTS = {"weight": "sample_weight"} | {name: name for name in ("exposure", "event", "entry", "groups")}
# Limits of a model for a device.
LIMITS = {
    "max_flash": "flash, code included, in bytes",
    "max_stack": "stack, in bytes",
    "max_instructions": "number of instructions of a prediction",
}

_MANY: dict[str, Any] = {"action": "extend", "nargs": "+", "default": []}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def table(self, *flags: str, **options: Any) -> None:
        """Add a table, and how it is read."""
        self.add_argument(*flags, type=Path, **options)
        marks = "in CSV, further texts that stand for missing values, beside empty ones, NA, NaN, null and ?"
        self.add_argument("--missing-value", metavar="TEXT", help=marks, **_MANY)
        sign = "in CSV, the decimal sign (default: found out where possible)"
        self.add_argument("--decimal", choices=["point", "comma"], help=sign)


def _fit(add: _Parser) -> None:
    """Fit a model to a table.

    It predicts the target columns from the others. Scores on held-out rows come from a fit to the other rows; the model
    that is written is fitted to all.
    """
    option = add.add_argument
    add.table("data", help="CSV or Parquet file with named columns; with --stream a folder too")
    option("--target", action="append", required=True, metavar="COL", help="column to predict; repeatable")
    option("-o", "--output", type=Path, required=True, metavar="MODEL", help="model file to write")
    option("--model", choices=list(MODELS), default="direct", help="kind of model (default: %(default)s)")
    kinds = "whether the target is a number or a class (default: a class where it is text, or true and false)"
    option("--task", choices=["regression", "classification"], help=kinds)
    settings = "parameters of the model as in Python, such as noise=varying or features=Polynomial(degree=3)"
    option("--set", metavar="NAME=VALUE", help=settings, **_MANY)
    option("--drop", metavar="COL", help="columns to leave out; give the file before this", **_MANY)
    option("--category", metavar="COL", help="columns of numbers that are categories, such as codes", **_MANY)
    option("--weight", metavar="COL", help="column that says how many times each row counts")
    option("--exposure", metavar="COL", help="with --model counts: column that mean counts are proportional to")
    option("--event", metavar="COL", help="with --model survival: column that says whether the event was seen")
    option("--entry", metavar="COL", help="with --model survival: column of times from which on rows were watched")
    groups = "with --model mixed: columns of groups with effects of their own"
    option("--groups", metavar="COL", action="extend", nargs="+", help=groups)
    option("--drop-missing", action="store_true", help="leave out rows without target or weight (default: an error)")
    held_out = "fraction of the rows to hold out for scores (default: 0.1, with --stream none)"
    option("--test-fraction", type=float, metavar="F", help=held_out)
    option("--stream", action="store_true", help="read Parquet files block by block, however large")
    sums = "with --stream: file for the sums so far; the same command continues from it"
    option("--checkpoint", type=Path, metavar="FILE", help=sums)
    option("--seed", type=int, default=0, metavar="SEED", help="random seed (default: 0)")
    option("--plot", type=Path, metavar="IMAGE", help="picture of the held-out predictions")
    option("--quiet", action="store_true", help="no progress and no summary")


def _predict(add: _Parser) -> None:
    """Predict the rows of a table with a model.

    Columns that are written are prediction, std, lower and upper, prefixed with the target's name if there are several;
    or prediction and probability_CLASS for each class. If the table has the targets too, scores go to standard error.
    """
    add.add_argument("model", type=Path, help="model file")
    add.table("data", help="CSV or Parquet file; columns are found by name")
    out = "CSV or .parquet file to write (default, and -: CSV on standard output)"
    add.add_argument("-o", "--output", type=Path, metavar="OUT", help=out)
    level = "probability of the interval (default: %(default)s)"
    add.add_argument("--interval", type=float, default=LEVEL, metavar="P", help=level)
    skip = "leave predictions empty where inputs are missing or categories new (default: predict from the others)"
    add.add_argument("--skip-unknown", action="store_true", help=skip)
    add.add_argument("--quiet", action="store_true", help="nothing on standard error but warnings and errors")


def _info(add: _Parser) -> None:
    """Show what a file holds."""
    add.add_argument("model", type=Path, help="file written by pydirect")
    add.add_argument("--json", action="store_true", help="print the header and the sizes of arrays as JSON")


def _export(add: _Parser) -> None:
    """Write a model as C or ONNX, with weights of a few bits.

    A few samples of its posterior become one C99 header, or an ONNX graph, that predicts mean and standard deviation.
    With limits such as --max-flash the best integer model within them is fitted anew to the rows of --data.
    """
    option = add.add_argument
    option("model", type=Path, help="model file")
    option("-o", "--output", type=Path, required=True, metavar="OUT", help="ONNX if it ends in .onnx, else a C header")
    option("--samples", type=int, metavar="S", help="posterior samples to keep (default: 16)")
    levels = "levels of the weights: the model's own, or new ones that all share, for which --data is needed"
    option("--levels", choices=["model", "even"], help=f"{levels} (default: model, with a limit even)")
    for name, what in LIMITS.items():
        option(f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"fit the best model of at most this {what}")
    add.table("--data", metavar="TABLE", help="CSV or Parquet file with rows like those the model will see")
    targets = "target column of --data for a model of limited size; repeatable (default: those of `fit`)"
    option("--target", action="append", metavar="COL", help=targets)
    option("--prefix", metavar="NAME", help="prefix of all names in C (default: pydirect)")
    option("--interval", type=float, metavar="P", help=f"probability of the interval in C (default: {LEVEL})")


def _demo(add: _Parser) -> None:
    """Compare intervals on real data with those of other models."""
    add.add_argument("--plot", type=Path, metavar="IMAGE", help="picture of the intervals")


def _show_config(add: _Parser) -> None:
    """Show how pydirect was built and what it runs on."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, which sets `run`, the function that carries one out."""
    found = _Parser(prog="pydirect", description="Exact Bayesian regression and classification of tables.")
    found.add_argument("--version", action="version", version=f"pydirect {pydirect.__version__}")
    commands = found.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for arguments in (_fit, _predict, _info, _export, _demo, _show_config):
        name, text = arguments.__name__[1:].replace("_", "-"), inspect.cleandoc(arguments.__doc__ or "")
        command = commands.add_parser(name, help=text.partition("\n")[0], description=text)
        arguments(command)
        command.set_defaults(run=partial(_run, name))
    return found


def _run(command: str, args: argparse.Namespace) -> None:
    """Import the module of a command, and run it."""
    if command == "show-config":
        pydirect.show_config()
    else:
        importlib.import_module(f"pydirect.cli.{command}").run(args)


def _check_files(args: argparse.Namespace) -> None:
    """Raise before the work, rather than after it, if its results cannot be written."""
    names = ("model", "data", "output", "plot", "checkpoint")
    paths = {name: path for name in names if isinstance(path := getattr(args, name, None), Path)}
    for path in (paths[name] for name in names[2:] if name in paths):
        folder = path.absolute().parent
        if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
            raise ValueError(f"{path}: expected a file in an existing directory where files may be written")
        if [other.resolve() for other in paths.values()].count(path.resolve()) > 1:
            raise ValueError(f"{path}: would overwrite another file of this command")
    if "plot" in paths:
        _check_picture(paths["plot"])


def _check_picture(path: Path) -> None:
    """Raise unless matplotlib can write a picture of this name."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('--plot requires matplotlib. Install it with: pip install "pydirect[plot]"') from None
    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise ValueError(f"{path}: expected a name that ends in {', '.join('.' + name for name in formats)}")


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Show each warning as one line, once, without its place in the source."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            print(f"pydirect: warning: {text}", file=sys.stderr)
        shown.add(text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments, by default those of the process, and return the exit code."""
    try:
        args = build_parser().parse_args(argv)
        with _short_warnings():
            _check_files(args)
            args.run(args)
        sys.stdout.flush()
        return 0
    except SystemExit as stop:  # argparse exits by itself after --help and --version
        return int(stop.code or 0)
    except BrokenPipeError:
        # The interpreter flushes standard output once more on exit, which would fail again and be reported.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt as stop:
        return _report(str(stop) or "interrupted", _INTERRUPTED)
    except MemoryError as error:
        return _report(f"not enough memory: {error}")
    except OSError as error:
        return _report(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except (ValueError, TypeError, ImportError) as error:
        return _report(str(error))


def _report(message: str, code: int = 2) -> int:
    """Print an error, and return the exit code."""
    print(f"pydirect: error: {' '.join(message.split())}", file=sys.stderr)
    return code
