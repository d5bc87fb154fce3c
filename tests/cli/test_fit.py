"""``pydirect fit``: summaries, model files, and refusals."""

import os

import numpy as np
import pytest

import pydirect
from pydirect.cli.tables import read_table

LINEAR = ["--set", "features=linear"]
FAST = [*LINEAR, "--quiet"]


def test_fit_prints_a_summary_and_writes_a_model(tmp_path, data, capsys, run):
    path = tmp_path / "m.pydirect"
    assert run("fit", data, "--target", "y", "--drop", "y2", "w", "-o", path, *LINEAR) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Held out, y: RMSE 0.") and "coverage of 90% intervals" in captured.out
    assert "of 12 rows" in captured.out and str(pydirect.load(path).summary()) in captured.out
    assert captured.out.endswith(f"Written {path}, {path.stat().st_size} bytes, fitted to all 120 rows.\n")
    assert "Fitting to 108 rows, 12 held out" in captured.err


def test_the_written_model_is_fitted_to_all_rows(tmp_path, data, run):
    for fraction in ("0", "0.5"):
        arguments = ["--test-fraction", fraction, *FAST]
        assert run("fit", data, "--target", "y", "-o", tmp_path / f"m{fraction}", *arguments) == 0
    first, second = (pydirect.load(tmp_path / name) for name in ("m0", "m0.5"))
    rows = read_table(data).table(first.columns_.names)
    np.testing.assert_array_equal(first.predict(rows), second.predict(rows))
    assert first.metadata_["command_line"]["held_out"] == {}
    assert second.metadata_["command_line"]["held_out"]["y"]["rows"] == 60


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
def test_any_parameter_can_be_set_as_in_python(tmp_path, data, run):
    settings = [
        "posterior=Sequential(n_levels=3, n_draws=16, prior='laplace', levels=[-1, 0, 1], level_scales='shared')",
        "features=Fourier(rank_inputs=False)",
        "n_basis_functions=20",
        "columns=Columns(missing='indicator')",
        "noise=0.5",
        "local=false",
    ]
    path = tmp_path / "m"
    assert run("fit", data, "--target", "y", "-o", path, "--quiet", "--seed", "3", "--set", *settings) == 0
    parameters = pydirect.load(path).get_params(deep=False)
    assert parameters["posterior"] == pydirect.Sequential(3, 16, "laplace", [-1, 0, 1], "shared")
    assert parameters["features"] == pydirect.Fourier(rank_inputs=False) and parameters["noise"] == 0.5
    assert parameters["columns"].missing == "indicator" and parameters["local"] is False
    assert parameters["random_state"] == 3


def test_weights_matter_and_are_not_an_input_and_quiet_fits_are_silent(tmp_path, data, capsys, run):
    assert run("fit", data, "--target", "y", "--weight", "w", "-o", tmp_path / "m", *FAST) == 0
    assert capsys.readouterr() == ("", "")
    model, weight = pydirect.load(tmp_path / "m"), read_table(data).numbers("w")
    assert model.columns_.names == ("x", "colour", "z", "y2")
    assert model.total_weight_ == pytest.approx(weight.sum())


@pytest.fixture
def gaps(tmp_path, make_columns, write_csv):
    """Return a table that lacks two numbers, a category and a target."""
    columns = {name: list(values) for name, values in make_columns().items()}
    columns["z"][7] = columns["z"][9] = columns["colour"][3] = columns["y"][8] = ""
    return write_csv(tmp_path / "gaps.csv", columns)


def test_missing_targets_need_a_decision_and_missing_inputs_do_not(tmp_path, gaps, capsys, run, assert_refused):
    arguments = ["fit", gaps, "--target", "y", "-o", tmp_path / "m", *LINEAR]
    message = "gaps.csv: 1 rows lack 'y', first data row 9; --drop-missing leaves them out"
    assert_refused(*arguments, message=message)
    assert run(*arguments, "--drop-missing") == 0
    out = capsys.readouterr().out
    assert "119 rows" in out and "Missing numbers of z are imputed" in out
    assert None in pydirect.load(tmp_path / "m").columns_.categories[1]
    strict = ["--drop-missing", "--quiet", "--set", "columns=Columns(missing='raise')"]
    assert_refused(*arguments, *strict, message="must have no missing values")


def test_an_interrupted_fit_writes_nothing(tmp_path, data, monkeypatch, assert_refused):
    monkeypatch.setattr(pydirect.DirectRegressor, "interrupted_", True)
    arguments = ["fit", data, "--target", "y", "-o", tmp_path / "m", *FAST]
    assert_refused(*arguments, message="interrupted", code=130)
    assert os.listdir(tmp_path) == ["data.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "nope"], "no column 'nope' (it has 'x', 'colour'"),
        (["--target", "y", "--drop", "nope", "no"], "no columns 'nope', 'no'"),
        (["--target", "y", "--target", "y"], "column 'y' is named twice"),
        (["--target", "y", "--weight", "y"], "column 'y' is named twice"),
        (["--target", "y", "--category", "y"], "column 'y' is named twice"),
        (["--target", "colour", "--task", "regression"], "column 'colour': expected numbers, got"),
        (["--target", "y", "--set", "zzz=1"], "Invalid parameter 'zzz' for estimator DirectRegressor"),
        (["--target", "y", "--set", "noise"], "noise must be"),
        (
            ["--target", "y", "--set", "posterior=load(path='m')"],
            "expected an object such as Polynomial(degree=3), got",
        ),
        (["--target", "y", "--set", "features=Polynomial(2)"], "expected an object such as Polynomial(degree=3), got"),
        (["--target", "y", "--set", "n_basis_functions=abc"], "n_basis_functions must be an integer"),
        (["--target", "y", "--set", "features=cubic"], "features must be"),
        (["--target", "y", "--weight", "x"], "sample_weight must"),
        (["--target", "y", "--drop", "x", "colour", "z", "y2", "w"], "no columns are left to predict from"),
        (["--target", "colour", "--model", "counts"], "expected numbers, got"),
        (["--target", "y", "--model", "survival", "--exposure", "w"], "--exposure: not for --model survival"),
        (["--target", "y", "--model", "mixed"], "--groups: needed for --model mixed"),
        (["--target", "y", "--model", "network", "--task", "classification"], "its target must be a number"),
        (
            ["--target", "y", "--test-fraction", "1"],
            "expected rows beside those held out, got 120 in all, 120 held out",
        ),
        (["--target", "y", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (
            ["--target", "y", "--model", "survival", "--event", "colour"],
            "column 'colour': expected 1 and 0, or true and false, got 'green' in data row 1",
        ),
        (["--target", "y", "--plot", "a.xyz"], "a.xyz: expected a name that ends in"),
        ([], "the following arguments are required: --target (see pydirect fit --help)"),
    ],
)
def test_fit_refuses(tmp_path, data, monkeypatch, options, message, assert_refused):
    monkeypatch.chdir(tmp_path)
    assert_refused("fit", data, "-o", tmp_path / "m", *options, "--quiet", message=message)
    assert os.listdir(tmp_path) == ["data.csv"]


def test_outputs_are_checked_before_the_work(tmp_path, data, assert_refused):
    fit = ["fit", data, "--target", "y", "-o"]
    assert_refused(*fit, tmp_path, message="expected a file in an existing directory")
    assert_refused(*fit, tmp_path / "no" / "m", message="expected a file in an existing directory")
    assert_refused(*fit, data, message="would overwrite another file of this command")
    assert_refused(*fit, "p.png", "--plot", "./p.png", message="would overwrite another file of this command")
    assert_refused("fit", tmp_path / "no.csv", *fit[2:], tmp_path / "m", message="no.csv: No such file")


# Classes


def write_classes(path, labels, write_csv):
    x = np.random.default_rng(0).standard_normal((80, 2))
    kind = (x[:, 0] + 0.5 * np.random.default_rng(1).logistic(size=80) > 0).astype(int)
    return write_csv(path, {"a": x[:, 0], "b": x[:, 1], "kind": np.array(labels)[kind]})


@pytest.mark.parametrize(
    ("labels", "options", "classes"),
    [
        (["no", 'the "other", yes'], [], ["no", 'the "other", yes']),
        (["False", "true"], [], [False, True]),
        ([3, 4], ["--task", "classification"], [3, 4]),
        ([0.5, 1.0], ["--task", "regression"], None),
    ],
)
def test_text_and_booleans_are_classes(tmp_path, capsys, run, write_csv, labels, options, classes):
    data, path = write_classes(tmp_path / "t.csv", labels, write_csv), tmp_path / "m"
    assert run("fit", data, "--target", "kind", "-o", path, *LINEAR, *options) == 0
    out, model = capsys.readouterr().out, pydirect.load(path)
    if classes is None:
        assert isinstance(model, pydirect.DirectRegressor)
    else:
        assert "Held out, kind: accuracy" in out and model.classes_.tolist() == classes


def test_targets_of_two_numbers_suggest_classification(tmp_path, capsys, run, write_csv):
    data = write_classes(tmp_path / "t.csv", [1, 2], write_csv)
    fit = ["fit", data, "--target", "kind", "-o", tmp_path / "m", *LINEAR, "--test-fraction", "0"]
    assert run(*fit) == 0
    assert "Column 'kind' holds only 1 and 2: --task classification fits" in capsys.readouterr().err
    for options in (["--quiet"], ["--task", "regression"]):
        assert run(*fit, *options) == 0
        assert "--task classification" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([f"name {i % 60}" for i in range(80)], [], "expected numbers, got 'name 0' in data row 1"),
        ([*map(str, range(39)), "n.n."], [], "'n.n.' in data row 40; --missing-value n.n. takes it"),
        (np.linspace(0.1, 0.9, 80), ["--task", "classification"], "continuous"),
    ],
)
def test_texts_and_numbers_that_are_no_classes_are_refused(
    tmp_path, write_csv, assert_refused, labels, options, message
):
    data = write_csv(tmp_path / "t.csv", {"x": range(len(labels)), "kind": labels})
    assert_refused("fit", data, "--target", "kind", "-o", tmp_path / "m", "--quiet", *options, message=message)


@pytest.mark.parametrize("labels", [["no", "yes"], ["low", "mid", "top"]], ids=len)
def test_the_picture_of_classes_is_their_reliability(tmp_path, run, write_csv, monkeypatch, labels):
    figures = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: figures.append(figure))
    kinds = [*labels] * 40
    data = write_csv(tmp_path / "t.csv", {"a": np.arange(len(kinds)) % 7, "kind": kinds})
    assert run("fit", data, "--target", "kind", "-o", tmp_path / "m", *FAST, "--plot", tmp_path / "p.png") == 0
    (ax,) = figures[0].axes
    assert ax.get_ylabel() == "observed frequency" and ax.get_legend().get_texts()
