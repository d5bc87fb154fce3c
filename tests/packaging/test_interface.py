"""The public face: names, docstrings, stubs, examples."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import pydirect
from pydirect import _core, _random

PACKAGE = Path(pydirect.__file__).parent
MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(pydirect.__path__, "pydirect.")
    if not m.name.endswith(("__main__", "._core", "._random"))
)


@pytest.mark.parametrize("name", pydirect.__all__)
def test_public_names_resolve_and_are_documented(name):
    value = getattr(pydirect, name)
    assert name in dir(pydirect)
    if not isinstance(value, str):
        doc = inspect.getdoc(value)
        assert doc
        assert not doc.startswith(f"{name}("), "a dataclass without a docstring of its own"


def test_the_public_face_is_small():
    names = {name for name in pydirect.__all__ if not inspect.ismodule(getattr(pydirect, name))}
    assert 30 <= len(names) <= 56


def test_rooms_are_attributes_without_being_imported():
    rooms = {name.split(".")[1] for name in MODULES} - {"cli"}
    public = sorted(name for name in rooms if not name.startswith("_"))
    assert set(public) <= set(pydirect.__all__)
    code = f"import pydirect\nfor name in {public}: assert getattr(pydirect, name).__name__ == f'pydirect.{{name}}'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'pydirect' has no attribute 'nonsense'"):
        pydirect.nonsense  # noqa: B018


def test_the_version_is_the_builds():
    assert pydirect.__version__ == _core.build_config()["version"]


def test_the_configuration_is_printed(capsys):
    pydirect.show_config()
    printed = capsys.readouterr().out
    for key, value in _core.build_config().items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        assert f"{key}: {shown}" in printed


@pytest.mark.parametrize("name", MODULES)
def test_every_module_and_its_public_functions_and_classes_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for key, value in vars(module).items():
        own = getattr(value, "__module__", None) == name and (inspect.isfunction(value) or inspect.isclass(value))
        if own and not key.startswith("_"):
            assert inspect.getdoc(value), f"{name}.{key}"


# Stubs


def stub_of(module):
    path = PACKAGE / f"{module.__name__.rpartition('.')[2]}.pyi"
    return ast.parse(path.read_text(encoding="utf-8"))


def names_in(body):
    found = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {n for n in found if not n.startswith("_")}


def public(names):
    return {n for n in names if not n.startswith("_")}


def test_the_stub_of_core_names_what_the_module_holds():
    assert names_in(stub_of(_core).body) == public(vars(_core))


def test_the_stub_of_random_names_what_the_module_holds():
    assert names_in(stub_of(_random).body) == public(n for n, v in vars(_random).items() if not inspect.ismodule(v))


def test_the_stub_of_the_solver_names_its_methods_and_properties():
    (solver,) = [n for n in stub_of(_core).body if isinstance(n, ast.ClassDef) and n.name == "MeanField"]
    assert names_in(solver.body) == public(vars(_core.MeanField))
    properties = {n.name for n in solver.body if isinstance(n, ast.FunctionDef) and n.decorator_list}
    assert properties == {n for n, v in vars(_core.MeanField).items() if isinstance(v, property)}


def test_the_stub_of_core_names_arguments_as_the_module_does():
    tree = stub_of(_core)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    functions += [m for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "MeanField" for m in n.body]
    for node in functions:
        if node.decorator_list:
            continue
        holder = _core.MeanField if node.args.args and node.args.args[0].arg == "self" else _core
        signature = getattr(holder, node.name).__doc__
        for argument in node.args.args:
            assert f"{argument.arg}:" in signature, f"{node.name}({argument.arg})"


def test_the_build_configuration_has_the_keys_of_its_stub():
    (config,) = [n for n in stub_of(_core).body if isinstance(n, ast.ClassDef) and n.name == "_BuildConfig"]
    assert {n.target.id for n in config.body} == set(_core.build_config())


# Examples


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
