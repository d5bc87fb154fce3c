"""Declared fields: what is written comes back, and whatever the annotations do not allow is refused by name."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import types
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import pydirect
from pydirect._validation import FloatArray
from pydirect.persistence import schema
from pydirect.persistence.schema import (
    AnyFinite,
    As,
    AtLeast,
    Between,
    Binds,
    Indices,
    LogMasses,
    OneOf,
    Positive,
    Probabilities,
    Shape,
    Size,
    pack,
    require_all_used,
    unpack,
)
from tests.helpers.saved import verify


@dataclass(eq=False)
class Gaussian:
    kind: ClassVar[str] = "gaussian"
    mean: Annotated[FloatArray, Shape("n_weights")]
    variances: Annotated[FloatArray, Shape("n_weights", "n_outputs"), Positive] | None


@dataclass(eq=False)
class Draws:
    codes: Annotated[NDArray[np.uint8], Shape("n_draws*", "n_weights")]
    log_weights: Annotated[NDArray[np.float32], Shape("n_draws*")]


@dataclass(eq=False)
class Features:
    frequencies: Annotated[FloatArray, Shape("n_inputs", "n_functions"), AnyFinite]
    n_inputs: Annotated[int, Size("n_inputs"), AtLeast(0)]
    order: Annotated[NDArray[np.intp], Shape("n_ordered"), Indices("n_inputs")]
    cached: Any = field(init=False, default=None)

    @property
    def n_weights(self) -> int:
        return self.frequencies.shape[1]


@dataclass(frozen=True)
class SavedCounter:
    n: Annotated[int, AtLeast(0)]


class Counter:
    def __init__(self, n: int) -> None:
        self._n = n

    def to_saved(self) -> SavedCounter:
        return SavedCounter(self._n)

    @classmethod
    def from_saved(cls, saved: SavedCounter) -> Self:
        return cls(saved.n)


@dataclass(eq=False)
class Model:
    posterior: Gaussian | Draws
    others: Annotated[tuple[Gaussian | Draws, ...], Shape("n_outputs")]
    features: Annotated[Features, Binds(n_weights="n_weights")]
    counter: Counter
    names: Annotated[tuple[str, ...], Shape("n_columns")] | None
    parameters: Mapping[str, Hashable]
    by_name: dict[str, Annotated[FloatArray, Shape("n_weights")]]
    widths: Annotated[Any, As(tuple[int, ...] | int)]
    classes: Annotated[np.ndarray, Shape("n_classes")]
    log_prior: Annotated[FloatArray, Shape("n_levels"), Shape("n_weights or 1", "n_levels"), LogMasses]
    q: Annotated[FloatArray, Shape("n_levels"), Probabilities]
    how: Literal["exact", "sampled"]
    smoothness: Annotated[float, OneOf(0.5, 1.5)]
    bounds: tuple[float, float]
    share: Annotated[float, Between(0.0, 1.0)]
    limit: Annotated[float, AtLeast(0.0)] | None = None

    def check(self) -> None:
        if self.bounds[0] > self.bounds[1]:
            raise ValueError("bounds must be in order")


def model(**changes):
    mean = np.ones(3)
    values = {
        "posterior": Gaussian(mean, np.ones((3, 2))),
        "others": (Gaussian(mean, None), Draws(np.zeros((0, 3), np.uint8), np.zeros(0, np.float32))),
        "features": Features(np.full((2, 3), 1e200), 2, np.array([1, 0])),
        "counter": Counter(5),
        "names": ("a", "b"),
        "parameters": {"features": "auto", "levels": ((1.0, 2.0), (None,)), "array": True},
        "by_name": {"ü/": mean, "b": np.zeros(3)},
        "widths": (3, 4),
        "classes": np.array(["no", "yes"]),
        "log_prior": np.array([-np.inf, 0.0]),
        "q": np.array([0.25, 0.75]),
        "how": "exact",
        "smoothness": 1.5,
        "bounds": (0.0, 1.0),
        "share": 0.5,
    }
    return Model(**{**values, **changes})


def stored(**changes):
    header, arrays = pack(model(**changes))
    return json.loads(json.dumps(header)), arrays


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif dataclasses.is_dataclass(one):
        for f in dataclasses.fields(one):
            assert_same(getattr(one, f.name), getattr(other, f.name))
    elif isinstance(one, Counter):
        assert vars(one) == vars(other)
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


def test_everything_comes_back():
    header, arrays = stored()
    back = unpack(Model, header, arrays)
    assert_same(back, model())
    assert back.posterior.mean is back.others[0].mean  # stored once
    assert back.posterior.mean is back.by_name["ü/"]
    assert all(name.isascii() and "/" not in name for name in arrays)
    require_all_used(header, arrays)
    again, arrays_again = pack(back)
    assert json.loads(json.dumps(again)) == header and arrays_again.keys() == arrays.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"posterior": Draws(np.ones((2, 3), np.uint8), np.zeros(2, np.float32))},
        {"names": None, "limit": 2.0, "widths": 7},
        {"log_prior": np.zeros((3, 2))},
        {"log_prior": np.zeros((1, 2))},
        {"classes": np.array([1, 2, 3])},
        {"classes": np.array([True, "x", 2.5], dtype=object)},
        {"parameters": {}, "by_name": {}},
    ],
    ids=lambda changes: ", ".join(changes),
)
def test_alternatives_come_back(changes):
    header, arrays = stored(**changes)
    assert_same(unpack(Model, header, arrays), model(**changes))


def replaced(path, value):
    def change(header, arrays):
        *parents, last = path
        for key in parents:
            header = header[key]
        header[last] = value

    return change


def array(name, value):
    return lambda header, arrays: arrays.update({f"model.{name}": value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(["share"], 1.5), "model.share must be from 0 to 1, got 1.5"),
        (replaced(["share"], 1), "model.share must be float, got int"),
        (replaced(["share"], True), "model.share must be float, got bool"),
        (replaced(["share"], 10**400), "model.share must be float, got int"),
        (replaced(["limit"], -1.0), "model.limit must be at least 0, got -1"),
        (replaced(["limit"], "1"), "model.limit must be float or None, got '1'"),
        (replaced(["limit"], 1e101), "model.limit must be finite and at most 1e[+]100"),
        (replaced(["how"], "other"), "model.how must be one of 'exact', 'sampled', got 'other'"),
        (replaced(["smoothness"], 2.5), "model.smoothness must be one of 0.5, 1.5, got 2.5"),
        (replaced(["bounds"], [2.0, 1.0]), "bounds must be in order"),
        (replaced(["bounds"], [1.0]), "model.bounds must have 2 entries, got 1"),
        (replaced(["bounds"], {}), "model.bounds must be list, got dict"),
        (replaced(["names"], ["a", 1]), r"model.names\[1\] must be str, got int"),
        (replaced(["names"], []), r"model.names must have shape \(n_columns,\) of 1 or more, got \(0,\)"),
        (replaced(["widths"], [10**30]), "at most 9223372036854775807 in magnitude"),
        (replaced(["others"], []), "n_outputs"),
        (replaced(["counter", "n"], -1), "model.counter.n must be at least 0"),
        (replaced(["counter", "kind"], "Model"), "model.counter must be Counter, got 'Model'"),
        (replaced(["posterior", "kind"], "other"), "model.posterior must be gaussian or Draws, got 'other'"),
        (replaced(["posterior", "kind"], []), "model.posterior must be"),
        (replaced(["posterior"], None), "model.posterior must be"),
        (replaced(["posterior", "extra"], 1), "model.posterior must have the entries mean, variances; see 'extra'"),
        (lambda header, arrays: header.pop("share"), "see 'share'"),
        (replaced(["features", "n_inputs"], 3), "model.features.n_inputs must be 2|must be 3|n_inputs = 3"),
        (replaced(["features", "n_inputs"], 10**15), "n_inputs"),
        (replaced(["posterior", "mean"], {"array": "none"}), "got no array of the name 'none'"),
        (replaced(["posterior", "mean"], {"array": []}), "model.posterior.mean must be float64 array"),
        (replaced(["posterior", "mean"], [1.0]), "model.posterior.mean must be float64 array, got list"),
        (replaced(["classes", "dtype"], "<M8[s]"), "model.classes must be text or objects"),
        (replaced(["classes", "dtype"], "<U999999999"), "model.classes must be text"),
        (replaced(["classes", "values"], [{}]), "model.classes must be numbers or strings"),
        (array("posterior.mean", np.ones(4)), "n_weights"),
        (array("posterior.mean", np.ones(3, np.float32)), "must be float64 array, got float32 array"),
        (array("posterior.mean", np.ones((3, 1))), r"must have shape \(n_weights,\)"),
        (array("posterior.mean", np.array([1.0, np.nan, 1.0])), "mean must be finite"),
        (array("posterior.mean", np.array([1.0, 1e101, 1.0])), "mean must be finite and at most"),
        (array("posterior.variances", np.zeros((3, 2))), "model.posterior.variances must be positive"),
        (array("posterior.variances", np.ones((3, 0))), "n_outputs = "),
        (array("features.order", np.array([0, 2])), "model.features.order must be indices below 2, the n_inputs"),
        (array("features.order", np.array([0, -1])), "model.features.order must be indices below 2"),
        (array("features.frequencies", np.full((2, 3), np.inf)), "must be finite"),
        (array("features.frequencies", np.ones((2, 4))), "n_weights"),
        (array("log_prior", np.array([np.inf, 0.0])), "model.log_prior must be below infinity"),
        (array("log_prior", np.array([np.nan, 0.0])), "model.log_prior must be below infinity"),
        (array("q", np.array([0.5, 0.6])), "model.q must be probabilities along the last axis"),
        (array("q", np.array([1.0])), "n_levels = 2"),
        (array("others.1.log_weights", np.zeros(1, np.float32)), "n_draws|n_weights"),
        (array("by_name.1", np.zeros(4)), r"model.by_name\['b'\] must have shape"),
    ],
)
def test_what_annotations_do_not_allow_is_refused_by_name(change, message):
    header, arrays = stored()
    change(header, arrays)
    with pytest.raises((TypeError, ValueError), match=message):
        unpack(Model, header, arrays)


def test_sizes_of_the_caller_hold():
    posterior = Gaussian(np.ones(3), np.ones((3, 2)))
    verify(posterior, n_weights=3, n_outputs=2)
    with pytest.raises(ValueError, match=r"posterior.mean must have shape \(n_weights,\) where n_weights = 4"):
        verify(posterior, "posterior", n_weights=4)
    with pytest.raises(TypeError, match="must be Draws, got 'gaussian'"):
        unpack((Draws,), *pack(posterior))


def test_an_array_to_which_nothing_refers_is_found():
    header, arrays = stored()
    with pytest.raises(ValueError, match="does not refer to the arrays 'extra'"):
        require_all_used(header, {**arrays, "extra": np.ones(1)})


class Alias:
    """``NDArray`` as NumPy has it from 2.5 on: an alias that is subscripted with the scalars."""

    def __init__(self) -> None:
        self.__value__ = NDArray[TypeVar("Scalar", bound=np.generic)]

    def __getitem__(self, scalars: Any) -> types.GenericAlias:
        return types.GenericAlias(self, scalars)


def test_type_aliases_stand_for_what_they_name():
    hint = Annotated[Alias()[np.float64], Shape("n")]
    aliased = dataclasses.make_dataclass("Aliased", [("mean", hint)])
    header, arrays = pack(aliased(np.arange(3.0)))
    np.testing.assert_array_equal(unpack(aliased, header, arrays).mean, [0.0, 1.0, 2.0])
    with pytest.raises(TypeError, match="must be float64 array"):
        unpack(aliased, header, {name: own.astype(np.float32) for name, own in arrays.items()})


def test_annotations_of_all_stored_classes_can_be_read():
    found = 0
    for info in pkgutil.walk_packages(pydirect.__path__, "pydirect."):
        try:
            module = importlib.import_module(info.name) if not info.name.endswith("__main__") else pydirect
        except ImportError:  # of an extra
            continue
        if "persistence.schema import" not in Path(module.__file__).read_text(encoding="utf-8", errors="ignore"):
            continue
        for cls in vars(module).values():
            if inspect.isclass(cls) and "Annotated[" in str(vars(cls).get("__annotations__")):
                schema._hints(cls)
                found += 1
    assert found > 20
