"""``pydirect predict``: columns, files, scores, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import pydirect
from pydirect.cli.tables import InputTable

FAST = ["--features", "linear", "--quiet"]


def test_predict_writes_csv_that_reads_back_exactly(model, data, capsys, make_columns, read_csv, run):
    assert run("predict", model, data, "--std") == 0
    captured = capsys.readouterr()
    result = read_csv(captured.out)
    assert list(result) == ["prediction", "std", "lower", "upper"]
    columns = make_columns()
    X = InputTable(columns, {}, 120).inputs(("x", "colour", "z"))
    distribution = pydirect.load(model).predict_distribution(X)
    lower, upper = distribution.interval(0.9)
    for name, expected in {
        "prediction": distribution.mean,
        "std": distribution.std,
        "lower": lower,
        "upper": upper,
    }.items():
        np.testing.assert_array_equal(result[name], expected)
    np.testing.assert_allclose(result["prediction"], pydirect.load(model).predict(X), rtol=1e-10)
    assert captured.err.startswith("y: RMSE 0.") and "of 120 rows inside the 90% interval" in captured.err


def test_predict_in_batches_is_the_same(model, data, capsys, monkeypatch, read_csv, run):
    assert run("predict", model, data) == 0
    whole = read_csv(capsys.readouterr().out)
    monkeypatch.setattr("pydirect.cli.info._ROWS_PER_BATCH", 50)
    monkeypatch.setattr("pydirect.cli.predict._ROWS_PER_BLOCK", 7)
    assert run("predict", model, data) == 0
    parts = read_csv(capsys.readouterr().out)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-12)


def test_predict_to_files(tmp_path, model, data, capsys, read_csv, run):
    assert run("predict", model, data, "--interval", "0.5", "-o", tmp_path / "out.csv") == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "inside the 50% interval" in captured.err
    from_csv = read_csv((tmp_path / "out.csv").read_text())
    assert list(from_csv) == ["prediction", "lower", "upper"]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("predict", model, data, "--interval", "0.5", "-o", tmp_path / "out.parquet") == 0
    from_parquet = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(from_parquet) == list(from_csv)
    for name, values in from_csv.items():
        np.testing.assert_array_equal(from_parquet[name], values)


def test_narrower_intervals_are_inside_wider_ones(model, data, capsys, read_csv, run):
    results = []
    for level in ("0.5", "0.99"):
        assert run("predict", model, data, "--interval", level) == 0
        results.append(read_csv(capsys.readouterr().out))
    narrow, wide = results
    assert (wide["lower"] < narrow["lower"]).all() and (narrow["upper"] < wide["upper"]).all()


def test_predict_from_parquet(tmp_path, model, data, capsys, make_columns, run):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(make_columns()), tmp_path / "d.parquet")
    outputs = []
    for source in (data, tmp_path / "d.parquet"):
        assert run("predict", model, source) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]


def test_predict_without_targets_or_with_some(tmp_path, model, capsys, make_columns, write_csv, run):
    columns = make_columns(n=10)
    inputs = {name: columns[name] for name in ("z", "x", "colour")}
    assert run("predict", model, write_csv(tmp_path / "a.csv", inputs)) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and len(captured.out.splitlines()) == 11
    some = ["", *columns["y"][1:4], *[""] * 6]
    assert run("predict", model, write_csv(tmp_path / "b.csv", {**inputs, "y": some})) == 0
    assert "of 3 rows inside" in capsys.readouterr().err
    assert run("predict", model, write_csv(tmp_path / "c.csv", {**inputs, "y": ["n.n."] * 10})) == 0
    assert capsys.readouterr().err == "pydirect: warning: column 'y' does not hold numbers: no scores\n"


def test_several_targets(tmp_path, data, capsys, read_csv, run):
    path = tmp_path / "m.pydirect"
    arguments = ["--target", "y", "--target", "y2", "--drop", "w", "-o", path, "--features", "linear"]
    assert run("fit", data, *arguments) == 0
    out = capsys.readouterr().out
    assert "held out, y " in out and "held out, y2" in out
    assert run("predict", path, data, "--std") == 0
    captured = capsys.readouterr()
    assert list(read_csv(captured.out)) == [
        f"{target}_{name}" for target in ("y", "y2") for name in ("prediction", "std", "lower", "upper")
    ]
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["y", "y2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None, "z": None}, "no columns 'x', 'z' in the data"),
        ({"x": ["1", "one"]}, "column 'x': expected numbers, got 'one' in data row 2"),
        ({"x": ["1", "inf"]}, "column 'x': expected finite numbers, got inf in data row 2"),
    ],
)
def test_predict_refuses(tmp_path, model, change, message, write_csv, assert_refused):
    columns = {"x": [1, 2], "z": [0, 0], "colour": ["red", "blue"], **change}
    path = write_csv(tmp_path / "d.csv", {name: values for name, values in columns.items() if values is not None})
    assert_refused("predict", model, path, "-o", tmp_path / "out.csv", message=message)
    assert not (tmp_path / "out.csv").exists()


@pytest.fixture
def gaps(tmp_path, write_csv):
    """Return a table of six rows: the third lacks a number, the fifth and the sixth have new categories."""
    columns = {"x": [1, 2, "", 0, 1, 1], "z": [0, 1, 0, 1, 0, 1], "colour": ["red", "blue", "red", "red", "pink", ""]}
    return write_csv(tmp_path / "gaps.csv", columns)


def test_missing_values_and_new_categories_do_not_stop_predictions(model, gaps, capsys, read_csv, run):
    assert run("predict", model, gaps, "--std") == 0
    captured = capsys.readouterr()
    columns = read_csv(captured.out)
    assert all(len(values) == 6 and np.isfinite(values).all() for values in columns.values())
    missing, unseen = captured.err.splitlines()
    assert missing.startswith("inputs are missing in 2 of 6 rows (x 1, colour 1): replaced by")
    assert unseen == "categories did not occur in fitting in 1 of 6 rows (colour 1): predicted from the other columns"
    assert run("predict", model, gaps, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_rows_with_missing_values_or_new_categories_are_left_empty(tmp_path, model, gaps, capsys, run):
    assert run("predict", model, gaps) == 0
    everything = capsys.readouterr().out.splitlines()
    assert run("predict", model, gaps, "--on-missing", "skip", "--on-unseen", "skip") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [line if i in (0, 1, 2, 4) else ",," for i, line in enumerate(everything)]
    assert captured.err.count("predictions left empty") == 2
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("predict", model, gaps, "--on-missing", "skip", "-o", tmp_path / "p.parquet") == 0
    assert parquet.read_table(tmp_path / "p.parquet")["prediction"].is_null().to_pylist() == [0, 0, 1, 0, 0, 1]


def test_missing_values_and_new_categories_can_be_errors(tmp_path, model, gaps, assert_refused, write_csv):
    message = "gaps.csv: column 'colour': 'pink' did not occur in fitting, in data row 5"
    assert_refused("predict", model, gaps, "--on-unseen", "error", message=message)
    options = ["--on-missing", "error", "--on-unseen", "error"]
    report = assert_refused("predict", model, gaps, *options, message="gaps.csv: 3 problems", lines=4)
    for problem in ("column 'x': missing value in data row 3", "column 'colour': missing value in data row 6"):
        assert problem in report
    empty = write_csv(tmp_path / "e.csv", {"x": [""], "z": [1], "colour": ["red"]})
    assert_refused("predict", model, empty, "--on-missing", "skip", message="every row lacks inputs")


def test_all_problems_are_reported_together(tmp_path, model, write_csv, assert_refused):
    table = write_csv(tmp_path / "t.csv", {"x": ["1", "one"], "z": ["inf", "inf"], "colour": ["red", "blue"]})
    report = assert_refused("predict", model, table, message="t.csv: 2 problems", lines=3)
    assert "  column 'x': expected numbers, got 'one' in data row 2; --missing-value one takes" in report
    assert "  column 'z': expected finite numbers, got inf in data row 1 (2 such rows)" in report


def test_missing_values_are_written_as_in_fitting(tmp_path, capsys, run, write_csv, make_columns):
    columns = {name: list(values) for name, values in make_columns().items()}
    columns["x"][5] = "-"
    data, path = write_csv(tmp_path / "d.csv", columns), tmp_path / "m"
    assert run("fit", data, "--target", "y", "-o", path, "--missing-value", "-", *FAST) == 0
    assert run("predict", path, data) == 0
    assert "inputs are missing in 1 of 120 rows (x 1)" in capsys.readouterr().err


def test_new_categories_are_noticed_where_missing_ones_are_known(tmp_path, gaps, capsys, run, make_columns, write_csv):
    columns = {name: list(values) for name, values in make_columns().items()}
    columns["colour"][3] = ""
    data, path = write_csv(tmp_path / "d.csv", columns), tmp_path / "m"
    assert run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, *FAST) == 0
    assert run("predict", path, gaps) == 0
    missing, unseen = capsys.readouterr().err.splitlines()
    assert "(x 1)" in missing and "(colour 1)" in unseen


def test_rows_of_classes_are_left_empty_too(tmp_path, gaps, capsys, run, make_columns, write_csv):
    columns = make_columns()
    columns["y"] = np.where(columns["y"] > 1, "high", "low")
    data, path = write_csv(tmp_path / "d.csv", columns), tmp_path / "m"
    assert run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, *FAST) == 0
    assert run("predict", path, gaps, "--on-missing", "skip") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == lines[6] == ",," and lines[1].split(",")[0] in ("high", "low")


def test_predict_refuses_other_files_and_levels(tmp_path, model, data, assert_refused):
    assert_refused("predict", data, data, message="data.csv: not a pydirect file")
    assert_refused("predict", tmp_path / "no", data, message="no: No such file")
    assert_refused("predict", model, data, "--interval", "1", message="expected a number between 0 and 1, got '1'")
    assert_refused("predict", model, data, "-o", model, message="would overwrite the input")
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert_refused("predict", model, data, message="altered: ")


def test_models_saved_in_python(tmp_path, data, capsys, make_columns, read_csv, run, assert_refused):
    pd = pytest.importorskip("pandas")
    columns = make_columns()
    X = pd.DataFrame({"x": columns["x"], "colour": pd.Categorical(columns["colour"]), "z": columns["z"]})
    path = tmp_path / "m.pydirect"
    model = pydirect.DirectRegressor(features="linear").fit(X, columns["y"])
    model.save(path)
    assert run("predict", path, data) == 0
    result = read_csv(capsys.readouterr().out)
    np.testing.assert_allclose(result["prediction"], model.predict(X), rtol=1e-10)
    pydirect.DirectRegressor(features="linear").fit(X[["x", "z"]].to_numpy(), columns["y"]).save(path)
    assert_refused("predict", path, data, message="does not know the names of its columns")


def test_models_of_the_command_line_know_their_columns_in_python(model, data, capsys, read_csv, run):
    pd = pytest.importorskip("pandas")
    frame = pd.read_csv(data)[["x", "colour", "z"]]
    assert run("predict", model, data) == 0
    result = read_csv(capsys.readouterr().out)
    np.testing.assert_allclose(pydirect.load(model).predict(frame), result["prediction"], rtol=1e-10)


def test_numbers_that_are_categories(tmp_path, capsys, run, write_csv, make_columns):
    columns = make_columns()
    codes = np.select([columns["colour"] == c for c in ("red", "green")], ["007", "12"], "3")
    data, path = write_csv(tmp_path / "d.csv", columns | {"colour": codes}), tmp_path / "m"
    assert run("fit", data, "--target", "y", "-o", path, "--category", "colour", *FAST) == 0
    assert pydirect.load(path).columns_.categories[1] == ("007", "12", "3")
    assert run("predict", path, data) == 0
    assert "did not occur" not in capsys.readouterr().err


def test_models_of_counts_are_refused(data, tmp_path, assert_refused):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    path = tmp_path / "counts.pydirect"
    pydirect.DirectCountRegressor("linear").fit(pandas.DataFrame({"x": [0.0, 1.0, 2.0]}), [1, 0, 3]).save(path)
    assert_refused("predict", path, data, message="models of counts predict in Python alone")
