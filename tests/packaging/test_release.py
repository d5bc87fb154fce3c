"""What a release is made from: one version, honest metadata, and workflows that lint and run what CONTRIBUTING says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pydirect

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
STEPS = "\n".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="needs the source tree")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


PYPROJECT = tomllib.loads(text_of("pyproject.toml")) if WORKFLOWS else {}


# Versions


def test_the_version_stands_in_one_place_and_two_pages_follow():
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert f"\nversion: {pydirect.__version__}\n" in text_of("CITATION.cff")
    assert re.search(r"^## (\S+),", text_of("CHANGELOG.md"), re.MULTILINE).group(1) == pydirect.__version__
    named = re.escape(pydirect.__version__)
    for path in [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py")]:
        lines = re.findall(rf"^.*(?:version|VERSION).*{named}.*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        expected = [f'__version__ = "{pydirect.__version__}"'] if path.parent.name == "pydirect" else []
        assert lines == (expected if path.name == "__init__.py" else []), path


def test_versions_of_python_are_the_same_everywhere():
    """Classifiers name those that `.ci/wheels` tests; the workflows go on to later ones."""
    project = PYPROJECT["project"]
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={classified[0]}"
    assert f"versions=({' '.join(classified)})" in text_of(".ci/wheels")
    wheels = re.findall(r"cp3(\d+)-", " ".join(PYPROJECT["tool"]["cibuildwheel"]["build"]))
    tested = re.findall(r'"3\.(\d+)"', re.search(r"python: \[(.*)\]", STEPS).group(1))
    assert wheels == tested
    assert {f"3.{minor}" for minor in wheels} >= set(classified)


# Workflows


def test_actions_are_pinned_and_permissions_are_given_by_job():
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        for action in re.findall(r"uses: (\S+)", text):
            assert action.startswith("./") or re.search(r"@[0-9a-f]{40}$", action), f"{path.name}: {action}"
        assert "\npermissions: {}\n" in text, path.name
        assert text.count("actions/checkout@") == text.count("persist-credentials: false"), path.name
        assert "secrets." not in text, path.name


def test_every_job_is_behind_the_gate():
    text = text_of(".github/workflows/ci.yml")
    jobs = re.findall(r"^  (\w+):$", text.split("\njobs:\n")[1], re.MULTILINE)
    needed = re.search(r"^  pass:.*?needs: \[(.*?)\]", text, re.MULTILINE | re.DOTALL).group(1).split(", ")
    assert needed == jobs[:-1]
    assert jobs[-1] == "pass"


@pytest.mark.parametrize("command", [".ci/run", ".ci/wheels", "pre-commit run --all-files", "mypy"])
def test_workflows_run_the_commands_of_contributing(command):
    assert re.search(rf"^\W*(?:- run: )?{re.escape(command)}\b", STEPS, re.MULTILINE), "in a workflow"
    assert command in text_of("CONTRIBUTING.md")


@pytest.mark.parametrize(
    "command",
    [
        ("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)),
        ("check-jsonschema", "--builtin-schema", "vendor.citation-file-format", "CITATION.cff"),
        ("actionlint", *map(str, WORKFLOWS)),
        ("validate-pyproject", "pyproject.toml"),
    ],
    ids=["workflows", "citation", "actionlint", "metadata"],
)
def test_workflows_and_metadata_pass_their_linters(command):
    program = shutil.which(command[0], path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip(f"needs {command[0]}")
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
