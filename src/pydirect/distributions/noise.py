"""The noise variance: a categorical posterior over a grid of variances."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_float_array


class NoiseGridWarning(UserWarning):
    """The posterior of the noise variance piles up at an edge of its grid."""


@dataclass(frozen=True)
class NoisePosterior:
    """Categorical posterior of the Gaussian noise variance.

    Parameters
    ----------
    levels : ndarray of shape (n_noise_levels,)
        Variances σ², ascending.
    q : ndarray of shape (n_noise_levels,)
    """

    levels: FloatArray
    q: FloatArray

    @property
    def variance(self) -> float:
        """``E σ²``."""
        return float(self.q @ self.levels)

    @property
    def precision(self) -> float:
        """``τ = E σ⁻²``."""
        return float(self.q @ (1.0 / self.levels))

    def at_edge(self) -> str | None:
        """Name of the edge that holds more than half of the mass of a grid, if one does."""
        if self.levels.size <= 2:  # of two levels both are edges
            return None
        if self.q[0] > 0.5:
            return "lower"
        return "upper" if self.q[-1] > 0.5 else None


def warn_at_edge(noise: NoisePosterior) -> None:
    """Warn when the posterior piles up at an edge of its grid."""
    if edge := noise.at_edge():
        warnings.warn(
            f"the noise posterior piles up at the {edge} edge of its grid ({noise.levels[0]:.3g} to "
            f"{noise.levels[-1]:.3g}): widen noise_levels",
            NoiseGridWarning,
            stacklevel=3,
        )


def as_noise_levels(noise_levels: ArrayLike) -> FloatArray:
    """Validate a grid of noise variances: positive, ascending; a number is a grid of one."""
    array = as_float_array(np.atleast_1d(np.asarray(noise_levels)), "noise_levels", ("n_noise_levels",))
    if not (array > 0).all() or not (np.diff(array) > 0).all():
        raise ValueError(f"noise_levels must be positive and ascending, got {array}")
    return array
