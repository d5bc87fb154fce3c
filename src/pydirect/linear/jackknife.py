"""Intervals from leave-one-out residuals: the jackknife+, studentised."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray


def jackknife_plus(
    mean: FloatArray, spread: FloatArray, shares: FloatArray, scores: FloatArray, weights: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Ends (n_new,) of the studentised jackknife+ interval of new rows (Barber, Candès, Ramdas & Tibshirani 2021).

    The ⌊α(n + 1)⌋-th smallest of μ₋ᵢ(x) − s(x)Rᵢ and the ⌈(1 − α)(n + 1)⌉-th smallest of μ₋ᵢ(x) + s(x)Rᵢ, with means
    μ and deviations s, (n_new,), μ₋ᵢ = μ − `shares`, (n_new, n_rows), absolute studentised leave-one-out residuals R,
    (n_rows,), rows that count as many as their `weights`, n together, and `level` 1 − α.
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
