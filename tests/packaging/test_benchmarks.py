"""Benchmarks that can be imported, and scripts that say what they do: a renamed function shows here first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pydirect.predictive import PredictiveDistribution

BENCH = Path(__file__).parents[2] / "bench"

pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="needs the source tree")


PEERS = BENCH / "peers"


def run(*arguments: str, folder: Path = BENCH) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_benchmark_is_imported() -> None:
    """In a process of its own, because importing them sets the number of threads."""
    names = [".".join(path.relative_to(BENCH).with_suffix("").parts) for path in (BENCH / "benchmarks").rglob("*.py")]
    found = run("-c", f"import importlib; print(*[importlib.import_module(name).__name__ for name in {names!r}])")
    assert found.split() == names


@pytest.mark.parametrize("script", ["scaling.py", "scripts/limits.py"])
def test_measurements_say_what_they_do(script: str) -> None:
    assert "usage:" in run(script, "--help")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_point_of_the_scaling_table_has_seconds_and_bytes() -> None:
    """The smallest one, as the driver runs it."""
    code = "import json, scaling as s; print(json.dumps(s.run(s.Point(rows=300, basis=20), 100, 2**33)))"
    found = json.loads(run("-c", code))
    assert {"processor", "wall", "bytes"} <= set(found["fit"])
    assert {"features", "statistics", "inference"} <= set(found["stages"])


def test_peers_are_scored_and_a_second_run_goes_on(tmp_path: Path) -> None:
    """Models that need nothing else, on a set that comes with scikit-learn."""
    models = ["DirectRegressor", "BayesianRidge"]
    options = ["--sets", "diabetes", "--folds", "1", "--results", str(tmp_path / "out.json")]
    printed = run("run.py", *options, "--models", models[0], folder=PEERS)
    assert "BayesianRidge" not in printed
    printed = run("run.py", *options, "--models", ",".join(models), folder=PEERS)
    found = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [record["model"] for record in found] == models
    for record in found:
        assert record["status"] == "ok", record
        assert 40 < record["rmse"] < 80 and 4.5 < record["nlpd"] < 6.5 and 0.7 < record["coverage"] <= 1.0
        assert 0 < record["crps"] < record["rmse"] and record["fit_seconds"] > 0
        assert f"| {record['model']} |" in printed


def test_the_page_shows_the_figures_that_are_kept() -> None:
    page = (BENCH.parent / "docs" / "benchmarks.md").read_text()
    assert run("run.py", "--report", folder=PEERS).strip() in page


def test_quantiles_of_a_gaussian_give_its_scores() -> None:
    code = """
import json, numpy as np
from models import LEVELS, QuantileGaussian
from scipy.stats import norm
mean, std, y = np.array([1.0, -2.0]), np.array([0.5, 3.0]), np.array([1.3, 4.0])
low, median, high = mean + std * norm.ppf(LEVELS)[:, None]
found = QuantileGaussian(median, low, high, 1e-9)
crossed = QuantileGaussian(median, high, low, 1e-9)
print(json.dumps([found.mean.tolist(), found.log_density(y).tolist(), found.crps(y).tolist(),
                  np.array(found.interval(0.9)).tolist(), np.array(crossed.interval(0.9)).tolist()]))
"""
    mean, density, crps, interval, crossed = json.loads(run("-c", code, folder=PEERS))
    expected = PredictiveDistribution.gaussian([1.0, -2.0], [0.25, 9.0])
    np.testing.assert_allclose(mean, [1.0, -2.0])
    np.testing.assert_allclose(density, expected.log_density([1.3, 4.0]))
    np.testing.assert_allclose(crps, expected.crps([1.3, 4.0]))
    np.testing.assert_allclose(interval, expected.interval(0.9))
    np.testing.assert_allclose(crossed, interval)
