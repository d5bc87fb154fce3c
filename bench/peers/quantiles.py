"""Predictive distributions from a few quantiles a row."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

Array = np.ndarray


class QuantileDistribution:
    """A target that is a piecewise linear function of a standard normal variable z through given quantiles.

    Quantiles of a Gaussian give this Gaussian back. Beyond the outermost quantiles the last pieces go on, so that the
    tails are Gaussian. Quantiles that cross are sorted; those that coincide are drawn apart to a slope of `least`.

    Parameters
    ----------
    levels : array of shape (m,), increasing
    quantiles : array of shape (n, m)
    least : float
        Smallest slope, a standard deviation in units of the target.
    """

    def __init__(self, levels: Array, quantiles: Array, least: float) -> None:
        self.z = norm.ppf(levels)
        ordered = np.sort(quantiles, axis=1)
        self.slopes = np.maximum(np.diff(ordered, axis=1) / np.diff(self.z), least)
        middle = len(levels) // 2  # stays where it is
        steps = np.concatenate([np.zeros((len(ordered), 1)), np.cumsum(self.slopes * np.diff(self.z), axis=1)], axis=1)
        self.knots = ordered[:, middle : middle + 1] + steps - steps[:, middle : middle + 1]

    def quantile(self, levels: Array) -> Array:
        """Return quantiles, shape (n, len(levels))."""
        z = norm.ppf(np.atleast_1d(levels))
        piece = np.clip(np.searchsorted(self.z, z) - 1, 0, len(self.z) - 2)
        return self.knots[:, piece] + self.slopes[:, piece] * (z - self.z[piece])

    @property
    def mean(self) -> Array:
        """Mean of each row, from 400 quantiles."""
        return self.quantile(_midpoints()).mean(axis=1)

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the ends of central intervals."""
        lower, upper = self.quantile(np.array([0.5 - level / 2, 0.5 + level / 2])).T
        return lower, upper

    def log_density(self, y: Array) -> Array:
        """Log density at one target a row."""
        rows = np.arange(len(y))
        piece = np.clip((self.knots < y[:, None]).sum(axis=1) - 1, 0, len(self.z) - 2)
        slope = self.slopes[rows, piece]
        z = self.z[piece] + (y - self.knots[rows, piece]) / slope
        return norm.logpdf(z) - np.log(slope)

    def crps(self, y: Array) -> Array:
        """Twice the pinball loss, averaged over 400 levels."""
        p = _midpoints()
        beyond = y[:, None] - self.quantile(p)
        return 2.0 * np.mean(np.maximum(p * beyond, (p - 1.0) * beyond), axis=1)


def _midpoints() -> Array:
    return (np.arange(400) + 0.5) / 400
