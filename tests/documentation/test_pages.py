"""Every block of Python in README and docs runs as written; commands are understood; links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from documentation_pages import DOCS, PAGES, ROOT, anchors_of, blocks_of, commands_of, name_of, prose_of

from pydirect.estimators import pooled

BLOCKS = {page: blocks_of(page) for page in PAGES}
TOGETHER = [page for page, blocks in BLOCKS.items() if any(not block.alone for block in blocks)]
ALONE = [block for blocks in BLOCKS.values() for block in blocks if block.alone]
COMMANDS = [(page, line) for page in PAGES for line in commands_of(page) if line.startswith("pydirect ")]


def skip_unless_installed(blocks):
    missing = sorted({name for block in blocks for name in block.missing})
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.slow
@pytest.mark.parametrize("page", TOGETHER, ids=name_of)
def test_blocks_run_one_after_the_other(page, tmp_path, monkeypatch):
    blocks = [block for block in BLOCKS[page] if not block.alone]
    skip_unless_installed(blocks)
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    for name, value in {"CHUNK": 10, "MOST_ROUNDS": 30}.items():  # what they show needs no more trees
        monkeypatch.setattr(pooled, name, value)
    names = {"__name__": "__main__"}
    try:
        for block in blocks:
            exec(compile(block.script, str(page), "exec"), names)
    finally:
        pyplot.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("block", ALONE, ids=lambda block: f"{name_of(block.page)}:{block.line}")
def test_a_block_runs_alone(block, tmp_path):
    skip_unless_installed([block])
    (tmp_path / "block.py").write_text(block.script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "block.py"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: value if isinstance(value, str) else "")
def test_commands_are_understood(page, command):
    from pydirect.cli.main import build_parser

    arguments = build_parser().parse_args(shlex.split(command)[1:])
    assert callable(arguments.run)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    prose = prose_of(page)
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors_of(linked), f"{target}#{anchor}"
    for target in re.findall(r"\{doc\}`[^`<]*<([^>`]+)>`", prose):
        place = (page.parent / target).resolve()
        if place.is_relative_to(DOCS / "examples"):  # made from the gallery's sources
            continue
        assert place.with_suffix(".md").exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_scripts_that_pages_name_exist(page):
    for script in re.findall(r"\b((?:bench|docs)/[\w/]+\.py)\b", page.read_text(encoding="utf-8")):
        assert (ROOT / script).exists(), script


def test_pages_of_tasks_begin_with_python_and_end_with_what_to_read_next():
    for page in sorted((DOCS / "guide").glob("*.md")):
        if page.name not in ("index.md", "sources.md"):
            lines = page.read_text(encoding="utf-8").splitlines()
            assert "```python" in lines[:30] or "    pydirect fit" in "\n".join(lines[:30]), f"{page.name} begins"
            assert "## See also" in lines[-25:], f"{page.name} ends"
