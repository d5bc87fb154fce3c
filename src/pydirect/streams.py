"""Data that do not fit into memory: sources of blocks of rows, and one pass over them into statistics.

A source is gone through in blocks of its own making, which are cut anew into blocks whose size the model's width alone
decides. So results do not depend on the source's blocks, and a pass that resumes at the end of a block adds the very
same numbers that an uninterrupted one would have added.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pydirect._interruptions import deferred_interrupt
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, column_names
from pydirect.running_statistics import RunningStatistics
from pydirect.statistics import ordered_map

# Rows that sources read at a time.
READ_ROWS = 65_536
# pandas stores the row labels of a data frame under such names; they are not data.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Rows whose digest tells one source from another.
DIGEST_ROWS = 256


class StreamError(ValueError):
    """Data cannot be read or used; the message says where."""


class StreamInterrupt(KeyboardInterrupt):
    """The user stopped a pass; the message says where, and how to go on."""


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a source.

    Parameters
    ----------
    x : ndarray of shape (n_rows, n_features_in)
    y : ndarray of shape (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,) or None
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray | None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Put parts one below the other."""
        if len(parts) == 1:
            return parts[0]
        weights = [part.weight for part in parts if part.weight is not None]
        weight = np.concatenate(weights) if weights else None
        return Rows(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]), weight)


class Source(Protocol):
    """What can be gone through in blocks of rows."""

    @property
    def names(self) -> list[str] | None:
        """Names of the columns of X, where there are any."""
        ...  # pragma: no cover

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where it is known."""
        ...  # pragma: no cover

    @property
    def one_dimensional(self) -> bool:
        """Whether y has no axis of outputs."""
        ...  # pragma: no cover

    @property
    def repeatable(self) -> bool:
        """Whether the source can be gone through again."""
        ...  # pragma: no cover

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on; values may be missing."""
        ...  # pragma: no cover

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks, of at least `n_rows` rows together, and use nothing up."""
        ...  # pragma: no cover

    def place(self, row: int) -> str:
        """Say where a row is, for messages."""
        ...  # pragma: no cover

    def layout(self, row: int) -> list[Any]:
        """Return what must be as it was for the rows before row `row` to be the same, where anything is known."""
        ...  # pragma: no cover


class LabelCodes:
    """Codes of labels, given when a label first appears: sources hold numbers, labels may be strings.

    Labels that first appear in the same block of rows have codes in their sorted order.

    Attributes
    ----------
    labels : list
        The label of each code.
    """

    def __init__(self) -> None:
        self.labels: list[Any] = []
        self._codes: dict[Any, int] = {}

    def codes(self, values: np.ndarray) -> FloatArray:
        """Return the codes of labels, of shape (n_rows, 1); NaN where a label is missing.

        Raises
        ------
        TypeError, ValueError
            When there are several columns, or numbers that are no labels.
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"labels must be one column, got shape {values.shape}")
        if values.dtype.kind == "f":
            continuous = np.isfinite(values) & (values != np.trunc(values))
            if continuous.any():
                raise ValueError(f"y must hold labels, got the number {values[continuous][0]}")
        missing = _missing_labels(values)
        out = np.full(len(values), np.nan)
        try:
            found, inverse = np.unique(values[~missing], return_inverse=True)
        except TypeError:
            kinds = " and ".join(sorted({type(label).__name__ for label in values[~missing].tolist()}))
            raise TypeError(f"y must hold labels that can be ordered, of one type, got {kinds}") from None
        for label in found.tolist():
            if label not in self._codes:
                self._codes[label] = len(self.labels)
                self.labels.append(label)
        if found.size:
            out[~missing] = np.array([self._codes[label] for label in found.tolist()], dtype=np.float64)[inverse]
        return out[:, None]


def _missing_labels(values: np.ndarray) -> np.ndarray:
    """Return where labels are None or NaN; an infinite one is no label either."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    if values.dtype.kind == "O":
        return np.array([v is None or v != v for v in values], dtype=bool)
    return np.zeros(len(values), dtype=bool)


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
            yield _rows(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows], self.labels)

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
            return _rows(*parts, self.labels)
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
                usable = _usable_columns(parquet.schema_arrow)
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
        usable = _usable_columns(parquet.schema_arrow)
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


def _usable_columns(schema: Any) -> dict[str, str | None]:
    """Return the columns' names, with what they hold where it is neither numbers nor booleans."""
    from pyarrow import types

    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    found: dict[str, str | None] = {}
    for column in schema:
        if not PANDAS_INDEX.fullmatch(column.name):
            numeric = any(is_kind(column.type) for is_kind in kinds)
            found[column.name] = None if numeric else f"values of type {column.type}: turn it into numbers or drop it"
    return found


def _numbers(given: Any, name: str) -> np.ndarray:
    """Return what is given as an array, one mapped from a file as it is; raise unless it holds numbers.

    Columns of a frame may be of several kinds, and are named where they hold something else.
    """
    names = list(getattr(given, "columns", ()))
    if len(set(map(str, names))) < len(names) or not all(isinstance(column, str | int) for column in names):
        names = []  # that do not tell the columns apart
    columns = [given[column] for column in names]
    for label, column in zip(names, columns, strict=True):
        _require_numbers(column, f"column {label!r} of {name}")
    if len({str(column.dtype) for column in columns}) > 1:
        return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    values = given if isinstance(given, np.ndarray) else np.asarray(given)
    if columns and values.dtype.kind == "O":  # of numbers that may be missing
        return np.asarray(given, dtype=np.float64)
    own = getattr(given, "name", None)  # a series has one
    _require_numbers(values, f"column {own!r} of {name}" if isinstance(own, str) else name)
    return values


def _require_numbers(values: Any, name: str) -> None:
    # Kinds of pandas' own types are as NumPy's; polars' types have none.
    kind = values.dtype if hasattr(values.dtype, "kind") else np.asarray(values).dtype
    if kind.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {kind}")


def _rows(x: Any, y: Any, weight: Any, labels: LabelCodes | None = None) -> Rows:
    """Return arrays of float64; y gets its axis of outputs."""
    values = _numbers(x, "X")
    targets = np.asarray(_numbers(y, "y") if labels is None else labels.codes(np.asarray(y)), dtype=np.float64)
    targets = targets[:, None] if targets.ndim == 1 else targets
    weights = None if weight is None else np.asarray(_numbers(weight, "sample_weight"), dtype=np.float64)
    if weights is not None and weights.shape != (len(values),):
        raise ValueError(f"sample_weight must have shape ({len(values)},), got {weights.shape}")
    return Rows(np.ascontiguousarray(values, dtype=np.float64), targets, weights)


# -------------------------------------------------------------------------------------------------------------- pass


def chunks(source: Source, start: int, size: int, drop_missing: bool) -> Iterator[tuple[int, Rows]]:
    """Yield checked rows from row `start` on in chunks of `size`, with the row after each.

    Parameters
    ----------
    source : Source
    start, size : int
    drop_missing : bool
        Leave out rows with NaN in them.

    Raises
    ------
    StreamError
        When a value is missing or infinite, a weight is negative, or the number of columns changes: with the place.
    """
    waiting: list[Rows] = []
    n_waiting, row, widths = 0, start, None
    for block in source.blocks(start):
        shape = (block.x.shape[1], block.y.shape[1], block.weight is None)
        widths = widths or shape
        if shape != widths:
            raise StreamError(
                f"{source.place(row)}: expected {widths[0]} columns of X and {widths[1]} of y "
                f"with{'out' if widths[2] else ''} weights, as before, got {shape[0]} and {shape[1]} "
                f"with{'out' if shape[2] else ''} weights"
            )
        first = row
        waiting.append(checked_rows(block, source.names, lambda i: source.place(first + i), drop_missing))  # noqa: B023
        n_waiting, row = n_waiting + len(block), row + len(block)
        if n_waiting >= size:
            joined, done = Rows.joined(waiting), 0
            while n_waiting - done >= size:
                yield row - n_waiting + done + size, _present(joined[done : done + size], drop_missing)
                done += size
            waiting, n_waiting = [joined[done:]], n_waiting - done
    if n_waiting:
        yield row, _present(Rows.joined(waiting), drop_missing)


def checked_rows(rows: Rows, names: list[str] | None, place: Callable[[int], str], drop_missing: bool) -> Rows:
    """Return rows whose values are finite, or NaN where these will be dropped, and whose weights are not negative.

    Parameters
    ----------
    rows : Rows
    names : list of str or None
        Names of the columns of X.
    place : callable
        Says where a row is.
    drop_missing : bool

    Raises
    ------
    StreamError
        With the place of the first value that is not as it must be.
    """
    weight = None if rows.weight is None else rows.weight[:, None]
    for name, values in (("X", rows.x), ("y", rows.y), ("sample_weight", weight)):
        if values is None or (np.isfinite(values).all() and (name != "sample_weight" or (values >= 0).all())):
            continue
        bad = np.isinf(values) if drop_missing else ~np.isfinite(values)
        if name == "sample_weight":
            bad |= values < 0
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            if name == "X":
                name = f"column {names[column]!r}" if names else f"column {column} of X"
            wanted = "finite and not negative" if name == "sample_weight" else "finite"
            raise StreamError(f"{place(row)}: {name} must be {wanted}, got {values[row, column]}")
    return rows


def _present(rows: Rows, drop_missing: bool) -> Rows:
    if not drop_missing:
        return rows
    missing = np.isnan(rows.x).any(axis=1) | np.isnan(rows.y).any(axis=1)
    if rows.weight is not None:
        missing |= np.isnan(rows.weight)
    return rows[~missing] if missing.any() else rows


def collect_stream(
    statistics: RunningStatistics,
    source: Source,
    *,
    start: int = 0,
    drop_missing: bool = False,
    n_threads: int | None = None,
    after_block: Callable[[int], None] | None = None,
) -> int:
    """Add the rows of a source from row `start` on, block by block; memory is that of a few blocks.

    Parameters
    ----------
    statistics : RunningStatistics
        Changed in place. Whenever this function is left, by an error too, they hold whole blocks, and the last call of
        `after_block` told how many rows that is.
    source : Source
    start : int
    drop_missing : bool
        Leave out rows with NaN in them.
    n_threads : int, optional
        Blocks are computed by that many threads and added in order: the same bits for any number.
    after_block : callable, optional
        Called with the row after the block that was added.

    Returns
    -------
    int
        The number of rows of the source.

    Raises
    ------
    StreamError
        When data cannot be read or used.
    KeyboardInterrupt
        After Ctrl-C, between two blocks.
    """
    threads = resolve_n_threads(n_threads)
    row = start

    def work(chunk: tuple[int, Rows]) -> tuple[int, RunningStatistics]:
        end, rows = chunk
        return end, statistics.part(rows.x, rows.y, rows.weight)

    with single_blas_thread(), deferred_interrupt() as interrupted:
        for end, part in ordered_map(work, chunks(source, start, statistics.block_rows, drop_missing), threads):
            with interrupted.held():
                statistics.merge(part, n_threads=threads)
                row = end
                if after_block is not None:
                    after_block(end)
            interrupted.raise_if_requested()
    return row


# ------------------------------------------------------------------------------------------------------------ sample


@dataclass(frozen=True)
class Sample:
    """Rows drawn from a source without replacement.

    Parameters
    ----------
    rows : Rows
        In the order of the source.
    keys : ndarray of shape (n_rows,)
        What decided: the rows with the smallest keys are drawn.
    index : ndarray of shape (n_rows,)
        Their numbers in the source.
    n_rows : int
        Rows of the source that were looked at.
    """

    rows: Rows
    keys: np.ndarray
    index: np.ndarray
    n_rows: int

    @classmethod
    def of(cls, rows: Rows, first: int, seed: int, size: int) -> Sample:
        """Draw from rows that begin at row `first` of the source."""
        index = np.arange(first, first + len(rows), dtype=np.uint64)
        keys = row_keys(index, seed)
        chosen = np.sort(np.argpartition(keys, size - 1)[:size]) if len(rows) > size else slice(None)
        return cls(rows[chosen], keys[chosen], index[chosen], len(rows))

    @staticmethod
    def joined(parts: Sequence[Sample], size: int) -> Sample:
        """Draw from what was drawn: the same rows as if all had been looked at together."""
        keys, index = (np.concatenate([getattr(p, name) for p in parts]) for name in ("keys", "index"))
        rows, order = Rows.joined([p.rows for p in parts]), np.argsort(keys)[:size]
        order = order[np.argsort(index[order])]
        return Sample(rows[order], keys[order], index[order], sum(p.n_rows for p in parts))


def row_keys(index: np.ndarray, seed: int) -> np.ndarray:
    """Return pseudo-random 64-bit numbers that depend on a row's number and the seed alone (splitmix64).

    So the same rows are drawn however the source is cut, and by however many machines.
    """
    # The seed is mixed too: neighbouring seeds would else draw neighbouring rows.
    return _mixed(index + _mixed(np.array([seed % 2**64], dtype=np.uint64)))


def _mixed(z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def sample_stream(
    source: Source,
    size: int,
    seed: int,
    *,
    drop_missing: bool = False,
    look: Callable[[Rows], None] | None = None,
) -> Sample:
    """Draw rows from a source in one pass, which also checks every value; of an iterator, from its first blocks.

    Parameters
    ----------
    source : Source
    size : int
    seed : int
    drop_missing : bool
    look : callable, optional
        Called with all rows of a source that can be gone through again, in blocks.
    """
    if not source.repeatable:
        first = Rows.joined(list(source.head(size)))
        checked_rows(first, source.names, source.place, drop_missing)
        return Sample.of(_present(first, drop_missing), 0, seed, size)
    kept: list[Sample] = []
    begin = 0
    for end, rows in chunks(source, 0, READ_ROWS, drop_missing):
        kept.append(Sample.of(rows, begin, seed, size))
        begin = end
        if sum(len(sample.rows) for sample in kept) > 4 * size:
            kept = [Sample.joined(kept, size)]
        if look is not None:
            look(rows)
    return Sample.joined(kept, size)


def digest(source: Source) -> str:
    """Return a digest of a source's first rows, which tells whether it is the one of a checkpoint."""
    hashed, left = hashlib.blake2b(digest_size=16), DIGEST_ROWS
    parts = []
    for block in source.head(DIGEST_ROWS):
        parts.append(block[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    for name in ("x", "y", "weight"):  # of all parts, so that it does not matter how rows are cut
        for array in (getattr(part, name) for part in parts):
            if array is not None:
                hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


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
    targets = _numbers(y, "y") if labels is None else y if isinstance(y, np.ndarray) else np.asarray(y)
    weight = None if sample_weight is None else _numbers(sample_weight, "sample_weight")
    return ArraySource(_numbers(X, "X"), targets, weight, column_names(X), labels)


def _holds_blocks(X: Any) -> bool:
    """Whether X is a list of blocks rather than of rows, which have numbers in them."""
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple) and len(first) > 0 and np.ndim(first[0]) > 0


def _names_columns(given: Any, labels: bool) -> bool:
    """Whether what should be targets, or labels, or weights is the name of a column or a list of names."""
    names = isinstance(given, list | tuple) and bool(given) and all(isinstance(name, str) for name in given)
    return isinstance(given, str) or (names and not labels)
