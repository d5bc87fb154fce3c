"""The ``pydirect`` command: fit a model to a table, predict with it, inspect its file.

Exit codes: 0 for success, also if a fit stopped before it converged (with a warning); 2 for wrong usage or unusable
input, with its problems on standard error, one line each; 130 after Ctrl-C; 141 if the reader of the output closed the
pipe.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydirect.cli.common import (
    DEFAULT_LEVEL,
    DEFAULT_TEST_FRACTION,
    DIRECT_POSTERIORS,
    NETWORK_POSTERIORS,
    CommandError,
    TableError,
    discard_output,
    report_failure,
    short_warnings,
)

_N = TypeVar("_N", int, float)
_INTERRUPTED = 130
_BROKEN_PIPE = 141

# Flags, then {choices} or the name of a value, with "!" if required, "*" if repeatable, "+" for one or more values and
# "..." for both of these; options without a value are switches.
_READING = """
--missing-value TEXT...: in CSV, further texts that stand for missing values, beside empty ones, NA, NaN, null and ?
--decimal {point,comma}: in CSV, the decimal sign (default: found out where possible)
"""
_FIT = f"""
data: CSV or Parquet file with named columns; with --stream a folder too
--target COL!*: column to predict; repeatable
-o --output MODEL!: model file to write
--task {{auto,regression,classification}}: whether the target is a number or a class (default: a class where the column
    holds text, or true and false)
--model {{direct,network,dvi,monte-carlo}}: basis functions, a network with quadratic activations, or a network of
    rectified linear units with Gaussian weights, trained by deterministic variational inference or from draws
    (default: %(default)s)
--hidden H+: units of a network's hidden layers; give the file before this (default: 16 8; 50 for rectified units)
--posterior {{{",".join(DIRECT_POSTERIORS + NETWORK_POSTERIORS)}}}: posterior of the weights: gaussian (default), or
    sequential or mean-field, whose weights are 4-bit integers, as small devices want them; with --model monte-carlo:
    normal (default), laplace, logistic or radial
--features {{auto,nystroem,fourier,linear,polynomial}}: features of the inputs (default: nystroem for gaussian weights,
    fourier for integers)
--n-basis-functions N: number of nystroem or fourier features (default: 2000)
--degree D: degree of the polynomials (default: 2)
--set NAME=VALUE...: any other parameters that the model has in Python, or fields of its posterior, features, columns
    and schedule, such as target_transform=log, noise=varying or prior=laplace
--drop COL...: columns to leave out; give the file before this
--category COL...: columns of numbers that are categories, such as codes; give the file before this
--weight COL: column with the weights of the rows
--drop-missing: leave out rows without target or weight, with --stream also those without inputs (default: an error)
--on-missing {{impute,skip,error}}: what to do with rows that lack inputs: replace these, leave the rows out, or stop
    (default: %(default)s){_READING}
--test-fraction F: fraction of the rows to hold out (default: {DEFAULT_TEST_FRACTION})
--stream: read Parquet files block by block, however large; no rows are held out
--checkpoint FILE: with --stream: file for the sums so far; the same command continues from it
--seed SEED: random seed (default: 0)
--threads N: number of threads (default: all allowed)
--plot IMAGE: picture of the held-out predictions and the fit
--quiet: no progress and no summary
"""
_PREDICT = f"""
model: model file
data: CSV or Parquet file
-o --output OUT: CSV or .parquet file to write (default: CSV on standard output)
--interval P: probability of the interval (default: {DEFAULT_LEVEL})
--std: add a column std, the predictive standard deviation
--on-missing {{impute,skip,error}}: what to do with rows that lack inputs: replace these, leave the prediction empty, or
    stop (default: %(default)s)
--on-unseen {{accept,skip,error}}: what to do with rows whose categories did not occur in fitting: predict from their
    other columns, leave the prediction empty, or stop (default: %(default)s){_READING}
--quiet: nothing on standard error but warnings and errors
"""
_INFO = """
model: file written by pydirect
--json: print JSON
"""
_EXPORT = f"""
model: model file
-o --output OUT!: file to write
--format {{c,onnx}}: (default: by the suffix of the output, .h or .onnx; else c)
--samples S: posterior samples to keep (default: 16)
--method {{moments,draw,most_probable}}: how samples are chosen: to match the posterior's mean and variance, at random,
    or the most probable one (default: moments)
--integer: integer arithmetic up to the last step, always in C
--levels {{model,even,power_of_two}}: levels of the weights: the model's own, or new ones shared by all weights, for
    which --data is needed (default: model, with a limit even)
--max-flash BYTES: fit the best integer model that takes at most this flash, code included
--max-bytes BYTES: fit the best integer model of at most this size, code not included
--max-stack BYTES: fit the best integer model whose predictions take at most this stack
--max-instructions N: fit the best integer model whose predictions take at most this number of instructions
--max-nonzero K: fit the best integer model with at most K nonzero weights per sample
--data TABLE: CSV or Parquet file with rows like those the model will see
--target NAME*: target column of --data for a model of limited size; repeatable (default: those of the model, which a
    model saved from Python does not name){_READING}
--prefix NAME: prefix of all names in C (default: pydirect)
--interval P: probability of the interval in C (default: {DEFAULT_LEVEL})
"""
_DEMO = """
--plot IMAGE: picture of the intervals
--quiet: no progress, only the results
--seed SEED: seed of the folds and the fits (default: 0)
"""
# Help, description and epilog of each command, and its arguments.
_COMMANDS = {
    "fit": (
        "fit a model to a table",
        "Fit a model that predicts the target columns of a table from its other columns.",
        "Text columns become one column of zeros and ones per category, at most 50 of them. Missing inputs are "
        "replaced by what the other columns suggest; missing targets are an error unless --drop-missing is given. "
        "Scores on held-out rows come from a fit to the other rows; the model that is written is fitted to all.",
        _FIT,
    ),
    "predict": (
        "predict with a model",
        "Write predictions for the rows of a table, in their order: columns prediction, lower and upper, "
        "prefixed with the target's name and an underscore if there are several targets; for a classifier prediction "
        "and probability_CLASS for each class. Columns are found by name. If the table has the targets too, scores go "
        "to standard error.",
        "A missing number is replaced by what the other columns suggest, a missing category counts as one that "
        "did not occur in fitting, unless missing ones did. Rows with such categories are predicted from their other "
        "columns, as a rule with wider intervals.",
        _PREDICT,
    ),
    "info": ("show what a file holds", None, None, _INFO),
    "export": (
        "write a model as C or ONNX, with weights of a few bits",
        "Write a few samples of a model's posterior as one C99 header, or as an ONNX graph, that predicts "
        "mean and standard deviation, and report its size. With limits such as --max-flash "
        "the best integer model within them is fitted anew to the rows of --data.",
        None,
        _EXPORT,
    ),
    "demo": ("intervals on real data, beside those of other models", None, None, _DEMO),
    "show-config": ("show how pydirect was built and what it runs on", None, None, ""),
}


def _number(convert: Callable[[str], _N], is_right: Callable[[_N], bool], expected: str) -> Callable[[str], _N]:
    """Return an argparse type whose error message says what was expected."""

    def number(text: str) -> _N:
        """Return the number in a text."""
        with contextlib.suppress(ValueError):
            if is_right(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return number


def _setting(text: str) -> tuple[str, Any]:
    """Return name and value in an argument of `--set`: a number, a list, true, false, none, or else text."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    return name, value


_natural = _number(int, lambda value: value >= 0, "an integer of at least 0")
_positive = _number(int, lambda value: value >= 1, "an integer of at least 1")
_fraction = _number(float, lambda value: 0.0 <= value < 1.0, "a number from 0 to below 1")
_level = _number(float, lambda value: 0.0 < value < 1.0, "a number between 0 and 1")
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("data", "model", "--data", "--output", "--checkpoint", "--plot"), Path),
    **dict.fromkeys(("--hidden", "--n-basis-functions", "--degree", "--threads"), _positive),
    **dict.fromkeys(("--samples", "--max-flash", "--max-bytes", "--max-stack"), _positive),
    **dict.fromkeys(("--max-instructions", "--max-nonzero"), _positive),
    **{"--test-fraction": _fraction, "--interval": _level, "--seed": _natural},
    "--set": _setting,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "fit": {"task": "auto", "model": "direct", "on_missing": "impute", "seed": 0},
    "predict": {"interval": DEFAULT_LEVEL, "on_missing": "impute", "on_unseen": "accept"},
    "demo": {"seed": 0},
}


def _add(command: argparse.ArgumentParser, line: str) -> None:
    """Add the argument that a line describes."""
    head, help_text = " ".join(line.split()).split(": ", 1)
    flags, value = [word for word in head.split() if word[0] == "-"], head.split()[-1]
    options: dict[str, Any] = {"help": help_text}
    if value.startswith("--"):
        options["action"], value = "store_true", ""
    elif not flags:
        flags, value = [value], ""
    metavar = value.rstrip("!*+.")
    marks, kind = value[len(metavar) :], _TYPES.get(flags[-1], str)
    if metavar.startswith("{"):
        options["choices"] = [kind(choice) for choice in metavar[1:-1].split(",")]
    elif metavar:
        options["metavar"] = metavar
    if flags[-1] in _TYPES:
        options["type"] = kind
    options |= {"required": True} if "!" in marks else {}
    options |= {"action": "append"} if "*" in marks else {"nargs": "+"} if "+" in marks else {}
    options |= {"action": "extend", "nargs": "+", "default": []} if marks == "..." else {}
    command.add_argument(*flags, **options)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from pydirect import __version__

        print(f"pydirect {__version__}")
        parser.exit()


def _of_module(module: str) -> Callable[[argparse.Namespace], int]:
    """Return the function that imports the module of a command when it is called, and runs it."""
    return lambda args: int(importlib.import_module(f"pydirect.cli.{module}").run(args))


def _show_config(_: argparse.Namespace) -> int:
    import pydirect

    pydirect.show_config()
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, which sets `run`, the function that carries one out."""
    found = _Parser(
        prog="pydirect", description="Bayesian regression and classification with discrete weights, from tables."
    )
    found.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = found.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, (help_text, description, epilog, arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=description, epilog=epilog)
        for line in re.split(r"\n(?=\S)", arguments.strip()) if arguments else ():
            _add(command, line)
        command.set_defaults(run=_show_config if name == "show-config" else _of_module(name), **_DEFAULTS.get(name, {}))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments, by default those of the process, and return the exit code."""
    try:
        return _run(argv)
    except KeyboardInterrupt as stop:
        return report_failure(str(stop) or "interrupted", _INTERRUPTED)
    except BrokenPipeError:
        discard_output()
        return _BROKEN_PIPE
    except MemoryError as error:
        return report_failure(f"not enough memory: {error}")
    except OSError as error:
        return report_failure(
            f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        )
    except TableError as error:
        return report_failure(str(error), details=error.details)
    except (ValueError, TypeError, ImportError) as error:
        return report_failure(str(error))


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:
        # argparse exits by itself after --help and --version.
        return int(stop.code or 0)
    with short_warnings():
        code: int = args.run(args)
    sys.stdout.flush()
    return code
