"""The map in CONTRIBUTING.md against the folders that exist, and the order of imports against the imports."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pydirect"
CORE = ROOT / "src" / "cpp" / "core"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAP = CONTRIBUTING.split("\n    user\n")[1].split("\n    src/cpp\n")
FACADE = "pydirect"  # src/pydirect/__init__.py, whose lazy table names every room

pytestmark = pytest.mark.skipif(not PACKAGE.is_dir(), reason="needs the source tree")


def rooms_in(block: str) -> list[list[str]]:
    """Rooms of the map from the top to the bottom, those that share a line together."""
    lines = re.findall(r"^ +[│▼]? +((?:[a-z_]+, )*[a-z_]+)  +\S", block, re.MULTILINE)
    return [line.split(", ") for line in lines]


LEVEL = {room: level for level, rooms in enumerate(rooms_in(MAP[0])) for room in rooms}


def sources(package: Path = PACKAGE) -> dict[str, str]:
    """Source text of every module under its dotted name; that of a package is its ``__init__.py``."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    found.pop(f"{FACADE}.__main__", None)
    return {**found, f"{FACADE}._core": "", f"{FACADE}._random": ""}


def imports(name: str, texts: dict[str, str]) -> Iterator[str]:
    """Modules that a module imports, also inside functions and under TYPE_CHECKING."""
    package = name if any(other.startswith(f"{name}.") for other in texts) else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(texts[name])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in texts)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            for alias in node.names:
                if f"{module}.{alias.name}" in texts:
                    yield f"{module}.{alias.name}"
                elif module in texts and (module, alias.name) != (FACADE, "__version__"):
                    yield module


def arrows(texts: dict[str, str]) -> dict[str, set[str]]:
    """The import graph of the files, without the facade's lazy table."""
    return {name: set(imports(name, texts)) - {name} if name != FACADE else set() for name in texts}


def room(name: str) -> str:
    return name.split(".")[1]


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Imports that do not go down the map: up, sideways between rooms of one line, or from the facade."""
    found = []
    for name, others in graph.items():
        for other in others:
            if other == FACADE:
                if room(name) != "cli":  # which uses the package as any user does
                    found.append(f"{name} -> {other}")
            elif room(name) != room(other) and LEVEL[room(name)] >= LEVEL[room(other)]:
                found.append(f"{name} -> {other}")
    return sorted(found)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files that import each other, directly or not."""
    reached = {name: _reachable(name, graph) for name in graph}
    together = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph}
    return sorted(list(files) for files in together if files)


def _reachable(name: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[name])
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting.extend(graph[other])
    return seen


# The map


def test_the_map_lists_the_rooms_that_exist():
    existing = {room(name) for name in sources() if name != FACADE}
    assert existing == set(LEVEL)


def test_the_map_lists_the_rooms_of_the_compiled_code():
    listed = {name for line in rooms_in(MAP[1].split("\n\n")[0]) for name in line}
    existing = {path.name for folder in (CORE.parent, CORE) for path in folder.iterdir() if path.is_dir()}
    assert listed == existing


def test_paths_named_in_the_guide_exist():
    paths = re.findall(r"`((?:[\w.]+/)+[\w.-]*)`", CONTRIBUTING)
    assert len(paths) > 20
    for path in set(paths) - {"build/", "dist/"}:
        assert any((place / path).exists() for place in (ROOT, ROOT / "src", PACKAGE)), path


# The order of imports


def test_imports_go_down_the_map():
    assert upward(arrows(sources())) == []


def test_no_files_import_each_other():
    assert circles(arrows(sources())) == []


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("pydirect.kron", "from pydirect.direct.mixture import fit_mixture", "pydirect.direct.mixture"),
        ("pydirect.kron", "def f():\n    import pydirect.cli.main", "pydirect.cli.main"),
        ("pydirect.kron", "if TYPE_CHECKING:\n    from .estimators import search", "pydirect.estimators.search"),
        ("pydirect.kron", "from pydirect import load", "pydirect"),
        ("pydirect.optimize.outcome", "from ..features.maps import LinearFeatures", None),
        ("pydirect.features.maps", "from ..optimize.outcome import Outcome", "pydirect.optimize.outcome"),
        ("pydirect.features.maps", "from pydirect import __version__, _core", None),
    ],
)
def test_an_upward_import_is_found(name, line, expected):
    texts = {**sources(), name: line}
    assert upward({name: arrows(texts)[name]}) == ([f"{name} -> {expected}"] if expected else [])


def test_a_circle_is_found_also_through_the_room_itself():
    texts = dict.fromkeys(["pydirect.kron", "pydirect.streams", "pydirect.streams.rows", "pydirect.streams.passes"], "")
    assert circles(arrows(texts)) == []
    texts["pydirect.streams"] = "from pydirect.streams.rows import Rows"
    assert circles(arrows(texts)) == []
    texts["pydirect.streams.rows"] = "def f():\n    from pydirect.streams import Rows"
    assert circles(arrows(texts)) == [["pydirect.streams", "pydirect.streams.rows"]]


# Public names


def test_public_names_of_rooms_mean_one_thing():
    home: dict[str, object] = {}
    for name in LEVEL:
        module = importlib.import_module(f"pydirect.{name}")
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            assert home.setdefault(public, value) is value, f"{public} of {name} has another meaning elsewhere"


@pytest.mark.parametrize("name", [name for name in LEVEL if (PACKAGE / name).is_dir() and name != "cli"])
def test_every_room_lists_its_public_names(name):
    module = importlib.import_module(f"pydirect.{name}")
    assert module.__doc__ and module.__doc__.splitlines()[0].endswith(".")
    assert sorted(module.__all__) == list(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
