"""Names that users meet have docstrings with all sections, all others say in a line what they are."""

import ast
import importlib.util
import inspect
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import pydirect

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "docs" / "_ext").is_dir():
    pytest.skip("needs the source tree", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("public_names", ROOT / "docs" / "_ext" / "public_names.py")
public_names = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(public_names)

PLACES = sorted(set(public_names.places().values()))
OPTIONAL = {"pydirect.adapters.RiverRegressor": "river", "pydirect.adapters.DirectSampler": "optuna"}
ROOMS = list(public_names.rooms())
# Names with all sections: those at the top, estimators, what scores and checks them, and objects that configure them.
COMPLETE = {"pydirect", "pydirect.estimators", "pydirect.metrics", "pydirect.testing"}
CONFIGURATION = {
    f"pydirect.{name}"
    for name in (
        "monte_carlo.MonteCarloDivergence",
        "networks.DeterministicNetwork",
        "networks.EmpiricalBayes",
        "networks.SampledNetwork",
        "networks.TrainingSchedule",
    )
}
with open(ROOT / "pyproject.toml", "rb") as file:
    EXCLUDED = set(tomllib.load(file)["tool"]["numpydoc_validation"]["checks"]) - {"all"}


def value_of(place):
    if place in OPTIONAL and importlib.util.find_spec(OPTIONAL[place]) is None:
        return None
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(module), name)


def types(doc, *titles):
    """Types of the names in sections of a numpydoc docstring."""
    found, title = {}, None
    lines = inspect.cleandoc(doc or "").splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        if below and set(below) == {"-"}:
            title = line
        elif title in titles and line and not line[0].isspace() and set(line) != {"-"}:
            names, _, kind = line.partition(" : ")
            found |= {name.strip().lstrip("*"): kind for name in names.split(",")}
    return found


def documented(doc, *titles):
    """Names in sections of a numpydoc docstring."""
    return set(types(doc, *titles))


def wrong_defaults(name, value):
    """Parameters whose types do not state the default in the signature, or call a required one optional."""
    found = []
    if inspect.isclass(value) and issubclass(value, BaseException | str):
        return found
    parameters = inspect.signature(value).parameters
    for key, kind in types(value.__doc__, "Parameters", "Other Parameters", "Attributes").items():
        if key not in parameters or not kind:
            continue
        default, optional = parameters[key].default, "optional" in kind
        stated = re.search("default=(.+)", kind)
        if default is inspect.Parameter.empty:
            right = not optional and "default" not in kind
        elif default is None or repr(default) == "<factory>":
            right = optional or kind.endswith("default=None")
        else:
            right = stated is not None and not optional
            try:
                right = right and ast.literal_eval(stated[1]) == default
            except (ValueError, SyntaxError):
                pass  # the name of a constant
        found += [] if right else [f"{name}: {key} : {kind}, but the signature has {parameters[key]}"]
    return found


def faults(name, value):
    """What numpydoc finds, but that fields of a dataclass may stand among its attributes."""
    numpydoc = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed")
    if inspect.isfunction(value) and value.__module__.startswith("pydirect."):
        name = f"{value.__module__}.{value.__qualname__}"  # a module may have the name of a function
    found = [(code, text) for code, text in numpydoc.validate(name)["errors"] if code not in EXCLUDED]
    # PR07 passes over parameters whose type is a set of values.
    if inspect.isclass(value) or inspect.isfunction(value):
        parameters = numpydoc.Validator(numpydoc.get_doc_object(value)).doc_parameters
        found += [
            ("PR07", key) for key, (kind, text) in parameters.items() if "{" in kind and not "".join(text).strip()
        ]
    if inspect.isclass(value) and any(code == "PR01" for code, _ in found):
        protocol = getattr(value, "_is_protocol", False)
        missing = set() if protocol else set(inspect.signature(value).parameters)
        for base in value.__mro__:  # fields of a dataclass are documented where they are declared
            missing -= documented(base.__doc__, "Parameters", "Attributes")
        found = [(code, text) for code, text in found if code != "PR01"]
        found += [("PR01", f"Parameters {sorted(missing)} not documented")] if missing else []
    return [f"{name}: {code} {text}" for code, text in found]


def in_short(name, value):
    """Faults of a docstring, inherited or its own, that need not have sections: its summary is one sentence."""
    summary = (inspect.getdoc(value) or "").partition("\n\n")[0]
    if not summary or summary.startswith(f"{name.rpartition('.')[2]}("):  # as a dataclass writes its own
        return [f"{name}: no docstring"]
    return [] if summary.endswith((".", "?")) and len(summary) <= 240 else [f"{name}: not one sentence: {summary}"]


def described(place):
    """Public name with its members: full name, raw value, the value to read and whether all sections are asked for."""
    value = value_of(place)
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    room = place.rpartition(".")[0]
    yield place, value, value, room in COMPLETE or place in CONFIGURATION
    own = room in COMPLETE and (room != "pydirect" or (inspect.isclass(value) and issubclass(value, BaseEstimator)))
    for name, member in public_names.members(value).items() if inspect.isclass(value) else ():
        if not name.startswith("_"):
            # What replaces a method has its docstring.
            found = (vars(c)[name] for c in value.__mro__ if name in vars(c) and vars(c)[name].__doc__)
            yield f"{place}.{name}", next(found, member), getattr(value, name), own


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_say_what_names_are(room):
    found, seen = [], set()
    for place in PLACES:
        if place.rpartition(".")[0] != room:
            continue
        for name, raw, value, complete in described(place):
            if id(raw) not in seen:
                seen.add(id(raw))
                found += faults(name, raw) if complete else in_short(name, raw if isinstance(raw, property) else value)
                if name == place and inspect.isfunction(raw) and ">>>" not in raw.__doc__:
                    found.append(f"{name}: no example")
    assert found == []


@pytest.mark.parametrize("room", ROOMS)
def test_types_state_defaults(room):
    found, seen = [], set()
    for place in PLACES:
        value = value_of(place)
        if place.rpartition(".")[0] != room or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        found += wrong_defaults(place, value)
        for name, member in public_names.members(value).items() if inspect.isclass(value) else ():
            method = getattr(value, name, None)
            if not name.startswith("_") and callable(method) and id(member) not in seen:
                seen.add(id(member))
                found += wrong_defaults(f"{place}.{name}", method)
    assert found == []


def test_a_fault_is_found():
    def undocumented(first, second=None):
        """Return one of two.

        Parameters
        ----------
        first : int
        """

    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("faulty", None))
    module.undocumented = undocumented
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(importlib.import_module("sys").modules, "faulty", module)
        codes = {fault.split()[1] for fault in faults("faulty.undocumented", undocumented)}
    assert {"PR01", "PR07"} <= codes


def test_constants_are_documented():
    for place in PLACES:
        value = value_of(place)
        if value is None or inspect.isclass(value) or inspect.isfunction(value):
            continue
        module, _, name = place.rpartition(".")
        lines = inspect.getsource(importlib.import_module(module)).splitlines()
        (line,) = [number for number, text in enumerate(lines) if text.startswith(f"{name} = ")]
        assert lines[line - 1].startswith("#: "), place


RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=60)
LABELS = Y > 0
NETWORK = {"hidden_layer_sizes": (3,), "schedule": pydirect.TrainingSchedule(n_steps=10)}

FITS = {
    "DirectRegressor": ({}, Y),
    "DirectRegressor, sequential": ({"posterior": "sequential", "n_basis_functions": 20}, Y),
    "DirectRegressor, linear": ({"features": "linear"}, Y),
    "DirectRegressor, transformed": ({"features": "linear", "target_transform": "log"}, np.exp(Y)),
    "DirectRegressor, varying noise": ({"n_basis_functions": 30, "noise": "varying"}, Y),
    "DirectRegressor, Student-t": ({"n_basis_functions": 30, "noise": "student_t"}, Y),
    "DirectClassifier": ({}, LABELS),
    "DirectClassifier, sequential": ({"posterior": "sequential", "n_basis_functions": 20}, LABELS),
    "PooledClassifier": ({"trees": True}, LABELS),
    "PooledRegressor": ({"trees": True}, Y),
    "DirectCountRegressor": ({}, np.floor(np.exp(Y))),
    "DirectCensoredRegressor": ({}, Y),
    "DirectSurvivalRegressor": ({}, np.exp(Y)),
    "DirectOrdinalClassifier": ({}, LABELS),
    "DirectStreamRegressor": ({}, Y),
    "CorrelatedRegressor": ({}, np.column_stack([Y, -Y])),
    "QuadraticBNNRegressor": ({"hidden_layer_sizes": (3,), "n_restarts": 1, "max_iter": 5}, Y),
    "DVIRegressor": (NETWORK, Y),
    "DVIClassifier": (NETWORK, LABELS),
    "MonteCarloBNNRegressor": (NETWORK, Y),
    "MonteCarloBNNClassifier": (NETWORK, LABELS),
}


def fitted_attributes(model):
    """Attributes with a trailing underscore, properties among them, that a fitted model has."""
    names = {name for name in dir(model) if name.endswith("_") and not name.startswith("_")}
    return {name for name in names if hasattr(model, name)}


def undocumented(model):
    return sorted(fitted_attributes(model) - documented(type(model).__doc__, "Attributes"))


def test_all_estimators_are_here():
    found = vars(pydirect.estimators).items()
    classes = {name for name, value in found if inspect.isclass(value) and hasattr(value, "fit")}
    assert classes == {name.split(",")[0] for name in FITS} | {"DirectMixedRegressor", "DirectSearchCV"}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore")
def test_fitted_attributes_are_documented(name):
    parameters, y = FITS[name]
    model = getattr(pydirect.estimators, name.split(",")[0])(**parameters).fit(X, y)
    assert fitted_attributes(model) and undocumented(model) == []


@pytest.mark.filterwarnings("ignore")
def test_attributes_of_searches_and_groups_are_documented():
    search = pydirect.DirectSearchCV(pydirect.DirectRegressor(features="linear"), {"noise": [0.1, 1.0]}).fit(X, Y)
    assert undocumented(search) == []
    groups = pydirect.fit_groups(pydirect.DirectRegressor(n_basis_functions=20), X, Y, np.arange(60) % 2)
    assert undocumented(groups) == []
    assert undocumented(pydirect.DirectMixedRegressor(features="linear").fit(X, Y, np.arange(60) % 5)) == []
