"""Sources of rows: arrays, iterables of blocks, Parquet files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pydirect._validation import column_names
from pydirect.streams.rows import LabelCodes, Rows, Source, StreamError, as_numbers, as_row_block, usable_columns

# Rows that sources read at a time.
READ_ROWS = 65_536


# ----------------------------------------------------------------------------------------------------------- sources


@dataclass(frozen=True)
class ArraySource:
    """Arrays, in memory or mapped from a file.

    Parameters
    ----------
    x : array of shape (n_rows, n_features_in)
    y : array of shape (n_rows,) or (n_rows, n_outputs)
    weight : array of shape (n_rows,), optional
    names : list of str, optional
    labels : LabelCodes, optional
        Where y holds labels.
    """

    x: Any
    y: Any
    weight: Any = None
    names: list[str] | None = None
    labels: LabelCodes | None = None
    repeatable: bool = True

    def __post_init__(self) -> None:
        if np.ndim(self.x) != 2 or 0 in np.shape(self.x):
            raise ValueError(
                f"X must have shape (n_rows, n_features_in), at least one row and one column, got {np.shape(self.x)}"
            )
        if np.ndim(self.y) not in (1, 2) or len(self.y) != len(self.x):
            raise ValueError(f"y must have {len(self.x)} rows, as X, got shape {np.shape(self.y)}")
        if self.weight is not None and np.shape(self.weight) != (len(self.x),):
            raise ValueError(f"sample_weight must have shape ({len(self.x)},), got {np.shape(self.weight)}")

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.x)

    @property
    def one_dimensional(self) -> bool:
        """Whether y has no axis of outputs."""
        return np.ndim(self.y) == 1

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        for begin in range(start, self.n_rows, READ_ROWS):
            rows = slice(begin, begin + READ_ROWS)
            yield as_row_block(
                self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows], self.labels
            )

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks."""
        return self.blocks(0)

    def place(self, row: int) -> str:
        """Say where a row is."""
        return f"row {row}"

    def layout(self, row: int) -> list[Any]:
        """Nothing is known of the rows before row `row`."""
        return []


class BlockSource:
    """Blocks ``(X, y)`` or ``(X, y, sample_weight)`` from an iterable, or from a function that returns one.

    A list of blocks and a function can be gone through again; an iterator only once. A resumed pass skips the rows that
    it has counted: the blocks must be the same again.
    """

    n_rows: int | None = None

    def __init__(self, blocks: Any, labels: LabelCodes | None = None) -> None:
        self.labels = labels
        self._open: Callable[[], Iterable[Any]] = blocks if callable(blocks) else lambda: blocks
        self.repeatable = callable(blocks) or iter(blocks) is not blocks
        self._held: list[Any] = []
        self._iterator = iter(() if self.repeatable else self._open())
        if self.repeatable and not hasattr(opened := self._open(), "__iter__"):
            raise TypeError(f"X must return an iterator of blocks (X, y), got {type(opened).__name__}")
        first = next(iter(opened), None) if self.repeatable else next(self._iterator, None)
        if first is None:
            raise StreamError("the stream has no blocks")
        if not self.repeatable:
            self._held.append(first)
        x, y = self._parts(first, 0)[:2]
        self.one_dimensional = np.ndim(y) == 1
        self.names = column_names(x)
        self._ends: list[int] = []

    def _each(self) -> Iterator[Any]:
        if self.repeatable:
            yield from self._open()
            return
        while self._held:
            yield self._held.pop(0)
        yield from self._iterator

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks, of at least `n_rows` rows together, which an iterator will yield again."""
        if self.repeatable:
            yield from self.blocks(0)
            return
        self._ends = []
        for number in itertools.count():
            if number == len(self._held):
                self._held.extend(itertools.islice(self._iterator, 1))
            if number == len(self._held) or sum(self._ends[-1:]) >= n_rows:
                return
            rows = self._rows(self._held[number], number)
            self._ends.append(sum(self._ends[-1:]) + len(rows))
            yield rows

    @staticmethod
    def _parts(block: Any, number: int) -> tuple[Any, Any, Any]:
        if not isinstance(block, tuple | list) or len(block) not in (2, 3):
            raise StreamError(f"block {number}: expected (X, y) or (X, y, sample_weight), got {type(block).__name__}")
        x, y, weight = (*block, None)[:3]
        if np.ndim(x) != 2 or np.ndim(y) not in (1, 2) or len(x) != len(y):
            raise StreamError(
                f"block {number}: X and y must have shapes (n_rows, n_features_in) and (n_rows,) or "
                f"(n_rows, n_outputs), got {np.shape(x)} and {np.shape(y)}"
            )
        return x, y, weight

    def _rows(self, block: Any, number: int) -> Rows:
        parts = self._parts(block, number)
        names = column_names(parts[0])
        if number and names is not None and self.names is not None and names != self.names:
            raise StreamError(f"block {number}: the columns must be {self.names}, as of the first block, got {names}")
        try:
            return as_row_block(*parts, self.labels)
        except (TypeError, ValueError) as error:
            raise StreamError(f"block {number}: {error}") from error

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        self._ends, end = [], 0
        for number, block in enumerate(self._each()):
            rows = self._rows(block, number)
            begin, end = end, end + len(rows)
            self._ends.append(end)
            if end > start:
                yield rows[max(start - begin, 0) :]

    def place(self, row: int) -> str:
        """Say where a row is."""
        block = int(np.searchsorted(self._ends, row, side="right"))
        begin = self._ends[block - 1] if block else 0
        return f"row {row} (block {block}, its row {row - begin})"

    def layout(self, row: int) -> list[Any]:
        """Nothing is known of the rows before row `row`."""
        return []


@dataclass
class ParquetSource:
    """A Parquet file, or all of a folder and its subfolders, by name.

    Files are ``*.parquet``, and not those that begin with ``_`` or ``.``.

    Parameters
    ----------
    path : path-like
    targets : sequence of str
        Columns of y.
    weight : str, optional
    drop : sequence of str
        Columns to leave out of X, which has all the others.
    one_dimensional : bool
        Whether y has no axis of outputs.
    labels : LabelCodes, optional
        Where the target holds labels, strings or others.
    """

    path: str | os.PathLike[str]
    targets: Sequence[str]
    weight: str | None = None
    drop: Sequence[str] = ()
    one_dimensional: bool = True
    labels: LabelCodes | None = None
    repeatable: bool = True
    names: list[str] = field(init=False)
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.path)
        self._files = [path] if not path.is_dir() else _tables(path)
        if not self._files:
            raise StreamError(f"{path}: the folder has no .parquet files")
        special = [*self.targets, *([self.weight] if self.weight is not None else [])]
        self._row_groups: list[tuple[int, int, int, int]] = []  # file, row group, first row, rows
        self.n_rows = 0
        for k, file in enumerate(self._files):
            with _opened(file) as parquet:
                usable = usable_columns(parquet.schema_arrow)
                if k == 0:
                    absent = [name for name in (*special, *self.drop) if name not in usable]
                    if absent:
                        raise StreamError(f"{file}: no column {absent[0]!r} (it has {', '.join(map(repr, usable))})")
                    self.names = [name for name in usable if name not in {*special, *self.drop}]
                    if not self.names:
                        raise StreamError(f"{file}: no columns are left to predict from")
                for name in (*self.names, *special):
                    if name in usable and name in self.targets and self.labels is not None:
                        continue
                    if usable.get(name, "missing") is not None:
                        reason = f"holds {usable[name]}" if name in usable else "is missing"
                        raise StreamError(f"{file}: column {name!r} {reason}")
                for group in range(parquet.num_row_groups):
                    rows = parquet.metadata.row_group(group).num_rows
                    self._row_groups.append((k, group, self.n_rows, rows))
                    self.n_rows += rows
        if not self.n_rows:
            raise StreamError(f"{path}: there are no rows")

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on; row groups before it are not read."""
        import pyarrow

        columns = [*self.names, *self.targets, *([self.weight] if self.weight is not None else [])]
        for number, file in enumerate(self._files):
            groups = [(g, first) for f, g, first, rows in self._row_groups if f == number and first + rows > start]
            if not groups:
                continue
            row = groups[0][1]
            try:
                with _opened(file) as parquet:
                    self._require_unchanged(number, parquet, columns)
                    for group, row in groups:
                        for batch in parquet.iter_batches(READ_ROWS, row_groups=[group], columns=columns):
                            begin, row = row, row + batch.num_rows
                            if row > start:
                                yield self._rows(batch.slice(max(start - begin, 0)), columns, begin)
            except (pyarrow.ArrowException, OSError) as error:
                raise StreamError(f"{self.place(row)}: the file cannot be read: {error}") from error

    def _require_unchanged(self, number: int, parquet: Any, columns: list[str]) -> None:
        """Raise unless a file is as long, and has the columns, as when all were looked at: rows are counted by that."""
        known = [rows for file, _, _, rows in self._row_groups if file == number]
        found = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
        usable = usable_columns(parquet.schema_arrow)
        if found != known or not usable.keys() >= set(columns):
            raise StreamError(
                f"{self._files[number]}: the file has changed since this call began: it had {sum(known):,} "
                f"rows of these columns, and has {sum(found):,} rows of {', '.join(map(repr, usable))}"
            )

    def _rows(self, batch: Any, columns: list[str], row: int) -> Rows:
        import pyarrow

        values = np.empty((batch.num_rows, len(columns)))
        for j, name in enumerate(columns):
            column = batch.column(name)
            if self.labels is not None and name in self.targets:
                try:
                    values[:, j] = self.labels.codes(column.to_numpy(zero_copy_only=False))[:, 0]
                except (TypeError, ValueError) as error:
                    raise StreamError(f"{self.place(row)} and those after it: {error}") from error
            else:
                values[:, j] = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        d, k = len(self.names), len(self.targets)
        weight = None if self.weight is None else values[:, -1].copy()
        return Rows(np.ascontiguousarray(values[:, :d]), np.ascontiguousarray(values[:, d : d + k]), weight)

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks."""
        return self.blocks(0)

    def place(self, row: int) -> str:
        """Say where a row is."""
        number, group, first, _ = next(
            (entry for entry in self._row_groups if entry[2] <= row < entry[2] + entry[3]), self._row_groups[-1]
        )
        offset = next(entry[2] for entry in self._row_groups if entry[0] == number)
        return f"{self._files[number]}, data row {row - offset + 1} (row group {group}, its row {row - first + 1})"

    def layout(self, row: int) -> list[Any]:
        """Names, in a folder, and numbers of rows of the files that begin before row `row`."""
        folder, rows = Path(self.path), [0] * len(self._files)
        begun = {number for number, _, first, _ in self._row_groups if first < row}
        for number, _, _, n in self._row_groups:
            rows[number] += n
        names = [f.relative_to(folder).as_posix() if folder.is_dir() else "" for f in self._files]
        return [[names[number], rows[number]] for number in sorted(begun)]


def _tables(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.rglob("*.parquet") if p.name[0] not in "_." and p.is_file())
    for file in files:
        partition = next((part for part in file.relative_to(folder).parts[:-1] if "=" in part), None)
        if partition is not None:
            raise StreamError(
                f"{folder}: the folder is partitioned by a column that its files do not hold ({partition}): give one "
                "of its folders, or write the column into the files"
            )
    return files


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Reading Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    try:
        # Without a pre-buffer, whose memory is that of whole row groups.
        parquet = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    except pyarrow.ArrowException as error:
        raise StreamError(f"{path}: not a whole Parquet file: {error}") from error
    with parquet:
        yield parquet


def as_source(X: Any, y: Any = None, sample_weight: Any = None, labels: LabelCodes | None = None) -> Source:
    """Return the source that the arguments of ``fit_stream`` describe.

    Parameters
    ----------
    X : path-like, array or iterable
    y : str, sequence of str or array_like
    sample_weight : str or array_like, optional
    labels : LabelCodes, optional
        Where y holds labels.
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
        return ParquetSource(X, tuple(names), sample_weight, one_dimensional=isinstance(y, str), labels=labels)
    if isinstance(X, ArraySource | BlockSource | ParquetSource):
        return X
    if y is None:
        if sample_weight is not None:
            raise TypeError("sample_weight must come with the blocks when X is an iterable of them")
        if isinstance(X, np.ndarray) or column_names(X) is not None:
            raise TypeError(f"y must be given with X as one {type(X).__name__}: the targets, an array")
        if not callable(X) and not hasattr(X, "__iter__"):
            raise TypeError(
                "X must be a path, an array, blocks (X, y) or a function that returns an iterator of them, "
                f"got {type(X).__name__}"
            )
        return BlockSource(X, labels)
    if callable(X) or isinstance(X, Iterator) or _holds_blocks(X):
        raise TypeError("y must not be given when X is blocks (X, y) or a function that returns them")
    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if _names_columns(given, labels is not None):
            got = f"the name {given!r}" if isinstance(given, str) else "a list of names"
            raise TypeError(
                f"{name} must hold the values themselves unless X is a path or a Dask data frame, got {got}: drop such "
                "columns from X and give them apart"
            )
    # Arrays mapped from files stay there; frames and lists are in memory anyway.
    targets = as_numbers(y, "y") if labels is None else y if isinstance(y, np.ndarray) else np.asarray(y)
    weight = None if sample_weight is None else as_numbers(sample_weight, "sample_weight")
    return ArraySource(as_numbers(X, "X"), targets, weight, column_names(X), labels)


def _holds_blocks(X: Any) -> bool:
    """Whether X is a list of blocks rather than of rows, which have numbers in them."""
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple) and len(first) > 0 and np.ndim(first[0]) > 0


def _names_columns(given: Any, labels: bool) -> bool:
    """Whether what should be targets, or labels, or weights is the name of a column or a list of names."""
    names = isinstance(given, list | tuple) and bool(given) and all(isinstance(name, str) for name in given)
    return isinstance(given, str) or (names and not labels)
