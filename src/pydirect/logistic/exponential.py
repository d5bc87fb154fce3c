"""The exponential bound of the logistic likelihood (Evans & Nair 2018, Theorem 2)."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.special import softmax

from pydirect._threads import raise_if_set
from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import FactorizedCategorical, gauss_hermite
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import with_outcome
from pydirect.logistic.rows import LabelledRows
from pydirect.optimize.outcome import Outcome

# An iteration that raises the bound by less than this many nats and this fraction of it is the last.
RISE = 1e-4
RELATIVE_RISE = 1e-7
# exp(−t φ (w − w_0)) stays a normal number up to this exponent.
LARGEST_EXPONENT = 600.0
# With fewer, deviations of weights with a prior that is not Gaussian are wrong by more than some per cent.
FEWEST_LEVELS = 7
# Number of times that levels are placed in the decorrelated basis, and iterations or epochs after all but the last.
PLACEMENTS = 4
PLACEMENT_ITERATIONS = 30

_Posterior = TypeVar("_Posterior", bound=MeanFieldPosterior)


def exponential_log_terms(rows: LabelledRows, levels: FloatArray, q: FloatArray) -> FloatArray:
    """``log E exp(−t z) = −t offset + Σ_j log q_jᵀ exp(−t φ_j w̄_j)`` per row with Φ in memory, (n_samples,).

    ``−Σ ω E exp(−t z)`` is Theorem 2's lower bound on Σ ω E log σ(t z). `levels` and `q`, (n_weights, n_levels).
    """
    levels = np.broadcast_to(levels, q.shape)
    reach = np.abs(levels - levels[:, :1]).max(axis=1)
    largest = float((np.abs(rows.x).max(axis=0, initial=0.0) * reach).max(initial=0.0))
    if largest > LARGEST_EXPONENT:
        raise ValueError(
            f"features times the range of their levels must be at most {LARGEST_EXPONENT:g} for the exponential "
            f"bound, got {largest:.4g}: rescale the features, or use bound='jaakkola'"
        )
    log_terms = -rows.t[:, 0] * rows.offset
    for j in range(len(q)):
        shift, terms = _powers(rows, j, levels[j])
        log_terms += shift + np.log(terms @ q[j])
    return log_terms


def _powers(rows: LabelledRows, j: int, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return exp(−t φ_j w̄_j), (n_samples, n_levels), as logs of factors, (n_samples,), and what is left."""
    exponent = (-rows.t[:, 0] * rows.x[:, j])[:, None] * levels
    largest = exponent.max(axis=1)
    return largest, np.exp(exponent - largest[:, None])


def fit_exponential(rows: LabelledRows, start: _Posterior, *, max_iter: int, stop: threading.Event) -> _Posterior:
    """Maximise the exponential bound from a posterior on the same levels, weight by weight, with Φ in memory.

    The bound is linear in q_j, so that ``q_j ∝ p_j exp(∂bound/∂q_j)`` is the best q_j, where
    ``∂bound/∂q_jk = −Σ_i ω_i exp(−t_i offset) exp(−t_i φ_ij w̄_jk) Π_{l≠j} E exp(−t_i φ_il w_l)``. Gradients in logits
    vanish where q is nearly certain, as it often is at the start; this step does not.
    """
    rows, q, outcome = rows.held(however_large=True), np.array(start.q), Outcome()
    levels, log_prior = (np.broadcast_to(each, q.shape) for each in (start.levels, start.log_prior))

    def bound(log_terms: FloatArray) -> float:
        return -float(rows.weight @ np.exp(log_terms)) - FactorizedCategorical(levels, q).kl(log_prior)

    log_terms = exponential_log_terms(rows, levels, q)
    trace = [bound(log_terms)]
    try:
        while outcome.n_iter < max_iter and not outcome.converged:
            raise_if_set(stop)
            for j in range(len(q)):
                _, terms = _powers(rows, j, levels[j])
                rest = log_terms - np.log(terms @ q[j])  # without the j-th factor, times what `terms` lack
                slope = -(rows.weight * np.exp(np.minimum(rest, LARGEST_EXPONENT))) @ terms
                q[j] = softmax(log_prior[j] + slope)
                log_terms = rest + np.log(terms @ q[j])
            trace.append(bound(log_terms))
            outcome.n_iter += 1
            outcome.converged = trace[-1] - trace[-2] <= RISE + RELATIVE_RISE * abs(trace[-1])
    except KeyboardInterrupt:
        stop.set()
        trace.append(bound(exponential_log_terms(rows, levels, q)))
    outcome.elbo, outcome.trace = trace[-1], np.array(trace)
    return with_outcome(replace(start, weights=FactorizedCategorical(start.weights.levels, q)), outcome, stop)


def fit_exponential_decorrelated(
    rows: LabelledRows,
    start: GaussianPosterior,
    *,
    variance: float,
    n_levels: int,
    max_iter: int,
    stop: threading.Event,
) -> GaussianPosterior:
    """Maximise the exponential bound in the basis of a Gaussian posterior, on levels that move along with it.

    Levels w_k are the Gauss–Hermite nodes of N(m, v), m and v those of the last posterior, with prior masses
    q_k p(w_k)/N(w_k; m, v). Of the model on these levels the ELBO is a bound; of continuous weights it is one as far as
    quadrature is exact where a likelihood is not Gaussian: from `FEWEST_LEVELS` on it was never above that of many
    levels by more than some ten-thousandths of a nat. The first levels surround zero and Jaakkola and Jordan's means:
    means under the exponential bound are about half of those.

    `start`: of weights in units of √variance. `max_iter`, `stop`: as in `fit_exponential`. Returns a Gaussian with the
    means and variances on the levels.
    """
    turned = rows.rotated(np.sqrt(variance) * start.vectors).held(however_large=True)
    t = float(start.prior_variance)
    nodes, q = gauss_hermite(n_levels)
    centre, spread = start.mean, np.maximum(start.std, 0.25 * np.abs(start.mean))
    posterior: GaussianPosterior | MeanFieldPosterior = start
    for left in range(PLACEMENTS - 1, -1, -1):
        # With at least a tenth of the prior's precision from the rows.
        width = 1 / (np.maximum(1 / spread**2 - 1 / t, 0.1 / t) + 1 / t)
        levels = centre[:, None] + np.sqrt(width)[:, None] * nodes
        log_width = np.log(q) + 0.5 * nodes**2  # of the level's share of the line, up to a constant
        log_prior = log_width - 0.5 * levels**2 / t + 0.5 * np.log(width / t)[:, None]
        deviation = (levels - posterior.mean[:, None]) / np.maximum(posterior.std, 1e-3 * spread)[:, None]
        weights = FactorizedCategorical.from_logits(levels, log_width - 0.5 * deviation**2)
        placed = MeanFieldPosterior(weights, start.noise, log_prior, start.outcome)
        iterations = min(max_iter, PLACEMENT_ITERATIONS) if left else max_iter
        posterior = fit_exponential(turned, placed, max_iter=iterations, stop=stop)
        if posterior.interrupted:
            break
        centre, spread = posterior.mean, np.maximum(posterior.std, 0.25 * spread)
    return replace(start, mean=posterior.mean, variance=posterior.variance, outcome=posterior.outcome)
