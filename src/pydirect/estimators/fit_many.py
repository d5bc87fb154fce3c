"""Fitting several regressors at once: whatever their features and data share is computed once."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._validation import as_instance, as_sample_weight, has_nan
from pydirect.estimators._fitting import fit_to_rows
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.content import content
from pydirect.streams.tables import Table


def feature_key(model: DirectRegressor) -> Hashable:
    """Return a key that is equal for models with equal feature maps, sums and random generators on the same rows."""
    shape = np.asarray(model.length_scale).shape  # a shape that does not fit the rows is an error of that model alone
    used = (model._feature_parameters(), model.block_dtype, model.random_state, shape)
    return content(used, generator_states=True)


def fit_many(
    estimators: Sequence[DirectRegressor],
    X: ArrayLike,
    y: ArrayLike | Sequence[ArrayLike],
    sample_weight: ArrayLike | None = None,
) -> list[DirectRegressor]:
    """Fit several regressors to the same rows, with one pass over them for each distinct feature map.

    Each result equals that of the model's own ``fit``, to rounding, which may change draws in the raw basis. Models
    with the same feature parameters share features, sums over rows and the factorisation of ΦᵀΦ; they may differ in
    target, noise, prior, levels and everything else that comes later. Features with a learned kernel are shared by
    models with the same target.

    The time spent on shared work is divided among the models: their ``fit_seconds_`` add up to the total time.

    Parameters
    ----------
    estimators : sequence of DirectRegressor
        Fitted in place.
    X : array_like of shape (n_samples, n_features_in)
        Rows of inputs.
    y : array_like of shape (n_samples,) or (n_samples, n_outputs), or a list or tuple of them
        One target for all, or a list with one per estimator.
    sample_weight : array_like of shape (n_samples,), optional
        How many times each row counts; by default once.

    Returns
    -------
    list of DirectRegressor
        The estimators.

    Raises
    ------
    ValueError, TypeError
        If the data or a parameter is not as `DirectRegressor.fit` describes.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, fit_many
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> models = fit_many([DirectRegressor("linear"), DirectRegressor("linear", noise=0.5)], X, X @ [1.0, 2.0, 0.0])
    >>> [bool(model.converged_) for model in models]
    [True, True]
    """
    if isinstance(estimators, DirectRegressor):
        raise TypeError("estimators must be a list of DirectRegressor, got a single one")
    estimators = list(estimators)
    for k, model in enumerate(estimators):
        as_instance(model, f"estimators[{k}]", DirectRegressor)
        model._check_parameters()
    if len({id(model) for model in estimators}) != len(estimators):
        raise ValueError("estimators must be different objects: clone them")
    targets = _targets(y, len(estimators))
    for k, target in enumerate(targets):  # before any model is touched
        if len(target) != len(targets[0]):
            raise ValueError(f"y[{k}] must have {len(targets[0])} rows, as y[0], got {len(target)}")
    gaps = False
    checked = {(id(t), m._takes_tables(), m.missing): (m, t) for m, t in zip(estimators, targets, strict=True)}
    for model, target in checked.values():
        gaps |= _has_gaps(copy.copy(model), X, target, sample_weight)
    groups: dict[tuple[Hashable, str], list[int]] = {}
    for k, (model, target) in enumerate(zip(estimators, targets, strict=True)):
        # Kernels and transforms are learned from the target, and what is kept of gaps depends on it.
        own = str(joblib.hash(np.asarray(target))) if model._needs_targets() or gaps else ""
        groups.setdefault((feature_key(model), own), []).append(k)
    for members in groups.values():
        fit_to_rows([estimators[k] for k in members], X, [targets[k] for k in members], sample_weight, Progress(0))
    for model in estimators:
        model._warn_if_unfinished()
    return estimators


def _has_gaps(model: DirectRegressor, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> bool:
    """Validate the data of a model's fit, and return whether numbers of X are missing."""
    x, given = model._validated(X, y, multi_output=True, y_numeric=True)
    weight = as_sample_weight(sample_weight, len(x))
    model._standardise_targets(np.asarray(given, dtype=np.float64).reshape(len(x), -1), weight)
    columns = x.columns if isinstance(x, Table) else [x]
    return any(isinstance(c, np.ndarray) and has_nan(c) for c in columns)


def _targets(y: Any, n_models: int) -> list[Any]:
    if not isinstance(y, list | tuple) or not y or np.ndim(y[0]) == 0:
        return [y] * n_models
    if len(y) != n_models:
        raise ValueError(f"y must be one target or a list of one per estimator, {n_models}, got {len(y)}")
    return list(y)
