"""Rules of the house that a reader could check by eye, checked by machine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CPP = ROOT / "src" / "cpp"

pytestmark = pytest.mark.skipif(not CPP.is_dir(), reason="needs the source tree")


def sources(*rooms):
    found = [p for room in rooms for p in sorted((CPP / room).rglob("*")) if p.suffix in (".cpp", ".hpp", ".h")]
    assert found
    return found


def without_comments(path):
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def lines_with(pattern, paths):
    found = ((path, match) for path in paths for match in re.finditer(pattern, without_comments(path)))
    return [f"{path.relative_to(ROOT)}: {match.group()}" for path, match in found]


def test_no_python_below_the_bindings():
    assert lines_with(r"pybind11|Python\.h|PyObject|numpy/", sources("include", "core", "kernels")) == []


def test_kernels_know_neither_eigen_nor_standard_containers():
    pattern = r"Eigen|#include\s*<(vector|string|map|memory|functional|algorithm|iostream)>|\bnew\b|\bthrow\b|malloc"
    kernels = [p for p in sources("kernels") if p.name != "dispatch.cpp"]
    assert lines_with(pattern, kernels) == []


def test_kernels_start_no_threads():
    assert lines_with(r"omp_|#pragma\s+omp|std::thread|std::async", sources("kernels")) == []


def test_no_reduction_whose_order_depends_on_the_threads():
    assert lines_with(r"reduction\s*\(|#pragma\s+omp\s+(atomic|critical)", sources(".")) == []


def test_arrows_point_down():
    """include ← core ← bindings; kernels know of `types.hpp` alone."""
    assert lines_with(r'#include\s*"(arrays|pydirect/(?!types))[^"]*"', sources("kernels")) == []
    assert lines_with(r'#include\s*"arrays\.hpp"', sources("include", "core")) == []


def test_the_build_never_asks_for_fast_maths():
    names = "fast-math|associative-math|finite-math-only|unsafe-math-optimizations|reciprocal-math"
    flags = re.compile(rf"-f({names})|-Ofast")
    files = [ROOT / "CMakeLists.txt", ROOT / "CMakePresets.json", ROOT / "pyproject.toml", *(ROOT / "cmake").glob("*")]
    for path in [*files, *sources(".")]:
        text = path.read_text(encoding="utf-8")
        if path.suffix not in (".cpp", ".hpp"):
            text = re.sub(r"#[^\n]*", "", text)  # comments may say what is never done
        assert not flags.search(text), path
    assert "-ffp-contract=off" in (ROOT / "CMakeLists.txt").read_text()


def test_every_header_says_that_it_is_included_once():
    for path in sources("include", "core", "kernels", "bindings"):
        if path.suffix == ".hpp" and not path.name.endswith("-inl.hpp") and path.name != "simd.hpp":
            assert "#pragma once" in path.read_text(), path


def test_every_file_of_kernels_has_a_header_and_fills_its_group():
    table = (CPP / "kernels" / "kernel_table.hpp").read_text()
    for path in (CPP / "kernels").glob("*-inl.hpp"):
        if "constexpr void fill(" in path.read_text():
            assert f'#include "kernels/{path.name.replace("-inl", "")}"' in table, path


# Object files


def object_files():
    return {
        folder.name.removeprefix("kernels_").removesuffix(".dir"): sorted(folder.rglob("*.o"))
        for folder in sorted(ROOT.glob("build/*/CMakeFiles/kernels_*.dir"))
    }


def test_objects_of_an_instruction_set_share_no_code_with_the_others():
    """A weak symbol could be merged with another level's and run where its instructions do not exist."""
    nm = shutil.which("nm")
    objects = {level: files for level, files in object_files().items() if files}
    if nm is None or not objects:
        pytest.skip("needs nm and the object files of a build in build/")
    for level, files in objects.items():
        for file in files:
            command = [nm, "-C", "--defined-only", str(file)]
            listing = subprocess.run(command, capture_output=True, text=True, check=True)
            weak = [line for line in listing.stdout.splitlines() if re.search(r"^\S+ [WVu] ", line)]
            assert weak == [], f"{level}: {file.name}"
