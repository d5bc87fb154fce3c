"""Codes of text and labels: numbers in the order of appearance."""

import json

import numpy as np
import pytest

from pydirect.persistence.schema import pack, unpack
from pydirect.tables import buffer as codebook
from pydirect.tables.buffer import Codebook, LabelCodes
from pydirect.tables.table import Table


def test_labels_are_coded_in_order_of_appearance():
    codes = LabelCodes()
    assert codes.codes(np.array(["b", "a", "b"])).ravel().tolist() == [1.0, 0.0, 1.0]
    found = codes.codes(np.array(["c", None, "a"], dtype=object)).ravel()
    np.testing.assert_array_equal(found, [2.0, np.nan, 0.0])
    assert codes.labels == ["a", "b", "c"]
    assert LabelCodes().codes(np.array([], dtype=object)).shape == (0, 1)


def frame(*columns):
    return Table.of(np.array(list(zip(*columns, strict=True)), dtype=object))


def test_a_code_book_grows_and_gives_tables_back():
    book = Codebook()
    first = book.coded(frame([1.0, 2.0], ["b", None], [None, None]))
    second = book.coded(frame([None, 3.0], ["a", "b"], ["z", 7]))
    np.testing.assert_array_equal(first, [[1, 0, np.nan], [2, np.nan, np.nan]])
    np.testing.assert_array_equal(second, [[np.nan, 1, 0], [3, 0, 1]])
    assert book.values == [None, ["b", "a"], ["z", "7"]] and not book.is_numeric
    numbers, *text = book.table(np.concatenate([first, second])).columns
    np.testing.assert_array_equal(numbers, [1, 2, np.nan, 3])
    assert [[None if k < 0 else c.values[k] for k in c.codes] for c in text] == [
        ["b", None, "a", "b"],
        [None] * 2 + ["z", "7"],
    ]
    header, arrays = pack(book)
    again = unpack(Codebook, json.loads(json.dumps(header)), arrays)
    np.testing.assert_array_equal(again.coded(frame([0.5], ["c"], ["z"])), [[0.5, 2, 0]])
    assert book.values[1] == ["b", "a"]


def test_a_column_of_numbers_takes_no_text_and_nothing_is_changed_then():
    book = Codebook()
    book.coded(frame([1.0], ["x"], [None]))
    with pytest.raises(TypeError, match="column 0 of X must hold numbers, as in the rows before, got 'many'"):
        book.coded(frame(["many"], ["y"], ["late"]))
    assert book.values == [None, ["x"], None]


def test_columns_of_text_may_not_have_millions_of_values(monkeypatch):
    monkeypatch.setattr(codebook, "MOST_VALUES", 3)
    with pytest.raises(TypeError, match="column 0 of X must have at most 3 different values, got more: leave it out"):
        Codebook().coded(frame(["a", "b", "c", "d"]))


def test_arrays_of_numbers_are_not_copied():
    x = np.ones((3, 2), dtype=np.float32)
    book = Codebook()
    assert book.coded(x) is x and book.holds_numbers
