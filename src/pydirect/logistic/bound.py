"""The Jaakkola bound of the logistic likelihood."""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit

from pydirect._validation import FloatArray

SMALLEST_XI = 1e-10


# --- Jaakkola and Jordan's bound


def jaakkola_lambda(xi: FloatArray) -> FloatArray:
    """``λ(ξ) = tanh(ξ/2) / (4ξ)``, 1/8 at zero."""
    small = np.abs(xi) < 1e-3
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi**2 / 96, np.tanh(0.5 * safe) / (4 * safe))


def jaakkola_bound(
    t: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray, xi: FloatArray | None = None
) -> float:
    """Lower bound of Σ ω E log σ(t z) from the first two moments of z.

    Parameters
    ----------
    t, mean, variance, weight : ndarray of shape (n_samples,)
    xi : ndarray of shape (n_samples,), optional
        √E z² by default, the best.
    """
    second = mean**2 + variance
    if xi is None:
        return float(weight @ (log_expit(root := np.sqrt(second)) + 0.5 * (t * mean - root)))
    return float(weight @ (log_expit(xi) + 0.5 * (t * mean - xi) - jaakkola_lambda(xi) * (second - xi**2)))


def log_xi_of(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the logarithm of the best ξ = √E f², bounded away from zero."""
    return 0.5 * np.log(np.maximum(mean**2 + variance, SMALLEST_XI**2))
