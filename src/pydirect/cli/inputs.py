"""Inputs of a fitted model in a table: its columns, checked, with what is missing in them or new."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import TableError
from pydirect.cli.model_files import table_metadata
from pydirect.cli.table_options import read_data
from pydirect.cli.tables import Frame, Table, place
from pydirect.streams.tables import key_of


@dataclass(frozen=True, eq=False)
class Inputs:
    """A model's inputs in a table, and masks (n_rows, n_columns) of missing values and of categories that are new."""

    frame: Frame
    missing: np.ndarray
    unseen: np.ndarray

    def require(self, path: Path, on_missing: str, on_unseen: str) -> None:
        """Raise an error that lists missing values and new categories, as far as these are errors."""
        problems = [f"column {name!r}: missing value in {place(rows)}" for name, rows in self._columns(self.missing)]
        if on_missing != "error":
            problems.clear()
        for name, rows in self._columns(self.unseen) if on_unseen == "error" else ():
            problems.append(f"column {name!r}: {self._first(name, rows)!r} did not occur in fitting, in {place(rows)}")
        if problems:
            raise TableError.of(path, problems)

    def skipped(self, on_missing: str, on_unseen: str) -> np.ndarray:
        """Return a mask of the rows to leave without prediction."""
        skipped = np.zeros(len(self.frame), dtype=bool)
        for mask, policy in ((self.missing, on_missing), (self.unseen, on_unseen)):
            skipped |= mask.any(axis=1) & (policy == "skip")
        return skipped

    def notes(self, on_missing: str, on_unseen: str) -> Iterator[str]:
        """Yield what was missing or new, and what became of these rows."""
        for mask, what, policy, else_ in (
            (self.missing, "inputs are missing", on_missing, "replaced by what the other columns suggest"),
            (self.unseen, "categories did not occur in fitting", on_unseen, "predicted from the other columns"),
        ):
            if mask.any():
                columns = ", ".join(f"{name} {rows.sum()}" for name, rows in self._columns(mask))
                became = "predictions left empty" if policy == "skip" else else_
                yield f"{what} in {mask.any(axis=1).sum()} of {len(mask)} rows ({columns}): {became}"

    def _columns(self, mask: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        for name, rows in zip(self.frame.columns, mask.T, strict=True):
            if rows.any():
                yield name, rows

    def _first(self, name: str, rows: np.ndarray) -> Any:
        return self.frame[name].tolist()[int(np.argmax(rows))]


def read_inputs(args: argparse.Namespace, path: Path, model: Any) -> tuple[Table, Inputs]:
    """Read a table and the inputs of a model in it; raise an error that says all that is wrong with them."""
    columns = model.columns_
    own = dict(zip(columns.names, columns.categories, strict=True))
    unused, numbers = ({name for name, found in own.items() if found == kind} for kind in ((), None))
    text = own.keys() - numbers - {name for name, found in own.items() if found and all(map(_is_number, found))}
    table = read_data(args, path, text, table_metadata(model).get("missing_values", []))
    table.require(name for name in own if name not in unused)
    wrong = [table.wrong_numbers(n) if n in numbers else table.wrong_values(n) for n in own if n not in unused]
    if problems := [problem for found in wrong for problem in found]:
        raise TableError.of(path, problems)
    nothing = np.full(table.n_rows, None)
    frame = Frame(
        {n: nothing if n in unused else table.numbers(n) if n in numbers else table.columns[n] for n in own},
        (table.n_rows, len(own)),
    )
    # Categories may have been missing in fitting too; rare ones share a column with new ones.
    missing_is_known = np.array([found is not None and (None in found or found == ()) for found in own.values()])
    pooled = np.isin(np.arange(len(own)), columns.pooled)
    return table, Inputs(frame, columns.missing(frame) & ~missing_is_known, columns.unseen(frame) & ~pooled)


def _is_number(category: str | None) -> bool:
    """Whether numbers are known by this category, however they are written."""
    try:
        return category is None or key_of(float(category)) == category
    except ValueError:
        return False
