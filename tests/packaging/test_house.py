"""The map in CONTRIBUTING.md against the folders that exist, and the order of imports against the imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import pydirect

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
    assert upward({name: set(imports(name, texts))}) == ([f"{name} -> {expected}"] if expected else [])


def test_a_circle_is_found_also_through_the_room_itself():
    texts = dict.fromkeys(["pydirect.kron", "pydirect.streams", "pydirect.streams.rows", "pydirect.streams.run"], "")
    assert circles(arrows(texts)) == []
    texts["pydirect.streams"] = "from pydirect.streams.rows import Rows"
    assert circles(arrows(texts)) == []
    texts["pydirect.streams.rows"] = "def f():\n    from pydirect.streams import Rows"
    assert circles(arrows(texts)) == [["pydirect.streams", "pydirect.streams.rows"]]


# Public names


def public_names(module: Any) -> list[str]:
    """Those of `__all__`, or all that a folder's own file imports, or a file defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    if hasattr(module, "__path__"):
        return [name for name, value in own.items() if not inspect.ismodule(value)]
    hidden = module.__name__.rpartition(".")[2].startswith("_")
    return [name for name, value in own.items() if getattr(value, "__module__", "") == module.__name__ and not hidden]


def test_public_names_of_rooms_mean_one_thing():
    home: dict[str, object] = {}
    for name in LEVEL:
        module = importlib.import_module(f"pydirect.{name}")
        for public in public_names(module):
            value = getattr(module, public)
            assert home.setdefault(public, value) is value, f"{public} of {name} has another meaning elsewhere"


@pytest.mark.parametrize("name", [name for name in LEVEL if (PACKAGE / name).is_dir() and name != "cli"])
def test_every_room_lists_its_public_names(name):
    module = importlib.import_module(f"pydirect.{name}")
    assert module.__doc__ and module.__doc__.splitlines()[0].endswith(".")
    names = public_names(module)
    assert names and all(hasattr(module, public) for public in names)


# What is not seen from imports


def _definitions(tree: ast.AST) -> set[str]:
    """Names that a module defines: functions, classes, attributes that it sets."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def private_uses(texts: dict[str, str]) -> list[str]:
    """Attributes with an underscore of something else than self, cls or super(), which another room defines."""
    trees = {name: ast.parse(text) for name, text in texts.items() if name != FACADE}
    known: dict[str, set[str]] = {}
    for name, tree in trees.items():
        known.setdefault(room(name), set()).update(_definitions(tree))
    found = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not re.match("_(?!_)", node.attr):
                continue
            owner = ast.unparse(node.value)
            own = owner in ("self", "cls", "super()", "_core", "_random") or node.attr in known[room(name)]
            if not own and node.attr != "_replace":  # of named tuples, public
                found.append(f"{name}: {owner}.{node.attr}")
    return sorted(found)


def any_models(texts: dict[str, str]) -> list[str]:
    """Functions of estimators and below that take a model or an estimator of any type."""
    found = []
    for name, text in texts.items():
        if name == FACADE or LEVEL[room(name)] < LEVEL["estimators"]:  # those above take what users give them
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if any(
                    a.arg in ("model", "estimator") and a.annotation and ast.unparse(a.annotation) == "Any"
                    for a in given
                ):
                    found.append(f"{name}.{node.name}")
    return sorted(found)


def shared_class_names(texts: dict[str, str]) -> list[str]:
    """Names of classes that two rooms define."""
    rooms: dict[str, set[str]] = {}
    for name, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                rooms.setdefault(node.name, set()).add(room(name))
    return sorted(name for name, where in rooms.items() if len(where) > 1)


def own_classes(cls: type) -> list[type]:
    return [c for c in cls.__mro__ if c.__module__.partition(".")[0] == FACADE]


def repeated_methods(cls: type) -> list[str]:
    """Methods and properties that more than two of the package's classes in the MRO define."""
    counts = Counter(
        name
        for own in own_classes(cls)
        for name, value in vars(own).items()
        if not name.startswith("__") and (callable(value) or isinstance(value, property | classmethod | staticmethod))
    )
    return sorted(name for name, n in counts.items() if n > 2)


def public_classes() -> list[type]:
    """Classes among the names of the package and its rooms."""
    found = {}
    for module in (pydirect, *(importlib.import_module(f"pydirect.{name}") for name in LEVEL)):
        for name in public_names(module):
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith(FACADE):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


# Scorers and intervals take the estimators of any package; summaries read of models what all have.
TAKE_ANY = {
    "pydirect.metrics._unwrapped",
    "pydirect.metrics.crps_scorer",
    "pydirect.metrics.nlpd_scorer",
    "pydirect.metrics.predict_interval",
    "pydirect.metrics.predicted_by",
    "pydirect.estimators.summary.lines_of_model",
    "pydirect.estimators.summary.lines_of_regressor",
    "pydirect.estimators.summary.lines_of_stream",
}


def test_no_room_uses_the_private_attributes_of_another():
    assert private_uses(sources()) == []


def test_functions_take_data_not_any_model():
    assert set(any_models(sources())) <= TAKE_ANY


def test_no_class_name_has_two_rooms():
    assert shared_class_names(sources()) == []


def test_no_public_class_has_more_than_four_classes_of_ours():
    assert [cls.__name__ for cls in public_classes() if len(own_classes(cls)) > 4] == []


def test_no_method_is_defined_in_more_than_two_classes_of_one_mro():
    found = {cls.__name__: repeated_methods(cls) for cls in public_classes() if issubclass(cls, BaseEstimator)}
    assert {name: methods for name, methods in found.items() if methods} == {}


def test_planted_faults_are_found():
    texts = {
        "pydirect.kron": "def f(model: Any, y): return model._rows\nclass Grid: pass",
        "pydirect.linear.fit": "class Grid:\n    def f(self, other):\n        self._x = other._x\n        return np._y",
        "pydirect.plotting.fits": "def f(model: Any): return model.y_",
    }
    assert private_uses(texts) == ["pydirect.kron: model._rows", "pydirect.linear.fit: np._y"]
    assert any_models(texts) == ["pydirect.kron.f"]
    assert shared_class_names(texts) == ["Grid"]

    cls: type = object
    for _ in range(5):
        cls = type("Cls", (cls,), {"f": lambda self: 0, "__module__": "pydirect.kron"})
    assert len(own_classes(cls)) == 5 and repeated_methods(cls) == ["f"] and repeated_methods(cls.__mro__[3]) == []


# One default fit, one prediction

INSTALLED = os.path.dirname(pydirect.__file__) + os.sep
# The house wants 25 files and 8 frames: these are the smallest numbers that hold.
MOST_FILES, MOST_ENTRIES, MOST_FRAMES_OF_FIT = 40, 1100, 10


class Calls:
    """What a call enters: files of the package, functions, and own frames above each call of a covariance kernel."""

    def __init__(self, function):
        self.files, self.n_entries, self.depths = set(), 0, []
        sys.setprofile(self)
        try:
            function()
        finally:
            sys.setprofile(None)

    def __call__(self, frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(INSTALLED):
            self.files.add(frame.f_code.co_filename)
            self.n_entries += 1
        elif event == "c_call" and getattr(argument, "__name__", "").endswith(("covariance", "marginal_likelihood")):
            self.depths.append(0)
            while frame is not None:
                self.depths[-1] += frame.f_code.co_filename.startswith(INSTALLED)
                frame = frame.f_back


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (500, 8))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.2 * rng.standard_normal(500)


@pytest.fixture(scope="module")
def fitted(rows):
    model = pydirect.DirectRegressor(n_threads=1).fit(*rows)  # what is imported on first use, is
    model.predict(rows[0], return_std=True)
    return model


def test_a_default_fit_enters_few_files_and_is_not_deep(fitted, rows):
    calls = Calls(lambda: type(fitted)(n_threads=1).fit(*rows))
    assert len(calls.files) <= MOST_FILES and calls.n_entries <= MOST_ENTRIES
    assert max(calls.depths) <= MOST_FRAMES_OF_FIT


def test_a_prediction_is_not_deep(fitted, rows):
    calls = Calls(lambda: fitted.predict(rows[0], return_std=True))
    assert calls.depths and max(calls.depths) <= 8


def test_calls_are_counted():
    own = {"covariance": np.zeros(0).sum}  # compiled
    exec(compile("def f(n): return f(n - 1) if n else covariance()", INSTALLED + "planted.py", "exec"), own)
    counted = {}
    exec(compile("def covariance(): pass", "elsewhere", "exec"), counted)
    calls = Calls(lambda: own["f"](3))
    assert calls.files == {INSTALLED + "planted.py"} and calls.n_entries == 4
