"""Tables of classes on the command line: fits, predictions and plots."""

import csv
import json

import numpy as np
import pytest

import pydirect
from pydirect.cli import main as cli
from pydirect.tables.table import Table

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 2))
FRAME = Table(list(X.T), ["a", "b"])
NUMBER = (X[:, 0] + 0.5 * RNG.logistic(size=80) > 0).astype(int)


def write(path, labels):
    rows = [[*map(repr, row.tolist()), label] for row, label in zip(X, labels, strict=True)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "kind"], *rows])
    return path


def run(capsys, *arguments):
    code = cli.main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured


@pytest.mark.parametrize(
    ("labels", "options"),
    [(np.array(["no", 'the "other", yes'])[NUMBER], []), (NUMBER, ["--task", "classification"])],
    ids=["text", "numbers"],
)
def test_a_table_of_classes_is_fitted_and_predicted(tmp_path, capsys, labels, options):
    data, model, out = write(tmp_path / "t.csv", labels), tmp_path / "m", tmp_path / "p.csv"
    fit = ["fit", data, "--target", "kind", "-o", model, "--features", "linear", "--plot", tmp_path / "p.png"]
    printed = run(capsys, *fit, *options).out
    assert "accuracy" in printed and "log loss" in printed and "classes" in printed
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert "accuracy" in run(capsys, "predict", model, data, "-o", out, "--std").err
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    loaded = pydirect.load(model)
    names = [f"probability_{label}" for label in loaded.classes_]
    assert list(rows[0]) == ["prediction", *names, f"logit_std_{loaded.classes_[1]}"]
    np.testing.assert_array_equal([row["prediction"] for row in rows], loaded.predict(FRAME).astype(str))
    np.testing.assert_array_equal([[float(row[n]) for n in names] for row in rows], loaded.predict_proba(FRAME))
    facts = json.loads(run(capsys, "info", model, "--json").out)
    assert facts["class"] == "DirectClassifier" and facts["classes"] == loaded.classes_.tolist()
    assert "DirectClassifier" in run(capsys, "info", model).out


def test_numbers_are_targets_unless_a_task_is_given(tmp_path, capsys):
    data = write(tmp_path / "t.csv", NUMBER)
    run(capsys, "fit", data, "--target", "kind", "-o", tmp_path / "m", "--features", "linear", "--quiet")
    assert type(pydirect.load(tmp_path / "m")) is pydirect.DirectRegressor


@pytest.mark.parametrize("names", [("False", "True"), ("false", "true")], ids=["python", "json"])
def test_true_and_false_are_classes(tmp_path, capsys, names):
    data, model, out = write(tmp_path / "t.csv", np.array(names)[NUMBER]), tmp_path / "m", tmp_path / "p.csv"
    assert "accuracy" in run(capsys, "fit", data, "--target", "kind", "-o", model, "--features", "linear").out
    loaded = pydirect.load(model)
    assert loaded.classes_.tolist() == [False, True]
    assert "accuracy" in run(capsys, "predict", model, data, "-o", out).err
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["prediction", "probability_False", "probability_True"]
    assert [row["prediction"] for row in rows] == loaded.predict(FRAME).astype(str).tolist()
    run(capsys, "fit", data, "--target", "kind", "-o", model, "--features", "linear", "--task", "regression")
    assert type(pydirect.load(model)) is pydirect.DirectRegressor


def test_targets_of_two_numbers_suggest_classification(tmp_path, capsys):
    two, more = write(tmp_path / "t.csv", NUMBER + 1), write(tmp_path / "o.csv", NUMBER + (X[:, 1] > 0))
    fit = ["--target", "kind", "-o", tmp_path / "m", "--features", "linear", "--test-fraction", "0"]
    hint = "Column 'kind' holds only 1 and 2: --task classification fits probabilities"
    assert hint in run(capsys, "fit", two, *fit).err
    for arguments in ([more, *fit], [two, *fit, "--quiet"], [two, *fit, "--task", "regression"]):
        assert "--task classification" not in run(capsys, "fit", *arguments).err


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([f"name {i % 60}" for i in range(80)], [], "expected numbers or at most 50 classes, got 60 texts"),
        ([*map(str, range(79)), "n.n."], [], "expected numbers, got 'n.n.' in data row 80"),
        (X[:, 0], ["--task", "classification"], "expected classes, got 80 different values in 80 rows"),
    ],
)
def test_texts_and_numbers_that_are_no_classes_are_refused(tmp_path, capsys, labels, options, message):
    data = write(tmp_path / "t.csv", np.array(labels))
    assert cli.main(["fit", str(data), "--target", "kind", "-o", str(tmp_path / "m"), *options]) == 2
    assert message in capsys.readouterr().err


def test_classes_of_several_targets_are_refused(tmp_path, capsys):
    data = write(tmp_path / "t.csv", np.array(["x", "y"])[NUMBER])
    assert cli.main(["fit", str(data), "--target", "kind", "--target", "a", "-o", str(tmp_path / "m")]) == 2
    assert "only one --target can hold classes" in capsys.readouterr().err


@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array(["low", "mid", "top"])], ids=len)
def test_the_plot_of_classes_has_two_panels_and_names_the_classes(tmp_path, capsys, monkeypatch, labels):
    figures = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: figures.append(figure))
    kinds = labels[NUMBER + (X[:, 1] > 1) * (len(labels) - 2)]
    data, picture = write(tmp_path / "t.csv", kinds), tmp_path / "p.png"
    run(capsys, "fit", data, "--target", "kind", "-o", tmp_path / "m", "--features", "linear", "--plot", picture)
    reliability, elbo = figures[0].axes
    assert reliability.get_subplotspec().get_geometry()[:2] == (1, 2)
    assert sum(int(text.get_text()) for text in reliability.texts) == 8 * (1 if len(labels) == 2 else 3)
    names = [line.get_label() for line in elbo.get_lines()]
    assert names == (["ELBO"] if len(labels) == 2 else [f"ELBO, class {label}" for label in labels])
