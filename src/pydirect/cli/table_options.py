"""Options of the commands about how tables are read, and the reading."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydirect.cli.tables import Table


def add_reading_options(command: argparse.ArgumentParser) -> None:
    """Add the options that say how a CSV file is written."""
    command.add_argument(
        "--missing-value",
        action="extend",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="in CSV, further texts that stand for missing values, beside empty ones, NA, NaN, null and ?",
    )
    command.add_argument(
        "--decimal", choices=["point", "comma"], help="in CSV, the decimal sign (default: found out where possible)"
    )


def read_data(
    args: argparse.Namespace, path: Path, text_columns: Collection[str] = (), missing: Collection[str] = ()
) -> Table:
    """Read a table as the options say, with `missing` as further missing values, and print notes about it."""
    from pydirect.cli.table_files import read_table

    table = read_table(path, text_columns, {*args.missing_value, *missing}, args.decimal)
    for note in [] if getattr(args, "quiet", False) else table.notes:
        print(f"{path.name}: {note}", file=sys.stderr)
    return table
