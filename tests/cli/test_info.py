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
    assert lines["converged"].strip() == "yes"
    assert str(model.stat().st_size) in out


def test_info_as_json(model, capsys, run):
    assert run("info", model, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["class"] == "DirectRegressor"
    assert facts["targets"] == ["y"] and facts["columns"] == ["x", "colour", "z"]
    assert facts["parameters"]["features"] == "linear" and facts["rows"] == 120
    assert facts["library_version"] == pydirect.__version__ and facts["weights"] > 0
    assert facts["arrays"]["model_.latent.coefficients"]["shape"] == [facts["weights"], 1]
    assert facts["held_out"][0]["n_rows"] == 12
    assert facts["file_size"] == model.stat().st_size and facts["format_version"] == 1
    assert isinstance(facts["converged"], bool) and facts["noise_sd"] > 0
    assert facts["noise_kinds"] == ["constant"]


def test_info_says_what_kind_of_noise_there_is(data, tmp_path, capsys, run):
    for noise, kind in (("varying", "on average, varying"), ("student_t", ", student_t"), ("constant", ", constant")):
        model = tmp_path / f"{noise}.pydirect"
        assert run("fit", data, "--target", "y", "-o", model, "--drop", "y2", "w", "--set", f"noise={noise}") == 0
        assert run("info", model) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("noise sd")]
        assert len(lines) == 2 and all(kind in line for line in lines)


def test_networks_of_constant_noise_are_told_from_those_of_varying_noise(data, tmp_path, capsys, run):
    options = ["--model", "dvi", "--hidden", "3", "--quiet", "--test-fraction", "0"]
    for noise, kind in (("varying", "varying"), ("constant", "constant")):
        model = tmp_path / f"{noise}.pydirect"
        settings = ["--set", f"noise={noise}", "n_steps=30"]
        assert run("fit", data, "--target", "y", "-o", model, "--drop", "y2", "w", *options, *settings) == 0
        assert run("info", model, "--json") == 0
        assert json.loads(capsys.readouterr().out)["noise_kinds"] == [kind]


def test_a_column_that_may_number_the_rows_is_told(tmp_path, make_columns, write_csv, capsys, run):
    columns = make_columns()
    table = write_csv(tmp_path / "t.csv", {"id": np.arange(120), "x": columns["x"], "y": columns["y"]})
    assert run("fit", table, "--target", "y", "-o", tmp_path / "m", "--features", "linear") == 0
    assert "--drop id if that only numbers the rows" in capsys.readouterr().out
    assert "integer in every row: id." in pydirect.load(tmp_path / "m").summary()


def test_info_of_another_kind(tmp_path, capsys, run):
    write(tmp_path / "s", "something", {}, {"A": np.zeros((2, 3))})
    assert run("info", tmp_path / "s") == 0
    out = capsys.readouterr().out
    assert "something" in out and "A float64 (2, 3)" in out


def test_info_refuses_other_files(data, assert_refused):
    assert_refused("info", data, message="data.csv: not a pydirect file")


def test_the_scale_of_targets_is_named(tmp_path, make_columns, write_csv, capsys, run):
    columns = make_columns()
    table = write_csv(tmp_path / "t.csv", {"x": columns["x"], "y": np.exp(columns["x"])})
    assert run("fit", table, "--target", "y", "-o", tmp_path / "m", "--quiet", "--set", "target_transform=log") == 0
    assert run("info", tmp_path / "m") == 0
    assert "target scale" in (out := capsys.readouterr().out)
    assert "log" in next(line for line in out.splitlines() if line.startswith("target scale"))
