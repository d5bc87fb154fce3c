"""Regression with continuous weights and a factorised Gaussian posterior: what REPARAM infers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_number
from pydirect.distributions.noise import NoiseGrid, NoisePosterior
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics


@dataclass(frozen=True)
class GaussianRegression:
    """The same regression with continuous weights: Gaussian prior, factorised Gaussian posterior (REPARAM's model).

    Parameters
    ----------
    statistics : TargetStatistics
        Sums over the rows.
    prior_variance : float
        Of every weight.
    noise : NoiseGrid
        Noise levels and their prior.
    """

    statistics: TargetStatistics
    prior_variance: float
    noise: NoiseGrid

    @classmethod
    def of(
        cls,
        statistics: TargetStatistics | GaussianStatistics,
        prior_variance: float,
        noise_levels: ArrayLike,
        log_noise_prior: ArrayLike | None = None,
    ) -> GaussianRegression:
        """Validate statistics of one target, the prior variance, and the noise as `fit_mean_field` describes it.

        Parameters
        ----------
        statistics : TargetStatistics or GaussianStatistics
            Sums over the rows.
        prior_variance : float
            Prior variance of the weights.
        noise_levels : array_like of shape (n_noise_levels,)
            Values that the noise variance can take.
        log_noise_prior : array_like of shape (n_noise_levels,), optional
            Log masses of their prior, uniform by default.
        """
        variance = as_number(prior_variance, "prior_variance", above=0.0)
        return cls(as_target_statistics(statistics), variance, NoiseGrid.of(noise_levels, log_noise_prior))


@dataclass
class GaussianPosterior(WithOutcome):
    """A fitted factorised Gaussian posterior of the weights, and the noise.

    Attributes
    ----------
    mean, std : ndarray of shape (n_weights,)
    noise : NoisePosterior
    outcome : Outcome
        Its trace has the highest value so far, check by check.
    """

    mean: FloatArray
    std: FloatArray
    noise: NoisePosterior
    outcome: Outcome

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ; (n_rows,) each.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows,) each.
        """
        return phi @ self.mean, np.square(phi) @ np.square(self.std)
