"""Likelihoods of labels, in expectation over Gaussian logits: what inference needs of every row.

A problem has one logit z for two classes, with likelihood σ(tz), or one logit per class, with likelihood softmax(z).
All logits of a row have the same variance v: the classes share the covariance of their weights (see
`pydirect.logistic.gaussian`).

- `softmax_terms`: E log p(y | z) itself, by quadrature. The ELBO of Gaussian weights is then exact, a lower bound on
  the log evidence. Its second derivative in the means, averaged over the classes, is the precision of the best
  covariance that the classes can share (Opper & Archambeau 2009).
- `jaakkola_terms`: of one logit, log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²) with λ(ξ) = tanh(ξ/2)/(4ξ), best at
  ξ² = E z² (Jaakkola & Jordan 2000). It needs only two moments of z, and is a bound for weights of any distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit

from pydirect._validation import FloatArray
from pydirect.logistic.expectations import expected_sigmoid, expected_softmax, softmax_log_probability
from pydirect.logistic.predictive import predictive_log_odds

SMALLEST_XI = 1e-10
# Probability from which `expected_sigmoid` has digits enough for its logarithm.
LEAST_PROBABILITY = 1e-5


@dataclass(frozen=True)
class RowTerms:
    """A likelihood at rows whose logits have given moments.

    - `value`, (n_rows,): E log p(y | z), or a lower bound on it.
    - `residual`, (n_rows, n_functions): its derivatives in the means.
    - `precision`, (n_rows,): minus its second derivative, averaged over the functions' free contrasts.
    """

    value: FloatArray
    residual: FloatArray
    precision: FloatArray


# From labels ±1 (n_rows, n_functions), means of the same shape and variances (n_rows,).
Likelihood = Callable[[FloatArray, FloatArray, FloatArray], RowTerms]


def softmax_terms(t: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
    """Integrate the softmax likelihood; σ(tz) where there is one logit."""
    if t.shape[1] == 1:
        wrong = expected_sigmoid(-t[:, 0] * mean[:, 0], variance)
        return RowTerms(-wrong.log_partition, t * wrong.probability[:, None], wrong.curvature)
    expected, right = expected_softmax(mean, variance), t > 0
    return RowTerms(mean[right] - expected.log_partition, right - expected.probability, expected.curvature)


def label_log_probability(t: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Log E p(y | z) of the rows' labels, (n_rows,); arguments as of `softmax_terms`."""
    if t.shape[1] == 1:
        z = t[:, 0] * mean[:, 0]
        probability = expected_sigmoid(z, variance).probability
        log_probability = np.log(np.clip(probability, LEAST_PROBABILITY, 1.0))
        small = probability < LEAST_PROBABILITY  # whose digits are lost
        log_probability[small] = log_expit(predictive_log_odds(z[small], variance[small]))
        return log_probability
    return softmax_log_probability(mean, variance)[t > 0]


def jaakkola_terms(t: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
    """Jaakkola and Jordan's bound at the best ξ, of one logit."""
    t, mean = t[:, 0], mean[:, 0]
    xi = np.maximum(np.sqrt(mean**2 + variance), SMALLEST_XI)
    precision = 2 * jaakkola_lambda(xi)
    return RowTerms(log_expit(xi) + 0.5 * (t * mean - xi), (0.5 * t - precision * mean)[:, None], precision)


def jaakkola_lambda(xi: FloatArray) -> FloatArray:
    """``λ(ξ) = tanh(ξ/2) / (4ξ)``, 1/8 at zero."""
    small = np.abs(xi) < 1e-3
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi**2 / 96, np.tanh(0.5 * safe) / (4 * safe))


LIKELIHOODS: dict[str, Likelihood] = {"softmax": softmax_terms, "jaakkola": jaakkola_terms}
