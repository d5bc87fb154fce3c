"""Streams of tables: text as numbers while rows are read, then rows as an encoder of tables gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pydirect._validation import FloatArray, has_nan
from pydirect.streams.rows import Rows, Source, checked_rows
from pydirect.tables.table import Table


class Encoder(Protocol):
    """What turns tables into rows of numbers."""

    @property
    def is_plain(self) -> bool:
        """Whether complete rows are encoded as they are."""

    @property
    def names_out(self) -> list[str]:
        """Names of the encoded columns."""

    def encode(self, X: Any) -> FloatArray:
        """Return a table as a matrix."""


@dataclass(frozen=True)
class EncodedSource:
    """A source whose rows of X are encoded.

    - `drop_missing`: Whether rows of X with a missing number or text stay incomplete, to be dropped.
    """

    source: Source
    encoder: Encoder
    drop_missing: bool = False
    codes: None = None

    @property
    def names(self) -> list[str] | None:
        """Names of the encoded columns, if the source's columns have any."""
        return None if self.source.names is None else self.encoder.names_out

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if it is known."""
        return self.source.n_rows

    @property
    def one_dimensional(self) -> bool:
        """Whether y is one-dimensional."""
        return self.source.one_dimensional

    @property
    def repeatable(self) -> bool:
        """Whether the source can be read again."""
        return self.source.repeatable

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

    def place(self, row: int) -> str:
        """Say where a row is."""
        return self.source.place(row)

    def layout(self, row: int) -> list[Any]:
        """Return what identifies the rows before row `row`."""
        return self.source.layout(row)
