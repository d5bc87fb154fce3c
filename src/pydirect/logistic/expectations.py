"""Exact expectations of the softmax and logistic likelihoods under independent Gaussian logits.

Gumbel noise turns softmax into a race (Gumbel 1954; the Gumbel-max trick, Maddison, Tarlow & Minka 2014): with
independent standard Gumbel G_k, Pr(argmax_k z_k + G_k = k | z) = softmax_k(z), and max_k (z_k + G_k) is distributed as
log Σ e^{z_k} plus a standard Gumbel. Where the z_k are independent, so are the runners z_k + G_k, and what are
integrals over K logits become integrals over the time t of the winner. With
F_k(t) = Pr(z_k + G_k ≤ t) = E exp(−exp(z_k − t)), r_k = (log F_k)', R = Σ r_k and P = Π F_k,

    E softmax_k = ∫ P r_k dt
    E softmax_k (1 − softmax_k) = ∂ E softmax_k / ∂ mean_k = ∫ P r_k (R − r_k) dt
    E log Σ e^z = ∫ t P R dt − γ, γ Euler's constant.

All integrands are analytic in the strip |Im t| < π/2, so that the trapezoidal rule converges exponentially.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from pydirect._validation import FloatArray

# Standard deviation from which the Gaussian counts as wider than the Gumbel distribution.
_WIDE = 1.0
_ROWS = 64


@dataclass(frozen=True)
class ExpectedLikelihood:
    """Expectations of a log-likelihood's partition function and derivatives over Gaussian logits.

    Attributes
    ----------
    log_partition : (n,)
        E log Σ exp z; for one logit E log(1 + exp z).
    probability : (n, K) or (n,)
        E softmax(z) or E σ(z), its gradient in the means.
    curvature : (n, K) or (n,)
        E softmax_k(z) (1 − softmax_k(z)) or E σ(z) σ(−z), its second derivative in each mean: twice its derivative in
        the variance.
    """

    log_partition: FloatArray
    probability: FloatArray
    curvature: FloatArray


def expected_softmax(mean: ArrayLike, variance: ArrayLike, n_threads: int = 1) -> ExpectedLikelihood:
    """Integrate log Σ exp z and softmax(z) over independent Gaussian z, to about 1e-8 at any variance.

    Parameters
    ----------
    mean, variance : (n, K)
        Of the logits; variances ≥ 0.
    n_threads : int
        Results do not depend on it.

    References
    ----------
    Gumbel (1954), Statistical theory of extreme values and some practical applications; Maddison, Tarlow & Minka
    (2014), A* sampling.
    """
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    out = ExpectedLikelihood(np.empty(mean.shape[0]), np.empty(mean.shape), np.empty(mean.shape))
    for first in range(0, mean.shape[0], _ROWS):
        rows = slice(first, first + _ROWS)
        out.log_partition[rows], out.probability[rows], out.curvature[rows] = _race(mean[rows], np.sqrt(variance[rows]))
    return out


def expected_sigmoid(mean: ArrayLike, variance: ArrayLike, n_threads: int = 1) -> ExpectedLikelihood:
    """Integrate log(1 + exp z) and σ(z) over Gaussian z: `expected_softmax` with a second logit of zero.

    Parameters
    ----------
    mean, variance : (n,)
        Of the logit; variances ≥ 0.
    n_threads : int
        Results do not depend on it.
    """
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    both = expected_softmax(np.stack([mean, 0.0 * mean], axis=1), np.stack([variance, 0.0 * mean], axis=1), n_threads)
    return ExpectedLikelihood(both.log_partition, both.probability[:, 0], both.curvature[:, 0])


def softmax_log_probability(mean: ArrayLike, variance: ArrayLike, n_threads: int = 1) -> FloatArray:
    """``log E softmax(z)`` for independent Gaussian z, (n, K), finite however improbable a class is.

    It is at least ``E log softmax(z)``, by Jensen's inequality; see `expected_softmax` for the parameters.
    """
    mean = np.asarray(mean, dtype=np.float64)
    expected = expected_softmax(mean, variance, n_threads)
    with np.errstate(divide="ignore"):
        log_probability = np.log(expected.probability)
    return np.minimum(np.maximum(log_probability, mean - expected.log_partition[:, None]), 0.0)


def _race(mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    first = (mean - 8.0 * sd).max(axis=1) - 4.0
    last = (mean + 7.0 * sd).max(axis=1) + 25.0 + np.log(mean.shape[1])
    n_times = int(np.ceil(((last - first) / (0.4 * np.maximum(1.0, sd.min(axis=1)))).max()))
    step = (last - first) / n_times
    since = step[:, None] * np.arange(n_times + 1)
    arrived, density = np.empty((2, n_times + 1, *mean.shape))
    for j in range(n_times + 1):
        time = (first + since[:, j])[:, None] - mean
        wide = sd > _WIDE
        arrived[j][wide], density[j][wide] = _wide(time[wide], sd[wide])
        arrived[j][~wide], density[j][~wide] = _narrow(time[~wide], sd[~wide])
    rate = density / np.maximum(arrived, 1e-300)
    none_left = step[:, None] * np.exp(np.log(np.maximum(arrived, 1e-300)).sum(axis=2)).T
    all_rates = rate.sum(axis=2, keepdims=True)
    probability = np.einsum("ij,jik->ik", none_left, rate)
    curvature = np.einsum("ij,jik->ik", none_left, rate * (all_rates - rate))
    winner = (none_left * all_rates[:, :, 0].T * since).sum(axis=1)
    return first + winner - np.euler_gamma, probability, curvature


def _narrow(time: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distribution function and density of Gumbel plus Gaussian, as a sum over Gaussian nodes."""
    nodes = np.arange(-7.5, 7.6, 0.4)
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    hazard = np.exp(np.minimum(sd[:, None] * nodes - time[:, None], 700.0))
    arrived = np.exp(-hazard)
    return arrived @ mass, (hazard * arrived) @ mass


def _wide(time: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the same as a sum over Gumbel nodes."""
    nodes = np.arange(-3.75, 27.0, 0.4)
    mass = 0.4 * np.exp(-nodes - np.exp(-nodes))
    z = (time[:, None] - nodes) / sd[:, None]
    return ndtr(z) @ mass, (np.exp(-0.5 * z**2) @ mass) / (sd * np.sqrt(2.0 * np.pi))
