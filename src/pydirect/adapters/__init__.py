"""What other packages expect: a model for river, a sampler for Optuna."""

import importlib
from typing import Any

# Imported on first use: each needs a package that is optional.
_MODULES = {"DirectSampler": "optuna", "RiverRegressor": "river"}

__all__ = ["DirectSampler", "RiverRegressor"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"pydirect.adapters.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'pydirect.adapters' has no attribute {name!r}")
