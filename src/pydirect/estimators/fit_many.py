"""Fitting several models at once: whatever their features and data share is computed once."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import ArrayLike

from pydirect._documentation import takes_rows
from pydirect._progress import Progress
from pydirect._validation import as_instance, has_nan
from pydirect.estimators._estimator import Estimator
from pydirect.estimators.choices import content
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.pooled import PooledClassifier
from pydirect.estimators.regression import GivenRows, choose_scale, fit_together, gross_rows, merged, settled
from pydirect.estimators.target_transform import ScaleChoice
from pydirect.tables.table import Table

CLASSIFIERS = DirectClassifier, PooledClassifier
Model = TypeVar("Model", DirectRegressor, DirectClassifier, PooledClassifier)


def feature_key(model: DirectRegressor) -> Hashable:
    """Return a key that is equal for models with equal feature maps, sums and random generators on the same rows."""
    plan = model._plan()
    # A shape that does not fit the rows is an error of that model alone.
    shape = np.asarray(plan.features.length_scale).shape
    return content((dict(plan.features.parameters), plan.block_dtype, model.random_state, shape), generator_states=True)


@takes_rows
def fit_many(
    estimators: Sequence[Model],
    X: ArrayLike,
    y: ArrayLike | Sequence[ArrayLike],
    sample_weight: ArrayLike | None = None,
) -> list[Model]:
    """Fit several models to the same rows, regressors with one pass over them for each distinct feature map.

    Each result equals that of the model's own ``fit``, to rounding, which may change stored draws; only where text
    columns have many categories does a `DirectRegressor`'s own ``fit`` also try random effects of them, which may give
    another model.

    Models with the same feature parameters share features, sums over rows and the factorisation of ΦᵀΦ; they may differ
    in target, noise, prior, levels and everything else that comes later. Features with a learned kernel are shared by
    models with the same target, on the same scale, which ``target_transform="auto"`` chooses as in `fit`. Classifiers
    of the same labels share the search for the kernel, most of their time, and may differ in all that comes later.

    The time spent on shared work is divided among regressors; of classifiers, the first has it. The ``fit_seconds_`` of
    all add up to the total time.

    Parameters
    ----------
    estimators : sequence of DirectRegressor, or of DirectClassifier and PooledClassifier
        Fitted in place.
    y : array_like of shape (n_samples,) or (n_samples, n_outputs), or a list or tuple of them
        One target for all, or a list with one per estimator.

    Returns
    -------
    list
        The estimators.

    Raises
    ------
    ValueError, TypeError
        If the data or a parameter is not as ``fit`` describes.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, fit_many
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> models = fit_many([DirectRegressor("linear"), DirectRegressor("linear", noise=0.5)], X, X @ [1.0, 2.0, 0.0])
    >>> [bool(model.converged_) for model in models]
    [True, True]
    """
    if isinstance(estimators, Estimator):
        raise TypeError("estimators must be a list of DirectRegressor, or of DirectClassifier and PooledClassifier")
    models: list[Any] = list(estimators)
    of_labels = any(isinstance(model, CLASSIFIERS) for model in models)
    for k, model in enumerate(models):
        as_instance(model, f"estimators[{k}]", *(CLASSIFIERS if of_labels else (DirectRegressor,)))
    if len({id(model) for model in models}) != len(models):
        raise ValueError("estimators must be different objects: clone them")
    plans, targets = [model._plan() for model in models], _targets(y, len(models))
    for k, target in enumerate(targets):  # before any model is touched
        if len(target) != len(targets[0]):
            raise ValueError(f"y[{k}] must have {len(targets[0])} rows, as y[0], got {len(target)}")
    if of_labels:
        known: dict[str, Any] = {}  # searches for kernels
        return [own._fit(X, t, sample_weight, known=known) for own, t in zip(models, targets, strict=True)]
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    chosen: dict[tuple[Hashable, ...], ScaleChoice | None] = {}
    choices: list[ScaleChoice | None] = []
    for k, (model, plan, target) in enumerate(zip(models, plans, targets, strict=True)):
        trial, key = copy.copy(model), feature_key(model)
        read = trial._read_targets(X, target, sample_weight)  # one at a time: X may be converted
        table, own, _, _ = read
        target_key = str(joblib.hash(own))
        choices.append(None)
        if plan.transform == "auto" or (plan.transform is None and len(gross_rows(plan, own))):
            scale_key = key, target_key, plan.noise, plan.is_gaussian, plan.transform, plan.local
            if scale_key not in chosen:
                chosen[scale_key] = choose_scale(plan, *merged([trial._encoded(read)]))
            choices[k] = choice = chosen[scale_key]
            plans[k] = settled(plan, choice)
        # Kernels and transforms are learned from the target within reach, and what is kept of gaps depends on it.
        needed = plan.features.learns_kernel or plans[k].transform is not None or _has_gaps(table)
        kernel_key: tuple[Any, ...] = str(plans[k].transform), plans[k].reach is None, target_key if needed else ""
        groups.setdefault((key, *kernel_key), []).append(k)
    for members in groups.values():
        lead = models[members[0]]
        given: list[GivenRows] = []
        with lead._threads():
            for k in members:
                read = models[k]._read_targets(X, targets[k], sample_weight)
                own_rows = models[k]._encoded(read, lead.columns_ if given else None)
                # X may be converted for every model: only the first copy stays.
                given.append(replace(own_rows, x=given[0].x) if given else own_rows)
            fits = fit_together([plans[k] for k in members], given, Progress(0), None, [choices[k] for k in members])
            for k, fit in zip(members, fits, strict=True):
                models[k]._accept(*fit)
    for model in models:
        model._warn_if_unfinished()
    return models


def _has_gaps(table: Table) -> bool:
    return any(isinstance(c, np.ndarray) and has_nan(c) for c in table.columns)


def _targets(y: Any, n_models: int) -> list[Any]:
    if not isinstance(y, list | tuple) or not y or np.ndim(y[0]) == 0:
        return [y] * n_models
    if len(y) != n_models:
        raise ValueError(f"y must be one target or a list of one per estimator, {n_models}, got {len(y)}")
    return list(y)
