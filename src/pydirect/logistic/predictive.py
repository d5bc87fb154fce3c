"""Predictive probabilities of Gaussian logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, log_ndtr

from pydirect._validation import FloatArray
from pydirect.logistic.expectations import softmax_log_probability

_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(32)
_LOG_MASSES = np.log(_MASSES / _MASSES.sum())
# Trapezoidal nodes of the logistic density, around the largest term of the sum.
_SPACING = 0.5
_LOGISTIC = np.arange(-36.0, 36.25, _SPACING)
# Standard deviation from which the Gaussian counts as the wider.
_WIDE = 1.25


def predictive_log_odds(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Log-odds of E σ(z) for Gaussian z, to about ten digits however large its mean and variance are.

    Gauss–Hermite quadrature while σ is smooth on the scale of the Gaussian. Where the Gaussian is wider, σ is taken as
    the distribution function of a logistic L: E σ(z) = E Φ((mean − L)/sd), a sum over L.
    """
    mean, sd = np.asarray(mean, dtype=np.float64), np.sqrt(np.asarray(variance, dtype=np.float64))
    log_tail, wide = np.empty(mean.shape), sd > _WIDE
    below = -np.abs(mean)  # log E σ(z) of the less probable class has all digits, and gives the other's
    for part, log_mean in ((~wide, _log_narrow), (wide, _log_wide)):
        if part.any():
            log_tail[part] = log_mean(below[part], sd[part])
    return np.copysign(np.log1p(-np.exp(log_tail)) - log_tail, mean)


def _log_narrow(mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Log of E σ(z), by nodes of the Gaussian."""
    return log_sum_exp(log_expit(mean[:, None] + sd[:, None] * _NODES) + _LOG_MASSES)


def _log_wide(mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Log of E Φ((mean − L)/sd), by nodes of the logistic density."""
    at = np.minimum(mean + sd**2, 0.0)[:, None] + _LOGISTIC
    terms = log_ndtr((mean[:, None] - at) / sd[:, None]) + log_expit(at) + log_expit(-at)
    return log_sum_exp(terms) + np.log(_SPACING)


def log_sum_exp(values: FloatArray, axis: int = 1) -> FloatArray:
    """Log of the sum of exponentials of finite numbers; SciPy's takes as long as some predictions of one row."""
    largest = values.max(axis=axis, keepdims=True)
    return np.asarray(np.log(np.exp(values - largest).sum(axis=axis)) + largest.squeeze(axis))


def predictive_probability(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """``Pr(t = 1) = E σ(z)`` for Gaussian z; see `predictive_log_odds`.

    Parameters
    ----------
    mean : array_like
        Means of z.
    variance : array_like
        Variances of z.

    Returns
    -------
    ndarray
        Probabilities.
    """
    return expit(predictive_log_odds(mean, variance))


def averaged_log_odds(logit: FloatArray, variance: FloatArray | None = None) -> FloatArray:
    """Log-odds of the mean of σ(z) over draws of z, each blurred by a Gaussian if there is a variance; (n_rows,).

    `logit`, (n_rows, n_draws). `variance`, (n_rows,).
    """
    odds = logit
    if variance is not None and (blurred := variance > 0).any():  # far rows, as a rule
        odds, own = logit.copy(), logit[blurred]
        odds[blurred] = predictive_log_odds(own, np.broadcast_to(variance[blurred, None], own.shape))
    return log_sum_exp(log_expit(odds)) - log_sum_exp(log_expit(-odds))


def averaged_softmax(logit: FloatArray, variance: FloatArray | None = None) -> FloatArray:
    """Log of the mean of softmax(z) over draws of z, blurred by a Gaussian if there is a variance; (n_rows, n_classes).

    `logit`, (n_rows, n_classes, n_draws). `variance`, (n_rows,): of each logit.
    """
    n_draws = logit.shape[2]
    log_probability = logit - log_sum_exp(logit)[:, None]
    if variance is not None and (blurred := variance > 0).any():  # far rows, as a rule
        own = logit[blurred]
        flat = np.moveaxis(own, 2, 1).reshape(-1, own.shape[1])
        each = softmax_log_probability(flat, np.repeat(variance[blurred], n_draws)).reshape(len(own), n_draws, -1)
        log_probability[blurred] = np.moveaxis(each, 1, 2)
    return log_sum_exp(log_probability, axis=2) - np.log(n_draws)
