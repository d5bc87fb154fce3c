"""Fitted estimators as documents: every array and number that prediction needs, and nothing that runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pydirect
from pydirect._threads import resolve_n_threads
from pydirect._validation import as_choice, as_count, as_float_array, as_float_array_unbounded, as_number
from pydirect.coreset import NetworkCoreset
from pydirect.decorrelated import DecorrelatedPosterior
from pydirect.deterministic import DeterministicNetwork, EmpiricalBayes
from pydirect.deterministic_training import DeterministicPosterior
from pydirect.distributions import PRIORS, FactorizedCategorical, TablePrior
from pydirect.features import (
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
)
from pydirect.hyperparameters import KernelHyperparameters
from pydirect.inputs import LARGEST, InputMap, Rotation
from pydirect.mixture_priors import MixturePrior
from pydirect.mixtures import MixturePosterior
from pydirect.models import MeanFieldPosterior, NoisePosterior
from pydirect.persistence import CorruptFileError, read, write
from pydirect.quadratic_network import NetworkPosterior, NetworkShape
from pydirect.quadratic_training import NETWORK_ENGINES
from pydirect.sampled_network import SampledNetwork, SampledPosterior

if TYPE_CHECKING:
    from pydirect.estimators._base import LatentFunctions, ProbabilisticRegressor
    from pydirect.estimators._basis import BasisFunctionModel
    from pydirect.estimators.classification import DirectClassifier
    from pydirect.estimators.deterministic import DeterministicNetworkModel, DVIClassifier, DVIRegressor
    from pydirect.estimators.quadratic_network import QuadraticBNNRegressor
    from pydirect.estimators.regression import DirectRegressor
    from pydirect.estimators.sampled_network import MonteCarloBNNClassifier, MonteCarloBNNRegressor

FEATURE_CLASSES: dict[str, Any] = {
    c.kind: c for c in (PrecomputedFeatures, LinearFeatures, PolynomialFeatures, FourierFeatures, NystroemFeatures)
}
PRIOR_CLASSES: dict[str, Any] = {
    **PRIORS,
    "table": TablePrior,
    "mixture": MixturePrior,
    "empirical_bayes": EmpiricalBayes,
}
POSTERIOR_CLASSES: dict[str, Any] = {
    "mean_field": MeanFieldPosterior,
    "decorrelated": DecorrelatedPosterior,
    "mixture": MixturePosterior,
}

# Numbers of a fitted model, raw inputs apart, stay below: products of three of them do not overflow.
LARGEST_NUMBER = 1e100
# Attributes ``<name>_`` that a header holds as they are.
SHARED_ITEMS = ("n_samples", "fit_seconds")

# Its square must stay finite.
LARGEST_CALIBRATION_SCALE = 1e150

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
    _is(header, name, dict)
    names = {f.name for f in dataclasses.fields(cls)}
    if not header.keys() <= names | {"kind"}:
        raise ValueError(f"{name} has no {', '.join(map(repr, header.keys() - names))}")
    for f in dataclasses.fields(cls):
        key = f"{name}.{f.name}"
        if key in arrays:
            values[f.name] = arrays[key]
        elif f.name in nested:
            values[f.name] = _build(nested[f.name], header[f.name], arrays, key, {})
        else:
            values[f.name] = header[f.name]
    return cls(**values)


def save_model(model: LatentFunctions, path: str | Path, metadata: dict[str, Any] | None) -> None:
    """Write a fitted estimator of a kind in `LAYOUTS`; see the estimators' ``save``."""
    kind = f"pydirect.{type(model).__name__}"
    layout, writer = LAYOUTS[kind], _Writer()
    written = layout.write(model, writer)  # first: it tells features that cannot be saved
    header: Header = {
        "library": pydirect.__version__,
        "parameters": {k: _as_json(k, v) for k, v in model.get_params(deep=False).items()},
        "metadata": getattr(model, "metadata_", {}) if metadata is None else metadata,
        "input_map": writer.fields(model.input_map_, "input_map"),
        "one_dimensional": model._one_dimensional,
        "n_features_in": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        **{name: getattr(model, f"{name}_") for name in (*SHARED_ITEMS, *layout.items)},
        **written,
    }
    arrays = {name: getattr(model, f"{name}_") for name in layout.arrays}
    write(path, kind, header, {**writer.arrays, **arrays})


def _write_basis(model: BasisFunctionModel, writer: _Writer) -> Header:
    if isinstance(model.features_, TransformerFeatures):
        raise TypeError(
            "features must be built in to be saved without pickle, got a transformer: save its output's model with "
            "features='precomputed', or pickle the whole model"
        )
    return {
        "features": {"kind": model.features_.kind, **writer.fields(model.features_, "features")},
        "hyperparameters": model.hyperparameters_ is not None
        and writer.fields(model.hyperparameters_, "hyperparameters"),
        "posteriors": [
            {"kind": next(n for n, c in POSTERIOR_CLASSES.items() if c is type(p)), **writer.fields(p, f"posterior{k}")}
            for k, p in enumerate(model.posteriors_)
        ],
        # Files of models that have it not are as old as version 0.1.0.
        **({"feature_y_scale": model.feature_y_scale_.tolist()} if hasattr(model, "feature_y_scale_") else {}),
    }


def _write_classifier(model: DirectClassifier, writer: _Writer) -> Header:
    return {"classes": _classes_to_header(model.classes_), **_write_basis(model, writer)}


def _classes_to_header(classes: np.ndarray) -> Header:
    values = classes.tolist()
    if classes.dtype.kind not in "biufUO" or not all(isinstance(v, bool | int | float | str) for v in values):
        raise TypeError(f"classes must be numbers or strings to be saved, got {classes.dtype} {values[0]!r}")
    return {"dtype": classes.dtype.str, "values": values}


def _classes_from_header(header: Header) -> np.ndarray:
    dtype = np.dtype(header["dtype"])
    _is(header["values"], "classes", list)
    if dtype.kind not in "biufUO" or not all(isinstance(v, bool | int | float | str) for v in header["values"]):
        raise TypeError(f"classes must be numbers or strings, got {dtype}")
    classes = np.array(header["values"], dtype=dtype)
    if len(classes) < 2 or classes.tolist() != header["values"] or len(set(header["values"])) != len(classes):
        raise ValueError("classes must be two or more different values")
    return classes


def _write_network(model: QuadraticBNNRegressor, writer: _Writer) -> Header:
    coreset = getattr(model, "coreset_", None)
    return {
        "rotation": writer.fields(model.rotation_, "rotation"),
        "posteriors": [writer.fields(p, f"posterior{k}") for k, p in enumerate(model.posteriors_)],
        "coreset": coreset is not None and writer.fields(coreset, "coreset"),
    }


def _write_deterministic(model: DeterministicNetworkModel, writer: _Writer) -> Header:
    return {"posteriors": [writer.fields(p, f"posterior{k}") for k, p in enumerate(model.posteriors_)]}


def _write_deterministic_classifier(model: DVIClassifier, writer: _Writer) -> Header:
    return {"classes": _classes_to_header(model.classes_), **_write_deterministic(model, writer)}


def _as_json(name: str, value: Any) -> Any:
    """Return a parameter as a header can hold it: priors by class and fields, arrays as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in PRIOR_CLASSES.values():
        fields = {f.name: _as_json(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"prior": next(k for k, c in PRIOR_CLASSES.items() if c is type(value)), **fields}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_as_json(name, v) for v in value]
    if isinstance(value, dict):  # a header's keys are strings
        return {"mapping": [[_as_json(name, k), _as_json(name, v)] for k, v in value.items()]}
    raise TypeError(f"{name} must be a number, a string, an array or a prior of pydirect to be saved, got {value!r}")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and "prior" in value:
        prior = PRIOR_CLASSES[value["prior"]]
        return prior(**{f.name: _from_json(value[f.name]) for f in dataclasses.fields(prior)})
    if isinstance(value, dict):
        return {k: v for k, v in value["mapping"]}
    return [_from_json(v) for v in value] if isinstance(value, list) else value


def load(path: str | Path) -> Any:
    """Read a model written by an estimator's ``save``; it predicts bit for bit the same.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    estimator
        Of the class that was saved.

    Raises
    ------
    pydirect.persistence.FileFormatError
        With the reason, when the file is truncated, altered, of a later version or not a model.
    """
    document = read(path, tuple(LAYOUTS))
    layout = LAYOUTS[document.kind]
    try:
        with np.errstate(over="raise", invalid="raise"):  # no fitted model's numbers overflow
            return _restore(layout, document.header, document.arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        reason = f"the file is whole but its contents do not make a model ({type(error).__name__}: {error})"
        raise CorruptFileError(path, reason) from error


def _restore(layout: Layout, header: Header, arrays: Arrays) -> LatentFunctions:
    parameters = {k: _from_json(v) for k, v in header["parameters"].items()}
    if isinstance(parameters.get("hidden_layer_sizes"), list):
        parameters["hidden_layer_sizes"] = tuple(parameters["hidden_layer_sizes"])
    model = getattr(pydirect, layout.estimator)(**parameters)
    model.metadata_ = header["metadata"]
    model.input_map_ = _build(InputMap, header["input_map"], arrays, "input_map", {})
    for name in layout.arrays:
        setattr(model, f"{name}_", arrays[name])
    for name in (*SHARED_ITEMS, *layout.items):
        setattr(model, f"{name}_", header[name])
    model._one_dimensional = header["one_dimensional"]
    model.n_features_in_ = header["n_features_in"]
    if header["feature_names"]:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    layout.restore(model, header, arrays)
    layout.check(model, _check(model, header))
    model._set_results()
    return model


def _restore_basis(model: BasisFunctionModel, header: Header, arrays: Arrays) -> None:
    if header["features"].get("n_features_in", model.input_map_.n_outputs) != model.input_map_.n_outputs:
        raise ValueError("features do not take the inputs")
    features = FEATURE_CLASSES[header["features"]["kind"]]
    nested = {"hyperparameters": KernelHyperparameters} if features is NystroemFeatures else {}
    model.features_ = _build(features, header["features"], arrays, "features", nested)
    model.hyperparameters_ = (
        _build(KernelHyperparameters, header["hyperparameters"], arrays, "hyperparameters", {})
        if header["hyperparameters"] is not False
        else None
    )
    if "feature_y_scale" in header:
        model.feature_y_scale_ = np.array(header["feature_y_scale"], dtype=np.float64)
        _positive(model.feature_y_scale_, "feature_y_scale", len(header["posteriors"]))
    model.posteriors_ = [
        _build(
            POSTERIOR_CLASSES[h["kind"]],
            h,
            arrays,
            f"posterior{k}",
            {"noise": NoisePosterior, **({} if h["kind"] == "mixture" else {"weights": FactorizedCategorical})},
        )
        for k, h in enumerate(header["posteriors"])
    ]


def _restore_classifier(model: DirectClassifier, header: Header, arrays: Arrays) -> None:
    model.classes_ = _classes_from_header(header["classes"])
    _restore_basis(model, header, arrays)


def _restore_network(model: QuadraticBNNRegressor, header: Header, arrays: Arrays) -> None:
    model.rotation_ = _build(Rotation, header["rotation"], arrays, "rotation", {})
    nested = {"weights": FactorizedCategorical, "noise": NoisePosterior, "shape": NetworkShape}
    model.posteriors_ = [
        _build(NetworkPosterior, h, arrays, f"posterior{k}", nested) for k, h in enumerate(header["posteriors"])
    ]
    if header["coreset"] is not False:
        model.coreset_ = _build(NetworkCoreset, header["coreset"], arrays, "coreset", {})


def _restore_deterministic(model: DeterministicNetworkModel, header: Header, arrays: Arrays) -> None:
    model.posteriors_ = _network_posteriors(header, arrays, DeterministicPosterior, DeterministicNetwork)


def _restore_sampled(model: MonteCarloBNNRegressor, header: Header, arrays: Arrays) -> None:
    model.posteriors_ = _network_posteriors(header, arrays, SampledPosterior, SampledNetwork)


def _restore_sampled_classifier(model: MonteCarloBNNClassifier, header: Header, arrays: Arrays) -> None:
    model.classes_ = _classes_from_header(header["classes"])
    model.posteriors_ = _network_posteriors(header, arrays, SampledPosterior, SampledNetwork)


def _network_posteriors(header: Header, arrays: Arrays, posterior: Any, network: Any) -> list[Any]:
    return [
        dataclasses.replace(
            _build(posterior, h, arrays, f"posterior{k}", {}), network=_network_from_header(h["network"], network)
        )
        for k, h in enumerate(header["posteriors"])
    ]


def _network_from_header(header: Header, network: Any) -> Any:
    prior = header["prior"]
    return network(**{**header, "prior": EmpiricalBayes(**prior) if isinstance(prior, dict) else prior})


def _restore_deterministic_classifier(model: DVIClassifier, header: Header, arrays: Arrays) -> None:
    model.classes_ = _classes_from_header(header["classes"])
    _restore_deterministic(model, header, arrays)


def _array(value: Any, name: str, *shape: int | str, largest: float = LARGEST_NUMBER) -> np.ndarray:
    _is_float64(value, name)
    array = as_float_array(value, name, shape)
    if np.abs(array).max(initial=0.0) > largest:
        raise ValueError(f"{name} must be at most {largest:g} in magnitude, got {np.abs(array).max():g}")
    return array


def _number(value: Any, name: str, **bounds: float) -> float:
    _is(value, name, float)
    return as_number(value, name, **bounds)


def _is_float64(value: Any, name: str) -> None:
    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        got = f"{value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"{name} must be a float64 array, got {got}")


def _log_masses(value: Any, name: str, *shape: int | str) -> None:
    _is_float64(value, name)
    if not (as_float_array_unbounded(value, name, shape) < np.inf).all():
        raise ValueError(f"{name} must be below infinity")


def _positive(value: Any, name: str, *shape: int | str, largest: float = LARGEST_NUMBER) -> None:
    if (_array(value, name, *shape, largest=largest) <= 0).any():
        raise ValueError(f"{name} must be positive")


def _masses(value: Any, name: str, *shape: int | str) -> None:
    mass = _array(value, name, *shape)
    if (mass < 0).any() or not np.allclose(mass.sum(axis=-1), 1.0, rtol=0, atol=1e-6):
        raise ValueError(f"{name} must be probabilities")


def _is(value: Any, name: str, *types: type) -> None:
    if type(value) not in types:
        raise TypeError(f"{name} must be {' or '.join(t.__name__ for t in types)}, got {type(value).__name__}")


def _check(model: Any, header: Header) -> int:
    """Raise unless all that estimators share has its type and shape and fits the rest; return the inputs' number."""
    model._check_parameters()
    resolve_n_threads(model.n_threads)
    d, n_outputs = as_count(model.n_features_in_, "n_features_in"), len(model.posteriors_)
    names = header["feature_names"]
    _is(names, "feature_names", list)
    if len(names) not in (0, d) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"feature_names must be {d} strings or none")
    _is(header["metadata"], "metadata", dict)
    _is(header["fit_seconds"], "fit_seconds", dict)
    _is(header["one_dimensional"], "one_dimensional", bool)
    if n_outputs != 1 and (n_outputs == 0 or header["one_dimensional"]):
        raise ValueError("posteriors do not fit the outputs")
    _number(model.n_samples_, "n_samples", above=0.0)
    return _check_input_map(model.input_map_, d)


def _check_targets(model: ProbabilisticRegressor) -> None:
    _number(model.calibration_scale_, "calibration_scale", above=0.0, at_most=LARGEST_CALIBRATION_SCALE)
    _array(model.y_mean_, "y_mean", len(model.posteriors_))
    _positive(model.y_scale_, "y_scale", len(model.posteriors_))


def _check_basis(model: BasisFunctionModel, n_inputs: int) -> None:
    n_outputs = len(model.posteriors_)
    _number(model.mean_missing_variance_, "mean_missing_variance", at_least=0.0)
    if model.hyperparameters_ is not None:
        _check_hyperparameters(model.hyperparameters_, n_inputs)
    _check_features(model.features_, n_inputs)
    b = model.features_.n_weights
    _positive(model.prior_scale_, "prior_scale", n_outputs)
    _array(model.coefficients_, "coefficients", b, n_outputs)
    if len({type(posterior) for posterior in model.posteriors_}) != 1:
        raise ValueError("posteriors must be of one kind")
    for posterior in model.posteriors_:
        _check_posterior(posterior, b)


def _check_direct(model: DirectRegressor, n_inputs: int) -> None:
    _check_targets(model)
    _check_basis(model, n_inputs)


def _check_classifier(model: DirectClassifier, n_inputs: int) -> None:
    _check_basis(model, n_inputs)
    n_outputs, two = len(model.posteriors_), len(model.classes_) == 2
    if n_outputs != (1 if two else len(model.classes_)) or model._one_dimensional != two:
        raise ValueError("posteriors do not fit the classes")
    if isinstance(model.posteriors_[0], MixturePosterior):
        raise ValueError("posteriors must factorise")
    _array(model.intercept_, "intercept", n_outputs)


def _check_network(model: QuadraticBNNRegressor, n_inputs: int) -> None:
    _check_targets(model)
    n_rotated = model.rotation_.n_outputs
    _array(model.rotation_.matrix, "rotation", n_inputs, model.rotation_.matrix.shape[-1])
    for posterior in model.posteriors_:
        _is(posterior.shape.bias, "bias", bool)
        if posterior.shape != model._shape_for(n_rotated):
            raise ValueError("posteriors are not of the network's shape")
        _positive(posterior.prior_scale, "prior_scale", posterior.shape.depth + 1)
        as_choice(posterior.engine, "engine", NETWORK_ENGINES)
        _check_posterior(posterior, posterior.shape.n_weights)
    if hasattr(model, "coreset_"):
        coreset = model.coreset_
        _is(coreset.bias, "coreset.bias", bool)
        if not coreset.bias or as_count(coreset.depth, "coreset.depth") < model._shape_for(1).depth:
            raise ValueError("coreset does not serve the network")
        _number(coreset.n_samples, "coreset.n_samples", above=0.0)
        _array(coreset.x, "coreset.x", len(coreset.y), model.n_features_in_, largest=np.inf)
        _array(coreset.y, "coreset.y", *coreset.y.shape[:1])
        _positive(coreset.weight, "coreset.weight", len(coreset.y))


def _check_deterministic(model: DeterministicNetworkModel, n_inputs: int, n_outputs: int) -> None:
    for posterior in model.posteriors_:
        if posterior.network != model._network(max(n_inputs, 1), n_outputs):
            raise ValueError("posteriors are not of the network's shape")
        theta = as_float_array_unbounded(posterior.theta, "theta", (posterior.network.n_parameters,))
        if np.isnan(theta).any() or not np.isfinite(theta[posterior.network.means]).all():
            raise ValueError("means of weights must be finite")
        _check_training(posterior)


def _check_deterministic_regressor(model: DVIRegressor, n_inputs: int) -> None:
    _check_targets(model)
    _positive(model.mean_noise_, "mean_noise", len(model.posteriors_))
    _check_deterministic(model, n_inputs, 1)


def _check_deterministic_classifier(model: DVIClassifier, n_inputs: int) -> None:
    if len(model.posteriors_) != 1 or not model._one_dimensional:
        raise ValueError("posteriors do not fit the classes")
    _check_deterministic(model, n_inputs, len(model.classes_))


def _check_input_map(m: InputMap, d: int) -> int:
    _array(m.mean, "mean", d, largest=np.inf)
    _positive(m.scale, "scale", d, largest=np.inf)
    if m.kept.dtype.kind != "i" or m.kept.ndim != 1 or not np.isin(m.kept, np.arange(d)).all():
        raise ValueError(f"kept must be columns below {d}")
    _array(m.knots, "knots", *m.knots.shape, largest=np.inf)
    _array(m.scores, "scores", *m.knots.shape, largest=LARGEST)
    if m.knots.shape != (0, 0) and (len(m.knots) != len(m.kept) or m.knots.size == 0 or (np.diff(m.knots) < 0).any()):
        raise ValueError("knots must ascend for every kept column")
    return m.n_outputs


def _check_hyperparameters(p: KernelHyperparameters, n_inputs: int) -> None:
    if (_array(p.length_scales, "length_scales", n_inputs) < 1 / LARGEST).any():
        raise ValueError(f"length_scales must be at least {1 / LARGEST:g}")
    _number(p.noise_variance, "noise_variance", above=0.0)
    _number(p.isotropic_length_scale, "isotropic_length_scale", above=0.0)
    for name in ("ard_amplitude", "isotropic_amplitude", "linear_amplitude"):
        _number(getattr(p, name), name, at_least=0.0, at_most=LARGEST)
    if as_count(p.n_linear, "n_linear", 0) > n_inputs:
        raise ValueError(f"n_linear must be at most {n_inputs}, got {p.n_linear}")


def _check_features(features: Any, n_inputs: int) -> None:
    if isinstance(features, NystroemFeatures):
        _array(features.landmarks, "landmarks", "n_landmarks", n_inputs, largest=LARGEST)
        _array(features.whitening, "whitening", *2 * features.landmarks.shape[:1])
        _check_hyperparameters(features.hyperparameters, n_inputs)
    elif isinstance(features, FourierFeatures):
        _array(features.frequencies, "frequencies", n_inputs, "n_frequencies")
        _array(features.amplitudes, "amplitudes", features.n_frequencies)
        if features.linear_scale is not None:
            _array(features.linear_scale, "linear_scale", *features.linear_scale.shape[:1])
        if features.constant is not None:
            _number(features.constant, "constant")
    else:
        _is(features.n_features_in, "n_features_in", int)
        if isinstance(features, LinearFeatures):
            _number(features.intercept_scale, "intercept_scale")


def _check_posterior(p: MeanFieldPosterior | MixturePosterior, n_weights: int) -> None:
    if isinstance(p, MixturePosterior):
        _check_mixture(p, n_weights)
    else:
        _check_factorized(p, n_weights)
    _masses(p.noise.q, "noise q", "n_noise_levels")
    _positive(p.noise.levels, "noise levels", *p.noise.q.shape)
    _check_training(p)


def _check_training(p: MeanFieldPosterior | MixturePosterior | DeterministicPosterior) -> None:
    _number(p.elbo, "elbo")
    _array(p.elbo_trace, "elbo_trace", *p.elbo_trace.shape[:1])
    as_count(p.n_iter, "n_iter", 0)
    _is(p.converged, "converged", bool)
    _is(p.interrupted, "interrupted", bool)


def _check_mixture(p: MixturePosterior, n_weights: int) -> None:
    r, _, n_levels = p.component_q.shape
    _masses(p.component_q, "component_q", r, n_weights, n_levels)
    _masses(p.alpha, "alpha", r)
    _positive(p.alpha, "alpha", r)
    _array(p.levels, "levels", n_weights if len(p.levels) == n_weights else 1, n_levels)
    shape = tuple(n if size == n else 1 for size, n in zip(p.log_prior.shape[:2], (r, n_weights), strict=True))
    _log_masses(p.log_prior, "log_prior", *shape, n_levels)
    lower = _number(p.entropy_lower, "entropy_lower")
    _number(p.entropy_upper, "entropy_upper", at_least=lower)


def _check_factorized(p: MeanFieldPosterior, n_weights: int) -> None:
    if isinstance(p, DecorrelatedPosterior):
        n_directions = p.vectors.shape[1]
        _array(p.vectors, "vectors", n_weights, n_directions)
        _number(p.prior_variance, "prior_variance", above=0.0)
        n_weights = n_directions
    n_levels = p.weights.q.shape[1]
    _masses(p.weights.q, "q", n_weights, n_levels)
    _array(p.weights.levels, "levels", n_weights if len(p.weights.levels) == n_weights else 1, n_levels)
    rows = len(p.log_prior)
    _log_masses(p.log_prior, "log_prior", n_weights if rows == n_weights else 1, n_levels)


@dataclasses.dataclass(frozen=True)
class Layout:
    """What sets one estimator's files apart.

    Arrays and what a header holds as it is, ``<name>_`` of the model, and how the rest is written, read and checked.
    """

    estimator: str
    arrays: tuple[str, ...]
    items: tuple[str, ...]
    write: Callable[[Any, _Writer], Header]
    restore: Callable[[Any, Header, Arrays], None]
    check: Callable[[Any, int], None]


LAYOUTS = {
    f"pydirect.{layout.estimator}": layout
    for layout in (
        Layout(
            "DirectRegressor",
            ("y_mean", "y_scale", "prior_scale", "coefficients"),
            ("calibration_scale", "mean_missing_variance"),
            _write_basis,
            _restore_basis,
            _check_direct,
        ),
        Layout(
            "DirectClassifier",
            ("intercept", "prior_scale", "coefficients"),
            ("mean_missing_variance",),
            _write_classifier,
            _restore_classifier,
            _check_classifier,
        ),
        Layout(
            "QuadraticBNNRegressor",
            ("y_mean", "y_scale"),
            ("calibration_scale",),
            _write_network,
            _restore_network,
            _check_network,
        ),
        Layout(
            "DVIRegressor",
            ("y_mean", "y_scale", "mean_noise"),
            ("calibration_scale",),
            _write_deterministic,
            _restore_deterministic,
            _check_deterministic_regressor,
        ),
        Layout(
            "DVIClassifier",
            (),
            (),
            _write_deterministic_classifier,
            _restore_deterministic_classifier,
            _check_deterministic_classifier,
        ),
        Layout(
            "MonteCarloBNNRegressor",
            ("y_mean", "y_scale", "mean_noise"),
            ("calibration_scale",),
            _write_deterministic,
            _restore_sampled,
            _check_deterministic_regressor,
        ),
        Layout(
            "MonteCarloBNNClassifier",
            (),
            (),
            _write_deterministic_classifier,
            _restore_sampled_classifier,
            _check_deterministic_classifier,
        ),
    )
}
