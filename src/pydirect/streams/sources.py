"""Sources of rows: arrays and iterables of blocks, and the source that the arguments of ``fit_stream`` describe."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from pydirect._validation import column_names, has_nan
from pydirect.streams.parquet import ParquetSource
from pydirect.streams.rows import READ_ROWS, DerivedSource, Rows, Source, StreamError, as_row_block, checked_rows
from pydirect.tables.buffer import Codebook, LabelCodes
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table, as_numbers, refuse_what_numpy_converts


class ArraySource(Source):
    """Source of rows from arrays, in memory or memory-mapped; with `repeatable` False, to be read only once.

    `labels` are codes of the labels if y holds labels, `codes` those of the text that x holds in place of it.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        weight: Any = None,
        names: list[str] | None = None,
        labels: LabelCodes | None = None,
        repeatable: bool = True,
        codes: Codebook | None = None,
    ) -> None:
        if np.ndim(x) != 2 or 0 in np.shape(x):
            raise ValueError(f"X must have shape (n_rows, n_features_in), both at least 1, got {np.shape(x)}")
        if np.ndim(y) not in (1, 2) or len(y) != len(x):
            raise ValueError(f"y must have {len(x)} rows, as X, got shape {np.shape(y)}")
        if weight is not None and np.shape(weight) != (len(x),):
            raise ValueError(f"sample_weight must have shape ({len(x)},), got {np.shape(weight)}")
        self.x, self.y, self.weight, self.labels = x, y, weight, labels
        self.names, self.repeatable, self.codes = names, repeatable, codes
        self.n_rows, self.one_dimensional = len(x), np.ndim(y) == 1

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        for begin in range(start, len(self.x), READ_ROWS):
            rows = slice(begin, begin + READ_ROWS)
            weight = None if self.weight is None else self.weight[rows]
            yield as_row_block(self.x[rows], self.y[rows], weight, self.labels)


class BlockSource(Source):
    """Source of rows from blocks ``(X, y)`` or ``(X, y, sample_weight)``: an iterable, or a function that returns one.

    An iterator allows one pass only. A resumed pass skips rows that it has counted: the blocks must be the same again.
    """

    def __init__(self, blocks: Any, labels: LabelCodes | None = None, codes: Codebook | None = None) -> None:
        self.labels, self.codes = labels, codes
        self._open: Callable[[], Iterable[Any]] = blocks if callable(blocks) else lambda: blocks
        self.repeatable = callable(blocks) or iter(blocks) is not blocks
        if not hasattr(opened := self._open(), "__iter__"):
            raise TypeError(f"X must return an iterator of blocks (X, y), got {type(opened).__name__}")
        self._left, ahead = itertools.tee(opened)  # of an iterator: blocks that no pass has had
        first = next(ahead, None)
        if first is None:
            raise StreamError("the stream has no blocks")
        x, y = self._parts(first, 0)[:2]
        self.one_dimensional = np.ndim(y) == 1
        self.names = column_names(x)
        self._ends: list[int] = []

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        for rows in self._read(self._open() if self.repeatable else self._left):
            skipped = start - self._ends[-1] + len(rows)
            if skipped < len(rows):
                yield rows[max(skipped, 0) :]

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks, of at least `n_rows` rows in total, which later passes yield again."""
        self._left, ahead = itertools.tee(self._left)
        for rows in self._read(self._open() if self.repeatable else ahead):
            yield rows
            if self._ends[-1] >= n_rows:
                return

    def _read(self, blocks: Iterable[Any]) -> Iterator[Rows]:
        """Read blocks, and note where each of them ends."""
        self._ends = []
        for number, block in enumerate(blocks):
            rows = self._rows(block, number)
            self._ends.append(sum(self._ends[-1:]) + len(rows))
            yield rows

    @staticmethod
    def _parts(block: Any, number: int) -> tuple[Any, Any, Any]:
        if not isinstance(block, tuple | list) or len(block) not in (2, 3):
            raise StreamError(f"block {number}: expected (X, y) or (X, y, sample_weight), got {type(block).__name__}")
        x, y, weight = (*block, None)[:3]
        if np.ndim(x) != 2 or np.ndim(y) not in (1, 2) or len(x) != len(y):
            shapes = f"{np.shape(x)} and {np.shape(y)}"
            raise StreamError(f"block {number}: X and y must have shapes (n_rows, d) and (n_rows[, k]), got {shapes}")
        return x, y, weight

    def _rows(self, block: Any, number: int) -> Rows:
        parts = self._parts(block, number)
        names = column_names(parts[0])
        if number and names is not None and self.names is not None and names != self.names:
            raise StreamError(f"block {number}: the columns must be {self.names}, as of the first block, got {names}")
        try:
            return as_row_block(*parts, self.labels, self.codes)
        except (TypeError, ValueError) as error:
            raise StreamError(f"block {number}: {error}") from error

    def place(self, row: int) -> str:
        """Return the place of a row in words."""
        block = int(np.searchsorted(self._ends, row, side="right"))
        begin = self._ends[block - 1] if block else 0
        return f"row {row} (block {block}, its row {row - begin})"


class EncodedSource(DerivedSource):
    """A source whose rows of X are encoded.

    - `drop_missing`: Whether rows of X with a missing number or text stay incomplete, to be dropped.
    """

    def __init__(self, source: Source, encoder: ColumnEncoding, drop_missing: bool = False) -> None:
        super().__init__(source)
        self.encoder, self.drop_missing, self.codes = encoder, drop_missing, None
        self.names = None if source.names is None else encoder.names_out

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        return self._encoded(self.source.blocks(start), start)

    def _encoded(self, blocks: Iterator[Rows], row: int) -> Iterator[Rows]:
        """Encode blocks, the first of which begins at a row of the source."""
        gaps = self.source.codes is not None and self.source.codes.gaps
        for rows in blocks:
            first = row
            row += len(rows)
            if not self.encoder.is_plain or has_nan(rows.x):
                place: Callable[[int], str] = lambda i: self.source.place(first + i)  # noqa: B023, E731
                rows = self.rows(checked_rows(rows, self.source.names, place, self.drop_missing, gaps))
            yield rows

    def rows(self, rows: Rows) -> Rows:
        """Return checked rows of the source with X encoded."""
        codes = self.source.codes
        table = Table.of_numbers(rows.x) if codes is None else codes.table(rows.x, self.source.names)
        if not self.drop_missing or not has_nan(rows.x):
            return Rows(self.encoder.encode(table), rows.y, rows.weight)
        whole = ~np.isnan(rows.x).any(axis=1)
        x = np.full((len(rows), len(self.encoder.names_out)), np.nan)
        if whole.any():
            x[whole] = self.encoder.encode(table.rows(whole))
        return Rows(x, rows.y, rows.weight)

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks."""
        return self._encoded(self.source.head(n_rows), 0)


def as_source(
    X: Any, y: Any = None, sample_weight: Any = None, labels: LabelCodes | None = None, codes: Codebook | None = None
) -> Source:
    """Return the source that the arguments of ``fit_stream`` describe.

    `labels`: codes of the labels, if y holds labels. `codes`: of text in X, if it may hold any.
    """
    if isinstance(X, str | os.PathLike):
        names = [y] if isinstance(y, str) else y
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            got = type(y).__name__ if y is not None else "none"
            raise TypeError(f"y must name the target columns of {os.fspath(X)}, a string or a list of them, got {got}")
        if len(set(names)) != len(names):
            raise ValueError(f"y must name each target once, got {y!r}")
        if not isinstance(sample_weight, str | None):
            raise TypeError(f"sample_weight must name a column of {os.fspath(X)}, got {type(sample_weight).__name__}")
        if not os.path.exists(X):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(X))
        one_dimensional = isinstance(y, str)
        return ParquetSource(
            X, tuple(names), sample_weight, one_dimensional=one_dimensional, labels=labels, codes=codes
        )
    if isinstance(X, Source):
        return X
    for name, given in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        refuse_what_numpy_converts(given, name)
    if y is None:
        if sample_weight is not None:
            raise TypeError("sample_weight must come with the blocks when X is an iterable of them")
        if isinstance(X, np.ndarray) or column_names(X) is not None:
            raise TypeError(f"y must be given with X as one {type(X).__name__}: the targets, an array")
        if not callable(X) and not hasattr(X, "__iter__"):
            raise TypeError(f"X must be a path, an array, blocks (X, y) or what yields them, got {type(X).__name__}")
        return BlockSource(X, labels, codes)
    if callable(X) or isinstance(X, Iterator) or _holds_blocks(X):
        raise TypeError("y must not be given when X is blocks (X, y) or a function that returns them")
    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if _names_columns(given, labels is not None):
            got = f"the name {given!r}" if isinstance(given, str) else "a list of names"
            raise TypeError(
                f"{name} must hold the values themselves unless X is a path or a Dask data frame, got {got}"
            )
    # Memory-mapped arrays stay on disk; frames and lists are in memory anyway.
    targets = as_numbers(y, "y") if labels is None else y if isinstance(y, np.ndarray) else np.asarray(y)
    weight = None if sample_weight is None else as_numbers(sample_weight, "sample_weight")
    x = as_numbers(X, "X") if codes is None else codes.coded(X)
    return ArraySource(x, targets, weight, column_names(X), labels, codes=codes)


def _holds_blocks(X: Any) -> bool:
    """Whether X is a list of blocks rather than of rows of numbers."""
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple) and len(first) > 0 and np.ndim(first[0]) > 0


def _names_columns(given: Any, labels: bool) -> bool:
    """Whether an argument that should hold values is the name of a column or a list of names."""
    names = isinstance(given, list | tuple) and bool(given) and all(isinstance(name, str) for name in given)
    return isinstance(given, str) or (names and not labels)
