"""Intervals from leave-one-out residuals: the jackknife+, studentised."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.linear.leave_one_out import LeaveOneOut, RidgePosterior
from pydirect.persistence.fields import require_array, require_positive
from pydirect.statistics.rotation import Rotation

# Of more training rows than the first number, a random choice of the second.
MAX_ROWS, CHOSEN_ROWS = 20_000, 5_000


@dataclass(frozen=True)
class Jackknife:
    """What intervals of the jackknife+ need of the training rows; merged rows count once.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features_in)
        Rows of X.
    weights : ndarray of shape (n_rows,)
        How many times each row counts, all copies together.
    pulls : ndarray of shape (n_rows, n_outputs)
        ωr/σ², r the residual without the row: the row's share in the mean of f anywhere is this times the posterior
        covariance of f there and at the row.
    scores : ndarray of shape (n_rows, n_outputs)
        Absolute studentised residuals.
    variances : ndarray of shape (n_directions, n_outputs)
        Posterior variances of continuous weights; the last of them are of the directions of a posterior, which
        drops those that the data say least about.
    """

    rows: FloatArray
    weights: FloatArray
    pulls: FloatArray
    scores: FloatArray
    variances: FloatArray

    @classmethod
    def of(
        cls,
        rows: FloatArray,
        weights: FloatArray,
        precision: FloatArray,
        found: LeaveOneOut,
        posterior: RidgePosterior,
    ) -> Jackknife:
        """Keep what is needed of rows with precisions ω/σ², (n_rows, n_outputs), and their predictions."""
        return cls(rows, weights, precision * found.residuals, np.abs(found.studentised), posterior.variances)

    def chosen(self, index: NDArray[np.intp]) -> Jackknife:
        """Return the same of some rows."""
        names = ("rows", "weights", "pulls", "scores")
        return replace(self, **{name: np.ascontiguousarray(getattr(self, name)[index]) for name in names})

    def posterior(self, k: int, rotation: Rotation, coefficients: FloatArray, prior_variance: float) -> RidgePosterior:
        """Return the posterior of continuous weights for one output, given the directions that it has kept."""
        variances = self.variances[len(self.variances) - rotation.shape[1] :, k, None]
        return RidgePosterior(rotation, coefficients[:, None], variances, np.array([prior_variance]))

    def check(self, n_features_in: int, n_outputs: int) -> None:
        """Raise unless all numbers are in their ranges."""
        n = len(self.rows)
        require_array(self.rows, "rows", n, n_features_in)
        require_positive(self.weights, "weights", n)
        require_array(self.pulls, "pulls", n, n_outputs)
        if (require_array(self.scores, "scores", n, n_outputs) < 0).any():
            raise ValueError("scores must not be negative")
        require_positive(self.variances, "variances", len(self.variances), n_outputs)


def jackknife_plus(
    mean: FloatArray, spread: FloatArray, shares: FloatArray, scores: FloatArray, weights: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return the studentised jackknife+ interval of new rows (Barber, Candès, Ramdas & Tibshirani 2021).

    The ⌊α(n + 1)⌋-th smallest of μ₋ᵢ(x) − s(x)Rᵢ and the ⌈(1 − α)(n + 1)⌉-th smallest of μ₋ᵢ(x) + s(x)Rᵢ.

    Parameters
    ----------
    mean, spread : ndarray of shape (n_new,)
        Mean and predictive standard deviation s(x).
    shares : ndarray of shape (n_new, n_rows)
        What every training row adds to the mean: μ₋ᵢ(x) is the mean without it.
    scores : ndarray of shape (n_rows,)
        Absolute studentised leave-one-out residuals R.
    weights : ndarray of shape (n_rows,)
        How many rows each counts for; n is their sum.
    level : float
        1 − α
    """
    n = float(weights.sum())
    rank = (1 - level) * (n + 1) * (1 + 1e-12)  # a whole number stays one
    if rank < 1:
        raise ValueError(f"level must be at most {n / (n + 1):.4g}, which {n:.6g} residuals resolve, got {level:g}")
    without, reach = mean[:, None] - shares, spread[:, None] * scores
    return _lowest(without - reach, weights, rank), -_lowest(-without - reach, weights, rank)


def _lowest(values: FloatArray, weights: FloatArray, rank: float) -> FloatArray:
    """Return the last of the smallest values of every row whose weights add up to `rank` at most."""
    if (weights == 1).all():
        return np.partition(values, int(rank) - 1, axis=1)[:, int(rank) - 1]
    order = np.argsort(values, axis=1, kind="stable")
    used = np.maximum((np.cumsum(weights[order], axis=1) <= rank).sum(axis=1), 1)
    return np.take_along_axis(values, np.take_along_axis(order, used[:, None] - 1, axis=1), axis=1)[:, 0]
