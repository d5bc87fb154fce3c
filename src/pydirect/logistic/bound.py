"""The Jaakkola bound of the logistic likelihood (Jaakkola & Jordan 2000).

``log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²)`` with ``λ(ξ) = tanh(ξ/2)/(4ξ)`` is quadratic in z, and best at
``ξ² = E z²``. For given ξ it is the log-likelihood of a Gaussian regression with targets and precisions of its own in
every row.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_expit

from pydirect._validation import FloatArray

SMALLEST_XI = 1e-10


def jaakkola_lambda(xi: FloatArray) -> FloatArray:
    """``λ(ξ) = tanh(ξ/2) / (4ξ)``, 1/8 at zero."""
    small = np.abs(xi) < 1e-3
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi**2 / 96, np.tanh(0.5 * safe) / (4 * safe))


def jaakkola_bound(t: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray) -> float:
    """Lower bound on Σ ω E log σ(t z) at the best ξ, from the first two moments of z.

    `t`, `mean`, `variance`, `weight`, (n_samples,).
    """
    xi = np.sqrt(mean**2 + variance)
    return float(weight @ (log_expit(xi) + 0.5 * (t * mean - xi)))


def best_log_xi(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the logarithm of the best ξ = √E z², bounded away from zero."""
    return 0.5 * np.log(np.maximum(mean**2 + variance, SMALLEST_XI**2))


def pseudo_targets(t: FloatArray, offset: float | FloatArray, xi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Targets t/(4λ) − offset of f* = z − offset, and their precisions 2λ, that make regression of the bound at ξ."""
    lam = jaakkola_lambda(xi)
    return t / (4 * lam) - offset, 2 * lam
