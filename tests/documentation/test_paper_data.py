"""Preparing the papers' data from files of the authors' layout."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "paper" / "prepare_data.py"


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_sets_are_read_from_the_authors_layout(tmp_path):
    rng = np.random.default_rng(0)
    table, folds = rng.standard_normal((20, 4)), np.eye(10, dtype=int)[rng.permutation(20) % 10]
    first = tmp_path / "uci_datasets" / "uci_datasets" / "tiny"
    first.mkdir(parents=True)
    np.savetxt(first / "data.csv.gz", table, delimiter=",", fmt="%.17g")
    np.savetxt(first / "test_mask.csv.gz", folds, delimiter=",", fmt="%d")
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
    folder = tmp_path / "yacht"
    folder.mkdir()
    np.savetxt(folder / "data.csv.gz", np.ones((10, 3)), delimiter=",")
    np.savetxt(folder / "test_mask.csv.gz", np.eye(10, dtype=int), delimiter=",", fmt="%d")
    done = run(tmp_path / "data", "--uci", tmp_path, "--sets", "yacht", "wine")
    assert done.returncode == 1 and "OTHER VALUES" in done.stdout
    assert "uci/yacht: other values or folds" in done.stderr and "uci/wine: no folder" in done.stderr
    assert len(json.loads(SCRIPT.with_name("checksums.json").read_text())["uci"]) == 23
