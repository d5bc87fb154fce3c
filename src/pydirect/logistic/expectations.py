"""Exact expectations of the softmax and logistic likelihoods over independent Gaussian logits of equal variance.

Gumbel noise turns softmax into a race (Gumbel 1954; the Gumbel-max trick, Maddison, Tarlow & Minka 2014): with
independent standard Gumbel G_k, Pr(argmax_k z_k + G_k = k | z) = softmax_k(z), and max_k (z_k + G_k) is distributed as
log Σ e^{z_k} plus a standard Gumbel. Where the z_k are independent, so are the runners z_k + G_k, and what are
integrals over K logits become integrals over the time t of the winner. With
F_k(t) = Pr(z_k + G_k ≤ t) = E exp(−exp(z_k − t)), r_k = (log F_k)', R = Σ r_k and P = Π F_k,

    E softmax_k = ∫ P r_k dt
    E softmax_k (1 − softmax_k) = ∂ E softmax_k / ∂ mean_k = ∫ P r_k (R − r_k) dt
    E log Σ e^z = ∫ t P R dt − γ, γ Euler's constant.

All integrands are analytic in the strip |Im t| < π/2, so that the trapezoidal rule converges exponentially: some 25
nodes give nine digits. F itself is one function of (t − mean)/√(1 + variance) and the variance, kept as a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pydirect import _core
from pydirect._validation import FloatArray


@dataclass(frozen=True)
class ExpectedLikelihood:
    """Expectations of the log-likelihood's partition function and of its derivatives, over the logits of each row.

    Attributes
    ----------
    log_partition : (n,)
        E log Σ exp z; of one logit E log(1 + exp z).
    probability : (n, K) or (n,)
        E softmax(z) or E σ(z): its gradient in the means.
    curvature : (n,)
        Σ_k E softmax_k(z) (1 − softmax_k(z)) / (K − 1), or E σ(z) σ(−z): its second derivative in the means, averaged
        over the K − 1 contrasts that softmax sees.
    """

    log_partition: FloatArray
    probability: FloatArray
    curvature: FloatArray


def expected_softmax(mean: ArrayLike, variance: ArrayLike, n_threads: int = 1) -> ExpectedLikelihood:
    """Integrate log Σ exp z and softmax(z) over independent Gaussian z, to about 1e-9 at any variance.

    Parameters
    ----------
    mean : (n, K)
        Of the logits.
    variance : (n,)
        Of every logit of the row.
    n_threads : int
        Results do not depend on it.

    References
    ----------
    Gumbel (1954), Statistical theory of extreme values and some practical applications; Maddison, Tarlow & Minka
    (2014), A* sampling.
    """
    mean, variance = _in_order(mean), _in_order(variance) + 0.0  # no −0
    out = ExpectedLikelihood(np.empty(variance.shape), np.empty(mean.shape), np.empty(variance.shape))
    _core.expected_softmax(mean, variance, out.log_partition, out.probability, out.curvature, n_threads)
    return out


def expected_sigmoid(mean: ArrayLike, variance: ArrayLike, n_threads: int = 1) -> ExpectedLikelihood:
    """Integrate log(1 + exp z) and σ(z) over Gaussian z, to about 1e-9 at any variance.

    By the trapezoidal rule over the Gaussian; where that is wide, over the difference of each function from a Gaussian
    one of the same limits, whose expectation is known.

    Parameters
    ----------
    mean, variance : (n,)
        Of the logit.
    n_threads : int
        Results do not depend on it.
    """
    mean, variance = _in_order(mean), _in_order(variance) + 0.0  # no −0
    out = ExpectedLikelihood(*(np.empty(mean.shape) for _ in range(3)))
    _core.expected_sigmoid(mean, variance, out.log_partition, out.probability, out.curvature, n_threads)
    return out


def softmax_log_probability(mean: ArrayLike, variance: ArrayLike, n_threads: int = 1) -> FloatArray:
    """``log E softmax(z)`` for independent Gaussian z, (n, K), finite however improbable a class is.

    It is at least ``E log softmax(z)``, by Jensen's inequality; see `expected_softmax` for the parameters.
    """
    mean = _in_order(mean)
    expected = expected_softmax(mean, variance, n_threads)
    with np.errstate(divide="ignore"):
        log_probability = np.log(expected.probability)
    return np.minimum(np.maximum(log_probability, mean - expected.log_partition[:, None]), 0.0)


def _in_order(value: ArrayLike) -> FloatArray:
    return np.ascontiguousarray(value, dtype=np.float64)
