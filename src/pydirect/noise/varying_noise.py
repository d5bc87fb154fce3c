"""Noise that varies from row to row: log σ²(x) as a regression of its own, and heavy tails.

Under a Gaussian model with noise variances σ_i², leverages h_i and residuals e_i, ``ρ_i = e_i²/(1 − h_i)`` is exactly
σ_i² times a χ² variable of one degree of freedom. Its logarithm is log σ_i² plus noise of known mean and variance, from
which a second regression learns g(x) = E log σ²(x) and the variance s_g² of that. The noise of a row is then a mixture
over scales, ``log σ²(x) ~ N(g(x) + shift, s_g²(x) + τ²)``, by Gauss-Hermite quadrature: s_g² is what is not known of g,
and the extra spread τ makes tails heavy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, logsumexp, ndtri
from scipy.stats import kurtosis

from pydirect._validation import FloatArray

# Mean and variance of the logarithm of a χ² variable of one degree of freedom.
LOG_CHI2_MEAN = float(digamma(0.5) + np.log(2.0))
LOG_CHI2_VARIANCE = 0.5 * np.pi**2
# Squared residuals below this fraction of the noise variance say no more about it.
SMALLEST_SQUARE = 1e-4
FALSE_ALARMS = 0.01
# Of standardised targets; far from all rows, where nothing is known of g, its exponential would be infinite.
LARGEST_LOG_NOISE = float(np.log(1e6))
WEIGHT_BOUNDS = (1e-3, 1e3)
SPREADS = (0.3, 0.6, 1.0, 1.5, 2.0)
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
NODE_WEIGHTS /= NODE_WEIGHTS.sum()


@dataclass(frozen=True)
class Tails:
    """Extra spread τ of the log noise variance, and its shift."""

    spread: float = 0.0
    shift: float = 0.0


NO_TAILS = Tails()
TAILS = tuple(Tails(tau, shift) for tau in SPREADS for shift in (0.0, -tau / 4, -tau / 2, -(tau**2) / 4, -(tau**2) / 2))


@dataclass(frozen=True)
class LogNoise:
    """Normal distribution of each row's log noise variance.

    - `mean`, `variance`, (n_rows,).
    """

    mean: FloatArray
    variance: FloatArray

    @classmethod
    def constant(cls, noise: float, n_rows: int) -> LogNoise:
        """Return the same noise variance, exactly known, for all rows."""
        return cls(np.full(n_rows, np.log(noise)), np.zeros(n_rows))

    def variances(self, tails: Tails) -> FloatArray:
        """Noise variances at the nodes of the quadrature, (n_rows, n_nodes); their weights are `NODE_WEIGHTS`."""
        spread = np.sqrt(self.variance + tails.spread**2)
        return np.exp(np.minimum((self.mean + tails.shift)[:, None] + spread[:, None] * NODES, LARGEST_LOG_NOISE))

    def log_density(self, residual: FloatArray, latent_variance: FloatArray, tails: Tails) -> FloatArray:
        """Log density of targets, (n_rows,), given their distance from the mean of f, and its variance."""
        variance = latent_variance[:, None] + self.variances(tails)
        parts = -0.5 * (np.log(2 * np.pi * variance) + np.square(residual)[:, None] / variance)
        return np.asarray(logsumexp(parts, b=NODE_WEIGHTS, axis=1))


def looks_constant(studentised: FloatArray, inputs: FloatArray) -> bool:
    """Whether left-out rows give no reason to doubt Gaussian noise of constant variance.

    Their kurtosis, and correlations of absolute residuals with inputs and squares of inputs (Glejser 1969), each at a
    false alarm rate of 1 %, over all inputs together.

    Parameters
    ----------
    studentised : ndarray of shape (n_rows, n_outputs)
        Residuals of left-out rows in standard deviations of their predictions.
    inputs : ndarray of shape (n_rows, n_inputs)
    """
    n = len(inputs)
    if (kurtosis(studentised, axis=0) > ndtri(1 - FALSE_ALARMS) * np.sqrt(24 / n)).any():
        return False
    size = _standardised(np.abs(studentised))
    tests = [_standardised(inputs), _standardised(inputs**2)]
    largest = max((np.abs(test.T @ size).max(initial=0.0) for test in tests), default=0.0)
    n_tests = 2 * max(inputs.shape[1] * studentised.shape[1], 1)
    return bool(largest / np.sqrt(n) < ndtri(1 - FALSE_ALARMS / (2 * n_tests)))


def _standardised(columns: FloatArray) -> FloatArray:
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, np.inf))


def estimates_of_log_noise(squares: FloatArray, noise: FloatArray) -> FloatArray:
    """Unbiased estimates of log σ_i², of variance `LOG_CHI2_VARIANCE`, from ρ_i and the mean noise variance."""
    return np.log(np.maximum(squares, SMALLEST_SQUARE * noise)) - LOG_CHI2_MEAN


def precision_weights(log_variance: FloatArray, counts: FloatArray) -> FloatArray:
    """Precisions of rows, (n_rows,), relative to their mean over all rows and within `WEIGHT_BOUNDS`."""
    weight = np.exp(np.maximum(log_variance.min() - log_variance, -700.0))
    weight = np.clip(weight / np.average(weight, weights=counts), *WEIGHT_BOUNDS)
    return np.asarray(weight / np.average(weight, weights=counts))
