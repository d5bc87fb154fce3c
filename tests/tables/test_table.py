"""Tables of columns of numbers and text."""

import numpy as np
import pytest

from pydirect.tables.table import Table, as_numbers

MANY_ROWS = 1000


@pytest.mark.parametrize("dtype", ["str", "string", "object"])
def test_text_of_pandas_has_its_codes_in_order_of_appearance_whatever_its_type(dtype):
    """Long columns of nothing but text are coded by pandas, others one by one."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    drawn = np.random.default_rng(0).integers(0, 30, MANY_ROWS)
    given = pandas.Series([None if k == 3 else f"c{k}" for k in drawn], dtype=dtype)
    (column,) = Table.of(pandas.DataFrame({"a": given})).columns
    expected = list(dict.fromkeys(f"c{k}" for k in drawn if k != 3))
    assert column.values == expected
    np.testing.assert_array_equal(column.codes, [-1 if k == 3 else expected.index(f"c{k}") for k in drawn])


def test_a_column_of_text_without_any_is_missing_numbers():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    (column,) = Table.of(pandas.DataFrame({"a": pandas.Series([None] * MANY_ROWS, dtype="str")})).columns
    assert np.isnan(column).all()


def test_tables_of_pyarrow_are_frames():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    text = pyarrow.array(["x", None, "y", "x"])
    given = pyarrow.table(
        {"a": [1, None, 2**60 + 1, 0], "b": text, "c": text.dictionary_encode(), "d": [True, None] * 2}
    )
    table = Table.of(given)
    assert table.names == ["a", "b", "c", "d"] and Table.of_text(given.select(["a", "d"])) is None
    np.testing.assert_array_equal(table.columns[0], [1, np.nan, 2.0**60, 0])
    np.testing.assert_array_equal(table.columns[3], [1, np.nan, 1, np.nan])
    for column in table.columns[1:3]:
        assert column.values == ["x", "y"] and column.codes.tolist() == [0, -1, 1, 0]
    np.testing.assert_array_equal(as_numbers(given.select(["a"]), "X")[:, 0], [1, np.nan, 2.0**60, 0])
    with pytest.raises(TypeError, match="column 'b' of X must hold real numbers, got dtype String"):
        as_numbers(given, "X")


def test_columns_of_pandas_may_be_of_any_type():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    sparse = pandas.DataFrame({"a": pandas.arrays.SparseArray([0.0, 1.0])})
    assert Table.of_text(sparse) is None and as_numbers(sparse, "X").tolist() == [[0.0], [1.0]]
    (cut,) = Table.of(pandas.DataFrame({"a": pandas.cut(pandas.Series([0.1, 0.2, 0.9]), [0, 0.5, 1])})).columns
    assert cut.values == ["(0.0, 0.5]", "(0.5, 1.0]"]
    (both,) = Table.of(pandas.DataFrame({"a": pandas.Categorical([1, "1", None])})).columns
    assert both.values == ["1"] and both.codes.tolist() == [0, 0, -1]


def test_text_after_many_rows_of_another_type_is_found():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    (column,) = Table.of(pandas.DataFrame({"a": ["x"] * 500 + [1, True, None]})).columns
    assert column.values == ["x", "1", "True"] and column.codes[-3:].tolist() == [1, 2, -1]
