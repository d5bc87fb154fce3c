"""`pydirect demo`: what it prints."""

from __future__ import annotations

import pytest
from sklearn.linear_model import BayesianRidge

from pydirect.cli import demo
from pydirect.cli.main import main

MODELS = ["pydirect", "gradient boosting, quantiles", "Gaussian process, RBF", "BayesianRidge"]


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


def test_progress_goes_to_standard_error_and_no_file_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "_models", lambda: {name: BayesianRidge() for name in MODELS})
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    out, progress = capsys.readouterr()
    assert list(rows_of(out)) == MODELS and not list(tmp_path.iterdir())
    assert all(f"Fitting {name} ... " in progress for name in MODELS)
