"""Scores of candidates that need no predictions: from sums over held-out rows, or of every row without itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from pydirect._validation import FloatArray
from pydirect._warnings import warn
from pydirect.features.basis import Basis
from pydirect.features.evidence import TrainingRows
from pydirect.fitted.leave_one_out import left_out
from pydirect.fitted.regression import FittedRegressor
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.running import RunningStatistics
from pydirect.statistics.standardised import Standardised

# Scores that are computed from sums over the held-out rows.
SCORES_OF_SUMS = ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error")


def squared_error(held: GaussianStatistics, model: FittedRegressor) -> FloatArray:
    """``Σ(y − φᵀs)²`` in the targets' units, from sums over rows standardised like the model's; (n_outputs,)."""
    errors = [held.target(k).squared_error(mean) for k, mean in enumerate(model.latent.coefficients.T)]
    error = np.array(errors) * model.units.scale**2
    rounding = 10 * np.finfo(float).eps * np.abs(model.units.location)
    return np.where(error > held.n_samples * rounding**2, error, 0.0)


def score_of_errors(error: FloatArray, held: RunningStatistics, n_rows: int, scoring: str) -> float:
    """Return a score of `SCORES_OF_SUMS` from squared errors in the targets' units, (n_outputs,)."""
    if scoring == "r2":
        return _r2_score(error, held, n_rows)
    mean = error / held.n_samples
    return -float(np.mean(np.sqrt(mean) if "root" in scoring else mean))


def _r2_score(error: FloatArray, held: RunningStatistics, n_rows: int) -> float:
    """R² averaged over outputs, as in scikit-learn: for a constant target 1 if there is no error, else 0."""
    if n_rows < 2:
        warn("R^2 score is not well-defined with less than two samples.", UndefinedMetricWarning, stacklevel=2)
        return float("nan")
    constant = held.target_location_scale()[1] == 0
    ratio = error / np.where(constant, 1.0, held.y_scatter)
    return float(np.mean(1 - np.where(constant, error > 0, ratio)))


def standardised_rows(
    basis: Basis, x: FloatArray, y: FloatArray, weight: FloatArray | None, shared: Standardised
) -> TrainingRows:
    """Return rows as models of sums over them see them, standardised by the sums."""
    transform, targets = basis.target_transform, y.reshape(len(x), -1)
    transformed = targets if transform is None or transform.is_identity else transform.forward(targets)
    standardised = (transformed - shared.location) / shared.scale
    return TrainingRows(x, np.where(shared.gaussian.yty == 0, 0.0, standardised), weight)


def scores_left_out(
    models: Sequence[FittedRegressor],
    rows: TrainingRows,
    shared: Standardised,
    statistics: RunningStatistics,
    scoring: Any,
) -> list[float]:
    """Score models of one feature map by rows that are left out one at a time."""
    scores = []
    for model, left in zip(models, left_out(models, rows, shared.rotated), strict=True):
        if scoring in SCORES_OF_SUMS:
            squares = np.square(shared.scale * left.found.residuals[left.where])
            error = squares.sum(axis=0) if rows.weight is None else rows.weight @ squares
            scores.append(score_of_errors(error, statistics, len(rows.x), scoring))
        else:
            density = left.log_density(rows.y[left.first]) - np.log(shared.scale)
            units = (model.units.density_units / model.n_samples).mean()
            scores.append(float(np.average(density.mean(axis=1)[left.where], weights=rows.weight) + units))
    return scores
