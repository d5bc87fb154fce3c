"""Statistics of Dask collections: each partition is summed where it is stored, then merged in a tree over workers."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from pydirect._progress import Progress
from pydirect._validation import column_names
from pydirect.statistics.gaussian import row_blocks
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import Rows, StreamError, as_row_block, checked_rows
from pydirect.streams.run import Sample
from pydirect.tables.encoding import ColumnEncoding

# Number of statistics merged by one task: enough to keep the tree shallow, few enough for a worker's memory.
FAN_IN = 8


def _dask() -> Any:  # Dask's functions are untyped
    import dask

    return dask


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection, found without importing Dask."""
    base = sys.modules.get("dask.base")
    return base is not None and bool(base.is_dask_collection(X))


class DaskRun:
    """Collect statistics of a Dask array or data frame on its workers; see `pydirect.streams.run.StreamRun`.

    - `X`, (n_rows, n_features_in).
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        parts, self.names, n_outputs = _partitions(X, y, sample_weight)
        checked = _dask().delayed(_checked)
        self.parts = [checked(p, self.names, f"partition {k}") for k, p in enumerate(parts)]
        self.one_dimensional, self.progress = n_outputs == 0, progress
        self.shape = X.shape[1] if self.names is None else len(self.names), max(n_outputs, 1)
        self.sizes = _known_sizes(X)

    codes: None = None

    def sample(self, n_rows: int, seed: int) -> Rows:
        """Draw a sample of rows, the same for any number of partitions and workers."""
        dask = _dask()
        with self.progress.stage("sample"):
            sizes = self.sizes or dask.compute(*[dask.delayed(len)(p) for p in self.parts], optimize_graph=False)
            if sum(sizes) == 0:
                raise StreamError("there are no rows")
            first = np.cumsum((0, *sizes[:-1])).tolist()
            drawn = [dask.delayed(Sample.of)(p, f, seed, n_rows) for p, f in zip(self.parts, first, strict=True)]
            (sample,) = dask.compute(_tree(Sample.joined, drawn, n_rows), optimize_graph=False)
        rows: Rows = sample.rows
        return rows

    def encode(self, encoder: ColumnEncoding) -> None:
        """Do nothing: rows of Dask collections are complete numbers, which are encoded as they are."""

    def uncounted(self, stage: str) -> AbstractContextManager[None]:
        """Time a stage before the first row is counted."""
        return self.progress.stage(stage)

    def collected(self, empty: RunningStatistics) -> RunningStatistics:
        """Return statistics of all rows, with the feature map of the `empty` ones."""
        dask = _dask()
        with self.progress.stage("statistics"):
            # Sent to every worker once rather than with every task, and without its matrix of zeros.
            sent = dask.delayed(replace(empty, scatter=np.empty((0, 0))), pure=True)
            sums = [dask.delayed(_summed)(sent, p) for p in self.parts]
            # Without graph optimisation, which would load partitions that X and y share separately, hence twice.
            (total,) = dask.compute(_tree(_merged, sums), optimize_graph=False)
        return replace(total, features=empty.features)


def _known_sizes(X: Any) -> tuple[int, ...] | None:
    """Return the number of rows of each partition if known without computing it."""
    if not hasattr(X, "chunks") or not np.isfinite(X.chunks[0]).all():
        return None
    return tuple(X.chunks[0])


def _partitions(X: Any, y: Any, sample_weight: Any) -> tuple[list[Any], list[str] | None, int]:
    """Return delayed `Rows`, the names of X's columns, and the number of outputs (0 if y is one-dimensional)."""
    dask = _dask()
    names = column_names(X)
    if isinstance(y, str | list | tuple) or isinstance(sample_weight, str):
        if names is None:
            raise TypeError("y and sample_weight must be arrays when X is not a data frame")
        if y is None:
            raise TypeError("y must name the target columns of X, got None")
        targets = [y] if isinstance(y, str) else list(y)
        if len(set(targets)) != len(targets):
            raise ValueError(f"y must name each target once, got {y!r}")
        special = [*targets, *([sample_weight] if isinstance(sample_weight, str) else [])]
        absent = [name for name in special if name not in names]
        if absent:
            raise ValueError(f"X has no column {absent[0]!r}")
        names = [name for name in names if name not in special]
        if not names:
            raise ValueError("X must have columns to predict from, besides those of y and sample_weight")
        read = dask.delayed(_from_frame)
        rows = [read(k, frame, names, targets, sample_weight) for k, frame in enumerate(X.to_delayed())]
        return rows, names, 0 if isinstance(y, str) else len(targets)
    if y is None or not is_dask(y) or (sample_weight is not None and not is_dask(sample_weight)):
        raise TypeError("y and sample_weight must be Dask collections like X, or names of columns of a data frame")
    lists = [_row_partitions(a) for a in (X, y, sample_weight) if a is not None]
    if len({len(parts) for parts in lists}) != 1:
        raise ValueError(f"X, y and sample_weight must have the same partitions, got {list(map(len, lists))}")
    rows = [dask.delayed(_from_parts)(k, *parts) for k, parts in enumerate(zip(*lists, strict=True))]
    return rows, names, 0 if y.ndim == 1 else int(y.shape[1])


def _row_partitions(collection: Any) -> list[Any]:
    """Return the partitions of a collection along its rows, each with all columns."""
    if getattr(collection, "chunks", ()) and collection.ndim == 2 and len(collection.chunks[1]) > 1:
        collection = collection.rechunk({1: -1})
    return np.ravel(collection.to_delayed()).tolist()


def _from_frame(partition: int, frame: Any, names: list[str], targets: list[str], weight: str | None) -> Rows:
    return _from_parts(partition, frame[names], frame[targets], None if weight is None else frame[weight])


def _from_parts(partition: int, x: Any, y: Any, weight: Any = None) -> Rows:
    lengths = [len(a) for a in (x, y, weight) if a is not None]
    if len(set(lengths)) != 1:
        raise StreamError(f"partition {partition}: X, y and sample_weight must be equally long, got {lengths} rows")
    try:
        return as_row_block(x, y, weight)
    except (TypeError, ValueError) as error:
        raise StreamError(f"partition {partition}: {error}") from None


def _checked(rows: Rows, names: list[str] | None, where: str) -> Rows:
    return checked_rows(rows, names, lambda row: f"{where}, its row {row}", False)


def _summed(empty: RunningStatistics, rows: Rows) -> RunningStatistics:
    """Return the statistics of one partition, on one thread, since workers already run in parallel."""
    statistics = empty.emptied()
    for begin, end in row_blocks(len(rows), statistics.block_rows):
        block = rows[begin:end]
        statistics.merge(statistics.part(block.x, block.y, block.weight), n_threads=1)
    statistics.features = None  # not sent back: the caller has the feature map
    return statistics


def _merged(parts: list[RunningStatistics]) -> RunningStatistics:
    total = parts[0].copy()
    for part in parts[1:]:
        total.merge(part, n_threads=1)
    return total


def _tree(combine: Any, items: list[Any], *arguments: Any) -> Any:
    """Reduce by tasks that combine `FAN_IN` neighbours each, so that no worker ever holds all items."""
    dask = _dask()
    while len(items) > 1:
        groups = [items[a:z] for a, z in row_blocks(len(items), FAN_IN)]
        items = [dask.delayed(combine)(group, *arguments) for group in groups]
    return items[0]
