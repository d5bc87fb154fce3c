"""Likelihoods of labels, in expectation over Gaussian logits: what inference needs of every row, and predictions.

A problem has one logit z for two classes, with likelihood σ(tz), or one logit per class, with likelihood softmax(z).
All logits of a row have the same variance v: the classes share the covariance of their weights (see
`pydirect.logistic.gaussian`).

- `softmax_terms`: E log p(y | z) itself, by quadrature. The ELBO of Gaussian weights is then exact, a lower bound on
  the log evidence. Its second derivative in the means, averaged over the classes, is the precision of the best
  covariance that the classes can share (Opper & Archambeau 2009).
- `jaakkola_terms`: of one logit, log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²) with λ(ξ) = tanh(ξ/2)/(4ξ), best at
  ξ² = E z² (Jaakkola & Jordan 2000). It needs only two moments of z, and is a bound for weights of any distribution.

Expectations of softmax are integrals over one dimension. With independent standard Gumbel G_k, max_k (z_k + G_k) is
distributed as log Σ e^{z_k} plus a standard Gumbel (Maddison, Tarlow & Minka 2014), and runners of independent z_k are
independent. With F_k(t) = Pr(z_k + G_k ≤ t) = E exp(−exp(z_k − t)), r_k = (log F_k)', R = Σ r_k and P = Π F_k,

    E softmax_k = ∫ P r_k dt,   ∂ E softmax_k / ∂ mean_k = ∫ P r_k (R − r_k) dt,   E log Σ e^z = ∫ t P R dt − γ.

All integrands are analytic in the strip |Im t| < π/2, so that the trapezoidal rule converges exponentially.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_ndtr

from pydirect import _core
from pydirect._validation import FloatArray


@dataclass(frozen=True)
class ExpectedLikelihood:
    """Expectations of the log-likelihood's partition function and of its derivatives, over the logits of each row."""

    log_partition: FloatArray  # E log Σ exp z; of one logit E log(1 + exp z)
    probability: FloatArray  # E softmax(z) or E σ(z): its gradient in the means
    # Σ_k E softmax_k(z) (1 − softmax_k(z)) / (K − 1), or E σ(z) σ(−z): its second derivative in the means, averaged
    # over the K − 1 contrasts that softmax sees.
    curvature: FloatArray


def expected_likelihood(mean: ArrayLike, variance: ArrayLike) -> ExpectedLikelihood:
    """Integrate log Σ exp z and softmax(z) over independent Gaussian z, (n, K), of variances (n,), to about 1e-9.

    Of one logit, (n,), these are log(1 + exp z) and σ(z).
    """
    mean, variance = _in_order(mean), _in_order(variance) + 0.0  # no −0
    out = ExpectedLikelihood(np.empty(variance.shape), np.empty(mean.shape), np.empty(variance.shape))
    integrate = _core.expected_sigmoid if mean.ndim == 1 else _core.expected_softmax
    integrate(mean, variance, out.log_partition, out.probability, out.curvature, 1)
    return out


def softmax_log_probability(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """``log E softmax(z)`` for independent Gaussian z, (n, K), at least ``E log softmax(z)`` however small."""
    mean = _in_order(mean)
    expected = expected_likelihood(mean, variance)
    with np.errstate(divide="ignore"):
        log_probability = np.log(expected.probability)
    return np.minimum(np.maximum(log_probability, mean - expected.log_partition[:, None]), 0.0)


def _in_order(value: ArrayLike) -> FloatArray:
    return np.ascontiguousarray(value, dtype=np.float64)


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


def averaged_log_odds(logit: FloatArray, variance: FloatArray | None = None) -> FloatArray:
    """Log-odds (n_rows,) of the mean of σ(z) over draws z (n_rows, n_draws), blurred by Gaussians of given variance."""
    odds = logit
    if variance is not None and (blurred := variance > 0).any():  # far rows, as a rule
        odds, own = logit.copy(), logit[blurred]
        odds[blurred] = predictive_log_odds(own, np.broadcast_to(variance[blurred, None], own.shape))
    return log_sum_exp(log_expit(odds)) - log_sum_exp(log_expit(-odds))


def averaged_softmax(logit: FloatArray, variance: FloatArray | None = None) -> FloatArray:
    """Log of the mean of softmax(z) over draws (n_rows, n_classes, n_draws), blurred by Gaussians of given variance."""
    n_draws = logit.shape[2]
    log_probability = logit - log_sum_exp(logit)[:, None]
    if variance is not None and (blurred := variance > 0).any():  # far rows, as a rule
        own = logit[blurred]
        flat = np.moveaxis(own, 2, 1).reshape(-1, own.shape[1])
        each = softmax_log_probability(flat, np.repeat(variance[blurred], n_draws)).reshape(len(own), n_draws, -1)
        log_probability[blurred] = np.moveaxis(each, 1, 2)
    return log_sum_exp(log_probability, axis=2) - np.log(n_draws)


SMALLEST_XI = 1e-10
# Probability from which `expected_likelihood` has digits enough for its logarithm.
LEAST_PROBABILITY = 1e-5


@dataclass(frozen=True)
class RowTerms:
    """A likelihood at rows whose logits have given moments."""

    value: FloatArray  # (n_rows,): E log p(y | z), or a lower bound on it
    residual: FloatArray  # (n_rows, n_functions): its derivatives in the means
    precision: FloatArray  # (n_rows,): minus its second derivative, averaged over the functions' free contrasts


def softmax_terms(y: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
    """Integrate the softmax likelihood; σ(tz) where there is one logit."""
    if y.shape[1] == 1:
        wrong = expected_likelihood(-y[:, 0] * mean[:, 0], variance)
        return RowTerms(-wrong.log_partition, y * wrong.probability[:, None], wrong.curvature)
    expected, right = expected_likelihood(mean, variance), y > 0
    return RowTerms(mean[right] - expected.log_partition, right - expected.probability, expected.curvature)


def label_log_probability(y: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Log E p(y | z) of the rows' labels, (n_rows,); arguments as of `softmax_terms`, or one mean per row."""
    if y.shape[1] == 1:
        z = y[:, 0] * mean.ravel()
        probability = expected_likelihood(z, variance).probability
        log_probability = np.log(np.clip(probability, LEAST_PROBABILITY, 1.0))
        small = probability < LEAST_PROBABILITY  # whose digits are lost
        log_probability[small] = log_expit(predictive_log_odds(z[small], variance[small]))
        return log_probability
    return softmax_log_probability(mean, variance)[y > 0]


def jaakkola_terms(y: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
    """Jaakkola and Jordan's bound at the best ξ, of one logit."""
    y, mean = y[:, 0], mean[:, 0]
    xi = np.maximum(np.sqrt(mean**2 + variance), SMALLEST_XI)
    precision = 2 * jaakkola_lambda(xi)
    return RowTerms(log_expit(xi) + 0.5 * (y * mean - xi), (0.5 * y - precision * mean)[:, None], precision)


def jaakkola_lambda(xi: FloatArray) -> FloatArray:
    """``λ(ξ) = tanh(ξ/2) / (4ξ)`` of positive ξ."""
    return np.tanh(0.5 * xi) / (4 * xi)


def class_numbers(t: FloatArray) -> NDArray[np.intp]:
    """Return the class of every row, (n_rows,), of labels ±1 of the functions."""
    return t.argmax(axis=1) if t.shape[1] > 1 else (t[:, 0] > 0).astype(np.intp)
