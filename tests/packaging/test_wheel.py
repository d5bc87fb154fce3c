"""What an installation holds, judged by its own list of files; and that it is the one under test."""

import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path, PurePosixPath

import pytest

import pydirect
from pydirect import _core

DISTRIBUTION = importlib.metadata.distribution("pydirect")
EDITABLE = json.loads(DISTRIBUTION.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable", False)
ROOT = Path(__file__).resolve().parents[2]

installed_from_a_wheel = pytest.mark.skipif(EDITABLE, reason="an editable installation holds links, not files")


def package_files():
    paths = [PurePosixPath(str(path)) for path in DISTRIBUTION.files]
    return [path for path in paths if path.parts[0] == "pydirect" and "__pycache__" not in path.parts]


def test_versions_agree():
    assert DISTRIBUTION.version == pydirect.__version__


def test_type_information_is_there():
    package = Path(pydirect.__file__).parent
    for name in ("py.typed", "_core.pyi", "_random.pyi"):
        assert (package / name).is_file()


def test_requirements_are_few():
    needed = [text for text in DISTRIBUTION.requires if "extra ==" not in text]
    assert {re.match(r"[\w-]+", text).group().lower() for text in needed} == {
        "numpy",
        "scipy",
        "scikit-learn",
        "threadpoolctl",
        "narwhals",
    }


def test_the_console_script_is_declared():
    (script,) = [point for point in DISTRIBUTION.entry_points if point.group == "console_scripts"]
    assert (script.name, script.value) == ("pydirect", "pydirect.cli.main:main")


@installed_from_a_wheel
def test_only_compiled_code_python_and_templates_of_headers():
    compiled = Path(_core.__file__).suffix
    assert {path.suffix for path in package_files()} == {".py", ".pyi", compiled, ".typed", ".h"}


@installed_from_a_wheel
def test_every_module_of_the_source_is_there():
    source = ROOT / "src" / "pydirect"
    expected = {
        path.relative_to(source.parent).as_posix() for path in source.rglob("*.*") if path.suffix in (".py", ".h")
    }
    assert expected <= {str(path) for path in package_files()}


@installed_from_a_wheel
def test_the_source_tree_is_not_what_is_tested():
    assert not Path(pydirect.__file__).is_relative_to(ROOT / "src")
    assert not Path(importlib.util.find_spec("pydirect._core").origin).is_relative_to(ROOT / "src")


# What is compiled in, and what is copied beside it


def bill_of_materials(name):
    return json.loads(DISTRIBUTION.read_text(f"sboms/{name}.cdx.json"))


@installed_from_a_wheel
def test_the_bill_of_materials_lists_what_is_compiled_in():
    bill = bill_of_materials("pydirect")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == pydirect.__version__
    assert all(tool["version"] for tool in bill["metadata"]["tools"]["components"])
    versions = {component["name"]: component["version"] for component in bill["components"]}
    assert re.match(r"\d+\.\d+", versions["pybind11"])
    sources = [path for path in (ROOT / "src" / "cpp").rglob("*") if path.suffix in (".cpp", ".hpp")]
    included = any("#include <Eigen/" in path.read_text(encoding="utf-8") for path in sources)
    assert versions.get("Eigen") == (_core.build_config()["eigen"] if included else None)
    for component in bill["components"]:
        assert component["purl"].endswith(f"@{component['version']}")
        assert component["licenses"]
    (dependencies,) = bill["dependencies"]
    assert dependencies["ref"] == bill["metadata"]["component"]["bom-ref"]
    assert set(dependencies["dependsOn"]) == {component["bom-ref"] for component in bill["components"]}


@installed_from_a_wheel
def test_the_bill_of_materials_lists_libraries_that_were_copied():
    copied = [path.name for path in DISTRIBUTION.files if path.parts[0] == "pydirect.libs"]
    if not copied or sys.platform != "linux":
        pytest.skip("not repaired by auditwheel")
    bill = bill_of_materials("auditwheel")
    found = {component["name"]: component["version"] for component in bill["components"]}
    assert found.pop("pydirect") == pydirect.__version__
    assert len(found) >= 1
    assert all(found.values())
    assert any("gomp" in name for name in copied) == any("gomp" in name for name in found)


@installed_from_a_wheel
def test_licences_of_all_that_is_inside_are_inside():
    listed = DISTRIBUTION.metadata.get_all("License-File")
    assert "LICENSE" in listed
    for name in listed:
        assert len(DISTRIBUTION.read_text(f"licenses/{name}")) > 500, name
    texts = DISTRIBUTION.read_text("licenses/LICENSES/README.md")
    for component in bill_of_materials("pydirect")["components"]:
        assert component["name"] in texts
    for target in re.findall(r"\]\(([^)#]+)\)", texts):
        assert (PurePosixPath("LICENSES") / target).as_posix() in listed or target == "../LICENSE"
