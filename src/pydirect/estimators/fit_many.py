"""Fitting several regressors at once: what their features and data have in common is computed once."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_instance
from pydirect.estimators.direct_regressor import DirectRegressor, Training, begun_together, inference_rng
from pydirect.features.content import content
from pydirect.features.evidence import distinct_rows
from pydirect.statistics.gaussian import collect_statistics
from pydirect.statistics.rotated import decorrelate


def feature_key(model: DirectRegressor) -> Hashable:
    """Return what is the same for models whose feature maps, sums and random generators are, given the same rows."""
    shape = np.asarray(model.length_scale).shape  # one that does not fit the rows is its own model's error
    used = (model._feature_parameters(), model.block_dtype, model.random_state, shape)
    return content(used, generator_states=True)


def fit_many(
    estimators: Sequence[DirectRegressor],
    X: ArrayLike,
    y: ArrayLike | Sequence[ArrayLike],
    sample_weight: ArrayLike | None = None,
) -> list[DirectRegressor]:
    """Fit several regressors to the same rows, with one pass over them for each distinct feature map.

    Each is fitted as its ``fit`` would fit it, to rounding; in the raw basis, whose optima are local, first fits are
    made together and may end in another optimum (see `fit_mean_fields`). Models whose features agree share features,
    sums over rows and the factorisation of ΦᵀΦ: they may differ in target, noise, prior, levels and all else that comes
    after. Features with a learned kernel are shared by models with the same target.

    Seconds that models share are divided among them: ``fit_seconds_`` of all together is what the fits took.

    Parameters
    ----------
    estimators : sequence of DirectRegressor
        Fitted in place.
    X : array_like of shape (n_samples, n_features_in)
    y : array_like of shape (n_samples,) or (n_samples, n_outputs), or a list or tuple of them
        One target for all, or a list with one an estimator.
    sample_weight : array_like of shape (n_samples,), optional

    Returns
    -------
    list of DirectRegressor
        The estimators.

    Raises
    ------
    ValueError, TypeError
        When the data or a parameter is not as `DirectRegressor.fit` describes.

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
        raise TypeError("estimators must be a list of DirectRegressor, got one")
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
    for target in {id(target): target for target in targets}.values():
        DirectRegressor()._start_fit(X, target, sample_weight)
    groups: dict[tuple[Hashable, str], list[int]] = {}
    for k, (model, target) in enumerate(zip(estimators, targets, strict=True)):
        own = str(joblib.hash(np.asarray(target))) if model._learns_kernel() else ""
        groups.setdefault((feature_key(model), own), []).append(k)
    for members in groups.values():
        _fit_group([estimators[k] for k in members], X, [targets[k] for k in members], sample_weight)
    return estimators


def _targets(y: Any, n_models: int) -> list[Any]:
    if not isinstance(y, list | tuple) or not y or np.ndim(y[0]) == 0:
        return [y] * n_models
    if len(y) != n_models:
        raise ValueError(f"y must be one target or a list of one an estimator, {n_models}, got {len(y)}")
    return list(y)


def _fit_group(
    models: Sequence[DirectRegressor], X: ArrayLike, targets: Sequence[Any], sample_weight: ArrayLike | None
) -> None:
    """Fit models that share their feature map, which the first of them fits."""
    lead = models[0]
    shared = Progress(0)
    n_threads = resolve_n_threads(lead.n_threads)
    rng = lead._generator()
    after_features = inference_rng(rng)
    columns: list[FloatArray] = []
    for model, target in zip(models, targets, strict=True):
        x, given, standardised, weight = model._start_fit(X, target, sample_weight)
        model._forget_all()
        model.repetitions_ = float(distinct_rows(x, given, weight)[2].mean())
        columns.append(standardised)
    with single_blas_thread():
        with shared.stage("features"):
            basis = lead._fit_features(x, columns[0], weight, rng, n_threads, lead.y_scale_)
        with shared.stage("statistics"):
            inputs = basis.inputs(x)
            statistics = collect_statistics(
                basis.map, inputs, np.hstack(columns), weight, block_dtype=lead.block_dtype, n_threads=n_threads
            )
            missing = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
            if any(model.basis == "raw" for model in models):
                statistics.form_gram()  # once for all
        trainings = []
        for model in models:
            model.features_, model.mean_missing_variance_ = basis, missing
        with shared.stage("inference"):
            rotated = decorrelate(statistics) if any(model._needs_rotation() for model in models) else None
            end = 0
            for standardised in columns:
                own = slice(end, end := end + standardised.shape[1])
                rest = copy.deepcopy(after_features)  # every model's own
                turned = None if rotated is None else rotated.outputs(own)
                trainings.append(
                    Training(statistics.outputs(own), inputs, standardised, weight, rest, n_threads, (), turned)
                )
            trainings = begun_together(models, trainings)
        for model, training in zip(models, trainings, strict=True):
            progress = Progress(0)
            progress.seconds = {name: seconds / len(models) for name, seconds in shared.seconds.items()}
            with progress.stage("inference"):
                model._infer(training)
            model.fit_seconds_ = progress.seconds
            model.n_samples_ = statistics.n_samples
            model._set_results()
            model._warn_if_unfinished()
