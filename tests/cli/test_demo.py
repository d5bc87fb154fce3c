"""`pydirect demo`: what it prints and writes."""

from __future__ import annotations

import re

import pytest

import pydirect
from pydirect.cli import demo
from pydirect.cli.main import main

MODELS = ["pydirect", "pydirect, 4-bit weights", "BayesianRidge", "Gaussian process, RBF"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Directory, standard output and standard error of one run."""
    import contextlib
    import io

    directory = tmp_path_factory.mktemp("demo")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["demo", "--output-dir", str(directory)]) == 0
    return directory, out.getvalue(), err.getvalue()


def table(out):
    lines = out.splitlines()
    begin = next(i for i, line in enumerate(lines) if "test RMSE" in line)
    return lines[begin], lines[begin + 1 : begin + 5]


def test_the_table_is_aligned_and_plausible(shown):
    header, rows = table(shown[1])
    assert [row[: len("pydirect, 4-bit weights")].rstrip() for row in rows] == MODELS
    assert len({len(row) for row in [header, *rows]}) == 1
    for row in rows:
        rmse, nlpd, coverage, seconds = (float(text.rstrip("%")) for text in row[23:].split())
        assert 0.008 < rmse < 0.015 and -4.0 < nlpd < -2.5
        assert 80.0 < coverage <= 100.0 and 0.0 <= seconds < 300.0


def test_both_models_are_at_least_as_good_as_the_linear_one(shown):
    _, rows = table(shown[1])
    continuous, discrete, linear, _ = (float(row[23:].split()[0]) for row in rows)
    assert continuous < linear and discrete < 1.02 * linear


def test_size_of_a_sample_follows_from_the_weights(shown):
    n_weights, n_levels, n_bytes = map(
        int, re.search(r"(\d+) weights on (\d+) levels, 4 bits each, make (\d+) bytes", shown[1]).groups()
    )
    discrete = pydirect.load(shown[0] / "demo-4-bit.pydirect")
    assert discrete.features_.n_weights == n_weights and n_levels == discrete.posterior_.weights.n_levels <= 16
    assert n_bytes == (n_weights + 1) // 2
    zeros = float(re.search(r"([\d.]+)% of the weights are expected", shown[1]).group(1))
    assert zeros == pytest.approx(100 * discrete.sparsity_, abs=0.05)


def test_its_files_are_named_with_their_sizes(shown):
    directory, out, _ = shown
    assert {path.name for path in directory.iterdir()} == {"demo.pydirect", "demo-4-bit.pydirect", "demo.png"}
    assert (directory / "demo.png").read_bytes().startswith(b"\x89PNG")
    for name in ("demo.pydirect", "demo-4-bit.pydirect"):
        path = directory / name
        assert f"{path}, {path.stat().st_size} bytes" in out
        assert pydirect.load(path).n_features_in_ == demo.N_INPUTS


def test_progress_goes_to_standard_error(shown):
    for name in MODELS:
        assert f"Fitting {name} ... " in shown[2]


@pytest.mark.slow
def test_it_runs_quietly_and_without_matplotlib(tmp_path, hide_module, capsys):
    hide_module("matplotlib")
    assert main(["demo", "--output-dir", str(tmp_path), "--quiet", "--seed", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert 'pip install "pydirect[plot]"' in captured.out
    assert not captured.out.startswith("Predicting")
    assert {path.name for path in tmp_path.iterdir()} == {"demo.pydirect", "demo-4-bit.pydirect"}


def test_a_missing_directory_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "_load", None)
    assert main(["demo", "--output-dir", str(tmp_path / "no")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "expected an existing directory" in captured.err
