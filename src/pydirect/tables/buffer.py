"""Buffered rows of tables, and the codes of their text: all rows while they are few, a window, or a sample."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, is_missing
from pydirect.persistence.schema import AnyNumbers, AtLeast, Positive, Shape
from pydirect.tables.dates import Dates
from pydirect.tables.table import Column, Table, Text, as_numbers, as_text, equal_rows, is_absent, label, mixed

MOST_VALUES = 1_000_000  # of a column of text, which are kept in memory


def codes_of(values: Iterable[Any], known: dict[Any, int]) -> list[float]:
    """Return the codes of values; new ones become `known` with the next."""
    return [float(known.setdefault(value, len(known))) for value in values]


@dataclass(eq=False)
class Codebook:
    """Codes of the text in the columns of tables that come in parts, and which columns hold numbers or dates.

    - `names`: of the columns, if they have any.
    - `gaps`: whether numbers and text may be missing.
    - `numeric`, (n_columns,): columns that have held numbers or dates; None before the first rows.
    - `codes`: of the text of each column, None for others.
    - `zones`: time zones of columns of dates, whose codes are seconds since 1970; None for others.
    """

    names: Annotated[list[str], Shape("n_columns")] | None = None
    gaps: bool = True
    numeric: Annotated[NDArray[np.bool_], Shape("n_columns")] | None = None
    codes: Annotated[list[dict[str, int] | None], Shape("n_columns*")] = field(default_factory=list)
    zones: Annotated[list[str | None], Shape("n_columns*")] = field(default_factory=list)

    def check(self) -> None:
        """Raise unless codes are numbers from zero on."""
        if any(own is not None and [*own.values()] != [*range(len(own))] for own in self.codes):
            raise ValueError("codes must be numbers from zero on")

    @property
    def is_numeric(self) -> bool:
        """Whether no column holds text or dates."""
        return all(own is None for own in (*self.codes, *self.zones))

    @property
    def holds_numbers(self) -> bool:
        """Whether all columns have held numbers, and no text."""
        return self.is_numeric and self.numeric is not None and bool(self.numeric.all())

    @property
    def values(self) -> list[list[str] | None]:
        """Text of each code of each column, None for numbers."""
        return [None if own is None else list(own) for own in self.codes]

    def coded(self, X: Any) -> NDArray[Any]:
        """Return rows with codes for text, (n_rows, n_columns), and NaN for what is missing.

        An array of numbers is returned as it is. Raises TypeError if a column held numbers before and holds text now,
        or has too many values.
        """
        table = X if isinstance(X, Table) else Table.of_text(X) if self.is_numeric else Table.of(X)
        if table is None:
            out = as_numbers(X, "X")
        elif self.is_numeric and table.matrix is not None:
            out = np.ascontiguousarray(table.matrix)
        else:
            self._begin(table.shape[1])
            for j, column in enumerate(table.columns):  # before anything changes
                self._require_kind(j, column, label(table.names, j))
            coded = [self._column(j, column, label(table.names, j)) for j, column in enumerate(table.columns)]
            out = np.column_stack(coded)
        self._look(out)
        return out

    def _require_kind(self, j: int, column: Column, name: str) -> None:
        """Raise unless a column is of what it held before; text may be of numbers and dates too."""
        assert self.numeric is not None
        zone = self.zones[j]
        if self.codes[j] is not None or is_absent(column).all() or not self.numeric[j]:
            return
        if isinstance(column, Dates) and zone is not None:
            if bool(column.zone) != bool(zone):
                raise TypeError(f"{name} must hold times with{'' if zone else 'out'} a zone, as in rows before")
        elif not isinstance(column, np.ndarray) or zone is not None:
            expected = "numbers" if zone is None else "dates"
            raise TypeError(f"{name} must hold {expected}, as in the rows before, got {as_text(column).values[0]!r}")

    def _column(self, j: int, column: Column, name: str) -> FloatArray:
        """Return one column with codes for text, and seconds for dates."""
        known = self.codes[j]
        if not isinstance(column, Text) and known is None:
            if isinstance(column, Dates) and self.zones[j] is None:
                self.zones[j] = column.zone
            return column.seconds if isinstance(column, Dates) else column
        text = as_text(column)
        if not text.values:
            return np.full(len(text), np.nan)
        known = self.codes[j] = {} if known is None else known
        codes = codes_of(text.values, known)
        if len(known) > MOST_VALUES:
            raise TypeError(f"{name} must have at most {MOST_VALUES:,} different values, got more: leave it out")
        return np.array([*codes, np.nan])[text.codes]

    def _begin(self, n_columns: int) -> None:
        if self.numeric is None:
            self.numeric = np.zeros(0, dtype=bool)
            self.add_columns(n_columns)

    def _look(self, x: NDArray[Any]) -> None:
        """Note which columns hold numbers."""
        if x.ndim != 2:
            return
        self._begin(x.shape[1])
        assert self.numeric is not None
        if len(self.numeric) == x.shape[1] and not self.numeric.all():
            self.numeric |= ~np.isnan(x).all(axis=0)

    def add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far."""
        assert self.numeric is not None
        self.numeric = np.append(self.numeric, np.zeros(n_columns, dtype=bool))
        self.codes += [None] * n_columns
        self.zones += [None] * n_columns

    def table(self, x: FloatArray, names: Sequence[str] | None = None) -> Table:
        """Return coded rows, of all columns or the first ones, as the table that they came from."""
        given = self.names if names is None else list(names)
        if self.is_numeric:
            return Table.of_numbers(x, given)
        columns: list[Column] = []
        for column, own, zone in zip(x.T, self.codes, self.zones, strict=False):
            if own is not None:
                columns.append(Text(list(own), np.where(np.isnan(column), -1.0, column).astype(np.intp)))
            else:
                columns.append(column if zone is None else Dates(column, zone))
        return Table(columns, given)


class LabelCodes:
    """Numeric codes of labels, in the order of first appearance: sources hold numbers, labels may be strings.

    Labels that first appear in the same block of rows get their codes in sorted order.
    """

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}

    @property
    def labels(self) -> list[Any]:
        """Label of each code."""
        return list(self._codes)

    def codes(self, values: np.ndarray) -> FloatArray:
        """Return the codes of labels, of shape (n_rows, 1); NaN where a label is missing.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
            Labels.

        Returns
        -------
        ndarray of shape (n_rows, 1)
            Codes.

        Raises
        ------
        TypeError, ValueError
            If there are several columns, or numbers that are not integers.
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"labels must be one column, got shape {values.shape}")
        if values.dtype.kind == "f":
            continuous = np.isfinite(values) & (values != np.trunc(values))
            if continuous.any():
                raise ValueError(f"y must hold labels, got the number {values[continuous][0]}")
        if values.dtype.kind == "O":
            missing = np.array([is_missing(value) for value in values], dtype=bool)
        else:
            missing = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)
        out = np.full(len(values), np.nan)
        try:
            found, inverse = np.unique(values[~missing], return_inverse=True)
        except TypeError:
            kinds = " and ".join(sorted({type(own).__name__ for own in values[~missing].tolist()}))
            raise TypeError(f"y must hold labels that can be ordered, of one type, got {kinds}") from None
        if found.size:
            out[~missing] = np.array(codes_of(found.tolist(), self._codes))[inverse]
        return out[:, None]


PARTS = ("x", "y", "weight", "clock")
# A share of a row's weight that is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows of tables with their targets; text as codes.

    - `x`, (n_rows, n_columns): numbers and codes, NaN where they are missing.
    - `y`, (n_rows, n_outputs).
    - `weight`, (n_rows,): positive.
    - `clock`, (n_rows,): number or time of each row in a stream, elsewhere how many equal rows it stands for.
    """

    x: Annotated[FloatArray, Shape("n_rows*", "n_columns"), AnyNumbers]
    y: Annotated[FloatArray, Shape("n_rows*", "n_outputs")]
    weight: Annotated[FloatArray, Shape("n_rows*"), Positive]
    clock: Annotated[FloatArray, Shape("n_rows*")]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> CodedRows:
        return CodedRows(self.x[rows], self.y[rows], self.weight[rows], self.clock[rows])


@dataclass(frozen=True)
class SavedRows:
    """`RowBuffer` in files."""

    book: Codebook
    rows: CodedRows
    n_learned: Annotated[int, AtLeast(0)]

    def check(self) -> None:
        """Raise unless the rows hold finite numbers and codes of text."""
        if self.rows.x.shape[1] != len(self.book.values) or np.isinf(self.rows.x).any():
            raise ValueError(f"rows must be finite rows of {len(self.book.values)} columns")
        for codes, own in zip(self.rows.x.T, self.book.values, strict=True):
            known = codes[~np.isnan(codes)]
            if own is not None and not np.isin(known, np.arange(len(own))).all():
                raise ValueError("rows must hold the codes of text")


class RowQueue:
    """Rows in the order in which they came, or in any: a queue, or a sample whose rows are replaced."""

    kind = "CodedRows"

    def __init__(self, rows: CodedRows) -> None:
        self._set(rows)

    def _set(self, rows: CodedRows) -> None:
        self._parts = {name: getattr(rows, name).copy() for name in PARTS}
        self._begin, self._end = 0, len(rows)

    @classmethod
    def of_shape(cls, n_columns: int, n_outputs: int) -> Self:
        """Return a queue without rows."""
        return cls(CodedRows(np.empty((0, n_columns)), np.empty((0, n_outputs)), np.empty(0), np.empty(0)))

    def __len__(self) -> int:
        return self._end - self._begin

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} rows of {self._parts['x'].shape[1]} columns>"

    @property
    def rows(self) -> CodedRows:
        """All rows."""
        return CodedRows(**{name: part[self._begin : self._end] for name, part in self._parts.items()})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **RowQueue(self.rows).__dict__}  # without room for more rows

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

    def move(self, amount: FloatArray) -> None:
        """Add an amount, (n_outputs,), to the targets of all rows."""
        self._parts["y"] = self._parts["y"] + amount

    def replace(self, places: NDArray[np.intp], rows: CodedRows) -> None:
        """Put rows in the places of others."""
        for name in PARTS:
            self._parts[name][self._begin + places] = getattr(rows, name)

    def leave(self, n_rows: int) -> CodedRows:
        """Remove and return the first rows."""
        gone = self.rows[:n_rows]
        self._begin += n_rows
        return gone

    # --- files

    def to_saved(self) -> Any:
        return self.rows

    @classmethod
    def from_saved(cls, saved: CodedRows) -> Self:
        return cls(saved)


class RowBuffer(RowQueue):
    """Buffered rows of a fit.

    - `book`: codes of their text.
    - `n_learned`: number of rows from which hyperparameters were last learned.
    """

    kind = "RowBuffer"
    n_learned = 0

    def __init__(self, rows: CodedRows, book: Codebook) -> None:
        super().__init__(rows)
        self.book = book

    @classmethod
    def of(cls, table: Table, y: FloatArray, weight: FloatArray | None) -> Self:
        """Begin with the rows of positive weight; `y`, (n_rows, n_outputs); `weight`, (n_rows,)."""
        buffer = cls(RowQueue.of_shape(table.shape[1], y.shape[1]).rows, Codebook(table.names))
        buffer.append(buffer.coded(table, y, weight))
        return buffer

    @property
    def table(self) -> Table:
        """The rows as a table."""
        return self.book.table(self.rows.x)

    def copy(self) -> Self:
        """Return a buffer with the same rows, and a code book of its own."""
        return copy.deepcopy(self)

    def coded(self, table: Table, y: FloatArray, weight: FloatArray | None) -> CodedRows:
        """Return the rows of a table that have positive weight, with a clock of 1.

        Raises TypeError if a column held numbers before and holds text now.
        """
        x = self.book.coded(table)
        self.book.names = self.book.names or table.names
        rows = CodedRows(x, y, np.ones(len(x)) if weight is None else weight, np.ones(len(x)))
        return rows if weight is None else rows[weight > 0]

    def subtract(self, gone: CodedRows) -> None:
        """Take the weights of some rows from those of equal rows, which are merged.

        Raises ValueError if there are no such rows, or none would be left.
        """
        rows, n = self.rows, len(self)
        x, y = (np.concatenate([getattr(rows, name), getattr(gone, name)]) for name in ("x", "y"))
        first, group = equal_rows(np.hstack([np.where(np.isnan(x), np.inf, x), y]))
        totals = [
            np.bincount(group[chosen], values, minlength=len(first))
            for chosen, own in ((slice(n), rows), (slice(n, None), gone))
            for values in (own.weight, own.clock)
        ]
        before, clock, lost, lost_clock = totals
        if (lost > before * (1 + ROUNDING)).any():
            row = int(np.flatnonzero((lost > before * (1 + ROUNDING))[group[n:]])[0])
            raise ValueError(f"X and y must be of rows seen, with at most their weights: row {row} is none of them")
        share = 1 - lost / before
        left = share > ROUNDING
        if not left.any():
            raise ValueError("X must leave some of the rows seen, got all of them")
        fewer = clock - lost_clock
        rest: FloatArray = np.where(fewer > ROUNDING * clock, fewer, share * clock)
        self._set(CodedRows(x[first[left]], y[first[left]], (share * before)[left], rest[left]))

    # --- files

    def to_saved(self) -> SavedRows:
        return SavedRows(self.book, self.rows, self.n_learned)

    @classmethod
    def from_saved(cls, saved: SavedRows) -> Self:  # type: ignore[override]
        buffer = cls(saved.rows, saved.book)
        buffer.n_learned = saved.n_learned
        return buffer


def sample_places(seed: int, first: int, n_rows: int, n_places: int, share: FloatArray) -> NDArray[np.intp]:
    """Return for each row which place of a sample it takes, −1 for none.

    Every row is accepted with probability `share`, (n_rows,), and takes a random place. The result depends on the seed
    and on the row's number, `first` and later, alone.
    """
    number = np.arange(first, first + n_rows, dtype=np.uint64)
    accept = _uniform(number, 2 * seed) < share
    return np.where(accept, (_uniform(number, 2 * seed + 1) * n_places).astype(np.intp), -1)


def _uniform(number: NDArray[np.uint64], seed: int) -> FloatArray:
    """Return pseudo-random numbers in [0, 1)."""
    with np.errstate(over="ignore"):
        return mixed(number + np.uint64(seed) * np.uint64(0x632BE59BD9B4E019)).astype(np.float64) / 2.0**64
