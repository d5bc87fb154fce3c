"""Rows that a model of a stream keeps: the first ones, those of a window, or a sample of what has passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.estimators._held_rows import HeldRows
from pydirect.streams.tables import Table, Text

PARTS = ("x", "y", "weight", "clock")


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows of tables whose text is held as codes.

    - `x`, (n_rows, n_columns): numbers and codes, NaN where they are missing.
    - `y`, (n_rows, n_outputs).
    - `weight`, (n_rows,): positive.
    - `clock`, (n_rows,): number or time of each row.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray
    clock: FloatArray

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> CodedRows:
        return CodedRows(self.x[rows], self.y[rows], self.weight[rows], self.clock[rows])


class Codebook:
    """What the codes of columns of text stand for; grows with the rows."""

    def __init__(self, names: list[str] | None, values: list[list[str] | None], numeric: NDArray[np.bool_]) -> None:
        self.names, self.values, self.numeric = names, values, numeric

    @classmethod
    def of(cls, table: Table) -> Self:
        """Begin with the columns of a table."""
        d = table.shape[1]
        return cls(table.names, [None] * d, np.zeros(d, dtype=bool))

    def coded(self, table: Table) -> FloatArray:
        """Return the rows of a table as numbers and codes, (n_rows, n_columns).

        Raises TypeError if a column held numbers before and holds text now.
        """
        known = np.where(self.numeric, 0.0, np.nan)[None, :]  # a column of nothing but gaps can still become text
        empty = np.empty(0)
        book = HeldRows(known, self.values, self.names, np.empty((1, 0)), empty, empty)
        coded = [
            book._coded(j, column, str(j) if table.names is None else table.names[j])
            for j, column in enumerate(table.columns)
        ]
        x = np.column_stack([codes for codes, _ in coded])
        self.values = [own for _, own in coded]
        self.numeric = self.numeric | ~np.isnan(x).all(axis=0)
        return x

    def add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far."""
        self.values = [*self.values, *[None] * n_columns]
        self.numeric = np.append(self.numeric, np.zeros(n_columns, dtype=bool))

    @property
    def is_numeric(self) -> bool:
        """Whether no column holds text."""
        return all(own is None for own in self.values)

    def table(self, x: FloatArray) -> Table:
        """Return coded rows, all columns or the first ones, as a table."""
        values = self.values[: x.shape[1]]
        if all(own is None for own in values):
            return Table.of_numbers(x, self.names)
        columns = [
            column if own is None else Text(own, np.where(np.isnan(column), -1.0, column).astype(np.intp))
            for column, own in zip(x.T, values, strict=True)
        ]
        return Table(columns, self.names)


class RowStore:
    """Rows in the order in which they came, or in any: a queue, or a sample whose rows are replaced."""

    def __init__(self, rows: CodedRows) -> None:
        self._parts = {name: getattr(rows, name).copy() for name in PARTS}
        self._begin, self._end = 0, len(rows)

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def rows(self) -> CodedRows:
        """All rows."""
        return CodedRows(**{name: part[self._begin : self._end] for name, part in self._parts.items()})

    def append(self, rows: CodedRows) -> None:
        """Add rows after the others."""
        if self._end + len(rows) > len(self._parts["x"]):
            kept = self.rows
            size = 2 * (len(kept) + len(rows))
            for name in PARTS:
                old = getattr(kept, name)
                self._parts[name] = np.empty((size, *old.shape[1:]))
                self._parts[name][: len(kept)] = old
            self._begin, self._end = 0, len(kept)
        for name in PARTS:
            self._parts[name][self._end : self._end + len(rows)] = getattr(rows, name)
        self._end += len(rows)

    def add_columns(self, n_columns: int) -> None:
        """Take in columns that no row had so far."""
        x = self._parts["x"]
        self._parts["x"] = np.column_stack([x, np.full((len(x), n_columns), np.nan)])

    def replace(self, places: NDArray[np.intp], rows: CodedRows) -> None:
        """Put rows in the places of others."""
        for name in PARTS:
            self._parts[name][self._begin + places] = getattr(rows, name)

    def leave(self, n_rows: int) -> CodedRows:
        """Remove and return the first rows."""
        gone = self.rows[:n_rows]
        self._begin += n_rows
        return gone

    def remove(self, places: NDArray[np.intp]) -> None:
        """Remove rows."""
        kept = np.delete(np.arange(len(self)), places)
        self.__init__(self.rows[kept])  # type: ignore[misc]

    def places_of(self, x: FloatArray, y: FloatArray, weight: FloatArray) -> NDArray[np.intp]:
        """Return the place of each row, each place once; −1 where there is no row with these values and this weight."""
        places: dict[bytes, list[int]] = {}
        held = self.rows
        for place in range(len(held) - 1, -1, -1):
            places.setdefault(_key(held.x[place], held.y[place], held.weight[place]), []).append(place)
        found = [places.get(_key(*row), []) for row in zip(x, y, weight, strict=True)]
        return np.array([own.pop() if own else -1 for own in found], dtype=np.intp)


def _key(x: FloatArray, y: FloatArray, weight: float) -> bytes:
    return x.tobytes() + y.tobytes() + np.float64(weight).tobytes()


def sample_places(seed: int, first: int, n_rows: int, n_places: int, share: FloatArray) -> NDArray[np.intp]:
    """Return for each row which place of a sample it takes, −1 for none.

    Every row is accepted with probability `share`, (n_rows,), and takes a random place. The result depends on the seed
    and on the row's number, `first` and later, alone.
    """
    number = np.arange(first, first + n_rows, dtype=np.uint64)
    accept = _uniform(number, 2 * seed) < share
    return np.where(accept, (_uniform(number, 2 * seed + 1) * n_places).astype(np.intp), -1)


def _uniform(number: NDArray[np.uint64], seed: int) -> FloatArray:
    """Return pseudo-random numbers in [0, 1): the mixing of SplitMix64 (Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        z = (number + np.uint64(1) + np.uint64(seed) * np.uint64(0x632BE59BD9B4E019)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))).astype(np.float64) / 2.0**64
