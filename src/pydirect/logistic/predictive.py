"""Predictive probabilities of Gaussian logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, log_ndtr, logsumexp

from pydirect._validation import FloatArray
from pydirect.logistic.expectations import softmax_log_probability

_HERMITE = np.polynomial.hermite_e.hermegauss(32)
# Trapezoidal nodes of the logistic density, around the largest term of the sum.
_LOGISTIC = np.arange(-36.0, 36.25, 0.5)
# Standard deviation from which the Gaussian counts as the wider.
_WIDE = 1.25


def predictive_log_odds(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Log-odds of E σ(z) for Gaussian z, to about ten digits however large its mean and variance are.

    Gauss–Hermite quadrature while σ is smooth on the scale of the Gaussian. Where the Gaussian is wider, σ is taken as
    the distribution function of a logistic L: E σ(z) = E Φ((mean − L)/sd), a sum over L.
    """
    mean, sd = np.asarray(mean, dtype=np.float64), np.sqrt(np.asarray(variance, dtype=np.float64))
    out = np.empty(mean.shape)
    wide = sd > _WIDE
    m, s = mean[~wide], sd[~wide]
    nodes, masses = _HERMITE
    z = m[:, None] + s[:, None] * nodes
    log_mass = np.log(masses / masses.sum())
    out[~wide] = logsumexp(log_expit(z) + log_mass, axis=1) - logsumexp(log_expit(-z) + log_mass, axis=1)
    out[wide] = _log_wide(mean[wide], sd[wide]) - _log_wide(-mean[wide], sd[wide])
    return out


def _log_wide(mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Log of E Φ((mean − L)/sd), up to the constant spacing of the nodes."""
    at = np.minimum(mean + sd**2, 0.0)[:, None] + _LOGISTIC
    return logsumexp(log_ndtr((mean[:, None] - at) / sd[:, None]) + log_expit(at) + log_expit(-at), axis=1)


def predictive_probability(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """``Pr(t = 1) = E σ(z)`` for Gaussian z; see `predictive_log_odds`."""
    return expit(predictive_log_odds(mean, variance))


def averaged_log_odds(logit: FloatArray, variance: FloatArray | None = None) -> FloatArray:
    """Log-odds of the mean of σ(z) over draws of z, each blurred by a Gaussian if there is a variance; (n_rows,).

    `logit`, (n_rows, n_draws). `variance`, (n_rows,).
    """
    odds = logit if variance is None else predictive_log_odds(logit, np.broadcast_to(variance[:, None], logit.shape))
    return logsumexp(log_expit(odds), axis=1) - logsumexp(log_expit(-odds), axis=1)


def averaged_softmax(logit: FloatArray, variance: FloatArray | None = None) -> FloatArray:
    """Log of the mean of softmax(z) over draws of z, blurred by a Gaussian if there is a variance; (n_rows, n_classes).

    `logit`, (n_rows, n_classes, n_draws). `variance`, (n_rows,): of each logit.
    """
    n_draws = logit.shape[2]
    if variance is None:
        log_probability = logit - logsumexp(logit, axis=1, keepdims=True)
    else:
        flat = np.moveaxis(logit, 2, 1).reshape(-1, logit.shape[1])
        each = softmax_log_probability(flat, np.repeat(variance, n_draws)).reshape(len(logit), n_draws, -1)
        log_probability = np.moveaxis(each, 1, 2)
    return logsumexp(log_probability, axis=2) - np.log(n_draws)
