"""`pydirect demo`: an example on real data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydirect.cli.common import natural


def add_demo(commands: Any) -> None:
    """Add the command `demo`."""
    command = commands.add_parser("demo", help="an example on real data, beside other models")
    command.add_argument("--output-dir", type=Path, default=Path(), metavar="DIR", help="(default: here)")
    command.add_argument("--quiet", action="store_true", help="no progress, only the results")
    command.add_argument("--seed", type=natural, default=0, help="seed of the split and the fits (default: 0)")
    command.set_defaults(run=_demo)


def _demo(args: argparse.Namespace) -> int:
    from pydirect.cli.demo_comparison import run

    code: int = run(output_dir=args.output_dir, quiet=args.quiet, seed=args.seed)
    return code
