"""Fitted regressors as documents: every array and number that prediction needs, and nothing that runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pydirect
from pydirect.decorrelated import DecorrelatedPosterior
from pydirect.distributions import PRIORS, FactorizedCategorical
from pydirect.features import (
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
)
from pydirect.hyperparameters import KernelHyperparameters
from pydirect.inputs import InputMap
from pydirect.models import MeanFieldPosterior, NoisePosterior
from pydirect.persistence import CorruptFileError, read, write

if TYPE_CHECKING:
    from pydirect.estimators.regression import DirectRegressor

KIND = "pydirect.DirectRegressor"
FEATURE_CLASSES: dict[str, Any] = {
    c.kind: c for c in (PrecomputedFeatures, LinearFeatures, PolynomialFeatures, FourierFeatures, NystroemFeatures)
}

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


class _Writer:
    """Collects fields: arrays under names, the rest in a header."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}

    def fields(self, value: Any, name: str) -> Header:
        """Return the header of a dataclass; its arrays go to `arrays`."""
        header: Header = {}
        for f in dataclasses.fields(value):
            item, key = getattr(value, f.name), f"{name}.{f.name}"
            if isinstance(item, np.ndarray):
                self.arrays[key] = item
            elif dataclasses.is_dataclass(item):
                header[f.name] = self.fields(item, key)
            else:
                header[f.name] = item
        return header


def _build(cls: Any, header: Header, arrays: Arrays, name: str, nested: dict[str, Any]) -> Any:
    """Rebuild a dataclass from what `_Writer.fields` made of it."""
    values: Header = {}
    for f in dataclasses.fields(cls):
        key = f"{name}.{f.name}"
        if key in arrays:
            values[f.name] = arrays[key]
        elif f.name in nested:
            values[f.name] = _build(nested[f.name], header[f.name], arrays, key, {})
        else:
            values[f.name] = header[f.name]
    return cls(**values)


def save_regressor(model: DirectRegressor, path: str | Path, metadata: dict[str, Any] | None) -> None:
    """Write a fitted regressor; see `DirectRegressor.save`."""
    if isinstance(model.features_, TransformerFeatures):
        raise TypeError(
            "features must be built in to be saved without pickle, got a transformer: save its output's model with "
            "features='precomputed', or pickle the whole model"
        )
    writer = _Writer()
    parameters = {k: _as_json(k, v) for k, v in model.get_params(deep=False).items()}
    header: Header = {
        "library": pydirect.__version__,
        "parameters": parameters,
        "metadata": metadata or {},
        "input_map": writer.fields(model.input_map_, "input_map"),
        "features": {"kind": model.features_.kind, **writer.fields(model.features_, "features")},
        "hyperparameters": model.hyperparameters_ is not None
        and writer.fields(model.hyperparameters_, "hyperparameters"),
        "posteriors": [
            {"decorrelated": isinstance(p, DecorrelatedPosterior), **writer.fields(p, f"posterior{k}")}
            for k, p in enumerate(model.posteriors_)
        ],
        "one_dimensional": model._one_dimensional,
        "n_features_in": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        "calibration_scale": model.calibration_scale_,
        "mean_missing_variance": model.mean_missing_variance_,
        "n_samples": model.n_samples_,
        "fit_seconds": model.fit_seconds_,
    }
    arrays = {name: getattr(model, f"{name}_") for name in ("y_mean", "y_scale", "prior_scale", "coefficients")}
    write(path, KIND, header, {**writer.arrays, **arrays})


def _as_json(name: str, value: Any) -> Any:
    """Return a parameter as a header can hold it: priors by class and fields, arrays as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in PRIORS.values():
        fields = {f.name: _as_json(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"prior": next(k for k, c in PRIORS.items() if c is type(value)), **fields}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_as_json(name, v) for v in value]
    raise TypeError(f"{name} must be a number, a string, an array or a prior of pydirect to be saved, got {value!r}")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and "prior" in value:
        fields = {k: _from_json(v) for k, v in value.items() if k != "prior"}
        return PRIORS[value["prior"]](**fields)
    return value


def load_regressor(path: str | Path) -> DirectRegressor:
    """Read a regressor; see `pydirect.load`."""
    from pydirect.estimators.regression import DirectRegressor

    document = read(path, KIND)
    try:
        return _restore(DirectRegressor, document.header, document.arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptFileError(f"{path}: the file is whole but its contents do not make a model ({error})") from error


def _restore(cls: type[DirectRegressor], header: Header, arrays: Arrays) -> DirectRegressor:
    model = cls(**{k: _from_json(v) for k, v in header["parameters"].items()})
    model.metadata_ = header["metadata"]
    model.input_map_ = _build(InputMap, header["input_map"], arrays, "input_map", {})
    features = FEATURE_CLASSES[header["features"]["kind"]]
    nested = {"hyperparameters": KernelHyperparameters} if features is NystroemFeatures else {}
    model.features_ = _build(features, header["features"], arrays, "features", nested)
    model.hyperparameters_ = (
        _build(KernelHyperparameters, header["hyperparameters"], arrays, "hyperparameters", {})
        if header["hyperparameters"]
        else None
    )
    model.posteriors_ = [
        _build(
            DecorrelatedPosterior if h["decorrelated"] else MeanFieldPosterior,
            h,
            arrays,
            f"posterior{k}",
            {"weights": FactorizedCategorical, "noise": NoisePosterior},
        )
        for k, h in enumerate(header["posteriors"])
    ]
    for name in ("y_mean", "y_scale", "prior_scale", "coefficients"):
        setattr(model, f"{name}_", arrays[name])
    model._one_dimensional = header["one_dimensional"]
    model.n_features_in_ = header["n_features_in"]
    if header["feature_names"]:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.calibration_scale_ = header["calibration_scale"]
    model.mean_missing_variance_ = header["mean_missing_variance"]
    model.n_samples_ = header["n_samples"]
    model.fit_seconds_ = header["fit_seconds"]
    model._set_results()
    return model
