"""Fields of saved models: dataclasses as named arrays and header entries, and checks of what is read."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pydirect._validation import as_float_array, as_number

# Bound on the numbers of a fitted model except raw inputs: products of three of them do not overflow.
LARGEST_NUMBER = 1e100
Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


class Writer:
    """Collector of fields: arrays by name, the rest in headers."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def fields(self, value: Any, name: str) -> Header:
        """Return the header of a dataclass, with its ``kind`` if it has one, and collect its arrays."""
        header: Header = {"kind": value.kind} if hasattr(value, "kind") else {}
        for f in dataclasses.fields(value):
            item, key = getattr(value, f.name), f"{name}.{f.name}"
            if isinstance(item, np.ndarray):
                self.arrays[key] = item
            elif dataclasses.is_dataclass(item):
                header[f.name] = self.fields(item, key)
            else:
                header[f.name] = item
        return header


def build(cls: Any, header: Header, arrays: Arrays, name: str, nested: dict[str, Any]) -> Any:
    """Rebuild a dataclass from the header and arrays of `Writer.fields`.

    Parameters
    ----------
    cls : type
    header : dict
    arrays : dict of str to ndarray
    name : str
        Name that it was written under.
    nested : dict of str to type
        Classes of the fields that are dataclasses, or None in the header. A class with a method ``from_fields(header,
        arrays, name)`` is rebuilt by that.
    """
    values: Header = {}
    require_type(header, name, dict)
    names = {f.name for f in dataclasses.fields(cls)}
    if not header.keys() <= names | {"kind"}:
        raise ValueError(f"{name} has no {', '.join(map(repr, header.keys() - names))}")
    for f in dataclasses.fields(cls):
        key = f"{name}.{f.name}"
        if key in arrays:
            values[f.name] = arrays[key]
        elif f.name in nested and header[f.name] is not None:
            inner = nested[f.name]
            own = getattr(inner, "from_fields", None)
            values[f.name] = own(header[f.name], arrays, key) if own else build(inner, header[f.name], arrays, key, {})
        else:
            values[f.name] = header[f.name]
    return cls(**values)


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


def require_positive(value: Any, name: str, *shape: int | str, largest: float = LARGEST_NUMBER) -> None:
    """Raise unless the value is a positive float64 array of this shape."""
    if (require_array(value, name, *shape, largest=largest) <= 0).any():
        raise ValueError(f"{name} must be positive")


def require_type(value: Any, name: str, *types: type) -> None:
    """Raise unless the value is of exactly one of these types."""
    if type(value) not in types:
        raise TypeError(f"{name} must be {' or '.join(t.__name__ for t in types)}, got {type(value).__name__}")
