"""Preparing the papers' data from files of the authors' layout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "paper" / "prepare_data.py"


def run(*arguments, script=SCRIPT, **environment):
    command = [sys.executable, str(script), *map(str, arguments)]
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)


def write_first_layout(folder, table, folds):
    """A set as in the collection of values and folds."""
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.csv.gz", table, delimiter=",", fmt="%.17g")
    np.savetxt(folder / "test_mask.csv.gz", folds, delimiter=",", fmt="%d")


def test_sets_are_read_from_the_authors_layout(tmp_path):
    rng = np.random.default_rng(0)
    table, folds = rng.standard_normal((20, 4)), np.eye(10, dtype=int)[rng.permutation(20) % 10]
    write_first_layout(tmp_path / "uci_datasets" / "uci_datasets" / "tiny", table, folds)
    second = tmp_path / "dropout" / "UCI_Datasets" / "tiny" / "data"
    second.mkdir(parents=True)
    np.savetxt(second / "data.txt", table, fmt="%.17g")
    np.savetxt(second / "index_features.txt", [0, 2, 3], fmt="%d")
    np.savetxt(second / "index_target.txt", [1], fmt="%d")
    places = ("--uci", tmp_path / "uci_datasets", "--dvi", tmp_path / "dropout")
    done = run(tmp_path / "data", *places, "--sets", "tiny")
    assert done.returncode == 0 and done.stdout.count("not measured here") == 2, done.stderr
    found = np.load(tmp_path / "data" / "uci" / "tiny.npz")
    np.testing.assert_array_equal(found["X"], table[:, :3])
    np.testing.assert_array_equal(found["y"], table[:, 3])
    np.testing.assert_array_equal(found["test_mask"], folds == 1)
    raw = np.load(tmp_path / "data" / "dvi_uci" / "tiny.npz")
    np.testing.assert_array_equal(raw["X"], table[:, [0, 2, 3]])
    np.testing.assert_array_equal(raw["test_mask"].sum(axis=0), np.full(20, 2))


def test_other_values_and_missing_folders_are_told(tmp_path):
    write_first_layout(tmp_path / "yacht", np.ones((10, 3)), np.eye(10, dtype=int))
    (tmp_path / "solar").mkdir()
    done = run(tmp_path / "data", "--uci", tmp_path, "--sets", "solar", "yacht", "wine")
    assert done.returncode == 1 and "OTHER VALUES" in done.stdout
    assert "uci/yacht: other values or folds" in done.stderr and "uci/wine: no folder" in done.stderr
    assert "uci/solar: " in done.stderr and "data.csv.gz not found" in done.stderr
    assert len(json.loads(SCRIPT.with_name("checksums.json").read_text())["uci"]) == 23


@pytest.mark.slow
def test_published_figures_are_read_in_the_layout_of_the_page(tmp_path):
    """Of one set, made and transcribed as `bench/paper/README.md` says, both tables print a row."""
    rng = np.random.default_rng(0)
    table, folds = rng.standard_normal((20, 3)), np.eye(10, dtype=int)[np.arange(20) % 10]
    write_first_layout(tmp_path / "clone" / "tiny", table, folds)
    assert run(tmp_path, "--uci", tmp_path / "clone", "--sets", "tiny").returncode == 0
    page = (SCRIPT.parent / "README.md").read_text(encoding="utf-8")
    figures = {"rmse_mean": 1.0, "rmse_std": 0.1, "time_s": 1.0, "sparsity_pct": 5.0}
    assert f"METHOD: {{{', '.join(json.dumps(name) for name in figures)}}}" in page
    methods = ["reparam_mean_field", "direct_mean_field", "direct_5mixture_sgd", "direct_5mixture_elbo_lower_bound"]
    assert all(f"`{name}`" in page for name in methods)
    row = {"dataset": "Tiny", "file": "tiny", "n": 20, "d": 2}
    tables = {"table1": methods[:3], "table2": methods[3:]}
    published = {name: [row | dict.fromkeys(own, figures)] for name, own in tables.items()}
    (tmp_path / "paper_results.json").write_text(json.dumps({"direct_neurips2018": published}))
    for name, options in (("table1", ["--bases", "default"]), ("table2", ["--entropies", "taylor"])):
        script = SCRIPT.with_name(f"{name}.py")
        done = run("--sets", "tiny", "--folds", 1, *options, script=script, PYDIRECT_DATA=str(tmp_path))
        assert done.returncode == 0 and any(line.startswith("tiny") for line in done.stdout.splitlines()), done.stderr
