"""The exponential bound of the logistic likelihood (Evans & Nair 2018, Theorem 2)."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
from scipy.special import softmax

from pydirect._threads import raise_if_set
from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.logistic.ascent import with_outcome
from pydirect.logistic.rows import LabelledRows
from pydirect.optimize.outcome import Outcome

# An iteration that raises the bound by less than this many nats and this fraction of it is the last.
RISE = 1e-4
RELATIVE_RISE = 1e-7
# exp(−t φ (w − w_0)) stays a normal number up to this exponent.
LARGEST_EXPONENT = 600.0


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


def fit_exponential(
    rows: LabelledRows, start: MeanFieldPosterior, *, max_iter: int, stop: threading.Event
) -> MeanFieldPosterior:
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
