"""From the parameters of estimators to plans: checked once, at the door."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from pydirect._progress import Progress
from pydirect._validation import FloatArray, as_choice, as_count, as_number, as_verbosity, shown
from pydirect._warnings import ignored
from pydirect.estimators._content import content
from pydirect.estimators.choices import Choice, Gaussian, MeanField, Nystroem, as_features, as_posterior
from pydirect.estimators.regression import (
    NOISE_OF_ROWS,
    GivenRows,
    RegressionPlan,
    fit_rows,
    may_be_local,
)
from pydirect.estimators.target_transform import (
    MAX_FEATURES,
    MAX_HYPERPARAMETER_ROWS,
    DensityLeftOut,
    TransformPlan,
    as_transform_names,
    copied,
)
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan
from pydirect.features.rows import TrainingRows
from pydirect.fitted.regression import left_out
from pydirect.tables.columns import Columns
from pydirect.tables.encoding import ColumnEncoding

NOISES = ("auto", "constant", "grid", *NOISE_OF_ROWS)


# What parameters may be where small models are fitted within a budget, as these models are just so.
WHAT_QUANTIZED_FITS_DO: dict[str, tuple[Any, ...]] = {
    "features": ("auto", "nystroem", "fourier"),
    "posterior": (Gaussian(),),
    "noise": ("auto", "constant"),
    "local": ("auto", False),
    "bound": ("auto", "softmax"),
    "columns": (None,),
}


class BasisParameters(Protocol):
    """Parameters of all estimators of basis functions."""

    features: Any
    n_basis_functions: int
    columns: Any
    random_state: Any
    verbose: int


class RegressionParameters(BasisParameters, Protocol):
    """Those of regressors besides."""

    posterior: Any
    noise: Any
    local: Any
    target_transform: Any
    max_iter: int


def refuse_ignored(parameters: dict[str, Any]) -> None:
    """Raise if a parameter has been set that `fit_quantized`, which fits small models of its own, would ignore."""
    features = parameters["features"]
    given = parameters | {"posterior": as_posterior(parameters["posterior"])}
    if isinstance(features, Nystroem):
        plain = type(features)(max_search_rows=features.max_search_rows)
        given["features"] = "auto" if content(features) == content(plain) else features
    ignored = [name for name, does in WHAT_QUANTIZED_FITS_DO.items() if name in given and given[name] not in does]
    if ignored:
        raise ValueError(
            f"{', '.join(ignored)} must be left at the default for fit_quantized, which fits small models of its own "
            f"and would ignore it, got {', '.join(shown(parameters[name]) for name in ignored)}: "
            "quantize(model) keeps a fitted model as it is"
        )


def feature_plan(model: BasisParameters, posterior: Choice, rank_inputs: bool | None) -> tuple[FeaturePlan, str]:
    """Return the plan of an estimator's features, and the precision of blocks of rows."""
    kind, chosen = as_features(model.features, posterior)
    n_functions = as_count(model.n_basis_functions, "n_basis_functions", 2)
    options: dict[str, Any] = {}
    if isinstance(chosen, Nystroem):
        own = chosen.rank_inputs
        options = {
            "rank_inputs": rank_inputs if own is None else own,
            "length_scale": chosen.length_scale,
            "max_search_rows": chosen.max_search_rows,
        }
    elif kind == "polynomial":
        options = {"degree": chosen.degree}
    elif kind == "transformer":
        options = {"transformer": lambda: clone(chosen)}
    plan = FeaturePlan(kind, n_functions, **options)
    return replace(plan, parameters=recorded(model, plan, chosen)), getattr(chosen, "block_dtype", "float64")


def recorded(model: BasisParameters, plan: FeaturePlan, chosen: Any) -> dict[str, Any]:
    """What a fixed feature map depends on, comparable by equality."""
    used: dict[str, Any] = {"features": plan.kind}
    if plan.kind == "transformer":
        used["features"] = type(chosen)
        used |= (
            {f"features__{name}": value for name, value in chosen.get_params().items()}
            if hasattr(chosen, "get_params")
            else {}
        )
    if plan.has_kernel:
        scales = np.asarray(plan.length_scale)
        held = scales.ravel().tolist()  # a scalar is equivalent to equal values for all columns
        used |= {
            "n_basis_functions": plan.n_functions,
            "features__rank_inputs": plan.rank_inputs,
            "features__length_scale": held[0] if held and held.count(held[0]) == len(held) else scales.tolist(),
            "features__max_search_rows": plan.max_search_rows,
            "random_state": model.random_state,
        }
    if plan.kind == "polynomial":
        used["features__degree"] = plan.degree
    if plan.takes_tables:
        used["columns"] = repr(sorted((model.columns or Columns()).get_params(deep=False).items()))
    if hasattr(model, "target_transform"):
        used["target_transform"] = model.target_transform
    return {name: content(value) for name, value in used.items()}


def changed_features(features: Any, plan: FeaturePlan, fixed: Basis) -> list[str]:
    """Parameters on which a fixed feature map depends, and which are others now."""
    now, then = plan.parameters, fixed.parameters
    changed = [name for name in now if name in then and now[name] != then[name]]
    if changed[:1] == ["features"] and isinstance(features, str) and features == "auto":
        changed[0] = "posterior (on which features='auto' depends)"
    return changed


def require_same_features(features: Any, plan: FeaturePlan, fixed: Basis) -> None:
    """Raise where a fixed feature map is of other parameters."""
    changed = changed_features(features, plan, fixed)
    if changed:
        raise ValueError(
            f"{', '.join(changed)} must be as when the feature map was fixed: restore the earlier value, or start "
            "again with fit"
        )


def regression_plan(model: RegressionParameters) -> RegressionPlan:
    """Return the plan of a regressor, or raise where its parameters are wrong or do not fit together."""
    posterior = as_posterior(model.posterior)
    features, block_dtype = feature_plan(model, posterior, rank_inputs=True)
    check_common(model)
    noise = model.noise
    if isinstance(noise, str):
        as_choice(noise, "noise", NOISES)
    else:
        noise = as_number(noise, "noise", above=0.0)
    if noise == "grid" and not isinstance(posterior, MeanField):
        raise ValueError("noise='grid' is for posterior='mean_field', use 'constant'")
    if noise in NOISE_OF_ROWS and not isinstance(posterior, Gaussian):
        raise ValueError(f"noise={noise!r} needs posterior='gaussian', got {model.posterior!r}")
    plan = RegressionPlan(
        features,
        posterior,
        _transform_plan(model),
        noise,
        _local(model.local),
        block_dtype,
        as_count(model.max_iter, "max_iter"),
        model.random_state,
    )
    obstacle = may_be_local(plan)
    if obstacle and plan.local not in (None, "auto"):
        raise ValueError(f"local must be 'auto' or False with {obstacle}, got {shown(model.local)}")
    if plan.transform.value == "auto":
        plan = replace(plan, transform=replace(plan.transform, log_density=_density_left_out(plan)))
    return plan


def check_common(model: BasisParameters) -> None:
    """Check the parameters that all estimators of basis functions have."""
    as_verbosity(model.verbose)
    if hasattr(model.random_state, "randint"):
        return
    try:
        check_random_state(model.random_state)
    except ValueError:
        message = f"an integer from 0 to 2**32 - 1, a RandomState or None, got {shown(model.random_state)}"
        raise ValueError(f"random_state must be {message}") from None


def _local(local: Any) -> str | int | None:
    if local is False:
        return None
    if isinstance(local, str) and local == "auto":
        return "auto"
    if isinstance(local, bool | str):
        raise ValueError(
            "local must be 'auto', False or a number of neighbours, such as the 32 of 'auto', got " + shown(local)
        )
    return as_count(local, "local", 2)


def _transform_plan(model: RegressionParameters) -> TransformPlan:
    value = model.target_transform
    names = as_transform_names(value)
    if value == "auto" and not isinstance(model.noise, str):
        raise ValueError(
            f"noise must not be a number with target_transform='auto', which decides on its units, got {model.noise}"
        )
    if model.noise in NOISE_OF_ROWS and not {*names} <= {"identity", "sqrt"}:
        raise ValueError(
            f"target_transform must be None or 'sqrt' with noise={model.noise!r}, got {value!r}: "
            "the mean of exp(z) over uncertain noise variances is infinite"
        )
    return TransformPlan(value, copied(model.random_state))


def _density_left_out(plan: RegressionPlan) -> DensityLeftOut:
    """Return the leave-one-out log density of targets on a scale, by a model that is small enough to try several."""
    small = replace(
        plan,
        features=replace(
            plan.features,
            n_functions=min(plan.features.n_functions, MAX_FEATURES),
            max_search_rows=min(plan.features.max_search_rows, MAX_HYPERPARAMETER_ROWS),
            parameters={},
        ),
        posterior=Gaussian(),
        transform=TransformPlan(),
        noise="constant",
        local=None,
        block_dtype="float64",
    )

    def density(x: FloatArray, z: FloatArray, weight: FloatArray | None, columns: ColumnEncoding) -> FloatArray:
        scales = small.features.length_scale
        if scales is not None and np.ndim(scales) > 0:  # x is encoded
            scales = np.asarray(scales)[columns.origins]
        features = replace(small.features, length_scale=scales)
        own = replace(small, features=features, random_state=copied(plan.random_state))
        given = GivenRows(x, z, weight, True, ColumnEncoding.of_numbers(x.shape[1]), None)
        with ignored():
            ((fitted, _),) = fit_rows([own], [given], Progress(0))
        rows = TrainingRows(x, fitted.units.standardised(z), weight)
        (left,) = left_out([fitted], rows)
        found = left.log_density(rows.y[left.first]) - np.log(fitted.units.scale)
        return found[left.where, 0]

    return density
