"""The Python of the pages in docs runs as written, on every engine that is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "guide"


def blocks_of(page):
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


BLOCKS = blocks_of("streaming.md")
# The engine of each block, and the rows that its model has seen.
EXPECTED = [
    (None, "2700.0"),
    (None, "70.0"),
    (None, "800"),
    ("river", "1001"),
    ("pyarrow", "20000.0"),
    ("pyarrow", "5000.0"),
    ("dask", "20000.0"),
    ("ray", "8000.0"),
    ("pyspark", "4000.0"),
]
ENGINES = [engine for engine, _ in EXPECTED if engine]


def engine_of(block):
    return next((name for name in ENGINES if re.search(rf"^(import|from) {name}\b", block, re.MULTILINE)), None)


def test_there_is_a_recipe_for_every_engine():
    assert [engine_of(block) for block in BLOCKS] == [engine for engine, _ in EXPECTED]


@pytest.mark.parametrize(
    ("block", "engine", "rows"),
    [(block, *expected) for block, expected in zip(BLOCKS, EXPECTED, strict=False)],
    ids=[f"{engine or 'one process'}, {rows} rows" for engine, rows in EXPECTED],
)
def test_a_recipe_runs(block, engine, rows, tmp_path, monkeypatch, capsys):
    if engine is not None and importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    if engine in (None, "river", "pyarrow"):
        monkeypatch.chdir(tmp_path)
        exec(block, {})
        assert capsys.readouterr().out.split()[0] == rows
        return
    # In an interpreter of its own: engines leave threads and processes behind.
    (tmp_path / "recipe.py").write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "recipe.py"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[0] == rows


def test_recipes_for_targets_run_one_after_the_other(capsys):
    names = {}
    for block in blocks_of("targets.md"):
        exec(block, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[2] == "log(y)"
    assert all(0.83 < float(coverage) < 0.97 for coverage in printed[3:])
    assert len(printed) == 6


def test_recipes_for_tables_run(capsys):
    pytest.importorskip("pandas", reason="pandas is not installed")
    for block in blocks_of("tables.md"):
        exec(block, {})
    assert capsys.readouterr().out.startswith("['area', 'district=harbour', 'district=hill', 'district=station', ")


def test_recipes_for_counts_run(capsys):
    for block in blocks_of("counts.md"):
        exec(block, {})
    dispersion, score = re.match(r"dispersion (\S+), D² (\S+)\n", capsys.readouterr().out).groups()
    assert 0.3 < float(dispersion) < 0.8
    assert float(score) > 0.4


def test_recipes_for_influence_run_one_after_the_other(capsys):
    pytest.importorskip("pandas", reason="pandas is not installed")
    names = {}
    for block in blocks_of("influence.md"):
        exec(block, names)
    printed = capsys.readouterr().out
    assert "in the deviation" in printed and "most uncertain for: " in printed


def test_recipes_for_merging_and_privacy_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = blocks_of("merging_and_privacy.md")
    exec(first, {})
    assert float(capsys.readouterr().out) < 1e-10
    exec(second, {})
    assert capsys.readouterr().out.count("[") == 3
