"""`pydirect demo`: what it prints and writes."""

import pytest
from sklearn.linear_model import BayesianRidge

from pydirect.cli import demo
from pydirect.cli.main import main

MODELS = ["pydirect", "gradient boosting, quantiles", "Gaussian process, RBF", "BayesianRidge"]


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """What a run with fast models leaves in an empty directory, its standard output and standard error."""
    pytest.importorskip("matplotlib")
    models = {name: BayesianRidge() for name in MODELS}
    monkeypatch.setattr(demo, "_models", lambda: models)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--plot", "demo.png"]) == 0
    captured = capsys.readouterr()
    return tmp_path, captured.out, captured.err


def rows_of(out):
    lines = out.splitlines()
    begin = next(i for i, line in enumerate(lines) if "interval score" in line)
    assert len({len(line) for line in lines[begin : begin + 5]}) == 1
    return {
        line[:30].strip(): [float(x.rstrip("%")) for x in line[30:].split()] for line in lines[begin + 1 : begin + 5]
    }


@pytest.mark.slow
def test_our_intervals_hold_where_those_of_others_do_not(capsys):
    assert main(["demo"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert list(rows) == MODELS
    every, small, large, _, score, _ = rows["pydirect"]
    assert 86 < every < 94 and abs(small - 90) < 6 and abs(large - 90) < 6
    assert all(max(abs(own[1] - 90), abs(own[2] - 90)) > 6 for name, own in rows.items() if name != "pydirect")
    assert all(score < own[4] for name, own in rows.items() if name != "pydirect")


def test_only_the_picture_that_was_asked_for_is_written(shown):
    directory, out, _ = shown
    assert [path.name for path in directory.iterdir()] == ["demo.png"] and "Written demo.png" in out
    assert (directory / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_progress_goes_to_standard_error(shown):
    assert list(rows_of(shown[1])) == MODELS
    assert all(f"Fitting {name} ... " in shown[2] for name in MODELS)


def test_what_cannot_be_drawn_is_refused_before_the_work(tmp_path, assert_refused, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(demo, "_models", None)
    assert_refused("demo", "--plot", tmp_path / "demo.txt", message="expected a name that ends in")
    assert_refused("demo", "--plot", tmp_path / "no" / "demo.png", message="expected a file in an existing directory")
