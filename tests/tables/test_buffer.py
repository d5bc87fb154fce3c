"""Buffered rows, compared with lists of rows."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pydirect.tables.buffer import CodedRows, RowBuffer, RowQueue, sample_places
from pydirect.tables.table import Table

RNG = np.random.default_rng(0)


def rows(n, first=0):
    clock = np.arange(first, first + n, dtype=float)
    return CodedRows(np.c_[clock, -clock], clock[:, None] + 0.5, clock + 1, clock)


def assert_holds(buffer, expected):
    found = buffer.rows
    np.testing.assert_array_equal(found.clock, expected)
    np.testing.assert_array_equal(found.x, np.c_[expected, -np.array(expected, dtype=float)].reshape(-1, 2))
    np.testing.assert_array_equal(found.y[:, 0], np.array(expected) + 0.5)
    np.testing.assert_array_equal(found.weight, np.array(expected) + 1.0)


@given(st.lists(st.tuples(st.sampled_from(["append", "leave", "replace", "copy"]), st.integers(0, 9)), max_size=40))
def test_rows_come_and_go_as_in_a_list(steps):
    buffer, expected, n = RowQueue.of_shape(2, 1), [], 0
    for step, k in steps:
        some = sorted({int(i) for i in np.linspace(0, len(expected) - 1, k)}) if expected and k else []
        if step == "append":
            buffer.append(rows(k, n))
            expected += range(n, n + k)
            n += k
        elif step == "leave":
            gone, k = buffer.leave(min(k, len(expected))).clock.tolist(), min(k, len(expected))
            assert gone == expected[:k]
            del expected[:k]
        elif step == "replace":
            buffer.replace(np.array(some, dtype=np.intp), rows(len(some), n))
            for i in some:
                expected[i], n = n, n + 1
        else:
            buffer = pickle.loads(pickle.dumps(buffer)) if k % 2 else copy.deepcopy(buffer)
        assert_holds(buffer, expected)


def test_equal_rows_lose_the_weight_that_is_taken():
    """By hand: every row is a triple of its values, weight and the rows it stands for."""
    x = RNG.integers(0, 3, (30, 2)).astype(float)
    x[x == 2] = np.nan
    y, weight = RNG.integers(0, 2, (30, 1)).astype(float), RNG.uniform(1, 2, 30)
    buffer = RowBuffer.of(Table.of_numbers(x), y, weight)
    buffer.append(buffer.coded(Table.of_numbers(x[:4]), y[:4], weight[:4]))
    buffer.subtract(buffer.coded(Table.of_numbers(x[[0, 1]]), y[[0, 1]], np.array([0.4, 0.3])))
    expected = {}
    for i in [*range(30), *range(4)]:
        own = expected.setdefault(str((x[i], y[i])), np.zeros(2))
        own += [weight[i], 1.0]
    for i, w in ((0, 0.4), (1, 0.3)):
        expected[str((x[i], y[i]))] -= [w, 1.0]
    found = buffer.rows
    assert [str((a, b)) for a, b in zip(found.x, found.y, strict=True)] == list(expected)
    np.testing.assert_allclose(np.c_[found.weight, found.clock], list(expected.values()), rtol=1e-12)


def test_rows_that_are_not_there_or_all_rows_are_not_taken():
    x, y = np.arange(6.0).reshape(3, 2), np.zeros((3, 1))
    buffer = RowBuffer.of(Table.of_numbers(x), y, None)
    for other, weight, message in (
        (x[:1] + 9, None, "row 0 is none of them"),
        (x[:2], np.array([1.0, 1.1]), "row 1 is none of them"),
        (x, None, "got all of them"),
    ):
        with pytest.raises(ValueError, match=message):
            buffer.subtract(buffer.coded(Table.of_numbers(other), y[: len(other)], weight))
    np.testing.assert_array_equal(buffer.rows.x, x)


def test_text_is_kept_as_codes_of_one_book_and_copies_have_their_own():
    table = Table.of(np.array([["a", 1.0], ["b", None], ["a", 2.0]], dtype=object))
    buffer = RowBuffer.of(table, np.zeros((3, 1)), np.array([1.0, 0.0, 2.0]))
    assert len(buffer) == 2 and buffer.table.columns[0].codes.tolist() == [0, 0]
    other = copy.deepcopy(buffer)
    other.append(other.coded(Table.of(np.array([["c", None]], dtype=object)), np.zeros((1, 1)), None))
    assert other.book.values == [["a", "b", "c"], None] and buffer.book.values == [["a", "b"], None]
    assert other.table.columns[0].codes.tolist() == [0, 0, 2] and len(buffer) == 2


def test_places_in_a_sample_depend_on_the_rows_number_alone():
    share = np.full(1000, 0.3)
    whole = sample_places(5, 0, 1000, 10, share)
    parts = [sample_places(5, begin, 100, 10, share[:100]) for begin in range(0, 1000, 100)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert set(whole) == {-1, *range(10)} and 250 < (whole >= 0).sum() < 350
