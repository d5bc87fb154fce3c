"""Comparison of parameters by content: equal content compares equal, and changes in place are noticed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np

SCALARS = (str, bytes, bool, int, float, complex, type(None))


@dataclass(frozen=True, eq=False)
class Itself:
    """An object that cannot be pickled, such as a lambda function: equal only to itself."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def content(value: Any, generator_states: bool = False) -> Hashable:
    """Return a hashable key that is equal for values with the same content.

    `value`: estimators are compared by class and parameters, other objects by how they are pickled.
    `generator_states`: whether random generators in different states differ (every draw changes the state), or all
    random generators count as equal.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, SCALARS):
        return "nan" if value != value else value
    if isinstance(value, list | tuple):
        return tuple(content(v, generator_states) for v in value)
    if isinstance(value, dict):
        return frozenset((content(k), content(v, generator_states)) for k, v in value.items())
    if hasattr(value, "get_params") and not isinstance(value, type):
        return content(type(value)), content(value.get_params(deep=False), generator_states)
    if not generator_states and (value is np.random or isinstance(value, np.random.RandomState | np.random.Generator)):
        return "random generator"
    try:
        return str(joblib.hash(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value))
    except Exception:  # the object's own methods may raise anything
        return Itself(value)
