"""The README's Python runs as written, and its commands are those that are tested."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import pydirect

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON_BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^    (\S.*)$", README, re.MULTILINE)
DEMO, TEST = [command for command in COMMANDS if command.startswith("python3 -m venv")]


def steps(command):
    return [shlex.split(step) for step in command.split(" && ")]


def test_there_is_python_to_run():
    assert len(PYTHON_BLOCKS) == 12


@pytest.mark.parametrize("block", range(len(PYTHON_BLOCKS)))
def test_python_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(PYTHON_BLOCKS[block], f"README.md, block {block}", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_install_commands_are_of_one_shape():
    for command, extras, program in [
        (DEMO, ["plot", "progress"], ["pydirect", "demo"]),
        (TEST, ["test"], ["python", "-m", "pytest"]),
    ]:
        create, install, run = steps(command)
        environment = create[-1]
        assert create == ["python3", "-m", "venv", environment]
        assert install == [f"{environment}/bin/pip", "install", f".[{','.join(extras)}]"]
        assert run == [f"{environment}/bin/{program[0]}", *program[1:]]
    assert steps(DEMO)[0][-1] != steps(TEST)[0][-1]


def test_continuous_integration_runs_the_second_command():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[-2:] == [TEST, f".ci/processors {steps(TEST)[0][-1]}/bin/python"]
    assert "set -euo pipefail" in lines
    removed = next(line for line in lines if line.startswith("rm -rf ")).split()[2:]
    assert steps(TEST)[0][-1] in removed


def test_extras_and_version_are_the_projects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in re.findall(r"'\.\[([a-z,]+)\]'", README):
        assert set(extra.split(",")) <= set(project["optional-dependencies"])
    assert project["version"] == pydirect.__version__
    assert f"version {project['version']}" in README
    for page in ("CHANGELOG.md", "CITATION.cff"):
        assert project["version"] in (ROOT / page).read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("pydirect ")])
def test_commands_are_understood(command, monkeypatch):
    from pydirect.cli import main

    arguments = main._parser().parse_args(shlex.split(command)[1:])
    assert callable(arguments.run)
