"""Which transform of the targets: by name, or by leave-one-out density in the targets' own units."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from pydirect._validation import FloatArray, as_choice, shown
from pydirect._warnings import ignored
from pydirect.predictive.transforms import TRANSFORMS, TargetTransform

NAMED = tuple(name for name in TRANSFORMS if name != "identity")
# Rows, landmarks and rows of the marginal likelihood with which transforms are compared.
MAX_ROWS, MAX_FEATURES, MAX_HYPERPARAMETER_ROWS = 2000, 300, 500
FEWEST_ROWS = 20
# Gain in nats per row, and in its standard errors, for which a transform is worth having.
LEAST_GAIN, LEAST_STANDARD_ERRORS = 0.02, 1.0


def as_transform_names(value: Any, n_outputs: int | None = None) -> list[str]:
    """Return the names of transforms, one per output once their number is known, or raise."""
    if value is None or isinstance(value, str):
        as_choice("auto" if value is None else value, "target_transform", (*NAMED, "auto"))
        return [value or "identity"] * (n_outputs or 1)
    if not isinstance(value, Sequence) or not len(value):
        raise TypeError(f"target_transform must be None, a name or a list of one per output, got {shown(value)}")
    for k, name in enumerate(value):
        if name is not None:
            as_choice(name, f"target_transform[{k}]", NAMED)
    if n_outputs is not None and len(value) != n_outputs:
        raise ValueError(f"target_transform must have one name per output, {n_outputs}, got {len(value)}")
    return [name or "identity" for name in value]


def fitted_transform(names: Sequence[str], y: FloatArray) -> TargetTransform:
    """Return the transforms with their shifts for these targets, (n_rows, n_outputs).

    Only a square root accepts zeros: it then adds half of the smallest positive target (1/2 for counts, as Bartlett
    1936 does).
    """
    for name, column in zip(names, y.T, strict=True):
        if name == "sqrt" and column.min() < 0:
            raise ValueError(f"y must not be negative for target_transform='sqrt', got {column.min():g}")
    shifts = [_half_smallest(y[:, k]) if name == "sqrt" else 0.0 for k, name in enumerate(names)]
    transform = TargetTransform(tuple(names), tuple(shifts))
    transform.forward(y)  # raises for targets out of range
    return transform


def best_transform(model: Any, x: FloatArray, y: FloatArray, weight: FloatArray | None) -> TargetTransform:
    """Choose transforms by the leave-one-out log density of y, of a small model of each output alone.

    Parameters
    ----------
    model : DirectRegressor
    x : ndarray of shape (n_rows, n_features_in)
    y : ndarray of shape (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,) or None
    """
    rows = _rows(model, len(x), weight)
    kept = x[rows], y[rows], None if weight is None else weight[rows]
    best = [_best_of_one(model, kept[0], kept[1][:, [k]], kept[2], y[:, k]) for k in range(y.shape[1])]
    return TargetTransform(tuple(name for name, _ in best), tuple(shift for _, shift in best))


def _best_of_one(
    model: Any, x: FloatArray, y: FloatArray, weight: FloatArray | None, every: FloatArray
) -> tuple[str, float]:
    """Return name and shift of the best transform of one output, (n_rows, 1); `every`: of all rows."""
    best, shift = ("identity", 0.0), _half_smallest(every)
    if every.min() < 0.0 or y.min() == y.max() or len(y) < FEWEST_ROWS:
        return best
    before, least = _log_density(model, x, y, weight, TargetTransform(("identity",), (0.0,))), LEAST_GAIN
    for name in NAMED:
        gain = _log_density(model, x, y, weight, TargetTransform((name,), (shift,))) - before
        mean = float(np.average(gain, weights=weight))
        error = float(np.sqrt(np.average((gain - mean) ** 2, weights=weight) / len(gain)))
        if mean > max(least, LEAST_STANDARD_ERRORS * error):
            best, least = (name, shift), mean
    return best


def _log_density(
    model: Any, x: FloatArray, y: FloatArray, weight: FloatArray | None, transform: TargetTransform
) -> FloatArray:
    """Log densities of targets predicted without themselves, by a small model of transformed ones; (n_rows,)."""
    small = _small_model(model)
    with ignored():
        small.fit(x, transform.forward(y)[:, 0], weight)
    density: FloatArray = small.loo_log_density_ + transform.log_derivative(y)[:, 0]
    return density


def _small_model(model: Any) -> Any:
    """Return a model of the same features that takes a fraction of the time."""
    length_scale = model.length_scale
    if np.ndim(length_scale):  # x is encoded
        length_scale = np.asarray(length_scale)[model.columns_.origins]
    parameters = {
        "features": model.features,
        "n_basis_functions": min(model.n_basis_functions, MAX_FEATURES),
        "degree": model.degree,
        "rank_inputs": model.rank_inputs,
        "length_scale": length_scale,
        "max_hyperparameter_rows": min(model.max_hyperparameter_rows, MAX_HYPERPARAMETER_ROWS),
        "store_loo": True,
        "local": False,
        "n_threads": model.n_threads,
        "random_state": copy.deepcopy(model.random_state),
    }
    return type(model)(**parameters)


def _rows(model: Any, n_rows: int, weight: FloatArray | None) -> np.ndarray:
    """Return the rows to compare with, at most `MAX_ROWS` of positive weight."""
    rows = np.arange(n_rows) if weight is None else np.flatnonzero(weight)
    if len(rows) <= MAX_ROWS:
        return rows
    seed = copy.deepcopy(model.random_state)  # what follows must not depend on this choice
    rng = np.random.default_rng(seed.randint(2**31) if hasattr(seed, "randint") else seed)
    return np.sort(rng.choice(rows, MAX_ROWS, replace=False))


def _half_smallest(y: FloatArray) -> float:
    """Return zero for positive targets, else half of the smallest positive one."""
    positive = y[y > 0]
    return 0.0 if len(positive) == len(y) or not len(positive) else 0.5 * float(positive.min())
