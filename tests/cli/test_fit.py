"""``pydirect fit``: summaries, model files, and refusals."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

import pydirect
from pydirect.cli.tables import read_table
from pydirect.persistence.container import describe

FAST = ["--features", "linear", "--quiet"]


def test_fit_prints_a_summary_and_writes_a_model(tmp_path, data, capsys, run):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, "--features", "linear") == 0
    captured = capsys.readouterr()
    for word in ("rows       ", "120", "columns", "3, 5 after encoding", "features", "linear", "noise sd", "ELBO"):
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
    rows = read_table(data).inputs(first.columns_.names)
    np.testing.assert_array_equal(first.predict(rows), second.predict(rows))


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
@pytest.mark.parametrize(
    "options",
    [
        ["--features", "fourier", "--n-basis-functions", "40"],
        ["--features", "polynomial", "--degree", "2"],
        ["--features", "linear", "--posterior", "sequential", "--set", "n_levels=255"],
        ["--features", "linear", "--posterior", "mean-field"],
        ["--features", "linear", "--weight", "w", "--threads", "1", "--seed", "3"],
    ],
)
def test_options_reach_the_estimator(tmp_path, data, options, run):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "-o", path, *options, "--quiet") == 0
    parameters = pydirect.load(path).get_params()
    for field in ("features", "posterior"):  # names, or objects with fields
        chosen = parameters[field]
        if not isinstance(chosen, str):
            parameters |= {field: type(chosen).__name__.lower(), **chosen.get_params()}
    names = {"--features": "features", "--n-basis-functions": "n_basis_functions", "--degree": "degree"}
    names |= {"--threads": "n_threads", "--seed": "random_state"}
    names |= {"--posterior": "posterior"}
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


@pytest.mark.slow
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
    monkeypatch.setattr("pydirect.networks.training.LEAST_STEPS", 100)
    monkeypatch.setattr("pydirect.networks.training.LEAST_PASSES", 1)
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
    model = pydirect.load(tmp_path / "m")
    assert model.metadata_["table"]["weight"] == "w" and model.columns_.names == ("x", "colour", "z", "y2")


@pytest.fixture
def gaps(tmp_path, make_columns, write_csv):
    """Return a table that lacks two numbers, a category and a target."""
    columns = {name: list(values) for name, values in make_columns().items()}
    columns["z"][7] = columns["z"][9] = columns["colour"][3] = columns["y"][8] = ""
    return write_csv(tmp_path / "gaps.csv", columns)


def test_missing_targets_need_a_decision_and_missing_inputs_do_not(tmp_path, gaps, capsys, run, assert_refused):
    arguments = ["fit", gaps, "--target", "y", "-o", tmp_path / "m", "--features", "linear"]
    message = "gaps.csv: column 'y': missing value in data row 9; --drop-missing leaves out rows without 'y'"
    assert_refused(*arguments, message=message)
    assert run(*arguments, "--drop-missing") == 0
    out = capsys.readouterr().out
    assert "119 (1 with missing values left out)" in out
    assert "z 2: replaced by what the other columns suggest" in out and "colour 1: a category of its own" in out
    assert run("info", tmp_path / "m") == 0
    out = capsys.readouterr().out
    assert "categories, colour  blue, green, red, (missing)" in out and "missing numbers" in out


def test_missing_inputs_can_be_left_out_or_errors(tmp_path, gaps, capsys, run, assert_refused):
    arguments = ["fit", gaps, "--target", "y", "-o", tmp_path / "m", "--features", "linear", "--drop-missing"]
    assert run(*arguments, "--on-missing", "skip") == 0
    assert "116 (4 with missing values left out)" in capsys.readouterr().out
    report = assert_refused(*arguments, "--on-missing", "error", message="2 problems", lines=3)
    assert "column 'z': missing value in data row 8 (2 such rows)" in report
    assert "column 'colour': missing value in data row 4" in report


def test_more_than_fifty_categories_are_pooled(tmp_path, capsys, run, write_csv):
    n = 240
    columns = {
        "town": [f"t{min(i % 70, i // 2)}" for i in range(n)],
        "x": list(range(n)),
        "y": [i % 7 for i in range(n)],
    }
    arguments = ["--target", "y", "-o", tmp_path / "m", "--features", "linear", "--test-fraction", "0"]
    assert run("fit", write_csv(tmp_path / "d.csv", columns), *arguments) == 0
    assert "the 49 commonest categories kept of town" in capsys.readouterr().out
    assert run("info", tmp_path / "m") == 0
    assert "categories, town  " in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
def test_any_parameter_can_be_set(tmp_path, data, run):
    settings = ["prior=laplace", "n_draws=16", "rank_inputs=False", "levels=[-1, 0, 1]", "keep_factor=true"]
    path = tmp_path / "m"
    command = ["fit", data, "--target", "y", "-o", path, "--posterior", "sequential", "--quiet"]
    command += ["--n-basis-functions", "20"]
    assert (
        run(
            *command, "--set", *settings, "level_scales=shared", "n_levels=3", "--set", "noise=0.5", "missing=indicator"
        )
        == 0
    )
    parameters = pydirect.load(path).get_params()
    assert parameters["posterior"] == pydirect.Sequential(3, 16, "laplace", [-1, 0, 1], "shared", True)
    assert parameters["features"] == pydirect.Fourier(rank_inputs=False) and parameters["noise"] == 0.5
    assert parameters["columns"].missing == "indicator"


@pytest.mark.slow
def test_plot(tmp_path, data, run):
    pytest.importorskip("matplotlib")
    for name, options in {"a.png": [], "b.svg": ["--test-fraction", "0"], "c.pdf": ["--target", "y2"]}.items():
        picture = tmp_path / name
        assert run("fit", data, "--target", "y", *options, "-o", tmp_path / "m", "--plot", picture, *FAST) == 0
        assert picture.stat().st_size > 2000


def test_a_fit_that_does_not_converge_warns(tmp_path, data, capsys, monkeypatch, run):
    monkeypatch.setattr(pydirect.DirectRegressor, "converged_", False)
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *FAST, "--test-fraction", "0") == 0
    captured = capsys.readouterr()
    assert captured.err == "pydirect: warning: the fit did not converge; its result may still improve\n"


def test_an_interrupted_fit_writes_nothing(tmp_path, data, monkeypatch, assert_refused):
    monkeypatch.setattr(pydirect.DirectRegressor, "interrupted_", True)
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
        (
            ["--target", "y", "--posterior", "sequential", "--set", "priors=laplace"],
            "--set priors: DirectRegressor has no such parameter; do",
        ),
        (
            ["--target", "y", "--set", "zzz=1"],
            "--set zzz: DirectRegressor has no such parameter, but block_dtype",
        ),
        (["--target", "y", "--set", "prior"], "argument --set: expected NAME=VALUE, got 'prior'"),
        (["--target", "y", "--set", "random_state=3"], "--set random_state: use --seed"),
        (["--target", "y", "--set", "features=fourier", "rank_inputs=false"], "--set features: use --features"),
        (["--target", "y", "--set", "n_basis_functions=abc", "--quiet"], "n_basis_functions must be an integer"),
        (
            ["--target", "y", "--degree", "3", "--features", "polynomial", "--set", "degree=2"],
            "--set degree: given twice",
        ),
        (["--target", "y", "--posterior", "sequential", "--set", "prior=flat", "--quiet"], "prior must be"),
        (["--target", "y", "--category", "y"], "column 'y' is named twice"),
        (["--target", "y", "--weight", "x"], "column 'x': expected weights of at least 0"),
        (["--target", "y", "--drop", "x", "colour", "z", "y2", "w"], "no columns are left to predict from"),
        (["--target", "y", "--features", "cubic"], "argument --features: invalid choice: 'cubic'"),
        (
            ["--target", "y", "--features", "linear", "--n-basis-functions", "10"],
            "--n-basis-functions: only for --features nys",
        ),
        (["--target", "y", "--degree", "3"], "--degree: only for --features polynomial"),
        (["--target", "y", "--hidden", "3"], "--hidden: only for --model network"),
        (["--target", "y", "--model", "network", "--features", "linear"], "--features: not for --model network"),
        (["--target", "y", "--model", "dvi", "--degree", "3"], "--degree: not for --model dvi"),
        (["--target", "y", "--posterior", "radial"], "--posterior radial: only for --model monte-carlo"),
        (["--target", "y", "--model", "dvi", "--posterior", "gaussian"], "--posterior gaussian: not for --model dvi"),
        (["--target", "colour", "--model", "network"], "--model network: its target must be a number, not a class"),
        (
            ["--target", "y", "--model", "network", "--hidden", "0"],
            "argument --hidden: expected an integer of at least 1",
        ),
        (
            ["--target", "y", "--model", "network", "--hidden", "99", "99", "99", "--quiet"],
            "hidden_layer_sizes must be smaller",
        ),
        (
            ["--target", "y", "--n-basis-functions", "0"],
            "argument --n-basis-functions: expected an integer of at least 1, got '0'",
        ),
        (
            ["--target", "y", "--n-basis-functions", "many"],
            "argument --n-basis-functions: expected an integer of at least 1, got 'many'",
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


def test_all_problems_of_a_table_are_reported_together(tmp_path, write_csv, assert_refused):
    numbers = list(range(60))
    columns = {"slip": [*numbers[:58], "6O", "7O"], "when": ["2024/01/01"] * 60, "w": [-1, *[1] * 59]}
    columns |= {"i i": ["inf", *numbers[1:]], "y": [*numbers[:59], ""]}
    data = write_csv(tmp_path / "d.csv", columns)
    arguments = ["fit", data, "--target", "y", "--weight", "w", "-o", tmp_path / "m"]
    report = assert_refused(*arguments, message="d.csv: 5 problems", lines=8)
    for line in (
        "column 'slip': expected numbers, got '6O' in data row 59 (2 such rows); --missing-value 6O takes it for a "
        "missing value, --category slip all for categories",
        "column 'when' holds dates or times that are not all written like 2024-01-31 or 2024-01-31T12:30; write "
        "them so",
        "column 'i i': expected finite numbers, got inf in data row 1",
        "column 'w': expected weights of at least 0, got a negative one in data row 1",
        "column 'y': missing value in data row 60",
        "--drop-missing leaves out rows without 'y' and 'w'",
        "leave out columns with --drop slip 'i i' when",
    ):
        assert f"\n  {line}\n" in report
    assert_refused(
        *arguments[:4], *arguments[6:], "--drop", "slip", "i i", "w", "--drop-missing", message="'when' holds"
    )
    data.write_text("a,y\n" + "1,2\n" * 30 + "1\n")
    assert_refused(*arguments, message="line 32: expected 2 fields as in the header, got 1")
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


def test_the_summary_says_of_what_the_noise_is(tmp_path, make_columns, write_csv, capsys, run):
    columns = make_columns()
    data = write_csv(tmp_path / "d.csv", {"x": columns["x"], "y": np.exp(columns["y"])})
    options = ["--features", "linear", "--test-fraction", "0", "--set", "target_transform=sqrt", "noise=varying"]
    assert run("fit", data, "--target", "y", "-o", tmp_path / "m", *options) == 0
    assert re.search(r"on average, varying.*, of \w+\(y.*\)", capsys.readouterr().out)
    assert run("predict", tmp_path / "m", data) == 0
    assert "y: RMSE" in capsys.readouterr().err
