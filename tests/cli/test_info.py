"""``pydirect info``."""

from __future__ import annotations

import json

import numpy as np

import pydirect
from pydirect.persistence.container import write


def test_info(model, capsys, run):
    assert run("info", model) == 0
    out = capsys.readouterr().out
    for word in ("kind", "DirectRegressor", "features=linear", "x, colour, z", "noise sd", "elbo", "sparsity"):
        assert word in out
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert lines["library version"].strip() == pydirect.__version__
    assert int(lines["weights"]) == pydirect.load(model).features_.n_weights
    assert lines["levels per weight"].strip() == "15" and lines["converged"].strip() == "yes"
    assert str(model.stat().st_size) in out


def test_info_as_json(model, capsys, run):
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


def test_info_of_another_kind(tmp_path, capsys, run):
    write(tmp_path / "s", "something", {}, {"A": np.zeros((2, 3))})
    assert run("info", tmp_path / "s") == 0
    out = capsys.readouterr().out
    assert "something" in out and "A float64 (2, 3)" in out


def test_info_refuses_other_files(data, assert_refused):
    assert_refused("info", data, message="data.csv: not a pydirect file")
