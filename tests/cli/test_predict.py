"""``pydirect predict``: columns, files, scores, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import pydirect

FAST = ["--features", "linear", "--quiet"]


def test_predict_writes_csv_that_reads_back_exactly(model, data, capsys, make_columns, read_csv, run):
    assert run("predict", model, data, "--std") == 0
    captured = capsys.readouterr()
    result = read_csv(captured.out)
    assert list(result) == ["prediction", "std", "lower", "upper"]
    columns = make_columns()
    X = np.column_stack([columns["x"], *(columns["colour"] == c for c in ("blue", "green", "red")), columns["z"]])
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
    monkeypatch.setattr("pydirect.cli.scoring._ROWS_PER_BATCH", 50)
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
    assert run("predict", model, write_csv(tmp_path / "c.csv", {**inputs, "y": ["?"] * 10})) == 0
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
        ({"colour": ["red", "purple"]}, "column 'colour': 'purple' in data row 2 did not occur in fitting"),
        ({"x": ["1", "one"]}, "column 'x': expected numbers, got 'one' in data row 2"),
        ({"x": ["1", ""]}, "column 'x': missing value in data row 2"),
        ({"x": ["1", "inf"]}, "column 'x': expected finite numbers, got inf in data row 2"),
    ],
)
def test_predict_refuses(tmp_path, model, change, message, write_csv, assert_refused):
    columns = {"x": [1, 2], "z": [0, 0], "colour": ["red", "blue"], **change}
    path = write_csv(tmp_path / "d.csv", {name: values for name, values in columns.items() if values is not None})
    assert_refused("predict", model, path, "-o", tmp_path / "out.csv", message=message)
    assert not (tmp_path / "out.csv").exists()


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
    X = pd.DataFrame({"x": columns["x"], "z": columns["z"]})
    path = tmp_path / "m.pydirect"
    pydirect.DirectRegressor(features="linear").fit(X, columns["y"]).save(path)
    assert run("predict", path, data) == 0
    result = read_csv(capsys.readouterr().out)
    np.testing.assert_allclose(result["prediction"], pydirect.load(path).predict(X), rtol=1e-10)
    pydirect.DirectRegressor(features="linear").fit(X.to_numpy(), columns["y"]).save(path)
    assert_refused("predict", path, data, message="does not know the names of its columns")
