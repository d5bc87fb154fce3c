"""Which rows of tables are equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray


def equal_rows(*tables: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first of each of the distinct rows of tables side by side, ascending, and for every row its number."""
    keys = row_hashes(*tables)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    if not all(np.array_equal(column, column[first][where]) for table in tables for column in table.T):
        # Two different rows share a hash of 64 bits.
        _, first, where = np.unique(np.hstack(tables), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[where.ravel()]


def row_hashes(*tables: FloatArray) -> NDArray[np.uint64]:
    """Return hashes of the rows of tables side by side, (n_rows,): splitmix64 of one column after another."""
    keys = np.zeros(len(tables[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for table in tables:
            for column in table.T:
                bits = np.ascontiguousarray(column + 0.0, dtype=np.float64).view(np.uint64)  # −0 is 0
                keys = (keys + bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
                keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                keys ^= keys >> np.uint64(31)
    return keys
