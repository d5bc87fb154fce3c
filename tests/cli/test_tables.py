"""Checks of tables."""

from __future__ import annotations

import numpy as np
import pytest

from pydirect.cli.common import TableError
from pydirect.cli.tables import InputTable, read_table


def same(values, expected):
    np.testing.assert_array_equal(values, np.array(expected, dtype=values.dtype), strict=True)


def make_table(**columns):
    arrays = {}
    for name, values in columns.items():
        is_text = any(isinstance(value, str) for value in values)
        arrays[name] = np.array(values, dtype=object if is_text else float)
    return InputTable(arrays, {}, len(next(iter(arrays.values()))))


def test_missing_values_are_placed(csv_file):
    table = read_table(csv_file("x,s\n1,a\n,b\n,\n"))
    assert table.missing_values("x") == ["column 'x': missing value in data row 2 (2 such rows)"]
    assert table.missing_values("s") == ["column 's': missing value in data row 3"]
    assert make_table(x=[1, 2]).missing_values("x") == []


def test_numbers():
    table = make_table(x=[1, np.nan], s=["1", "oops"], inf=[1, np.inf], digits=["2", None])
    assert table.wrong_numbers("x") == table.wrong_numbers("digits") == table.wrong_values("s") == []
    assert table.numbers("x") is table.columns["x"]
    same(table.numbers("digits"), [2.0, np.nan])
    assert table.wrong_numbers("s") == [
        "column 's': expected numbers, got 'oops' in data row 2; --missing-value oops takes it for a missing value"
    ]
    assert table.wrong_values("inf") == ["column 'inf': expected finite numbers, got inf in data row 2"]


def test_numbers_with_slips_are_not_categories():
    assert make_table(x=[*map(str, range(60)), "6O", "61"]).is_mostly_numbers("x")
    commas = make_table(x=[*(f"{k},5" for k in range(60)), "k.A."])
    assert commas.is_mostly_numbers("x")
    assert "expected numbers, got 'k.A.' in data row 61; --missing-value k.A." in commas.wrong_numbers("x")[0]
    assert not make_table(x=[*map(str, range(8)), "5+"]).is_mostly_numbers("x")  # few numbers may be categories
    assert not make_table(x=[*map(str, range(60)), *["a"] * 60]).is_mostly_numbers("x")


def test_inputs_and_tables_of_some_rows():
    table = make_table(x=[1, 2, 3], s=["a", None, "c"])
    inputs = table.inputs(["s", "x"])
    assert inputs.names == ["s", "x"] and inputs.shape == (3, 2) and len(inputs.rows(slice(1, 2))) == 1
    assert inputs.rows(np.array([2, 0])).columns[0].codes.tolist() == [1, 0]
    kept = table.rows(~table.missing("s"))
    assert kept.n_rows == 2
    same(kept.columns["x"], [1.0, 3.0])


def test_absent_columns_are_all_named():
    table = make_table(x=[1.0], y=[2.0])
    with pytest.raises(TableError, match=r"no column 'z' in the data \(it has 'x', 'y'\)"):
        table.require(["z"])
    with pytest.raises(TableError, match="no columns 'z', 'w' in the data"):
        table.require(["x", "z", "w"])
