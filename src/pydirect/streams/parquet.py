"""Parquet files as a source of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pydirect.streams.rows import PANDAS_INDEX, READ_ROWS, Rows, Source, StreamError
from pydirect.tables.buffer import Codebook, LabelCodes
from pydirect.tables.dates import Dates
from pydirect.tables.table import Column, Text, as_dates, checked_dates, key_of

TEXT, DATES = "text", "dates"


class _RowGroup(NamedTuple):
    """A row group of a file: numbers of the file and of the group in it, its first row and its length."""

    file: int
    group: int
    first: int
    n_rows: int


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
        self._row_groups: list[_RowGroup] = []
        self.n_rows = 0
        for number, file in enumerate(self._files):
            with _opened(file) as parquet:
                usable = usable_columns(parquet.schema_arrow)
                if number == 0:
                    self.names = self._names_of_inputs(file, usable)
                self._require_usable(file, usable)
                for group in range(parquet.num_row_groups):
                    n_rows = parquet.metadata.row_group(group).num_rows
                    self._row_groups.append(_RowGroup(number, group, self.n_rows, n_rows))
                    self.n_rows += n_rows
        if not self.n_rows:
            raise StreamError(f"{path}: there are no rows")

    def _names_of_inputs(self, file: Path, usable: dict[str, str | None]) -> list[str]:
        absent = [name for name in (*self._special, *self.drop) if name not in usable]
        if absent:
            raise StreamError(f"{file}: no column {absent[0]!r} (it has {', '.join(map(repr, usable))})")
        names = [name for name in usable if name not in {*self._special, *self.drop}]
        if not names:
            raise StreamError(f"{file}: no columns are left to predict from")
        return names

    def _require_usable(self, file: Path, usable: dict[str, str | None]) -> None:
        wrong = [name for name in (*self.names, *self._special) if not self._is_usable(name, usable)]
        reasons = [f"{name!r} {f'holds {usable[name]}' if name in usable else 'is missing'}" for name in wrong]
        if wrong:
            word, them = ("column", "it") if len(wrong) == 1 else ("columns", "them")
            hint = f": turn {them} into numbers or drop {them}" if usable.keys() & set(wrong) else ""
            raise StreamError(f"{file}: {word} {', '.join(reasons)}{hint}")

    def _is_usable(self, name: str, usable: dict[str, str | None]) -> bool:
        if name in usable and name in self.targets and self.labels is not None:
            return True
        if usable.get(name) in (TEXT, DATES) and self.codes is not None and name in self.names:
            return True
        return name in usable and usable[name] is None

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on; row groups before it are not read."""
        import pyarrow

        columns = [*self.names, *self._special]
        for number, file in enumerate(self._files):
            groups = [g for g in self._row_groups if g.file == number and g.first + g.n_rows > start]
            if not groups:
                continue
            row = groups[0].first
            try:
                with _opened(file) as parquet:
                    self._require_unchanged(number, parquet, columns)
                    for group in groups:
                        row = group.first
                        for batch in parquet.iter_batches(READ_ROWS, row_groups=[group.group], columns=columns):
                            begin, row = row, row + batch.num_rows
                            if row > start:
                                yield self._rows(batch.slice(max(start - begin, 0)), columns, begin)
            except (pyarrow.ArrowException, OSError) as error:
                raise StreamError(f"{self.place(row)}: the file cannot be read: {error}") from error

    def _require_unchanged(self, number: int, parquet: Any, columns: list[str]) -> None:
        """Raise if a file's row groups or columns have changed since the source was opened."""
        known = [group.n_rows for group in self._row_groups if group.file == number]
        found = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
        usable = usable_columns(parquet.schema_arrow)
        if found != known or not usable.keys() >= set(columns):
            raise StreamError(
                f"{self._files[number]}: the file has changed since this call began: it had {sum(known):,} "
                f"rows of these columns, and has {sum(found):,} rows of {', '.join(map(repr, usable))}"
            )

    def _rows(self, batch: Any, columns: list[str], row: int) -> Rows:
        values = np.empty((batch.num_rows, len(columns)))
        for j, name in enumerate(columns):
            column = batch.column(name)
            if self.labels is not None and name in self.targets:
                try:
                    values[:, j] = self.labels.codes(column.to_numpy(zero_copy_only=False))[:, 0]
                except (TypeError, ValueError) as error:
                    raise StreamError(f"{self.place(row)} and those after it: {error}") from error
            elif self.codes is not None and j < len(self.names):
                values[:, j] = self.codes.column(j, _as_column(column, f"column {name!r}"), f"column {name!r}")
            else:
                values[:, j] = _as_numbers(column)
        d, k = len(self.names), len(self.targets)
        if self.codes is not None:
            self.codes.look(values[:, :d])
        weight = None if self.weight is None else values[:, -1].copy()
        return Rows(np.ascontiguousarray(values[:, :d]), np.ascontiguousarray(values[:, d : d + k]), weight)

    def place(self, row: int) -> str:
        """Return file, row and row group of a row in words."""
        group = next((g for g in self._row_groups if g.first <= row < g.first + g.n_rows), self._row_groups[-1])
        offset = next(g.first for g in self._row_groups if g.file == group.file)
        return (
            f"{self._files[group.file]}, data row {row - offset + 1} "
            f"(row group {group.group}, its row {row - group.first + 1})"
        )

    def layout(self, row: int) -> list[Any]:
        """Return paths in the folder and numbers of rows of the files that begin before row `row`."""
        folder, n_rows = Path(self.path), [0] * len(self._files)
        begun = {group.file for group in self._row_groups if group.first < row}
        for group in self._row_groups:
            n_rows[group.file] += group.n_rows
        names = [f.relative_to(folder).as_posix() if folder.is_dir() else "" for f in self._files]
        return [[names[file], n_rows[file]] for file in sorted(begun)]


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
        # Neither a pre-buffer nor a scan of pyarrow.dataset: both would have whole row groups in memory.
        parquet = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    except pyarrow.ArrowException as error:
        raise StreamError(f"{path}: not a whole Parquet file: {error}") from error
    with parquet:
        yield parquet


def usable_columns(schema: Any) -> dict[str, str | None]:
    """Return the names of columns, each with None if it holds numbers or booleans, else with what it holds."""
    from pyarrow import types

    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    found: dict[str, str | None] = {}
    for column in schema:
        if not PANDAS_INDEX.fullmatch(column.name):
            numeric = any(is_kind(column.type) for is_kind in kinds)
            kind = (
                TEXT if _is_text(column.type) else DATES if _is_date(column.type) else f"values of type {column.type}"
            )
            found[column.name] = None if numeric else kind
    return found


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type) or types.is_integer(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_date(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_date(kind))


def _as_numbers(column: Any) -> Any:
    import pyarrow

    return column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)


def _as_column(column: Any, name: str) -> Column:
    """Return a column of numbers, of text or of dates."""
    if _is_date(column.type):
        zone = getattr(column.type, "tz", None) or ""
        return checked_dates(Dates.of_numpy(column.to_numpy(zero_copy_only=False), zone), name)
    if not _is_text(column.type):
        return np.asarray(_as_numbers(column), dtype=np.float64)
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    codes = np.asarray(coded.indices.fill_null(-1), dtype=np.intp)
    return as_dates(Text([key_of(value) for value in coded.dictionary.to_pylist()], codes), name)
