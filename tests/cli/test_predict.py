"""``pydirect predict``: columns, files, scores, and refusals."""

import csv

import numpy as np
import pytest

import pydirect
from pydirect.cli.tables import read_table

FAST = ["--set", "features=linear", "--quiet"]


def test_predict_writes_csv_that_reads_back_exactly(model, data, capsys, read_csv, run):
    assert run("predict", model, data) == 0
    captured = capsys.readouterr()
    result = read_csv(captured.out)
    X = read_table(data).table(["x", "colour", "z"])
    distribution = pydirect.load(model).predict_distribution(X)
    lower, upper = distribution.interval(0.9)
    expected = {"prediction": distribution.mean, "std": distribution.std, "lower": lower, "upper": upper}
    assert list(result) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(result[name], values)
    assert captured.err.startswith("y: RMSE 0.") and "coverage of 90% intervals" in captured.err
    assert captured.err.endswith("of 120 rows\n")


def test_predict_in_blocks_is_the_same(model, data, capsys, monkeypatch, read_csv, run):
    assert run("predict", model, data) == 0
    whole = read_csv(capsys.readouterr().out)
    monkeypatch.setattr("pydirect.cli.predict._ROWS_PER_BLOCK", 50)
    assert run("predict", model, data) == 0
    parts = read_csv(capsys.readouterr().out)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-12)


def test_predict_to_files(tmp_path, model, data, capsys, read_csv, run, assert_refused):
    assert run("predict", model, data, "--interval", "0.5", "-o", tmp_path / "out.csv") == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "coverage of 50% intervals" in captured.err
    assert run("predict", model, data, "--interval", "0.5", "-o", "-") == 0
    assert capsys.readouterr().out == (tmp_path / "out.csv").read_text()
    from_csv = read_csv((tmp_path / "out.csv").read_text())
    assert_refused("predict", model, data, "-o", tmp_path / "o.xlsx", message="written as CSV or .parquet, not .xlsx")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("predict", model, data, "--interval", "0.5", "-o", tmp_path / "out.parquet") == 0
    from_parquet = parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(from_parquet) == list(from_csv)
    for name, values in from_csv.items():
        np.testing.assert_array_equal(from_parquet[name], values)


def test_predict_from_parquet(tmp_path, model, data, capsys, make_columns, run):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(make_columns()), tmp_path / "d.parquet")
    outputs = []
    for source in (data, tmp_path / "d.parquet"):
        assert run("predict", model, source) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]


@pytest.mark.filterwarnings("default:no scores:UserWarning")
def test_predict_without_targets_or_with_some(tmp_path, model, capsys, make_columns, write_csv, run):
    columns = make_columns(n=10)
    inputs = {name: columns[name] for name in ("z", "x", "colour")}
    assert run("predict", model, write_csv(tmp_path / "a.csv", inputs)) == 0
    captured = capsys.readouterr()
    assert captured.err == "" and len(captured.out.splitlines()) == 11
    some = ["", *columns["y"][1:4], *[""] * 6]
    assert run("predict", model, write_csv(tmp_path / "b.csv", {**inputs, "y": some})) == 0
    assert "of 3 rows" in capsys.readouterr().err
    assert run("predict", model, write_csv(tmp_path / "c.csv", {**inputs, "y": ["n.n."] * 10})) == 0
    assert capsys.readouterr().err.startswith("pydirect: warning: no scores: ")


def test_several_targets(tmp_path, data, capsys, read_csv, run):
    path = tmp_path / "m.pydirect"
    arguments = ["--target", "y", "--target", "y2", "--drop", "w", "-o", path, "--set", "features=linear"]
    assert run("fit", data, *arguments) == 0
    out = capsys.readouterr().out
    assert "Held out, y: " in out and "Held out, y2: " in out
    assert run("predict", path, data) == 0
    captured = capsys.readouterr()
    names = [f"{target}_{name}" for target in ("y", "y2") for name in ("prediction", "std", "lower", "upper")]
    assert list(read_csv(captured.out)) == names
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["y", "y2"]


@pytest.mark.parametrize("labels", [["no", 'the "other", yes'], ["False", "True"], ["1", "2"]])
def test_classes_are_predicted_and_scored(tmp_path, capsys, make_columns, write_csv, read_csv, run, labels):
    columns = make_columns()
    columns["y"] = np.where(columns["y"] > 1, *labels)
    data, path = write_csv(tmp_path / "d.csv", columns), tmp_path / "m"
    options = ["--drop", "y2", "w", "--task", "classification", *FAST]
    assert run("fit", data, "--target", "y", "-o", path, *options) == 0
    assert run("predict", path, data, "-o", tmp_path / "p.csv") == 0
    assert capsys.readouterr().err.startswith("y: accuracy 1, log loss")
    found, model = read_csv((tmp_path / "p.csv").read_text()), pydirect.load(path)
    assert list(found) == ["prediction", *(f"probability_{label}" for label in sorted(labels))]
    X = read_table(data).table(["x", "colour", "z"])
    p = model.predict_proba(X)
    np.testing.assert_array_equal(np.column_stack([*found.values()][1:]).astype(float), p)
    lines = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert [next(csv.reader([line]))[0] for line in lines] == model.predict(X).astype(str).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None, "z": None}, "no columns 'x', 'z'"),
        ({"x": ["1", "one"]}, "column 'x' must hold numbers, as in fit, got 'one'"),
        ({"x": ["1", "inf"]}, "column 'x' must be finite, got infinity"),
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
    assert run("predict", model, gaps) == 0
    captured = capsys.readouterr()
    columns = read_csv(captured.out)
    assert all(len(values) == 6 and np.isfinite(values).all() for values in columns.values())
    message = "3 of 6 rows lack inputs or have new categories, first data row 3: predicted from their other columns"
    assert captured.err == message + "\n"
    assert run("predict", model, gaps, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_rows_with_missing_values_or_new_categories_are_left_empty(tmp_path, model, gaps, capsys, run):
    assert run("predict", model, gaps) == 0
    everything = capsys.readouterr().out.splitlines()
    assert run("predict", model, gaps, "--skip-unknown") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [line if i in (0, 1, 2, 4) else ",,," for i, line in enumerate(everything)]
    assert "predictions left empty" in captured.err
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("predict", model, gaps, "--skip-unknown", "-o", tmp_path / "p.parquet") == 0
    assert parquet.read_table(tmp_path / "p.parquet")["prediction"].is_null().to_pylist() == [0, 0, 1, 0, 1, 1]


def test_rows_that_a_model_cannot_take_are_left_empty(tmp_path, gaps, capsys, run, data, write_csv, assert_refused):
    path = tmp_path / "m"
    options = ["--drop", "y2", "w", *FAST, "--set", "columns=Columns(missing='raise')"]
    assert run("fit", data, "--target", "y", "-o", path, *options) == 0
    assert run("predict", path, gaps, "--quiet") == 0
    assert [not line.strip(",") for line in capsys.readouterr().out.splitlines()[1:]] == [0, 0, 1, 0, 0, 1]
    empty = write_csv(tmp_path / "e.csv", {"x": [""], "z": [1], "colour": ["red"]})
    assert_refused("predict", path, empty, message="no row has what the model needs to predict it")


def test_predict_refuses_other_files_and_levels(tmp_path, model, data, assert_refused):
    assert_refused("predict", data, data, message="data.csv: not a pydirect file")
    assert_refused("predict", tmp_path / "no", data, message="no: No such file")
    assert_refused("predict", model, data, "--interval", "1", message="level must")
    assert_refused("predict", model, data, "-o", model, message="would overwrite another file")
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert_refused("predict", model, data, message="altered: ")


def test_numbers_that_are_categories(tmp_path, capsys, run, write_csv, make_columns):
    columns = make_columns()
    codes = np.select([columns["colour"] == c for c in ("red", "green")], ["007", "12"], "3")
    data, path = write_csv(tmp_path / "d.csv", columns | {"colour": codes}), tmp_path / "m"
    assert run("fit", data, "--target", "y", "-o", path, "--category", "colour", *FAST) == 0
    assert pydirect.load(path).columns_.categories[1] == ("007", "12", "3")
    assert run("predict", path, data) == 0
    assert "new categories" not in capsys.readouterr().err
