"""Parameters of estimators in headers of files."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np

from pydirect.distributions.priors import PRIORS, MixturePrior, TablePrior
from pydirect.estimators.choices import Fourier, Gaussian, MeanField, Nystroem, Polynomial, Sequential
from pydirect.networks.base import EmpiricalBayes
from pydirect.networks.training import TrainingSchedule
from pydirect.tables.columns import Columns

OBJECTS: dict[str, Any] = {
    **PRIORS,
    "table": TablePrior,
    "mixture": MixturePrior,
    "empirical_bayes": EmpiricalBayes,
    **{
        c.__name__: c
        for c in (TrainingSchedule, Nystroem, Fourier, Polynomial, Gaussian, Sequential, MeanField, Columns)
    },
}


def as_json(name: str, value: Any) -> Any:
    """Return a parameter as a header can hold it: priors and choices by class and fields, arrays as lists.

    Raises TypeError when it is an object of another kind.
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in OBJECTS.values():
        fields = {field: as_json(f"{name}.{field}", getattr(value, field)) for field in _fields(type(value))}
        return {"object": next(k for k, c in OBJECTS.items() if c is type(value)), "fields": fields}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, datetime.timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, tuple):
        return {"tuple": [as_json(name, v) for v in value]}
    if isinstance(value, list):
        return [as_json(name, v) for v in value]
    if isinstance(value, dict):  # a header's keys are strings
        return {"mapping": [[as_json(name, k), as_json(name, v)] for k, v in value.items()]}
    raise TypeError(
        f"{name} must be a number, a string, an array, a timedelta, a prior or another object of pydirect to be saved, "
        f"got {value!r}"
    )


def _fields(cls: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else cls._get_param_names()


def from_json(value: Any) -> Any:
    """Undo `as_json`; arrays come back as lists."""
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "object" in value:
        cls, own = OBJECTS[value["object"]], value["fields"]
        if own.keys() != {*_fields(cls)}:
            raise ValueError(f"{value['object']} must have {_fields(cls)}, got {[*own]}")
        return cls(**{field: from_json(entry) for field, entry in own.items()})
    if "seconds" in value:
        return datetime.timedelta(seconds=value["seconds"])
    if "tuple" in value:
        return tuple(from_json(v) for v in value["tuple"])
    return {k: v for k, v in value["mapping"]}
