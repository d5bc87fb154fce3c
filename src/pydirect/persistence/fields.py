"""Fields of saved models: dataclasses as named arrays and header entries, and checks of what is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from pydirect._validation import as_float_array, as_float_array_unbounded, as_number

# Bound on the numbers of a fitted model except raw inputs: products of three of them do not overflow.
LARGEST_NUMBER = 1e100
# Key of the name under which another field has the same array.
SHARED = "array"
Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


class Writer:
    """Collector of fields: arrays by name, the rest in headers. An array that several fields share is kept once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[int, str] = {}

    def fields(self, value: Any, name: str) -> Header:
        """Return the header of a dataclass, with its kind, and collect its arrays."""
        header: Header = {"kind": _kind(type(value))}
        for f in dataclasses.fields(value):
            item, key = getattr(value, f.name), f"{name}.{f.name}"
            if isinstance(item, np.ndarray) and self._names.setdefault(id(item), key) != key:
                header[f.name] = {SHARED: self._names[id(item)]}
            elif isinstance(item, np.ndarray):
                self.arrays[key] = item
            elif dataclasses.is_dataclass(item):
                header[f.name] = self.fields(item, key)
            else:
                header[f.name] = item
        return header


def build(cls: Any, header: Header, arrays: Arrays, name: str) -> Any:
    """Rebuild a dataclass from the header and arrays of `Writer.fields`.

    Fields whose annotations are dataclasses are rebuilt likewise, or by their classes' own ``from_fields(header,
    arrays, name)``; of several classes the header's ``kind`` chooses.

    `name`: name that it was written under.
    """
    values: Header = {}
    require_type(header, name, dict)
    parts = _parts(cls)
    names = {f.name for f in dataclasses.fields(cls)}
    if not header.keys() <= names | {"kind"}:
        raise ValueError(f"{name} has no {', '.join(map(repr, header.keys() - names))}")
    for f in dataclasses.fields(cls):
        key = f"{name}.{f.name}"
        if key in arrays:
            values[f.name] = arrays[key]
        elif isinstance(header[f.name], dict) and SHARED in header[f.name]:
            values[f.name] = arrays[header[f.name][SHARED]]
        elif f.name in parts and isinstance(header[f.name], dict):
            values[f.name] = build_one(parts[f.name].classes, header[f.name], arrays, key)
        else:
            if f.name in parts and not ((parts[f.name].optional and header[f.name] is None) or parts[f.name].others):
                raise TypeError(f"{key} must be a dict, got {type(header[f.name]).__name__}")
            values[f.name] = header[f.name]
    return cls(**values)


def build_one(classes: Sequence[Any], header: Header, arrays: Arrays, name: str) -> Any:
    """Rebuild a dataclass of one of these classes, the one that the header's ``kind`` names."""
    require_type(header, name, dict)
    require_type(header["kind"], "kind", str)
    cls = {_kind(c): c for c in classes}[header["kind"]]
    return cls.from_fields(header, arrays, name) if hasattr(cls, "from_fields") else build(cls, header, arrays, name)


def _kind(cls: Any) -> str:
    return str(getattr(cls, "kind", cls.__name__))


class _Part(NamedTuple):
    """What a field may hold: dataclasses, None, values of other types."""

    classes: tuple[Any, ...]
    optional: bool
    others: bool


@cache
def _parts(cls: Any) -> dict[str, _Part]:
    """Return what the fields may hold that may hold a dataclass, by name."""
    hints, parts = get_type_hints(cls), {}
    for f in dataclasses.fields(cls):
        types = get_args(hints[f.name]) or (hints[f.name],)
        classes = tuple(t for t in types if dataclasses.is_dataclass(t))
        if classes:
            optional = type(None) in types
            parts[f.name] = _Part(classes, optional, len(types) > len(classes) + optional)
    return parts


def classes_to_header(classes: np.ndarray) -> Header:
    """Return class labels as a header entry."""
    values = classes.tolist()
    if classes.dtype.kind not in "biufUO" or not all(isinstance(v, bool | int | float | str) for v in values):
        raise TypeError(f"classes must be numbers or strings to be saved, got {classes.dtype} {values[0]!r}")
    return {"dtype": classes.dtype.str, "values": values}


def classes_from_header(header: Header) -> np.ndarray:
    """Return the class labels of `classes_to_header`, or raise unless they are two or more distinct values."""
    require_type(header["dtype"], "dtype of classes", str)
    require_type(header["values"], "classes", list)
    if header["dtype"][1:2] not in tuple("biufUO"):  # others include deprecated names, at which NumPy warns
        raise TypeError(f"classes must be numbers or strings, got {header['dtype']}")
    dtype = np.dtype(header["dtype"])
    if not all(isinstance(v, bool | int | float | str) for v in header["values"]):
        raise TypeError(f"classes must be numbers or strings, got {dtype}")
    classes = np.array(header["values"], dtype=dtype)
    if len(classes) < 2 or classes.tolist() != header["values"] or len(set(header["values"])) != len(classes):
        raise ValueError("classes must be two or more different values")
    return classes


def require_array(value: Any, name: str, *shape: int | str, largest: float = LARGEST_NUMBER) -> np.ndarray:
    """Return a finite float64 array of this shape, at most `largest` in magnitude, or raise."""
    require_float64(value, name)
    array = as_float_array(value, name, shape)
    if np.abs(array).max(initial=0.0) > largest:
        raise ValueError(f"{name} must be at most {largest:g} in magnitude, got {np.abs(array).max():g}")
    return array


def require_number(value: Any, name: str, **bounds: float) -> float:
    """Return a float within bounds, or raise."""
    require_type(value, name, float)
    return as_number(value, name, **bounds)


def require_float64(value: Any, name: str) -> None:
    """Raise unless the value is a float64 array."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        got = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{name} must be a float64 array, got {got}")


def require_single(value: Any, name: str, *shape: int | str) -> None:
    """Raise unless the value is a finite float32 array of this shape."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        raise TypeError(f"{name} must be a float32 array, got {getattr(value, 'dtype', type(value).__name__)}")
    as_float_array(value, name, shape)


def require_positive(value: Any, name: str, *shape: int | str, largest: float = LARGEST_NUMBER) -> None:
    """Raise unless the value is a positive float64 array of this shape."""
    if (require_array(value, name, *shape, largest=largest) <= 0).any():
        raise ValueError(f"{name} must be positive")


def require_type(value: Any, name: str, *types: type) -> None:
    """Raise unless the value is of exactly one of these types."""
    if type(value) not in types:
        raise TypeError(f"{name} must be {' or '.join(t.__name__ for t in types)}, got {type(value).__name__}")


def require_probabilities(value: Any, name: str, *shape: int | str) -> None:
    """Raise unless the value is a float64 array of this shape whose last axis holds probabilities."""
    mass = require_array(value, name, *shape)
    if (mass < 0).any() or not np.allclose(mass.sum(axis=-1), 1.0, rtol=0, atol=1e-6):
        raise ValueError(f"{name} must be probabilities")


def require_log_masses(value: Any, name: str, *shape: int | str) -> None:
    """Raise unless the value is a float64 array of this shape below infinity."""
    require_float64(value, name)
    if not (as_float_array_unbounded(value, name, shape) < np.inf).all():
        raise ValueError(f"{name} must be below infinity")
