"""Reading CSV and Parquet files."""

from __future__ import annotations

import builtins
import datetime

import numpy as np
import pytest

from pydirect.cli import csv_files
from pydirect.cli.common import TableError
from pydirect.cli.tables import read_table


def same(values, expected):
    np.testing.assert_array_equal(values, np.array(expected, dtype=values.dtype), strict=True)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends(csv_file, delimiter, newline):
    lines = [["x", "name", "y"], ["1", "red", "2.5"], ["-3e2", "blue", ".5"]]
    table = read_table(csv_file(newline.join(delimiter.join(line) for line in lines) + newline))
    assert list(table.columns) == ["x", "name", "y"] and table.n_rows == 2
    same(table.columns["x"], [1.0, -300.0])
    same(table.columns["name"], ["red", "blue"])
    same(table.columns["y"], [2.5, 0.5])


def test_byte_order_mark_blank_lines_spaces_and_quotes(csv_file):
    table = read_table(csv_file('\ufeff\n "a b", c\n\n"x, ""y""\nz", 1 \n\n w ,2\n\n'))
    same(table.columns["a b"], ['x, "y"\nz', "w"])
    same(table.columns["c"], [1.0, 2.0])


def test_semicolons_win_when_commas_are_decimal(csv_file):
    table = read_table(csv_file("a;b\n1,5;2\n3,25;4\n;6\n"))
    same(table.columns["b"], [2.0, 4.0, 6.0])
    same(table.columns["a"], [1.5, 3.25, np.nan])
    assert table.notes == ["column 'a': '1,5' is read as 1.5"]


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        (["3,504", "12,001,300", "7", "-1,000.5"], [3504, 12001300, 7, -1000.5]),
        (["1.234,5", "1.234", "2,5e2", "0,125"], [1234.5, 1234, 250, 0.125]),
        (["3,504", "2.5"], [3504, 2.5]),
        (["3,504", "2,75"], [3.504, 2.75]),
    ],
)
def test_a_number_that_can_be_read_in_one_way_decides(csv_file, fields, numbers):
    same(read_table(csv_file("a;b\n" + "".join(f"{field};1\n" for field in fields))).columns["a"], numbers)


def test_grouped_digits_are_not_taken_for_decimals(csv_file):
    same(read_table(csv_file('weight,y\n"3,504",1\n"3,693",2\n')).columns["weight"], [3504.0, 3693.0])
    with_semicolons = csv_file("weight;y\n3,504;1\n3,693;2\n")
    assert "3504 with --decimal point and 3.504 with --decimal comma" in read_table(with_semicolons).unusable["weight"]
    same(read_table(with_semicolons, decimal="point").columns["weight"], [3504.0, 3693.0])
    same(read_table(with_semicolons, decimal="comma").columns["weight"], [3.504, 3.693])


def test_two_points_are_those_of_groups(csv_file):
    table = read_table(csv_file("a;b\n7,97;7.974.123\n8,12;8.104.331\n3,31;950\n"))
    same(table.columns["b"], [7974123, 8104331, 950])
    assert read_table(csv_file("a;b\n1,5;12.11.2026\n2,5;13.11.2026\n")).unusable["b"].startswith("dates")


def test_one_column_decides_for_the_file(csv_file):
    table = read_table(csv_file("a;b;c;d\n1,5;3,504;1.234;2.5\n2,5;3,693;2.500;3.5\n"))
    for name, numbers in {"a": [1.5, 2.5], "b": [3.504, 3.693], "c": [1234, 2500], "d": [2.5, 3.5]}.items():
        same(table.columns[name], numbers)
    endless = read_table(csv_file("a;b\n1,5;inf\n2,5;1.234\n"))
    same(endless.columns["b"], [np.inf, 1.234])
    mixed = read_table(csv_file("a;b\n1,5;3,504\n2.5;3,693\n"))
    assert "another decimal sign than expected, such as '2.5' and '1,5'" in mixed.unusable["a"]
    assert "numbers such as '3,504'" in mixed.unusable["b"]
    refused = read_table(csv_file("a;b\n1,5;1\n2,75;2\n"), decimal="point")
    assert "such as '1,5'" in refused.unusable["a"]


@pytest.mark.parametrize("fields", [["$5", "$1,200"], ["5 %", "12.5%"], ["1 200", "3 400"], ["12 EUR", "13 EUR"]])
def test_numbers_with_signs_are_pointed_out(csv_file, fields):
    table = read_table(csv_file("a;b\n" + "".join(f"{field};1\n" for field in fields)))
    assert f"numbers such as {min(fields)!r}; write them without signs" in table.unusable["a"]


def test_lists_of_numbers_and_codes_stay_text(csv_file):
    table = read_table(csv_file("a;b;c\n1,2,3;1.2.3;BMW 320\n2,3;1.10;V 6\n"))
    for name, texts in {"a": ["1,2,3", "2,3"], "b": ["1.2.3", "1.10"], "c": ["BMW 320", "V 6"]}.items():
        same(table.columns[name], texts)


def test_commas_within_semicolon_file_names(csv_file):
    assert read_table(csv_file("x;y, in mm;z\n1;2;3\n")).names == ["x", "y, in mm", "z"]


def test_one_column(csv_file):
    same(read_table(csv_file("y\n1\n2\n")).columns["y"], [1.0, 2.0])


def test_columns_without_a_name_are_left_out(csv_file):
    table = read_table(csv_file(",x,\n0,1,\n1,2,\n"))
    assert table.names == ["x"] and table.notes == ["without a name, left out: column 1, 3"]


@pytest.mark.parametrize("module", ["gzip", "bz2", "lzma"])
def test_compressed_files(tmp_path, module):
    import importlib

    path = tmp_path / "t.csv.compressed"
    content = importlib.import_module(module).compress(b"x,y\n1,2\n")
    path.write_bytes(content)
    same(read_table(path).columns["y"], [2.0])
    path.write_bytes(content[:-5])
    with pytest.raises(TableError, match="the compressed file is damaged"):
        read_table(path)


def test_utf16_with_its_mark(csv_file):
    same(read_table(csv_file("é\tx\nä\t1\n", encoding="utf-16")).columns["é"], ["ä"])


def test_last_line_without_end(csv_file):
    same(read_table(csv_file("x,y\n1,2\n3,4")).columns["y"], [2.0, 4.0])


def test_missing_values(csv_file):
    table = read_table(csv_file("x,s\n1,a\n,\nNA,n/a\nnan,NULL\n?,#N/A\n5,none\n"))
    same(table.columns["x"], [1.0, np.nan, np.nan, np.nan, np.nan, 5.0])
    same(table.columns["s"], ["a", None, None, None, None, "none"])


def test_further_missing_values(csv_file):
    path = csv_file("x,s\n1,a\n-999,Unknown\n-,b\n")
    table = read_table(path, missing=["-999", "unknown", "-"])
    same(table.columns["x"], [1.0, np.nan, np.nan])
    same(table.columns["s"], ["a", None, "b"])
    same(read_table(path).columns["x"], ["1", "-999", "-"])


def test_booleans_are_numbers(csv_file):
    table = read_table(csv_file("b,c\nTrue,true\nfalse,\nTRUE,yes\n"))
    assert table.booleans == {"b"} == table.rows(np.array([0, 2])).booleans
    same(table.columns["b"], [1.0, 0.0, 1.0])
    same(table.columns["c"], ["true", None, "yes"])


@pytest.mark.parametrize(
    "dates",
    [
        "2024-01-31|2024-2-1",
        "31.1.24|01/02/2024",
        "9:30|10:00:05",
        "3 Jan 2024|12-feb-24",
        "2024-01-31|unknown|2024-02-01",
    ],
)
def test_dates_in_other_forms_are_refused_only_when_used(csv_file, dates):
    table = read_table(csv_file("when,x\n" + "".join(f"{d},1\n" for d in dates.split("|"))))
    assert not table.wrong_values("x")
    assert "column 'when' holds dates or times that are not all written like" in table.wrong_values("when")[0]


def test_underscores_do_not_make_numbers(csv_file):
    same(read_table(csv_file("x\n1_000\n2\n")).columns["x"], ["1_000", "2"])


def test_text_columns_can_be_demanded(csv_file):
    table = read_table(csv_file("zip,b,x\n007,true,1\n,false,2\n"), text_columns=["zip", "b", "absent"])
    same(table.columns["zip"], ["007", None])
    same(table.columns["b"], ["true", "false"])


@pytest.mark.parametrize("late", [3, 4, 5, 9])
def test_text_far_down_keeps_the_earlier_fields_as_written(csv_file, monkeypatch, late):
    monkeypatch.setattr(csv_files, "_ROWS_PER_CHUNK", 4)
    fields = [f"{i:03d}" for i in range(10)]
    fields[late] = "x7"
    table = read_table(csv_file("a,b,c\n" + "".join(f"{f},{i},{f}\n" for i, f in enumerate(fields))))
    same(table.columns["a"], fields)
    same(table.columns["b"], np.arange(10.0))
    same(table.columns["c"], fields)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("\ufeff", "the file is empty"),
        ("x,y\n", "has a header but no rows"),
        ("x,y\n\n\n", "has a header but no rows"),
        ("x,y\n1,2\n3\n", "line 3: expected 2 fields as in the header, got 1"),
        ("x,y\n1,2\n3,4,5\n", "line 3: expected 2 fields as in the header, got 3"),
        ("x,y\n1,2\n3\n \n4,5\n6,7,8\n", "line 3: expected 2 fields as in the header, got 1 (2 such lines)"),
        ('x,y\n"1\n\n",2\n\n3,4,5\n', "line 6: expected 2 fields as in the header, got 3"),
        ("x,y,x,y\n1,2,3,4\n", "column names 'x', 'y' occurs more than once"),
        (",\n1,2\n", "expected column names in the first line"),
        ("1,2,3\n4,5,6\n", "expected column names in the first line, got only numbers"),
        ('x,y\n1,"2\n3,4\n', "line 3: unexpected end of data"),
        ('x,y\n1,"2"3\n', "line 2: "),
        (b"x,y\n1,\xe4\n", "expected UTF-8 text, got byte 0xe4 in line 2; save the file as UTF-8"),
        (b"PK\x03\x04...", "expected a CSV or Parquet file, got a ZIP archive or Excel workbook"),
    ],
)
def test_broken_files_are_refused(csv_file, content, message):
    path = csv_file(content)
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_ragged_row_beyond_the_first_chunk(csv_file, monkeypatch):
    monkeypatch.setattr(csv_files, "_ROWS_PER_CHUNK", 2)
    with pytest.raises(TableError, match="line 6: expected 2 fields"):
        read_table(csv_file("x,y\n1,2\n1,2\n1,2\n1,2\n1\n"))


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv")


def test_a_hundred_thousand_rows(csv_file):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 5))
    content = "a,b,c,d,e,s\n" + "".join(",".join(map(repr, row)) + ",red\n" for row in X.tolist())
    path = csv_file(content)
    table = read_table(path)
    same(table.columns["c"], X[:, 2])


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
        "f16": pa.array(np.array([1.5, 2], dtype=np.float16)),
        "i64": pa.array([1, None], pa.int64()),
        "u8": pa.array([1, 255], pa.uint8()),
        "big": pa.array([2**60 + 1, 1], pa.int64()),
        "bool": pa.array([True, None]),
        "dec": pa.array([decimal.Decimal("1.25"), None]),
        "null": pa.nulls(2),
        "s": pa.array(["NA", None]),
        "ls": pa.array(["x", "y"], pa.large_string()),
        "cat": pa.array(["x", None]).dictionary_encode(),
        "icat": pa.array([7, 8]).dictionary_encode(),
        "date": pa.array([datetime.date(2024, 1, 1), None]),
        "stamp": pa.array([datetime.datetime(2024, 1, 1), None]),
        "zone": pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("us", "UTC")),
        "list": pa.array([[1], [2]]),
    }
    table = read_table(write_parquet(tmp_path / "t.parquet", data))
    nan = np.nan
    numbers = {"f32": [1.5, nan], "f16": [1.5, 2], "i64": [1, nan], "u8": [1, 255], "big": [2.0**60, 1]}
    assert table.booleans == {"bool"}
    numbers |= {"bool": [1, nan], "dec": [1.25, nan], "null": [nan, nan], "icat": [7, 8]}
    for name, expected in numbers.items():
        assert table.columns[name].dtype == np.float64
        same(table.columns[name], expected)
    texts = {"s": ["NA", None], "ls": ["x", "y"], "cat": ["x", None], "date": ["2024-01-01", None]}
    texts |= {"stamp": ["2024-01-01T00:00:00", None], "zone": ["2024-01-01T00:00:00+00:00[UTC]", None]}
    for name, expected in texts.items():
        assert table.columns[name].dtype == object
        same(table.columns[name], expected)
    assert list(table.unusable) == ["list"]
    assert "column 'list' holds values of type list<" in table.wrong_values("list")[0]


def test_parquet_is_known_by_its_content_too(tmp_path):
    same(read_table(write_parquet(tmp_path / "data", {"x": [1, 2]})).columns["x"], [1.0, 2.0])


def test_parquet_row_labels_of_pandas_are_left_out(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"x": [1, 2]}, index=["a", "b"]).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").names == ["x"]


def test_parquet_without_rows_or_columns_and_broken(tmp_path):
    with pytest.raises(TableError, match="the file has no rows"):
        read_table(write_parquet(tmp_path / "a.parquet", {"x": []}))
    with pytest.raises(TableError, match="the file has no columns"):
        read_table(write_parquet(tmp_path / "b.parquet", {}))
    (tmp_path / "c.parquet").write_bytes(b"PAR1 nothing more")
    with pytest.raises(TableError, match="not a readable Parquet file"):
        read_table(tmp_path / "c.parquet")


def test_parquet_without_pyarrow_gives_the_hint(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    real = builtins.__import__

    def fail(name, *arguments, **keywords):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(ImportError, match=r'requires pyarrow. Install it with: pip install "pydirect\[arrow\]"'):
        read_table(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates_of_files_are_time_and_seasons(tmp_path, capsys, run, kind):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=60, freq="MS"), "y": np.arange(60.0)})
    data, model = tmp_path / f"t.{kind}", tmp_path / "m"
    getattr(table, f"to_{kind}")(data, index=False)
    assert run("fit", data, "--target", "y", "-o", model, "--quiet", "--test-fraction", "0") == 0
    assert run("predict", model, data, "--quiet") == 0
    predicted = [float(line.split(",")[0]) for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(predicted, table["y"], atol=1.0)
    assert run("info", model) == 0
    assert "when=days, day of year" in capsys.readouterr().out
    table.assign(when=["soon", *table["when"].astype(str)[1:]]).to_csv(tmp_path / "bad.csv", index=False)
    assert run("predict", model, tmp_path / "bad.csv") == 2
    assert "column 'when': expected dates such as 2024-01-31, got 'soon' in data row 1" in capsys.readouterr().err
    assert run("fit", data, "--target", "when", "-o", model) == 2
    assert "column 'when' holds dates; a target must be a number or a class" in capsys.readouterr().err
