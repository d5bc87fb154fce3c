"""The command line, mostly in-process."""

from __future__ import annotations

import builtins
import csv
import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import pydirect
from pydirect.cli.main import main
from pydirect.persistence.container import describe, write

FAST = ["--features", "linear", "--quiet"]


def make_columns(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n))
    colour = rng.choice(["red", "green", "blue"], size=n)
    y = 1.0 + 2.0 * x - z + 3.0 * (colour == "red") + 0.1 * rng.normal(size=n)
    return {"x": x, "colour": colour, "z": z, "y": y, "y2": -y + x, "w": rng.uniform(0.5, 2.0, n)}


def write_csv(path, columns):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def read_csv(text):
    header, *rows = csv.reader(text.splitlines())
    return {name: np.array(values, dtype=float) for name, values in zip(header, zip(*rows, strict=True), strict=True)}


@pytest.fixture
def data(tmp_path):
    return write_csv(tmp_path / "data.csv", make_columns())


@pytest.fixture
def model(tmp_path, data, capsys):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, *FAST) == 0
    capsys.readouterr()
    return path


def run(*arguments):
    return main([str(argument) for argument in arguments])


def assert_refused(capsys, *arguments, message, code=2):
    """The command must fail with one line on standard error and nothing on standard output."""
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pydirect: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


# -------------------------------------------------------------------------------------------------------------- fit


def test_fit_prints_a_summary_and_writes_a_model(tmp_path, data, capsys):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, "--features", "linear") == 0
    captured = capsys.readouterr()
    for word in ("rows       ", "120", "columns", "3, 5 after encoding text", "features", "linear", "noise sd", "ELBO"):
        assert word in captured.out
    assert "held out, y" in captured.out and "of 12 rows inside the 90% interval" in captured.out
    assert "the model below was then fitted to all 120 rows" in captured.out
    assert "converged" in captured.out and str(path) in captured.out
    assert "Fitting to 108 rows, 12 held out" in captured.err
    assert "Fitting to all rows" in captured.err
    assert describe(path).file_size == path.stat().st_size


def test_quiet_fit_is_silent(tmp_path, data, capsys):
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST) == 0
    assert capsys.readouterr() == ("", "")


def test_fit_without_held_out_rows(tmp_path, data, capsys):
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", "--features", "linear", "--test-fraction", "0"]
    assert run(*arguments) == 0
    captured = capsys.readouterr()
    assert "held out" not in captured.out + captured.err


def test_the_written_model_is_fitted_to_all_rows(tmp_path, data):
    for fraction in ("0", "0.5"):
        arguments = ["--test-fraction", fraction, *FAST]
        assert run("fit", data, "--target", "y", "-o", tmp_path / f"m{fraction}", *arguments) == 0
    first, second = (pydirect.load(tmp_path / name) for name in ("m0", "m0.5"))
    X = np.random.default_rng(1).normal(size=(5, first.n_features_in_))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


@pytest.mark.parametrize(
    "options",
    [
        ["--features", "fourier", "--n-features", "40"],
        ["--features", "polynomial", "--degree", "2"],
        ["--features", "linear", "--basis", "raw"],
        ["--features", "linear", "--weight", "w", "--threads", "1", "--seed", "3"],
    ],
)
def test_options_reach_the_estimator(tmp_path, data, options):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "-o", path, *options, "--quiet") == 0
    parameters = pydirect.load(path).get_params()
    names = {"--features": "features", "--basis": "basis", "--n-features": "n_features", "--degree": "degree"}
    names |= {"--threads": "n_threads", "--seed": "random_state"}
    for option, value in zip(options[::2], options[1::2], strict=True):
        if option in names:
            assert str(parameters[names[option]]) == value


def test_a_network_is_fitted_predicts_and_is_described(tmp_path, data, capsys):
    path = tmp_path / "m"
    command = ["fit", data, "--target", "y", "--model", "network", "--hidden", "2", "--plot", tmp_path / "p.png"]
    assert run(*command, "-o", path) == 0
    captured = capsys.readouterr()
    assert "network with 2 hidden units" in captured.out
    assert "best ELBO" in captured.err
    assert isinstance(pydirect.load(path), pydirect.QuadraticBNNRegressor)
    assert run("predict", path, data, "--std") == 0
    assert capsys.readouterr().out.startswith("prediction,std,lower,upper\n")
    assert run("info", path) == 0
    out = capsys.readouterr().out
    assert "QuadraticBNNRegressor" in out
    assert "hidden_layer_sizes" in out


@pytest.mark.parametrize(
    ("target", "model", "estimator"),
    [
        ("y", ["dvi"], "DVIRegressor"),
        ("colour", ["dvi"], "DVIClassifier"),
        ("y", ["monte-carlo", "--posterior", "laplace"], "MonteCarloBNNRegressor"),
        ("colour", ["monte-carlo"], "MonteCarloBNNClassifier"),
    ],
)
def test_a_network_of_rectified_units_is_fitted_predicts_and_is_described(
    tmp_path, data, capsys, monkeypatch, target, model, estimator
):
    monkeypatch.setattr(pydirect.networks.training, "LEAST_STEPS", 100)
    monkeypatch.setattr(pydirect.networks.training, "LEAST_PASSES", 1)
    path = tmp_path / "m"
    command = ["fit", data, "--target", target, "--model", *model, "--hidden", "2", "--plot", tmp_path / "p.png"]
    assert run(*command, "-o", path) == 0
    captured = capsys.readouterr()
    assert "relu network with 2 hidden units" in captured.out
    assert type(pydirect.load(path)).__name__ == estimator
    assert run("predict", path, data, "--std") == 0
    capsys.readouterr()
    assert run("info", path) == 0
    assert estimator in capsys.readouterr().out


def test_weights_matter_and_are_not_an_input(tmp_path, data):
    assert run("fit", data, "--target", "y", "--weight", "w", "-o", tmp_path / "m", *FAST) == 0
    table = pydirect.load(tmp_path / "m").metadata_["table"]
    assert table["weight"] == "w"
    assert [column["name"] for column in table["encoder"]["columns"]] == ["x", "colour", "z", "y2"]


def test_missing_values_need_a_decision(tmp_path, capsys):
    columns = {name: list(values) for name, values in make_columns().items()}
    columns["z"][7] = columns["z"][9] = columns["y"][8] = ""
    data = write_csv(tmp_path / "gaps.csv", columns)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", "--features", "linear"]
    message = "column 'y': missing value in data row 9 (1 in this column); --drop-missing leaves such rows out"
    assert_refused(capsys, *arguments, message=message)
    assert run(*arguments, "--drop-missing") == 0
    assert "117 (3 with missing values left out)" in capsys.readouterr().out
    assert run(*arguments, "--drop-missing", "--drop", "z", "--quiet") == 0


def test_plot(tmp_path, data):
    pytest.importorskip("matplotlib")
    for name, options in {"a.png": [], "b.svg": ["--test-fraction", "0"], "c.pdf": ["--target", "y2"]}.items():
        picture = tmp_path / name
        assert run("fit", data, "--target", "y", *options, "-o", tmp_path / "m", "--plot", picture, *FAST) == 0
        assert picture.stat().st_size > 2000


def test_a_fit_that_does_not_converge_warns(tmp_path, data, capsys, monkeypatch):
    real = pydirect.DirectRegressor.fit

    def fit(self, *arguments, **keywords):
        real(self, *arguments, **keywords)
        self.converged_ = False
        return self

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fit)
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST, "--test-fraction", "0") == 0
    captured = capsys.readouterr()
    assert captured.err == "pydirect: warning: the fit did not converge; its result may still improve\n"


def test_an_interrupted_fit_writes_nothing(tmp_path, data, capsys, monkeypatch):
    real = pydirect.DirectRegressor.fit

    def fit(self, *arguments, **keywords):
        real(self, *arguments, **keywords)
        self.interrupted_, self.converged_ = True, False
        return self

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fit)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", *FAST]
    assert_refused(capsys, *arguments, message="interrupted", code=130)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_default_features_are_the_estimators(tmp_path, data):
    columns = ["--drop", "colour", "y2", "w"]
    assert run("fit", data, "--target", "y", *columns, "-o", tmp_path / "m", "--quiet", "--test-fraction", "0") == 0
    model = pydirect.load(tmp_path / "m")
    assert model.features == pydirect.DirectRegressor().features
    assert model.features_.kind == "nystroem"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "nope"], "no column 'nope' in the data (it has 'x', 'colour'"),
        (["--target", "y", "--drop", "nope", "no"], "no columns 'nope', 'no' in the data"),
        (["--target", "y", "--weight", "nope"], "no column 'nope'"),
        (["--target", "y", "--target", "y"], "column 'y' is named twice"),
        (["--target", "y", "--weight", "y"], "column 'y' is named twice"),
        (["--target", "y", "--drop", "y"], "column 'y' is named twice"),
        (["--target", "colour", "--task", "regression"], "column 'colour': expected numbers, got"),
        (["--target", "y", "--weight", "x"], "column 'x': expected weights of at least 0"),
        (["--target", "y", "--drop", "x", "colour", "z", "y2", "w"], "no columns are left to predict from"),
        (["--target", "y", "--features", "cubic"], "argument --features: invalid choice: 'cubic'"),
        (["--target", "y", "--features", "linear", "--n-features", "10"], "--n-features: only for --features nys"),
        (["--target", "y", "--degree", "3"], "--degree: only for --features polynomial"),
        (["--target", "y", "--hidden", "3"], "--hidden: only for --model network"),
        (["--target", "y", "--model", "network", "--basis", "raw"], "--basis: not for --model network"),
        (["--target", "y", "--model", "dvi", "--degree", "3"], "--degree: not for --model dvi"),
        (["--target", "y", "--posterior", "radial"], "--posterior: only for --model monte-carlo"),
        (["--target", "colour", "--model", "network"], "--model network: its target must be a number, not a class"),
        (
            ["--target", "y", "--model", "network", "--hidden", "0"],
            "argument --hidden: expected an integer of at least 1",
        ),
        (
            ["--target", "y", "--model", "network", "--hidden", "99", "99", "99", "--quiet"],
            "hidden_layer_sizes must be smaller",
        ),
        (["--target", "y", "--n-features", "0"], "argument --n-features: expected an integer of at least 1, got '0'"),
        (
            ["--target", "y", "--n-features", "many"],
            "argument --n-features: expected an integer of at least 1, got 'many'",
        ),
        (["--target", "y", "--test-fraction", "1"], "argument --test-fraction: expected a number from 0 to below 1"),
        (["--target", "y", "--test-fraction", "nan"], "argument --test-fraction: expected a number from 0 to below 1"),
        (["--target", "y", "--test-fraction", "0.995"], "120 rows are too few to hold some out"),
        (["--target", "y", "--plot", "a.xyz"], "a.xyz: expected a name that ends in"),
        ([], "the following arguments are required: --target (see pydirect fit --help)"),
    ],
)
def test_fit_refuses(tmp_path, data, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, "fit", data, "-o", tmp_path / "m", *options, message=message)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_fit_refuses_tables_with_a_hint(tmp_path, capsys):
    n = 30
    columns = {"id": [f"id{i}" for i in range(60)], "when": ["2024-01-01"] * 60, "y": list(range(60))}
    data = write_csv(tmp_path / "d.csv", columns)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m"]
    assert_refused(capsys, *arguments, message="column 'when' holds dates or times")
    assert_refused(capsys, *arguments, message="or leave it out with --drop 'when'")
    assert_refused(capsys, *arguments, "--drop", "when", message="column 'id': expected at most 50 categories")
    data.write_text("a,y\n" + "1,2\n" * n + "1\n")
    assert_refused(capsys, *arguments, message=f"line {n + 2}: expected 2 fields as in the header, got 1")
    data.write_text("")
    assert_refused(capsys, *arguments, message="the file is empty")


def test_outputs_are_checked_before_the_work(tmp_path, data, capsys):
    fit = ["fit", data, "--target", "y", "-o"]
    assert_refused(capsys, *fit, tmp_path, message="expected a file in an existing directory")
    assert_refused(capsys, *fit, tmp_path / "no" / "m", message="expected a file in an existing directory")
    assert_refused(capsys, *fit, data, message="would overwrite the input")
    assert_refused(capsys, *fit, "p.png", "--plot", "p.png", message="named for both --output and --plot")
    assert_refused(capsys, "fit", tmp_path / "no.csv", *fit[2:], tmp_path / "m", message="no.csv: No such file")


def test_plot_without_matplotlib_gives_the_hint(tmp_path, data, capsys, monkeypatch):
    hide_module(monkeypatch, "matplotlib")
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", "--plot", tmp_path / "p.png"]
    assert_refused(capsys, *arguments, message='requires matplotlib. Install it with: pip install "pydirect[plot]"')


def hide_module(monkeypatch, hidden):
    real = builtins.__import__

    def fail(name, *arguments, **keywords):
        if name.split(".")[0] == hidden:
            raise ImportError(f"No module named {name!r}")
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", fail)


# ---------------------------------------------------------------------------------------------------------- predict


def test_predict_writes_csv_that_reads_back_exactly(model, data, capsys):
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


def test_predict_in_batches_is_the_same(model, data, capsys, monkeypatch):
    assert run("predict", model, data) == 0
    whole = read_csv(capsys.readouterr().out)
    monkeypatch.setattr("pydirect.cli.scoring._ROWS_PER_BATCH", 50)
    monkeypatch.setattr("pydirect.cli.predict._ROWS_PER_BLOCK", 7)
    assert run("predict", model, data) == 0
    parts = read_csv(capsys.readouterr().out)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, rtol=1e-12)


def test_predict_to_files(tmp_path, model, data, capsys):
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


def test_narrower_intervals_are_inside_wider_ones(model, data, capsys):
    results = []
    for level in ("0.5", "0.99"):
        assert run("predict", model, data, "--interval", level) == 0
        results.append(read_csv(capsys.readouterr().out))
    narrow, wide = results
    assert (wide["lower"] < narrow["lower"]).all() and (narrow["upper"] < wide["upper"]).all()


def test_predict_from_parquet(tmp_path, model, data, capsys):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(make_columns()), tmp_path / "d.parquet")
    outputs = []
    for source in (data, tmp_path / "d.parquet"):
        assert run("predict", model, source) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1]


def test_predict_without_targets_or_with_some(tmp_path, model, capsys):
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


def test_several_targets(tmp_path, data, capsys):
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
def test_predict_refuses(tmp_path, model, capsys, change, message):
    columns = {"x": [1, 2], "z": [0, 0], "colour": ["red", "blue"], **change}
    path = write_csv(tmp_path / "d.csv", {name: values for name, values in columns.items() if values is not None})
    assert_refused(capsys, "predict", model, path, "-o", tmp_path / "out.csv", message=message)
    assert not (tmp_path / "out.csv").exists()


def test_predict_refuses_other_files_and_levels(tmp_path, model, data, capsys):
    assert_refused(capsys, "predict", data, data, message="data.csv: not a pydirect file")
    assert_refused(capsys, "predict", tmp_path / "no", data, message="no: No such file")
    assert_refused(
        capsys, "predict", model, data, "--interval", "1", message="expected a number between 0 and 1, got '1'"
    )
    assert_refused(capsys, "predict", model, data, "-o", model, message="would overwrite the input")
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert_refused(capsys, "predict", model, data, message="does not match its checksum")


def test_models_saved_in_python(tmp_path, data, capsys):
    pd = pytest.importorskip("pandas")
    columns = make_columns()
    X = pd.DataFrame({"x": columns["x"], "z": columns["z"]})
    path = tmp_path / "m.pydirect"
    pydirect.DirectRegressor(features="linear").fit(X, columns["y"]).save(path)
    assert run("predict", path, data) == 0
    result = read_csv(capsys.readouterr().out)
    np.testing.assert_allclose(result["prediction"], pydirect.load(path).predict(X), rtol=1e-10)
    pydirect.DirectRegressor(features="linear").fit(X.to_numpy(), columns["y"]).save(path)
    assert_refused(capsys, "predict", path, data, message="does not know the names of its columns")


# -------------------------------------------------------------------------------------------------------- info & co


def test_info(model, capsys):
    assert run("info", model) == 0
    out = capsys.readouterr().out
    for word in ("kind", "DirectRegressor", "features=linear", "x, colour, z", "noise sd", "elbo", "sparsity"):
        assert word in out
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert lines["library version"].strip() == pydirect.__version__
    assert int(lines["weights"]) == pydirect.load(model).features_.n_weights
    assert lines["levels per weight"].strip() == "15" and lines["converged"].strip() == "yes"
    assert str(model.stat().st_size) in out


def test_info_as_json(model, capsys):
    assert run("info", model, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["class"] == "DirectRegressor"
    assert facts["targets"] == ["y"] and facts["columns"] == ["x", "colour", "z"]
    assert facts["parameters"]["features"] == "linear" and facts["rows"] == 120
    assert facts["library_version"] == pydirect.__version__ and facts["weights"] > 0
    assert facts["arrays"]["coefficients"]["shape"] == [facts["weights"], 1]
    assert facts["held_out"][0]["n_rows"] == 12
    assert facts["file_size"] == model.stat().st_size and facts["format_version"] == 1
    assert isinstance(facts["converged"], bool) and facts["noise_sd"] > 0


def test_info_of_another_kind(tmp_path, capsys):
    write(tmp_path / "s", "something", {}, {"A": np.zeros((2, 3))})
    assert run("info", tmp_path / "s") == 0
    out = capsys.readouterr().out
    assert "something" in out and "A float64 (2, 3)" in out


def test_info_refuses_other_files(data, capsys):
    assert_refused(capsys, "info", data, message="data.csv: not a pydirect file")


def test_show_config(capsys):
    assert run("show-config") == 0
    assert capsys.readouterr().out


def test_version_and_help(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"pydirect {pydirect.__version__}\n"
    for command in ([], ["fit"], ["predict"], ["info"], ["demo"], ["show-config"]):
        assert run(*command, "--help") == 0
        assert "usage: pydirect" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["--nonsense"], ["info"], ["info", "a", "b"]])
def test_wrong_usage(capsys, arguments):
    assert_refused(capsys, *arguments, message="--help)")


def test_demo_is_passed_on(tmp_path, monkeypatch):
    calls = []
    module = types.ModuleType("pydirect.cli.demo_comparison")
    module.run = lambda **keywords: calls.append(keywords) or 7
    monkeypatch.setitem(sys.modules, "pydirect.cli.demo_comparison", module)
    assert run("demo", "--output-dir", tmp_path, "--quiet", "--seed", "3") == 7
    assert calls == [{"output_dir": tmp_path, "quiet": True, "seed": 3}]


# --------------------------------------------------------------------------------------------------- how things end


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("2 TiB"), 2, "not enough memory: 2 TiB"),
        (OSError(28, "No space left on device", "m"), 2, "m: No space left on device"),
        (OSError("odd"), 2, "odd"),
        (ValueError("two\nlines"), 2, "two lines"),
    ],
)
def test_errors_end_in_one_line(tmp_path, data, capsys, monkeypatch, error, code, message):
    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fail)
    path = tmp_path / "m"
    arguments = ["fit", data, "--target", "y", "-o", path, *FAST]
    assert_refused(capsys, *arguments, code=code, message=f"pydirect: error: {message}\n")
    assert not path.exists()


def test_errors_of_the_program_itself_keep_their_traceback(tmp_path, data, monkeypatch):
    def fail(*arguments, **keywords):
        raise RuntimeError("a mistake in the program")

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST)


def test_warnings_are_one_line(tmp_path, data, capsys, monkeypatch):
    import warnings

    real = pydirect.DirectRegressor.fit

    def fit(self, *arguments, **keywords):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind\nthe gap", UserWarning, stacklevel=1)
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fit)
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST, "--test-fraction", "0") == 0
    assert capsys.readouterr().err == "pydirect: warning: mind the gap\n"


def process(*arguments, **keywords):
    command = [sys.executable, "-m", "pydirect", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)


def test_as_a_process(model, data, tmp_path):
    done = process("info", model, "--json")
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (0, "") and json.loads(out)["kind"]
    failed = process("info", tmp_path / "no")
    out, err = failed.communicate(timeout=60)
    assert (failed.returncode, out) == (2, "") and err.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes behave differently elsewhere")
def test_reader_that_goes_away(model, tmp_path):
    columns = make_columns(n=5000)
    data = write_csv(tmp_path / "long.csv", {name: columns[name] for name in ("x", "z", "colour")})
    sender = process("predict", model, data)
    assert sender.stdout.readline() == "prediction,lower,upper\n"
    sender.stdout.close()
    assert sender.stderr.read() == ""
    sender.stderr.close()
    assert sender.wait(timeout=60) == 141


def test_help_does_not_import_the_estimators():
    code = "import sys; from pydirect.cli.main import main; main(['--help']);"
    code += "print(sorted(m for m in sys.modules if m.split('.')[0] in {'numpy', 'sklearn', 'scipy'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
