"""Blocks of rows that a stream yields: the protocol of sources, checks and chunks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pydirect._validation import FloatArray
from pydirect.tables.buffer import Codebook, LabelCodes
from pydirect.tables.table import as_numbers, is_frame, mixed

# Number of rows that sources read at a time.
READ_ROWS = 65_536
# Columns in which pandas stores the row labels of a data frame; they are not data.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


class StreamError(ValueError):
    """A stream's data cannot be read or used; the message says where."""


class StreamInterrupt(KeyboardInterrupt):
    """The user interrupted a pass over a stream; the message says where, and how to continue."""


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a source: x (n_rows, n_features_in), y (n_rows, n_outputs) and weight (n_rows,)."""

    x: FloatArray
    y: FloatArray
    weight: FloatArray | None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Concatenate parts."""
        if len(parts) == 1:
            return parts[0]
        weights = [part.weight for part in parts if part.weight is not None]
        weight = np.concatenate(weights) if weights else None
        return Rows(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]), weight)


class Source:
    """Base of sources, which yield blocks of rows.

    - `names`: Names of the columns of X, if any.
    - `n_rows`: Number of rows, if known.
    - `one_dimensional`: Whether y is one-dimensional.
    - `repeatable`: Whether more than one pass is possible.
    - `codes`: Codes of the text in X; None if X holds numbers only, none of them missing.
    """

    names: list[str] | None = None
    n_rows: int | None = None
    one_dimensional: bool = True
    repeatable: bool = True
    codes: Codebook | None = None

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on, with missing values in them."""
        raise NotImplementedError

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks, of at least `n_rows` rows in total, without consuming them."""
        return self.blocks(0)

    def place(self, row: int) -> str:
        """Return the place of a row in words, for messages."""
        return f"row {row}"

    def layout(self, row: int) -> list[Any]:
        """Return what identifies the rows before row `row`, as far as it is known without reading them."""
        return []


class DerivedSource(Source):
    """Base of sources whose rows are made from those of another one, in the same order."""

    def __init__(self, source: Source) -> None:
        self.source, self.names, self.codes, self.n_rows = source, source.names, source.codes, source.n_rows
        self.one_dimensional, self.repeatable = source.one_dimensional, source.repeatable

    def place(self, row: int) -> str:
        """Return the place of a row in words."""
        return self.source.place(row)

    def layout(self, row: int) -> list[Any]:
        """Return what identifies the rows before row `row`."""
        return self.source.layout(row)


def as_row_block(x: Any, y: Any, weight: Any, labels: LabelCodes | None = None, codes: Codebook | None = None) -> Rows:
    """Return a block of float64 arrays, with y two-dimensional; text becomes codes."""
    values = as_numbers(x, "X") if codes is None else codes.coded(x)
    targets = np.asarray(as_numbers(y, "y") if labels is None else labels.codes(np.asarray(y)), dtype=np.float64)
    targets = targets[:, None] if targets.ndim == 1 else targets
    weights = None if weight is None else np.array(as_numbers(weight, "sample_weight"), dtype=np.float64)
    if weights is not None and is_frame(weight):
        weights = weights.ravel()  # of one column
    if weights is not None and weights.shape != (len(values),):
        raise ValueError(f"sample_weight must have shape ({len(values)},), got {weights.shape}")
    return Rows(np.ascontiguousarray(values, dtype=np.float64), targets, weights)


def chunks(source: Source, start: int, size: int, drop_missing: bool) -> Iterator[tuple[int, Rows]]:
    """Yield checked rows from row `start` on in chunks of `size`, each with the number of the row after it.

    `drop_missing`: whether to leave out rows with missing values. Raises StreamError if a value is missing or infinite,
    a weight is negative, or the number of columns changes.
    """
    waiting: list[Rows] = []
    gaps = source.codes is not None and source.codes.gaps
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
        place: Callable[[int], str] = lambda i: source.place(first + i)  # noqa: B023, E731
        waiting.append(checked_rows(block, source.names, place, drop_missing, gaps))
        n_waiting, row = n_waiting + len(block), row + len(block)
        if n_waiting >= size:
            joined, done = Rows.joined(waiting), 0
            while n_waiting - done >= size:
                yield row - n_waiting + done + size, rows_present(joined[done : done + size], drop_missing)
                done += size
            waiting, n_waiting = [joined[done:]], n_waiting - done
    if n_waiting:
        yield row, rows_present(Rows.joined(waiting), drop_missing)


def checked_rows(
    rows: Rows, names: list[str] | None, place: Callable[[int], str], drop_missing: bool, gaps: bool = False
) -> Rows:
    """Return rows unchanged if values are finite, or NaN if these will be dropped, and weights not negative.

    `names`: names of the columns of X. `place`: function that returns the place of a row in words. `gaps`: whether X
    may hold NaN in any case. Raises StreamError if not, with the place of the first such value.
    """
    weight = None if rows.weight is None else rows.weight[:, None]
    for name, values in (("X", rows.x), ("y", rows.y), ("sample_weight", weight)):
        if values is None or (np.isfinite(values).all() and (name != "sample_weight" or (values >= 0).all())):
            continue
        bad = np.isinf(values) if drop_missing or (gaps and name == "X") else ~np.isfinite(values)
        if name == "sample_weight":
            bad |= values < 0
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            if name == "X":
                name = f"column {names[column]!r}" if names else f"column {column} of X"
            wanted = "finite and not negative" if name == "sample_weight" else "finite"
            raise StreamError(f"{place(row)}: {name} must be {wanted}, got {values[row, column]}")
    return rows


def rows_present(rows: Rows, drop_missing: bool) -> Rows:
    """Return the rows without missing values if these are to be dropped, else all."""
    if not drop_missing:
        return rows
    missing = np.isnan(rows.x).any(axis=1) | np.isnan(rows.y).any(axis=1)
    if rows.weight is not None:
        missing |= np.isnan(rows.weight)
    return rows[~missing] if missing.any() else rows


def row_keys(index: np.ndarray, seed: int) -> np.ndarray:
    """Return pseudo-random 64-bit keys that depend only on a row's number and the seed (splitmix64).

    The same rows are drawn however the source is cut into blocks, and by any number of machines.
    """
    # The seed is mixed too: neighbouring seeds would draw neighbouring rows otherwise.
    return mixed(index + mixed(np.array([seed % 2**64], dtype=np.uint64)))
