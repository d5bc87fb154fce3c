"""``pydirect fit``: summaries, model files, and refusals."""

from __future__ import annotations

import os

import numpy as np
import pytest

import pydirect
from pydirect.persistence.container import describe

FAST = ["--features", "linear", "--quiet"]


def test_fit_prints_a_summary_and_writes_a_model(tmp_path, data, capsys, run):
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


def test_quiet_fit_is_silent(tmp_path, data, capsys, run):
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST) == 0
    assert capsys.readouterr() == ("", "")


def test_fit_without_held_out_rows(tmp_path, data, capsys, run):
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", "--features", "linear", "--test-fraction", "0"]
    assert run(*arguments) == 0
    captured = capsys.readouterr()
    assert "held out" not in captured.out + captured.err


def test_the_written_model_is_fitted_to_all_rows(tmp_path, data, run):
    for fraction in ("0", "0.5"):
        arguments = ["--test-fraction", fraction, *FAST]
        assert run("fit", data, "--target", "y", "-o", tmp_path / f"m{fraction}", *arguments) == 0
    first, second = (pydirect.load(tmp_path / name) for name in ("m0", "m0.5"))
    X = np.random.default_rng(1).normal(size=(5, first.n_features_in_))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


@pytest.mark.filterwarnings("ignore::pydirect.regression.CoarseLevelsWarning")
@pytest.mark.parametrize(
    "options",
    [
        ["--features", "fourier", "--n-features", "40"],
        ["--features", "polynomial", "--degree", "2"],
        ["--features", "linear", "--basis", "raw", "--n-levels", "255"],
        ["--features", "linear", "--basis", "raw", "--posterior", "mean-field"],
        ["--features", "linear", "--weight", "w", "--threads", "1", "--seed", "3"],
    ],
)
def test_options_reach_the_estimator(tmp_path, data, options, run):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "-o", path, *options, "--quiet") == 0
    parameters = pydirect.load(path).get_params()
    names = {"--features": "features", "--basis": "basis", "--n-features": "n_features", "--degree": "degree"}
    names |= {"--threads": "n_threads", "--seed": "random_state"}
    names |= {"--n-levels": "n_levels", "--posterior": "posterior"}
    for option, value in zip(options[::2], options[1::2], strict=True):
        if option in names:
            assert str(parameters[names[option]]) == value.replace("-", "_")


def test_a_network_is_fitted_predicts_and_is_described(tmp_path, data, capsys, run):
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
    tmp_path, data, capsys, monkeypatch, target, model, estimator, run
):
    monkeypatch.setattr("pydirect.networks.schedule.LEAST_STEPS", 100)
    monkeypatch.setattr("pydirect.networks.schedule.LEAST_PASSES", 1)
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


def test_weights_matter_and_are_not_an_input(tmp_path, data, run):
    assert run("fit", data, "--target", "y", "--weight", "w", "-o", tmp_path / "m", *FAST) == 0
    table = pydirect.load(tmp_path / "m").metadata_["table"]
    assert table["weight"] == "w"
    assert [column["name"] for column in table["encoder"]["columns"]] == ["x", "colour", "z", "y2"]


def test_missing_values_need_a_decision(tmp_path, capsys, make_columns, write_csv, run, assert_refused):
    columns = {name: list(values) for name, values in make_columns().items()}
    columns["z"][7] = columns["z"][9] = columns["y"][8] = ""
    data = write_csv(tmp_path / "gaps.csv", columns)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", "--features", "linear"]
    message = "column 'y': missing value in data row 9 (1 in this column); --drop-missing leaves such rows out"
    assert_refused(*arguments, message=message)
    assert run(*arguments, "--drop-missing") == 0
    assert "117 (3 with missing values left out)" in capsys.readouterr().out
    assert run(*arguments, "--drop-missing", "--drop", "z", "--quiet") == 0


def test_plot(tmp_path, data, run):
    pytest.importorskip("matplotlib")
    for name, options in {"a.png": [], "b.svg": ["--test-fraction", "0"], "c.pdf": ["--target", "y2"]}.items():
        picture = tmp_path / name
        assert run("fit", data, "--target", "y", *options, "-o", tmp_path / "m", "--plot", picture, *FAST) == 0
        assert picture.stat().st_size > 2000


def test_a_fit_that_does_not_converge_warns(tmp_path, data, capsys, monkeypatch, run):
    real = pydirect.DirectRegressor.fit

    def fit(self, *arguments, **keywords):
        real(self, *arguments, **keywords)
        self.converged_ = False
        return self

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fit)
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST, "--test-fraction", "0") == 0
    captured = capsys.readouterr()
    assert captured.err == "pydirect: warning: the fit did not converge; its result may still improve\n"


def test_an_interrupted_fit_writes_nothing(tmp_path, data, monkeypatch, assert_refused):
    real = pydirect.DirectRegressor.fit

    def fit(self, *arguments, **keywords):
        real(self, *arguments, **keywords)
        self.interrupted_, self.converged_ = True, False
        return self

    monkeypatch.setattr(pydirect.DirectRegressor, "fit", fit)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", *FAST]
    assert_refused(*arguments, message="interrupted", code=130)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_default_features_are_the_estimators(tmp_path, data, run):
    columns = ["--drop", "colour", "y2", "w"]
    assert run("fit", data, "--target", "y", *columns, "-o", tmp_path / "m", "--quiet", "--test-fraction", "0") == 0
    model = pydirect.load(tmp_path / "m")
    assert model.features == pydirect.DirectRegressor().features
    assert model.features_.map.kind == "nystroem"


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
        (["--target", "y", "--posterior", "radial"], "--posterior radial: only for --model monte-carlo"),
        (["--target", "y", "--posterior", "mean-field"], "--posterior mean-field: only for --basis raw"),
        (["--target", "y", "--model", "network", "--n-levels", "7"], "--n-levels: not for --model network"),
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
def test_fit_refuses(tmp_path, data, monkeypatch, options, message, assert_refused):
    monkeypatch.chdir(tmp_path)
    assert_refused("fit", data, "-o", tmp_path / "m", *options, message=message)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_fit_refuses_tables_with_a_hint(tmp_path, write_csv, assert_refused):
    n = 30
    columns = {"id": [f"id{i}" for i in range(60)], "when": ["2024-01-01"] * 60, "y": list(range(60))}
    data = write_csv(tmp_path / "d.csv", columns)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m"]
    assert_refused(*arguments, message="column 'when' holds dates or times")
    assert_refused(*arguments, message="or leave it out with --drop 'when'")
    assert_refused(*arguments, "--drop", "when", message="column 'id': expected at most 50 categories")
    data.write_text("a,y\n" + "1,2\n" * n + "1\n")
    assert_refused(*arguments, message=f"line {n + 2}: expected 2 fields as in the header, got 1")
    data.write_text("")
    assert_refused(*arguments, message="the file is empty")


def test_outputs_are_checked_before_the_work(tmp_path, data, assert_refused):
    fit = ["fit", data, "--target", "y", "-o"]
    assert_refused(*fit, tmp_path, message="expected a file in an existing directory")
    assert_refused(*fit, tmp_path / "no" / "m", message="expected a file in an existing directory")
    assert_refused(*fit, data, message="would overwrite the input")
    assert_refused(*fit, "p.png", "--plot", "p.png", message="named for both --output and --plot")
    assert_refused("fit", tmp_path / "no.csv", *fit[2:], tmp_path / "m", message="no.csv: No such file")


def test_plot_without_matplotlib_gives_the_hint(tmp_path, data, assert_refused, hide_module):
    hide_module("matplotlib")
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", "--plot", tmp_path / "p.png"]
    assert_refused(*arguments, message='requires matplotlib. Install it with: pip install "pydirect[plot]"')
