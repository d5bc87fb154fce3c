"""Reading CSV and Parquet files."""

import datetime
import importlib
import sys

import numpy as np
import pytest

from pydirect.cli import tables
from pydirect.cli.tables import read_table
from pydirect.tables.dates import Dates
from pydirect.tables.table import Text

pytestmark = pytest.mark.filterwarnings("ignore:.*decimal comma:UserWarning")


def same(column, expected):
    """Check a column of numbers, or of text."""
    if isinstance(column, Text):
        column = np.array([*column.values, None], dtype=object)[column.codes]
    np.testing.assert_array_equal(column, np.array(expected, dtype=column.dtype))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends(csv_file, delimiter, newline):
    lines = [["x", "name", "y"], ["1", "red", "2.5"], ["-3e2", "blue", ".5"]]
    table = read_table(csv_file(newline.join(delimiter.join(line) for line in lines) + newline))
    assert table.names == ["x", "name", "y"] and table.n_rows == 2
    same(table.column("x"), [1.0, -300.0])
    same(table.column("name"), ["red", "blue"])
    same(table.column("y"), [2.5, 0.5])


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ('\ufeff\n "a b", c\n\n"x, ""y""\nz", 1 \n\n w ,2\n\n', {"a b": ['x, "y"\nz', "w"], "c": [1.0, 2.0]}),
        ("é\tx\nä\t1\n".encode("utf-16"), {"é": ["ä"], "x": [1.0]}),
        ("y\n1\n2", {"y": [1.0, 2.0]}),
        ("x\n1_000\n2\n", {"x": ["1_000", "2"]}),
        # One column decides for the file how numbers are written, and lists of numbers and codes stay text.
        (
            "a;b;c;d\n1,5;3,504;1.234;2.5\n2,5;3,693;2.500;3.5\n",
            {"a": [1.5, 2.5], "b": [3.504, 3.693], "c": [1234, 2500], "d": [2.5, 3.5]},
        ),
        (
            "a;b;c\n1,2,3;1.2.3;BMW 320\n2,3;1.10;V 6\n",
            {"a": ["1,2,3", "2,3"], "b": ["1.2.3", "1.10"], "c": ["BMW 320", "V 6"]},
        ),
    ],
)
def test_columns_are_read_as_they_are_meant(csv_file, content, columns):
    table = read_table(csv_file(content))
    assert table.names == list(columns)
    for name, expected in columns.items():
        same(table.column(name), expected)


def test_columns_without_a_name_are_left_out(csv_file):
    with pytest.warns(UserWarning, match="left out, without a name: column 1, 3"):
        assert read_table(csv_file(",x,\n0,1,\n1,2,\n")).names == ["x"]


def test_semicolons_win_when_commas_are_decimal(csv_file):
    table = read_table(csv_file("a;b\n1,5;2\n3,25;4\n;6\n"))
    same(table.column("b"), [2.0, 4.0, 6.0])
    with pytest.warns(UserWarning, match="read with a decimal comma"):
        same(table.column("a"), [1.5, 3.25, np.nan])


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        (["3,504", "12,001,300", "7", "-1,000.5"], [3504, 12001300, 7, -1000.5]),
        (["1.234,5", "1.234", "2,5e2", "0,125"], [1234.5, 1234, 250, 0.125]),
        (["3,504", "2.5"], [3504, 2.5]),
        (["3,504", "2,75"], [3.504, 2.75]),
        (["7.974.123", "2,5"], [7974123, 2.5]),
    ],
)
def test_a_number_that_can_be_read_in_one_way_decides(csv_file, fields, numbers):
    same(read_table(csv_file("a;b\n" + "".join(f"{field};1\n" for field in fields))).column("a"), numbers)


def test_grouped_digits_are_not_taken_for_decimals(csv_file):
    same(read_table(csv_file('weight,y\n"3,504",1\n"3,693",2\n')).column("weight"), [3504.0, 3693.0])
    with_semicolons = csv_file("weight;y\n3,504;1\n3,693;2\n")
    with pytest.raises(ValueError, match=r"'3,504' is 3504 with --decimal point and 3\.504 with --decimal comma"):
        read_table(with_semicolons).column("weight")
    same(read_table(with_semicolons, decimal="point").column("weight"), [3504.0, 3693.0])
    same(read_table(with_semicolons, decimal="comma").column("weight"), [3.504, 3.693])
    same(read_table(csv_file("a;b\n1,5;1\n2,75;2\n"), decimal="point").column("a"), ["1,5", "2,75"])


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma"])
def test_compressed_files(tmp_path, module):
    path = tmp_path / "t.csv.compressed"
    content = importlib.import_module(module).compress(b"x,y\n1,2\n")
    path.write_bytes(content)
    same(read_table(path).column("y"), [2.0])
    path.write_bytes(content[:-5])
    with pytest.raises(ValueError, match="the compressed file is damaged"):
        read_table(path)


def test_missing_values(csv_file):
    table = read_table(csv_file("x,s\n1,a\n,\nNA,n/a\nnan,NULL\n?,#N/A\n5,none\n"))
    same(table.column("x"), [1.0, np.nan, np.nan, np.nan, np.nan, 5.0])
    same(table.column("s"), ["a", None, None, None, None, "none"])
    path = csv_file("x,s\n1,a\n-999,Unknown\n-,b\n")
    same(read_table(path, missing=["-999", "unknown", "-"]).column("x"), [1.0, np.nan, np.nan])
    same(read_table(path).column("x"), ["1", "-999", "-"])


def test_booleans_are_numbers_and_labels(csv_file):
    table = read_table(csv_file("b,c,n\nTrue,true,1\nfalse,,2\nTRUE,yes,\n"))
    same(table.column("b"), [1.0, 0.0, 1.0])
    same(table.column("c"), ["true", None, "yes"])
    assert table.labels("b") == [True, False, True] and table.labels("n") == [1, 2, None]
    assert table.labels("c") == ["true", None, "yes"]


def test_dates_and_text_on_demand(csv_file):
    table = read_table(csv_file("when,zip\n2024-01-31,007\n,\n"))
    assert isinstance(table.column("when"), Dates) and np.isnan(table.column("when").seconds[1])
    same(table.column("zip", text=True), ["007", None])
    same(table.column("zip"), [7.0, np.nan])


def test_text_far_down_keeps_the_earlier_fields_as_written(csv_file, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS_PER_CHUNK", 4)
    fields = [*(f"{i:03d}" for i in range(9)), "x7"]
    table = read_table(csv_file("a,b\n" + "".join(f"{f},{i}\n" for i, f in enumerate(fields))))
    same(table.column("a"), fields)
    same(table.column("b"), np.arange(10.0))
    with pytest.raises(ValueError, match="line 6: expected 2 fields"):
        read_table(csv_file("x,y\n1,2\n1,2\n1,2\n1,2\n1\n"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file has no columns"),
        ("\ufeff\n\n", "the file has no columns"),
        ("x,y\n\n\n", "the file has no rows"),
        ("x,y\n1,2\n3\n", "line 3: expected 2 fields as in the header, got 1"),
        ('x,y\n"1\n\n",2\n\n3,4,5\n', "line 6: expected 2 fields as in the header, got 3"),
        ("x,y,x,y\n1,2,3,4\n", "'x', 'y' must be the name of one column"),
        ("1,2,3\n4,5,6\n", "expected column names in the first line, got only numbers"),
        ('x,y\n1,"2\n3,4\n', "line 3: unexpected end of data"),
        ('x,y\n1,"2"3\n', "line 2: "),
        (b"x,y\n1,\xe4\n", "expected UTF-8 text; save it so"),
        (b"PK\x03\x04...", "expected a CSV or Parquet file, got a ZIP archive or Excel workbook"),
    ],
)
def test_broken_files_are_refused(csv_file, content, message):
    path = csv_file(content)
    with pytest.raises(ValueError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_columns_of_the_wrong_kind_and_absent_ones_are_named(csv_file):
    table = read_table(csv_file("x,s\n1,a\n2,4\n"))
    with pytest.raises(
        ValueError, match=r"column 's': expected numbers, got 'a' in data row 1; --missing-value a takes it for missing"
    ):
        table.numbers("s")
    with pytest.raises(ValueError, match=r"no columns 'z', 'w' \(it has 'x', 's'\)"):
        table.require(["x", "z", "w"])


def write_parquet(path, data):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(data if isinstance(data, pa.Table) else pa.table(data), path)
    return path


def test_parquet_types(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import decimal

    data = {
        "f32": pa.array([1.5, None], pa.float32()),
        "big": pa.array([2**60 + 1, 1], pa.int64()),
        "bool": pa.array([True, None]),
        "dec": pa.array([decimal.Decimal("1.25"), None]),
        "null": pa.nulls(2),
        "s": pa.array(["NA", None]),
        "cat": pa.array(["x", None]).dictionary_encode(),
        "date": pa.array([datetime.date(2024, 1, 1), None]),
        "list": pa.array([[1], [2]]),
    }
    table = read_table(write_parquet(tmp_path / "t", data))  # known by its content
    nan = np.nan
    numbers = {"f32": [1.5, nan], "big": [2.0**60, 1], "bool": [1, nan], "dec": [1.25, nan], "null": [nan, nan]}
    for name, expected in numbers.items():
        same(table.column(name), expected)
    for name, expected in {"s": ["NA", None], "cat": ["x", None]}.items():
        same(table.column(name), expected)
    assert isinstance(table.column("date"), Dates) and table.labels("bool") == [True, None]
    with pytest.raises(TypeError, match="column 'list' must hold numbers"):
        table.column("list")


def test_parquet_row_labels_of_pandas_are_left_out(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"x": [1, 2]}, index=["a", "b"]).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").names == ["x"]


def test_parquet_that_cannot_be_read(tmp_path, monkeypatch):
    for columns, message in (({"x": []}, "no rows"), ({}, "no columns")):
        with pytest.raises(ValueError, match=f"the file has {message}"):
            read_table(write_parquet(tmp_path / "a.parquet", columns))
    (tmp_path / "c.parquet").write_bytes(b"PAR1 nothing more")
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        read_table(tmp_path / "c.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'requires pyarrow. Install it with: pip install "pydirect\[arrow\]"'):
        read_table(tmp_path / "c.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates_of_files_are_time_and_seasons(tmp_path, capsys, run, kind):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=60, freq="MS"), "y": np.arange(60.0)})
    data, model = tmp_path / f"t.{kind}", tmp_path / "m"
    getattr(table, f"to_{kind}")(data, index=False)
    assert run("fit", data, "--target", "y", "-o", model, "--test-fraction", "0") == 0
    assert "when as time in days, day of year" in capsys.readouterr().out
    assert run("predict", model, data, "--quiet") == 0
    predicted = [float(line.split(",")[0]) for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(predicted, table["y"], atol=1.0)
    table.assign(when=["soon", *table["when"].astype(str)[1:]]).to_csv(tmp_path / "bad.csv", index=False)
    assert run("predict", model, tmp_path / "bad.csv") == 2
    assert "column 'when' must hold dates, as in fit, got 'soon'" in capsys.readouterr().err
    assert run("fit", data, "--target", "when", "-o", model) == 2
    assert "column 'when': expected numbers, got '2020-01-01" in capsys.readouterr().err
