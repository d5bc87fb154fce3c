"""Benchmarks that can be imported, and scripts that say what they do: a renamed function shows here first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"

pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="needs the source tree")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=BENCH, capture_output=True, text=True, timeout=120)
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
