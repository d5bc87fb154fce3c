"""Parquet files as a source of rows."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from pydirect.streams.rows import PANDAS_INDEX, READ_ROWS, Rows, Source, StreamError, as_row_block
from pydirect.tables.buffer import Codebook, LabelCodes
from pydirect.tables.table import kinds


@dataclass
class ParquetSource(Source):
    """Source of rows from a Parquet file, or from all those in a folder and its subfolders, ordered by name.

    Files are ``*.parquet`` except those whose names begin with ``_`` or ``.``. X has all columns but `drop`.
    """

    path: str | os.PathLike[str]
    targets: Sequence[str]
    weight: str | None = None
    drop: Sequence[str] = ()
    one_dimensional: bool = True
    labels: LabelCodes | None = None
    repeatable: bool = True
    codes: Codebook | None = None
    names: list[str] = field(init=False)
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.path)
        self._files = [path] if not path.is_dir() else _tables(path)
        if not self._files:
            raise StreamError(f"{path}: the folder has no .parquet files")
        self._special = [*self.targets, *([self.weight] if self.weight is not None else [])]
        self._sizes: list[list[int]] = []  # of the row groups of each file
        for file in self._files:
            with _opened(file) as parquet:
                usable = _usable_columns(parquet)
                if not self._sizes:
                    self.names = self._names_of_inputs(file, usable)
                self._require_usable(file, usable)
                self._sizes.append(_sizes_of(parquet))
        self._begins = list(accumulate(map(sum, self._sizes), initial=0))  # of each file, and the end
        self.n_rows = self._begins[-1]
        if not self.n_rows:
            raise StreamError(f"{path}: there are no rows")

    def _names_of_inputs(self, file: Path, usable: dict[str, str]) -> list[str]:
        absent = [name for name in (*self._special, *self.drop) if name not in usable]
        if absent:
            raise StreamError(f"{file}: no column {absent[0]!r} (it has {', '.join(map(repr, usable))})")
        names = [name for name in usable if name not in {*self._special, *self.drop}]
        if not names:
            raise StreamError(f"{file}: no columns are left to predict from")
        return names

    def _require_usable(self, file: Path, usable: dict[str, str]) -> None:
        of_inputs = {"numbers"} if self.codes is None else {"numbers", "text", "dates"}
        wrong = [name for name in self.names if usable.get(name) not in of_inputs]
        for name in self._special:
            label = name in usable and self.labels is not None and name in self.targets
            if usable.get(name) != "numbers" and not label:
                wrong.append(name)
        if wrong:
            reasons = [f"{name!r} {f'holds {usable[name]}' if name in usable else 'is missing'}" for name in wrong]
            word, them = ("column", "it") if len(wrong) == 1 else ("columns", "them")
            hint = f": turn {them} into numbers or drop {them}" if usable.keys() & set(wrong) else ""
            raise StreamError(f"{file}: {word} {', '.join(reasons)}{hint}")

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on; row groups before it are not read."""
        import pyarrow

        columns = [*self.names, *self._special]
        for file, sizes, (row, end) in zip(self._files, self._sizes, pairwise(self._begins), strict=True):
            if end <= start:
                continue
            try:
                with _opened(file) as parquet:
                    self._require_unchanged(file, sizes, parquet)
                    for group, size in enumerate(sizes):
                        if row + size <= start:
                            row += size
                            continue
                        for batch in parquet.iter_batches(READ_ROWS, row_groups=[group], columns=columns):
                            begin, row = row, row + batch.num_rows
                            if row > start:
                                rows = batch.slice(max(start - begin, 0))
                                yield self._rows(pyarrow.Table.from_batches([rows]), begin)
            except (pyarrow.ArrowException, OSError) as error:
                raise StreamError(f"{self.place(row)}: the file cannot be read: {error}") from error

    def _require_unchanged(self, file: Path, sizes: list[int], parquet: Any) -> None:
        """Raise if a file's row groups or columns have changed since the source was opened."""
        found, usable = _sizes_of(parquet), _usable_columns(parquet)
        if found != sizes or not usable.keys() >= {*self.names, *self._special}:
            now = f"{sum(found):,} rows of {', '.join(map(repr, usable))}"
            raise StreamError(
                f"{file}: the file has changed since this call began: it had {sum(sizes):,} rows, and has {now}"
            )

    def _rows(self, frame: Any, row: int) -> Rows:
        x, y = frame.select(self.names), frame.select(self.targets)
        weight = None if self.weight is None else frame.select([self.weight])
        try:
            return as_row_block(x, y, weight, self.labels, self.codes)
        except (TypeError, ValueError) as error:
            raise StreamError(f"{self.place(row)} and those after it: {error}") from error

    def place(self, row: int) -> str:
        """Return file, row and row group of a row in words."""
        row = min(row, self.n_rows - 1)
        file = bisect_right(self._begins, row) - 1
        begins = list(accumulate(self._sizes[file], initial=self._begins[file]))
        group = bisect_right(begins, row) - 1
        of_file, of_group = row - begins[0] + 1, row - begins[group] + 1
        return f"{self._files[file]}, data row {of_file} (row group {group}, its row {of_group})"

    def layout(self, row: int) -> list[Any]:
        """Return paths in the folder and numbers of rows of the files that begin before row `row`."""
        folder = Path(self.path)
        names = [f.relative_to(folder).as_posix() if folder.is_dir() else "" for f in self._files]
        return [
            [name, sum(sizes)]
            for name, sizes, begin in zip(names, self._sizes, self._begins, strict=False)
            if sizes and begin < row
        ]


def _tables(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.rglob("*.parquet") if p.name[0] not in "_." and p.is_file())
    for file in files:
        partition = next((part for part in file.relative_to(folder).parts[:-1] if "=" in part), None)
        if partition is not None:
            raise StreamError(
                f"{folder}: partitioned by a column that its files do not hold ({partition}): give one of its folders"
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
        # Neither a pre-buffer nor a scan of pyarrow.dataset: both would have whole row groups in memory.
        parquet = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    except pyarrow.ArrowException as error:
        raise StreamError(f"{path}: not a whole Parquet file: {error}") from error
    with parquet:
        yield parquet


def _sizes_of(parquet: Any) -> list[int]:
    """Return the number of rows of each row group."""
    return [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]


def _usable_columns(parquet: Any) -> dict[str, str]:
    """Return what the columns hold that are data, by their names."""
    held = kinds(parquet.schema_arrow.empty_table())
    return {name: kind for name, kind in held.items() if not PANDAS_INDEX.fullmatch(name)}
