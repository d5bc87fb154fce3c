"""Training data of `pydirect fit`: inputs, targets and row weights of a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydirect.cli.common import CommandError
from pydirect.cli.targets import is_classification, labels_of

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.cli.tables import Table


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training data: X (n, p), y (n, k) or class labels (n,), weights (n,) or None."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    encoder: TableEncoder
    n_dropped: int

    def rows(self, chosen: np.ndarray) -> TrainingData:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[chosen]
        return TrainingData(self.X[chosen], self.y[chosen], weights, self.encoder, self.n_dropped)

    @property
    def classes(self) -> bool:
        """Whether the target is a class."""
        return self.y.ndim == 1


def training_data(args: argparse.Namespace) -> TrainingData:
    """Read the table that the options name, encode its inputs and check its targets and weights."""
    import numpy as np

    from pydirect.cli.table_encoder import TableEncoder
    from pydirect.cli.table_files import read_table

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
    return TrainingData(encoder.transform(table), y, weights, encoder, full.n_rows - table.n_rows)


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
