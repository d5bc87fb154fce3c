"""What the package offers: rooms, their names, and the members of their classes."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

import pydirect

OPERATORS = ("__call__", "__add__", "__sub__", "__getitem__")


def rooms() -> dict[str, Any]:
    """`pydirect` itself, then its rooms, by their full names."""
    found = [value for name in pydirect.__all__ if inspect.ismodule(value := getattr(pydirect, name))]
    return {module.__name__: module for module in (pydirect, *sorted(found, key=lambda module: module.__name__))}


def names_of(module: Any) -> list[str]:
    """Public names of a room that are no rooms: those of `__all__`, or what a folder imports or a file defines."""
    names = getattr(module, "__all__", None) or sorted(vars(module))
    if not hasattr(module, "__path__"):
        names = [name for name in names if getattr(getattr(module, name), "__module__", "") == module.__name__]
    return [name for name in names if not name.startswith("_") and not inspect.ismodule(getattr(module, name))]


def places() -> dict[str, str]:
    """The place of every public name under every place that it has, `pydirect.direct.fit_mixture` for one."""
    top = set(names_of(pydirect))
    return {
        f"{room}.{name}": f"pydirect.{name}" if name in top else f"{room}.{name}"
        for room, module in rooms().items()
        for name in names_of(module)
    }


def members(cls: type) -> dict[str, Any]:
    """Public methods and properties of a class that are written in pydirect, with their raw values, by name.

    Fitted attributes that are properties are described among the attributes of their class alone.
    """
    found = {}
    for name in sorted(dir(cls), key=lambda name: (name.startswith("_"), name)):  # operators come last
        holder = next((c for c in cls.__mro__ if name in vars(c)), None)
        if holder is None or not holder.__module__.startswith("pydirect."):
            continue
        value = vars(holder)[name]
        kind = (property, cached_property, classmethod, staticmethod)
        documented = name in OPERATORS and bool(getattr(value, "__doc__", None))
        available_if = type(value).__name__ == "_AvailableIfDescriptor"
        if isinstance(value, property) and not value.__doc__ and name.endswith("_"):
            continue
        if (documented or not name.startswith("_")) and (
            inspect.isfunction(value) or isinstance(value, kind) or available_if
        ):
            found[name] = value
    return found


def inherited(cls: type) -> list[str]:
    """Public methods of a class that come from scikit-learn."""
    return [
        name
        for name in dir(cls)
        if not name.startswith("_") and name not in members(cls) and callable(getattr(cls, name, None))
        if any(name in vars(c) and c.__module__.startswith("sklearn.") for c in cls.__mro__)
        or type(inspect.getattr_static(cls, name)).__name__ == "RequestMethod"
    ]
