"""Encoding the columns of tables."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pydirect.cli.table_encoder import TableEncoder
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


def test_encoding():
    table = make_table(x=[1, 2, 3], colour=["red", "blue", "red"], unused=["q", "r", "s"])
    encoder = TableEncoder.fit(table, ["colour", "x"])
    assert encoder.names == ["colour", "x"]
    assert encoder.text_columns == ["colour"]
    assert encoder.feature_names == ["colour=blue", "colour=red", "x"]
    X = encoder.transform(table)
    same(X, [[0, 1, 1], [1, 0, 2], [0, 1, 3]])
    assert X.flags.c_contiguous and X.dtype == np.float64


def test_columns_are_found_by_name_and_others_ignored():
    encoder = TableEncoder.fit(make_table(a=[1, 2], b=[3, 4]), ["a", "b"])
    same(encoder.transform(make_table(c=["x"], b=[7], a=[8])), [[8.0, 7.0]])


def test_encoder_survives_json():
    table = make_table(x=[1, 2], s=["é", "ü\n"])
    encoder = TableEncoder.fit(table, ["x", "s"])
    back = TableEncoder.from_header(json.loads(json.dumps(encoder.to_header())))
    assert back.to_header() == encoder.to_header()
    same(back.transform(table), encoder.transform(table))


@pytest.mark.parametrize(
    "header",
    [
        None,
        {},
        {"version": 2, "columns": []},
        {"version": 1, "columns": {}},
        {"version": 1, "columns": [3]},
        {"version": 1, "columns": [{"name": "x"}]},
        {"version": 1, "columns": [{"name": 1, "categories": None}]},
        {"version": 1, "columns": [{"name": "x", "categories": "ab"}]},
        {"version": 1, "columns": [{"name": "x", "categories": [1]}]},
        {"version": 1, "columns": [{"name": "x", "categories": None}] * 2},
    ],
)
def test_strange_headers_are_refused(header):
    with pytest.raises(ValueError, match="header: expected"):
        TableEncoder.from_header(header)


def test_unseen_category_is_refused():
    encoder = TableEncoder.fit(make_table(s=["a", "b"]), ["s"])
    with pytest.raises(TableError, match=r"column 's': 'c' in data row 2 did not occur in fitting \(known: 'a', 'b'\)"):
        encoder.transform(make_table(s=["a", "c"]))


def test_absent_columns_are_refused():
    encoder = TableEncoder.numeric(["a", "b", "c"])
    with pytest.raises(TableError, match="no columns 'a', 'c' in the data"):
        encoder.transform(make_table(b=[1]))


def test_changed_column_types_are_refused():
    encoder = TableEncoder.fit(make_table(x=[1, 2], s=["a", "b"]), ["x", "s"])
    with pytest.raises(TableError, match="column 'x': expected numbers, got 'q' in data row 1"):
        encoder.transform(make_table(x=["q"], s=["a"]))
    with pytest.raises(TableError, match="column 's': expected text as in fitting, got numbers"):
        encoder.transform(make_table(x=[1], s=[2]))


def test_missing_values_and_infinities_are_refused():
    table = make_table(x=[1, np.nan], s=["a", None], i=[1, -np.inf])
    for name in table.names:
        with pytest.raises(TableError, match=f"column '{name}': .* in data row 2"):
            TableEncoder.fit(table, [name])
    encoder = TableEncoder.fit(make_table(x=[1, 2], s=["a", "b"], i=[1, 2]), ["x", "s", "i"])
    with pytest.raises(TableError, match="missing value in data row 2"):
        encoder.transform(table)


def test_too_many_categories():
    table = make_table(s=[f"id{i}" for i in range(51)])
    with pytest.raises(TableError, match="expected at most 50 categories, got 51; leave it out with --drop"):
        TableEncoder.fit(table, ["s"])
    table = make_table(s=[f"id{i}" for i in range(50)])
    assert len(TableEncoder.fit(table, ["s"]).feature_names) == 50


def test_a_slip_among_many_numbers_is_pointed_out():
    table = make_table(x=[*map(str, range(60)), "6O", "61"])
    with pytest.raises(TableError, match="column 'x': expected numbers, got '6O' in data row 61"):
        TableEncoder.fit(table, ["x"])


def test_demanded_text_makes_numeric_looking_categories_work(csv_file):
    encoder = TableEncoder.fit(read_table(csv_file("size\n1a\n2\n")), ["size"])
    table = read_table(csv_file("size\n2\n"), text_columns=encoder.text_columns)
    same(encoder.transform(table), [[0.0, 1.0]])
