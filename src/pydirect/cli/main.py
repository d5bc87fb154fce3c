"""The ``pydirect`` command: fit a model to a table, predict with it, inspect its file.

Exit codes: 0 for success, also if a fit stopped before it converged (with a warning); 2 for wrong usage or unusable
input, with its problems on standard error, one line each; 130 after Ctrl-C; 141 if the reader of the output closed the
pipe.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from pydirect.cli.common import CommandError, TableError, discard_output, report_failure, short_warnings
from pydirect.cli.demo import add_demo
from pydirect.cli.export import add_export
from pydirect.cli.fit import add_fit
from pydirect.cli.info import add_info
from pydirect.cli.predict import add_predict

_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    `argv`: arguments without the name of the program; ``sys.argv[1:]`` by default. Returns the exit code; see the
    module's docstring.
    """
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
    except (ValueError, ImportError) as error:
        return report_failure(str(error))


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:
        # argparse exits by itself after --help and --version.
        return int(stop.code or 0)
    with short_warnings():
        code: int = args.run(args)
    sys.stdout.flush()
    return code


# -------------------------------------------------------------------------------------------------------- arguments


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from pydirect import __version__

        print(f"pydirect {__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pydirect", description="Bayesian regression and classification with discrete weights, from tables."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    add_fit(commands)
    add_predict(commands)
    add_info(commands)
    add_export(commands)
    add_demo(commands)
    command = commands.add_parser("show-config", help="show how pydirect was built and what it runs on")
    command.set_defaults(run=_show_config)
    return parser


def _show_config(_: argparse.Namespace) -> int:
    import pydirect

    pydirect.show_config()
    return 0
