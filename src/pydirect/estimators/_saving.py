"""Fitted estimators as documents: every array and number that prediction needs, and nothing that runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pydirect
from pydirect._threads import resolve_n_threads
from pydirect._validation import as_choice, as_count, as_float_array_unbounded
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.mixture_priors import MixturePrior
from pydirect.distributions.noise import NoisePosterior
from pydirect.distributions.priors import PRIORS, TablePrior
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap, Rotation
from pydirect.features.maps import TransformerFeatures
from pydirect.networks.deterministic import DeterministicNetwork, DeterministicPosterior
from pydirect.networks.posterior import TrainedNetwork
from pydirect.networks.prior import EmpiricalBayes
from pydirect.networks.sampled import SampledNetwork, SampledPosterior
from pydirect.optimize.outcome import Outcome
from pydirect.persistence.container import read, write
from pydirect.persistence.errors import CorruptFileError
from pydirect.persistence.fields import (
    Arrays,
    Header,
    Writer,
    build,
    classes_from_header,
    classes_to_header,
    require_array,
    require_float64,
    require_number,
    require_positive,
    require_type,
)
from pydirect.quadratic.coreset import NetworkCoreset
from pydirect.quadratic.engines import NetworkShape
from pydirect.quadratic.network import NetworkPosterior
from pydirect.quadratic.training import NETWORK_ENGINES
from pydirect.regression.decorrelated import DecorrelatedPosterior
from pydirect.regression.mean_field import MeanFieldPosterior
from pydirect.regression.mixture_posterior import MixturePosterior

if TYPE_CHECKING:
    from pydirect.estimators._base import LatentFunctions
    from pydirect.estimators._basis import BasisFunctionModel
    from pydirect.estimators._networks import NetworkClassifier, NetworkModel, NetworkRegressor
    from pydirect.estimators._regressor import ProbabilisticRegressor
    from pydirect.estimators.direct_classifier import DirectClassifier
    from pydirect.estimators.direct_regressor import DirectRegressor
    from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor

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
# Attributes ``<name>_`` that a header holds as they are.
SHARED_ITEMS = ("n_samples", "fit_seconds")
# Its square must stay finite.
LARGEST_CALIBRATION_SCALE = 1e150


def save_model(model: LatentFunctions, path: str | Path, metadata: dict[str, Any] | None) -> None:
    """Write a fitted estimator of a kind in `LAYOUTS`; see the estimators' ``save``."""
    kind = f"pydirect.{type(model).__name__}"
    layout, writer = LAYOUTS[kind], Writer()
    written = layout.write(model, writer)  # first: it tells features that cannot be saved
    header: Header = {
        "library": pydirect.__version__,
        "parameters": {k: as_json(k, v) for k, v in model.get_params(deep=False).items()},
        "metadata": getattr(model, "metadata_", {}) if metadata is None else metadata,
        **({"input_map": writer.fields(model.input_map_, "input_map")} if hasattr(model, "input_map_") else {}),
        "one_dimensional": model._one_dimensional,
        "n_features_in": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        **{name: getattr(model, f"{name}_") for name in (*SHARED_ITEMS, *layout.items)},
        **written,
    }
    arrays = {name: getattr(model, f"{name}_") for name in layout.arrays}
    write(path, kind, header, {**writer.arrays, **arrays})


def _write_basis(model: BasisFunctionModel, writer: Writer) -> Header:
    if isinstance(model.features_.map, TransformerFeatures):
        raise TypeError(
            "features must be built in to be saved without pickle, got a transformer: save its output's model with "
            "features='precomputed', or pickle the whole model"
        )
    return {
        "features": writer.fields(model.features_, "features"),
        "posteriors": [
            {"kind": next(n for n, c in POSTERIOR_CLASSES.items() if c is type(p)), **writer.fields(p, f"posterior{k}")}
            for k, p in enumerate(model.posteriors_)
        ],
    }


def _write_classifier(model: DirectClassifier, writer: Writer) -> Header:
    return {"classes": classes_to_header(model.classes_), **_write_basis(model, writer)}


def _write_network(model: QuadraticBNNRegressor, writer: Writer) -> Header:
    coreset = getattr(model, "coreset_", None)
    return {
        "rotation": writer.fields(model.rotation_, "rotation"),
        "posteriors": [writer.fields(p, f"posterior{k}") for k, p in enumerate(model.posteriors_)],
        "coreset": coreset is not None and writer.fields(coreset, "coreset"),
    }


def _write_deterministic(model: NetworkModel, writer: Writer) -> Header:
    return {"posteriors": [writer.fields(p, f"posterior{k}") for k, p in enumerate(model.posteriors_)]}


def _write_deterministic_classifier(model: NetworkClassifier, writer: Writer) -> Header:
    return {"classes": classes_to_header(model.classes_), **_write_deterministic(model, writer)}


def as_json(name: str, value: Any) -> Any:
    """Return a parameter as a header can hold it: priors by class and fields, arrays as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in PRIOR_CLASSES.values():
        fields = {f.name: as_json(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"prior": next(k for k, c in PRIOR_CLASSES.items() if c is type(value)), **fields}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [as_json(name, v) for v in value]
    if isinstance(value, dict):  # a header's keys are strings
        return {"mapping": [[as_json(name, k), as_json(name, v)] for k, v in value.items()]}
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
    pydirect.persistence.container.FileFormatError
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
    if "input_map" in header:
        model.input_map_ = build(InputMap, header["input_map"], arrays, "input_map", {})
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


# Dataclasses inside every posterior of regression.
PARTS: dict[str, type] = {"noise": NoisePosterior, "outcome": Outcome}


def _restore_basis(model: BasisFunctionModel, header: Header, arrays: Arrays) -> None:
    model.features_ = Basis.from_fields(header["features"], arrays, "features")
    model.posteriors_ = [
        build(
            POSTERIOR_CLASSES[h["kind"]],
            h,
            arrays,
            f"posterior{k}",
            PARTS if h["kind"] == "mixture" else PARTS | {"weights": FactorizedCategorical},
        )
        for k, h in enumerate(header["posteriors"])
    ]


def _restore_classifier(model: DirectClassifier, header: Header, arrays: Arrays) -> None:
    model.classes_ = classes_from_header(header["classes"])
    _restore_basis(model, header, arrays)


def _restore_network(model: QuadraticBNNRegressor, header: Header, arrays: Arrays) -> None:
    model.rotation_ = build(Rotation, header["rotation"], arrays, "rotation", {})
    nested = PARTS | {"weights": FactorizedCategorical, "shape": NetworkShape}
    model.posteriors_ = [
        build(NetworkPosterior, h, arrays, f"posterior{k}", nested) for k, h in enumerate(header["posteriors"])
    ]
    if header["coreset"] is not False:
        model.coreset_ = build(NetworkCoreset, header["coreset"], arrays, "coreset", {})


def _restore_deterministic(model: NetworkModel, header: Header, arrays: Arrays) -> None:
    model.posteriors_ = _network_posteriors(header, arrays, DeterministicPosterior, DeterministicNetwork)


def _restore_sampled(model: NetworkModel, header: Header, arrays: Arrays) -> None:
    model.posteriors_ = _network_posteriors(header, arrays, SampledPosterior, SampledNetwork)


def _restore_sampled_classifier(model: NetworkClassifier, header: Header, arrays: Arrays) -> None:
    model.classes_ = classes_from_header(header["classes"])
    model.posteriors_ = _network_posteriors(header, arrays, SampledPosterior, SampledNetwork)


def _network_posteriors(header: Header, arrays: Arrays, posterior: Any, network: Any) -> list[Any]:
    return [
        dataclasses.replace(
            build(posterior, h, arrays, f"posterior{k}", {"outcome": Outcome}),
            network=_network_from_header(h["network"], network),
        )
        for k, h in enumerate(header["posteriors"])
    ]


def _network_from_header(header: Header, network: Any) -> Any:
    # Sampled networks once had fields of deterministic ones: these are passed over.
    fields = {f.name: header[f.name] for f in dataclasses.fields(network)}
    prior = header["prior"]
    return network(**fields | {"prior": EmpiricalBayes(**prior) if isinstance(prior, dict) else prior})


def _restore_deterministic_classifier(model: NetworkClassifier, header: Header, arrays: Arrays) -> None:
    model.classes_ = classes_from_header(header["classes"])
    _restore_deterministic(model, header, arrays)


def _log_masses(value: Any, name: str, *shape: int | str) -> None:
    require_float64(value, name)
    if not (as_float_array_unbounded(value, name, shape) < np.inf).all():
        raise ValueError(f"{name} must be below infinity")


def _masses(value: Any, name: str, *shape: int | str) -> None:
    mass = require_array(value, name, *shape)
    if (mass < 0).any() or not np.allclose(mass.sum(axis=-1), 1.0, rtol=0, atol=1e-6):
        raise ValueError(f"{name} must be probabilities")


def _check(model: Any, header: Header) -> int:
    """Raise unless all that estimators share has its type and shape and fits the rest; return the inputs' number."""
    model._check_parameters()
    resolve_n_threads(model.n_threads)
    d, n_outputs = as_count(model.n_features_in_, "n_features_in"), len(model.posteriors_)
    names = header["feature_names"]
    require_type(names, "feature_names", list)
    if len(names) not in (0, d) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"feature_names must be {d} strings or none")
    require_type(header["metadata"], "metadata", dict)
    require_type(header["fit_seconds"], "fit_seconds", dict)
    require_type(header["one_dimensional"], "one_dimensional", bool)
    if n_outputs != 1 and (n_outputs == 0 or header["one_dimensional"]):
        raise ValueError("posteriors do not fit the outputs")
    require_number(model.n_samples_, "n_samples", above=0.0)
    return model.input_map_.check(d) if hasattr(model, "input_map_") else d


def _check_targets(model: ProbabilisticRegressor) -> None:
    require_number(model.calibration_scale_, "calibration_scale", above=0.0, at_most=LARGEST_CALIBRATION_SCALE)
    require_array(model.y_mean_, "y_mean", len(model.posteriors_))
    require_positive(model.y_scale_, "y_scale", len(model.posteriors_))


def _check_basis(model: BasisFunctionModel, n_inputs: int) -> None:
    n_outputs = len(model.posteriors_)
    require_number(model.mean_missing_variance_, "mean_missing_variance", at_least=0.0)
    if model.features_.n_features_in != model.n_features_in_:
        raise ValueError("features do not take the columns")
    if model.features_.target_scale is not None:
        require_positive(model.features_.target_scale, "target_scale", n_outputs)
    b = model.features_.n_weights
    require_positive(model.prior_scale_, "prior_scale", n_outputs)
    require_array(model.coefficients_, "coefficients", b, n_outputs)
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
    require_array(model.intercept_, "intercept", n_outputs)


def _check_network(model: QuadraticBNNRegressor, n_inputs: int) -> None:
    _check_targets(model)
    n_rotated = model.rotation_.n_outputs
    require_array(model.rotation_.matrix, "rotation", n_inputs, model.rotation_.matrix.shape[-1])
    for posterior in model.posteriors_:
        require_type(posterior.shape.bias, "bias", bool)
        if posterior.shape != model._shape_for(n_rotated):
            raise ValueError("posteriors are not of the network's shape")
        require_positive(posterior.prior_scale, "prior_scale", posterior.shape.depth + 1)
        as_choice(posterior.engine, "engine", NETWORK_ENGINES)
        _check_posterior(posterior, posterior.shape.n_weights)
    if hasattr(model, "coreset_"):
        coreset = model.coreset_
        require_type(coreset.bias, "coreset.bias", bool)
        if not coreset.bias or as_count(coreset.depth, "coreset.depth") < model._shape_for(1).depth:
            raise ValueError("coreset does not serve the network")
        require_number(coreset.n_samples, "coreset.n_samples", above=0.0)
        require_array(coreset.x, "coreset.x", len(coreset.y), model.n_features_in_, largest=np.inf)
        require_array(coreset.y, "coreset.y", *coreset.y.shape[:1])
        require_positive(coreset.weight, "coreset.weight", len(coreset.y))


def _check_deterministic(model: NetworkModel, n_inputs: int, n_outputs: int) -> None:
    for posterior in model.posteriors_:
        if posterior.network != model._network(max(n_inputs, 1), n_outputs):
            raise ValueError("posteriors are not of the network's shape")
        theta = as_float_array_unbounded(posterior.theta, "theta", (posterior.network.n_parameters,))
        if np.isnan(theta).any() or not np.isfinite(theta[posterior.network.means]).all():
            raise ValueError("means of weights must be finite")
        _check_training(posterior)


def _check_deterministic_regressor(model: NetworkRegressor, n_inputs: int) -> None:
    _check_targets(model)
    require_positive(model.mean_noise_, "mean_noise", len(model.posteriors_))
    _check_deterministic(model, n_inputs, 1)


def _check_deterministic_classifier(model: NetworkClassifier, n_inputs: int) -> None:
    if len(model.posteriors_) != 1 or not model._one_dimensional:
        raise ValueError("posteriors do not fit the classes")
    _check_deterministic(model, n_inputs, len(model.classes_))


def _check_posterior(p: MeanFieldPosterior | MixturePosterior, n_weights: int) -> None:
    if isinstance(p, MixturePosterior):
        _check_mixture(p, n_weights)
    else:
        _check_factorized(p, n_weights)
    _masses(p.noise.q, "noise q", "n_noise_levels")
    require_positive(p.noise.levels, "noise levels", *p.noise.q.shape)
    _check_training(p)


def _check_training(p: MeanFieldPosterior | MixturePosterior | TrainedNetwork) -> None:
    require_number(p.elbo, "elbo")
    require_array(p.elbo_trace, "elbo_trace", *p.elbo_trace.shape[:1])
    as_count(p.n_iter, "n_iter", 0)
    require_type(p.converged, "converged", bool)
    require_type(p.interrupted, "interrupted", bool)


def _check_mixture(p: MixturePosterior, n_weights: int) -> None:
    r, _, n_levels = p.component_q.shape
    _masses(p.component_q, "component_q", r, n_weights, n_levels)
    _masses(p.alpha, "alpha", r)
    require_positive(p.alpha, "alpha", r)
    require_array(p.levels, "levels", n_weights if len(p.levels) == n_weights else 1, n_levels)
    shape = tuple(n if size == n else 1 for size, n in zip(p.log_prior.shape[:2], (r, n_weights), strict=True))
    _log_masses(p.log_prior, "log_prior", *shape, n_levels)
    lower = require_number(p.entropy_lower, "entropy_lower")
    require_number(p.entropy_upper, "entropy_upper", at_least=lower)


def _check_factorized(p: MeanFieldPosterior, n_weights: int) -> None:
    if isinstance(p, DecorrelatedPosterior):
        n_directions = p.vectors.shape[1]
        require_array(p.vectors, "vectors", n_weights, n_directions)
        require_number(p.prior_variance, "prior_variance", above=0.0)
        n_weights = n_directions
    n_levels = p.weights.q.shape[1]
    _masses(p.weights.q, "q", n_weights, n_levels)
    require_array(p.weights.levels, "levels", n_weights if len(p.weights.levels) == n_weights else 1, n_levels)
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
    write: Callable[[Any, Writer], Header]
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
