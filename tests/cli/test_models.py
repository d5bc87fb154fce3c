"""``--model``: every kind of model is fitted, predicts, is scored and described by the same commands."""

import numpy as np
import pytest

import pydirect

N = 90
LINEAR = ["--set", "features=linear"]


@pytest.fixture
def table(tmp_path, write_csv):
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, N))
    days, group = rng.uniform(0.5, 2.0, N), rng.integers(0, 6, N)
    time, end = np.exp(x + 0.3 * rng.standard_normal(N)), rng.uniform(0, 6, N)
    columns = {
        "x": x,
        "z": z,
        "y": x - z + 0.1 * rng.standard_normal(N),
        "kind": np.where(x + rng.standard_normal(N) > 0, "high", "low"),
        "count": rng.poisson(days * np.exp(1 + 0.5 * x)),
        "days": days,
        "time": np.minimum(time, end),
        "seen": time <= end,
        "since": 0.01 * np.minimum(time, end),
        "shifted": x + np.array([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0])[group] + 0.1 * rng.standard_normal(N),
        "shop": [f"s{g}" for g in group],
        "grade": np.array(["a", "b", "c"])[np.digitize(x + 0.3 * rng.standard_normal(N), [-0.5, 0.5])],
    }
    return write_csv(tmp_path / "t.csv", columns), columns


NUMBERS, INTERVALS = ["prediction", "std", "lower", "upper"], ["prediction", "lower", "upper"]


@pytest.mark.parametrize(
    ("options", "estimator", "columns", "score"),
    [
        (["--target", "y"], "DirectRegressor", NUMBERS, "y: RMSE"),
        (["--target", "y", "--model", "pooled"], "PooledRegressor", NUMBERS, "y: RMSE"),
        (["--target", "count", "--model", "counts", "--exposure", "days"], "DirectCountRegressor", NUMBERS, "NLPD"),
        (["--target", "time", "--model", "survival", "--event", "seen"], "DirectSurvivalRegressor", INTERVALS, "conco"),
        (
            ["--target", "time", "--model", "survival", "--event", "seen", "--entry", "since"],
            "DirectSurvivalRegressor",
            INTERVALS,
            "conco",
        ),
        (
            ["--target", "shifted", "--model", "mixed", "--groups", "shop"],
            "DirectMixedRegressor",
            NUMBERS,
            "shifted: R",
        ),
        (
            ["--target", "shifted", "--model", "mixed", "--groups", "shop", "--groups", "kind"],
            "DirectMixedRegressor",
            NUMBERS,
            "shifted: R",
        ),
        (["--target", "kind", "--model", "pooled"], "PooledClassifier", ["high", "low"], "kind: accuracy"),
        (
            ["--target", "grade", "--model", "ordinal", 'order=["a", "b", "c"]'],
            "DirectOrdinalClassifier",
            [*"abc"],
            "log",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_model(tmp_path, table, capsys, run, read_csv, options, estimator, columns, score):
    data, values = table
    path, settings = tmp_path / "m", [option for option in options if "=" in option]
    options = [option for option in options if "=" not in option]
    others = [name for name in values if name not in {"x", "z", *options}]
    fit = ["fit", data, *options, "--drop", *others, "-o", path, *LINEAR, *settings]
    assert run(*fit) == 0
    assert f"{estimator} on" in (out := capsys.readouterr().out) and score in out
    model = pydirect.load(path)
    assert type(model).__name__ == estimator and model.columns_.names == ("x", "z")
    assert run("predict", path, data) == 0
    captured = capsys.readouterr()
    found = read_csv(captured.out)
    if columns not in (NUMBERS, INTERVALS):
        columns = ["prediction", *(f"probability_{label}" for label in columns)]
    assert list(found) == columns and score in captured.err
    if "lower" in found:
        target = np.asarray(values[options[1]])
        assert np.mean((found["lower"] <= target) & (target <= found["upper"])) > 0.6
    assert run("info", path) == 0
    assert estimator in (out := capsys.readouterr().out)
    assert ("from x, z; groups: shop, kind." in out) == (options[-1] == "kind" and "mixed" in options)


def test_counts_take_their_exposure_from_the_table(tmp_path, table, capsys, run, read_csv, write_csv, assert_refused):
    data, columns = table
    path = tmp_path / "m"
    options = ["--model", "counts", "--exposure", "days", "--drop", *(columns.keys() - {"x", "count", "days"})]
    assert run("fit", data, "--target", "count", *options, "-o", path, *LINEAR, "--quiet") == 0
    days = [1.0, 10.0, "", 1.0]
    new = write_csv(tmp_path / "new.csv", {"x": [0.0, 0.0, 0.0, 1.0], "days": days})
    assert run("predict", path, new) == 0
    captured = capsys.readouterr()
    means = [line.split(",")[0] for line in captured.out.splitlines()[1:]]
    assert means[2] == "" and float(means[1]) == pytest.approx(10 * float(means[0]))
    assert "1 of 4 rows lack days, first data row 3: predictions left empty" in captured.err
    without = write_csv(tmp_path / "without.csv", {"x": [0.0]})
    assert_refused("predict", path, without, message="no column 'days'")


def test_survival_is_scored_only_with_events(tmp_path, table, capsys, run, write_csv):
    data, columns = table
    options = ["--model", "survival", "--event", "seen", "--drop", *(columns.keys() - {"x", "time", "seen"})]
    assert run("fit", data, "--target", "time", *options, "-o", tmp_path / "m", *LINEAR, "--quiet") == 0
    new = write_csv(tmp_path / "new.csv", {"x": columns["x"], "time": columns["time"]})
    assert run("predict", tmp_path / "m", new) == 0
    assert capsys.readouterr().err == ""
    late = write_csv(tmp_path / "late.csv", {"x": [0.0, 1.0], "time": [1.0, 2.0], "seen": ["false", "false"]})
    assert run("predict", tmp_path / "m", late) == 0
    assert "time: NLPD" in capsys.readouterr().err  # no pair of rows tells which time is longer


@pytest.mark.slow
@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("target", "model", "estimator"),
    [
        ("y", ["network"], "QuadraticBNNRegressor"),
        ("y", ["dvi"], "DVIRegressor"),
        ("kind", ["dvi"], "DVIClassifier"),
        ("y", ["monte-carlo", "--set", "posterior=laplace"], "MonteCarloBNNRegressor"),
        ("kind", ["monte-carlo"], "MonteCarloBNNClassifier"),
    ],
)
def test_networks(tmp_path, table, capsys, monkeypatch, run, target, model, estimator):
    monkeypatch.setattr("pydirect.networks.training.LEAST_STEPS", 100)
    monkeypatch.setattr("pydirect.networks.training.LEAST_PASSES", 1)
    data, columns = table
    path, drop = tmp_path / "m", columns.keys() - {"x", "z", target}
    options = ["--drop", *drop, "--set", "hidden_layer_sizes=[2]", "--plot", tmp_path / "p.png", "-o", path]
    assert run("fit", data, "--target", target, "--model", *model, *options) == 0
    assert estimator in capsys.readouterr().out and type(pydirect.load(path)).__name__ == estimator
    assert run("predict", path, data) == 0
    assert run("info", path) == 0
    assert estimator in capsys.readouterr().out
