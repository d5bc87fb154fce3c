"""``pydirect info``."""

import json

import numpy as np

import pydirect
from pydirect.persistence.container import write


def test_info(model, data, capsys, run, assert_refused):
    assert_refused("info", data, message="data.csv: not a pydirect file")
    assert run("info", model) == 0
    out = capsys.readouterr().out
    assert f"pydirect.DirectRegressor, {model.stat().st_size} bytes, written by pydirect {pydirect.__version__}" in out
    assert "Predicts y from x, colour, z." in out and "Held out, y: RMSE" in out
    assert str(pydirect.load(model).summary()) in out and "arrays of" in out


def test_info_as_json(model, capsys, run):
    assert run("info", model, "--json") == 0
    facts, loaded = json.loads(capsys.readouterr().out), pydirect.load(model)
    assert facts["kind"] == "pydirect.DirectRegressor" and facts["format_version"] == 1
    assert facts["header"]["parameters"]["features"] == "linear"
    assert facts["header"]["feature_names"] == ["x", "colour", "z"]
    stored = facts["header"]["metadata"]["command_line"]
    assert stored["targets"] == ["y"] and stored["n_rows"] == 120 and stored["held_out"]["y"]["rows"] == 12
    assert facts["arrays"]["model_.latent.coefficients"]["shape"] == [loaded.features_.n_weights, 1]
    assert facts["file_size"] == model.stat().st_size
    assert facts["elbo"] == loaded.elbo_ and facts["converged"] is True and facts["total_weight"] == 120


def test_info_of_another_kind(tmp_path, capsys, run):
    write(tmp_path / "s", "something", {}, {"A": np.zeros((2, 3))})
    assert run("info", tmp_path / "s") == 0
    out = capsys.readouterr().out
    assert "something" in out and "A float64 (2, 3)" in out
    assert run("info", tmp_path / "s", "--json") == 0
    assert json.loads(capsys.readouterr().out)["arrays"]["A"]["nbytes"] == 48
