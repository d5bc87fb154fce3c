"""Parquet files of the command line as columns of numbers, booleans and text."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydirect.cli.common import TableError
from pydirect.cli.table_values import DATES, as_objects, interpreted
from pydirect.cli.tables import Table, check_names
from pydirect.streams.rows import PANDAS_INDEX


def read_parquet(content: bytes, path: str) -> Table:
    """Return the table in the bytes of a Parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Reading Parquet requires pyarrow. Install it with: pip install "pydirect[arrow]"') from None
    try:
        data = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{path}: not a readable Parquet file: {error}") from None
    kept = [i for i, name in enumerate(data.column_names) if not PANDAS_INDEX.fullmatch(name)]
    check_names([data.column_names[i] for i in kept], path)
    if not kept or data.num_rows == 0:
        raise TableError(f"{path}: the file has no {'rows' if kept else 'columns'}")
    table = Table({}, {}, data.num_rows)
    for i in kept:
        table.add(data.column_names[i], _values_of(data.column(i)))
    return table


def _values_of(values: Any) -> np.ndarray | str:
    from pyarrow import float64, types

    kind = values.type
    if types.is_dictionary(kind):
        return _values_of(values.cast(kind.value_type))
    if str(kind) in {"string", "large_string", "string_view"}:
        return interpreted(as_objects(values.to_pylist()))
    if types.is_boolean(kind) and values.null_count < len(values):
        return as_objects(values.to_pylist())
    if any(is_kind(kind) for is_kind in (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)):
        # Integers beyond 2**53 lose their last digits, like any number in a float64 column.
        return np.array(values.cast(float64(), safe=False).to_numpy(), dtype=np.float64)
    if types.is_null(kind):
        return np.full(len(values), np.nan)
    return DATES if types.is_temporal(kind) else f"values of type {kind}"
