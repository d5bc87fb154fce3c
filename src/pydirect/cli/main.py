"""The ``pydirect`` command: fit a model to a table, predict with it, inspect its file.

Exit codes: 0 for success, also if a fit stopped before it converged (with a warning); 2 for wrong usage or unusable
input, with its problems on standard error, one line each; 130 after Ctrl-C; 141 if the reader of the output closed the
pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pydirect.cli.arguments import build_parser
from pydirect.cli.common import TableError, discard_output, report_failure, short_warnings

_INTERRUPTED = 130
_BROKEN_PIPE = 141


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
