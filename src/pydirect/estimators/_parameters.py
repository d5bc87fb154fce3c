"""Parameters of estimators in headers of files."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np

from pydirect.distributions.mixture_priors import MixturePrior
from pydirect.distributions.priors import PRIORS, TablePrior
from pydirect.networks.prior import EmpiricalBayes

PRIOR_CLASSES: dict[str, Any] = {
    **PRIORS,
    "table": TablePrior,
    "mixture": MixturePrior,
    "empirical_bayes": EmpiricalBayes,
}


def as_json(name: str, value: Any) -> Any:
    """Return a parameter as a header can hold it: priors by class and fields, arrays as lists.

    Raises TypeError when it is an object of another kind.
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in PRIOR_CLASSES.values():
        fields = {f.name: as_json(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"prior": next(k for k, c in PRIOR_CLASSES.items() if c is type(value)), **fields}
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
        f"{name} must be a number, a string, an array, a timedelta or a prior of pydirect to be saved, got {value!r}"
    )


def from_json(value: Any) -> Any:
    """Undo `as_json`; arrays come back as lists."""
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "prior" in value:
        prior = PRIOR_CLASSES[value["prior"]]
        return prior(**{f.name: from_json(value[f.name]) for f in dataclasses.fields(prior)})
    if "seconds" in value:
        return datetime.timedelta(seconds=value["seconds"])
    if "tuple" in value:
        return tuple(from_json(v) for v in value["tuple"])
    return {k: v for k, v in value["mapping"]}
