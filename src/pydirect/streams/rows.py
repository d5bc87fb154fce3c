"""Blocks of rows: what a stream yields, their checks, and labels as numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pydirect._validation import FloatArray

# pandas stores the row labels of a data frame under such names; they are not data.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")


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


def usable_columns(schema: Any) -> dict[str, str | None]:
    """Return the columns' names, with what they hold where it is neither numbers nor booleans."""
    from pyarrow import types

    kinds = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    found: dict[str, str | None] = {}
    for column in schema:
        if not PANDAS_INDEX.fullmatch(column.name):
            numeric = any(is_kind(column.type) for is_kind in kinds)
            found[column.name] = None if numeric else f"values of type {column.type}: turn it into numbers or drop it"
    return found


def as_numbers(given: Any, name: str) -> np.ndarray:
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


def as_row_block(x: Any, y: Any, weight: Any, labels: LabelCodes | None = None) -> Rows:
    """Return arrays of float64; y gets its axis of outputs."""
    values = as_numbers(x, "X")
    targets = np.asarray(as_numbers(y, "y") if labels is None else labels.codes(np.asarray(y)), dtype=np.float64)
    targets = targets[:, None] if targets.ndim == 1 else targets
    weights = None if weight is None else np.asarray(as_numbers(weight, "sample_weight"), dtype=np.float64)
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
                yield row - n_waiting + done + size, rows_present(joined[done : done + size], drop_missing)
                done += size
            waiting, n_waiting = [joined[done:]], n_waiting - done
    if n_waiting:
        yield row, rows_present(Rows.joined(waiting), drop_missing)


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


def rows_present(rows: Rows, drop_missing: bool) -> Rows:
    """Leave out rows with missing values, or refuse them."""
    if not drop_missing:
        return rows
    missing = np.isnan(rows.x).any(axis=1) | np.isnan(rows.y).any(axis=1)
    if rows.weight is not None:
        missing |= np.isnan(rows.weight)
    return rows[~missing] if missing.any() else rows


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
