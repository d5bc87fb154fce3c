"""The README is short, and its commands are those that are tested."""

import re
import shlex
import tomllib
from pathlib import Path

import pydirect

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (\S.*)$", README, re.MULTILINE)
DEMO, TEST = [command for command in COMMANDS if command.startswith("python3 -m venv")]


def steps(command):
    return [shlex.split(step) for step in command.split(" && ")]


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def test_install_commands_are_of_one_shape():
    for command, extras, program in [
        (DEMO, ["plot"], ["pydirect", "demo"]),
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
    assert TEST in lines
    assert lines[-1] == f".ci/processors {steps(TEST)[0][-1]}/bin/python"
    assert "set -euo pipefail" in lines
    removed = next(line for line in lines if line.startswith("rm -rf ")).split()[2:]
    assert steps(TEST)[0][-1] in removed


def test_extras_and_version_are_the_projects():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in re.findall(r"'\.\[([a-z,]+)\]'", README):
        assert set(extra.split(",")) <= set(project["optional-dependencies"])
    for version in re.findall(r"\bversion (\d\S+\d)", README):
        assert version == pydirect.__version__
