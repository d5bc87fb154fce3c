"""Checks of tables."""

from __future__ import annotations

import numpy as np
import pytest

from pydirect.cli.table_files import read_table
from pydirect.cli.tables import Table, TableError


def same(values, expected):
    np.testing.assert_array_equal(values, np.array(expected, dtype=values.dtype), strict=True)


def make_table(**columns):
    arrays = {}
    for name, values in columns.items():
        is_text = any(isinstance(value, str) for value in values)
        arrays[name] = np.array(values, dtype=object if is_text else float)
    return Table(arrays, {}, len(next(iter(arrays.values()))))


def test_missing_values_are_placed(csv_file):
    table = read_table(csv_file("x,s\n1,a\n,b\n,\n"))
    with pytest.raises(TableError, match=r"column 'x': missing value in data row 2 \(2 in this column\)"):
        table.require_complete(["x"])
    with pytest.raises(TableError, match=r"column 's': missing value in data row 3 \(1 in this column\)"):
        table.require_complete(["s"])


def test_drop_missing_looks_only_at_the_named_columns():
    table = make_table(x=[1, np.nan, 3, 4], s=["a", "b", None, "d"], other=[np.nan] * 4)
    kept = table.drop_missing(["x", "s"])
    assert kept.n_rows == 2
    same(kept.columns["x"], [1.0, 4.0])
    same(kept.columns["s"], ["a", "d"])
    assert table.n_rows == 4
    with pytest.raises(TableError, match="every row has a missing value; column 'other' has 4 of them"):
        table.drop_missing(["x", "other"])
    assert table.drop_missing([]).n_rows == 4


def test_numbers():
    table = make_table(x=[1, 2], s=["1", "oops"], inf=[1, np.inf])
    assert table.numbers("x") is table.columns["x"]
    with pytest.raises(TableError, match="column 's': expected numbers, got 'oops' in data row 2"):
        table.numbers("s")
    with pytest.raises(TableError, match="column 'inf': expected finite numbers, got inf in data row 2"):
        table.numbers("inf")


def test_absent_columns_are_all_named():
    table = make_table(x=[1.0], y=[2.0])
    with pytest.raises(TableError, match=r"no column 'z' in the data \(it has 'x', 'y'\)"):
        table.column("z")
    with pytest.raises(TableError, match="no columns 'z', 'w' in the data"):
        table.require(["x", "z", "w"])
