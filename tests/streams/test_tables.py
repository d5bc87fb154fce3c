"""Tables of columns of numbers and text."""

import numpy as np
import pytest

from pydirect.streams.tables import MANY_ROWS, Table


@pytest.mark.parametrize("dtype", ["str", "string", "object"])
@pytest.mark.parametrize("n_rows", [MANY_ROWS - 1, MANY_ROWS])
def test_text_of_pandas_has_its_codes_in_order_of_appearance_whatever_its_type(dtype, n_rows):
    """Long columns of nothing but text are coded by pandas, others one by one."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    drawn = np.random.default_rng(0).integers(0, 30, n_rows)
    given = pandas.Series([None if k == 3 else f"c{k}" for k in drawn], dtype=dtype)
    (column,) = Table.of(pandas.DataFrame({"a": given})).columns
    expected = list(dict.fromkeys(f"c{k}" for k in drawn if k != 3))
    assert column.values == expected
    np.testing.assert_array_equal(column.codes, [-1 if k == 3 else expected.index(f"c{k}") for k in drawn])


def test_a_column_of_text_without_any_is_missing_numbers():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    (column,) = Table.of(pandas.DataFrame({"a": pandas.Series([None] * MANY_ROWS, dtype="str")})).columns
    assert np.isnan(column).all()
