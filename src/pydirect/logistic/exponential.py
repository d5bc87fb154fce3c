"""The exponential bound of the logistic likelihood (Evans & Nair 2018, Theorem 2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.special import logsumexp, softmax

from pydirect import _core
from pydirect._threads import raise_if_set
from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import FactorizedCategorical, gauss_hermite
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import with_outcome
from pydirect.logistic.rows import LabelledRows
from pydirect.optimize.gradient import lbfgs
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


def exponential_bound(rows: LabelledRows, levels: FloatArray, q: FloatArray) -> tuple[float, FloatArray]:
    """``−Σ ω E exp(−t z)``, Theorem 2's lower bound on Σ ω E log σ(t z), and its gradient in q (n_weights, n_levels).

    In log space, ``log E exp(−t z) = −t offset + Σ_j log q_jᵀ exp(−t φ_j w̄_j)``; −inf where a term overflows.
    """
    table = _ExponentialTable(levels, q)
    gradient = np.zeros((table.n_levels, table.padded))
    value = 0.0
    for terms, part in _over_blocks(rows, table, with_gradient=True):
        value -= terms
        gradient -= part
    return value, np.ascontiguousarray(gradient[:, : rows.n_weights].T)


def exponential_log_terms(rows: LabelledRows, levels: FloatArray, q: FloatArray) -> FloatArray:
    """``log E exp(−t z)`` per row, (n_samples,); parameters as in `exponential_bound`."""
    table = _ExponentialTable(levels, q)
    terms = np.empty(rows.n_samples)

    def fill(phi: FloatArray, part: slice) -> None:
        terms[part] = table.log_terms(phi, -rows.t[part, 0], rows.weight[part], None, rows.n_threads)

    for _ in replace(rows, n_threads=1).map_blocks(fill):
        pass
    return terms - rows.t[:, 0] * rows.offset


class _ExponentialTable:
    """Probabilities and levels in the kernel's layout: transposed and padded, levels as offsets from the first."""

    def __init__(self, levels: FloatArray, q: FloatArray) -> None:
        b, self.n_levels = q.shape
        self.padded = b + -b % _core.LEVEL_PADDING
        levels = np.broadcast_to(levels, q.shape)
        offsets = levels - levels[:, :1]
        self.reach = np.abs(offsets).max(axis=1)
        steps = np.arange(self.n_levels) * offsets[:, 1:2] if self.n_levels > 1 else offsets
        self.evenly_spaced = bool((np.abs(offsets - steps) <= 1e-12 * np.abs(levels).max(axis=1, keepdims=True)).all())
        padding = ((0, 0), (0, self.padded - b))
        self.q = np.ascontiguousarray(np.pad(q, padding[::-1]).T)
        self.q[0, b:] = 1.0
        self.first = np.pad(levels[:, 0], padding[1])
        self.offsets = np.ascontiguousarray(np.pad(offsets, padding[::-1]).T)

    def log_terms(
        self, phi: FloatArray, factor: FloatArray, weight: FloatArray, gradient: FloatArray | None, n_threads: int
    ) -> FloatArray:
        """Log of E exp(factor φᵀw) per row; the gradient of Σ weight E exp(factor φᵀw) is written to `gradient`."""
        reach = np.maximum(phi.max(axis=0, initial=0.0), -phi.min(axis=0, initial=0.0)) * self.reach
        largest = float(reach.max(initial=0.0))
        if largest > LARGEST_EXPONENT:
            raise ValueError(
                f"features times the range of their levels must be at most {LARGEST_EXPONENT:g} for the exponential "
                f"bound, got {largest:.4g}: rescale the features, or use bound='jaakkola'"
            )
        out = np.empty(len(phi))
        _core.exponential_terms(
            phi, factor, weight, self.q, self.first, self.offsets, self.evenly_spaced, out, gradient, n_threads
        )
        return out


def _over_blocks(
    rows: LabelledRows, table: _ExponentialTable, *, with_gradient: bool
) -> Iterator[tuple[float, FloatArray]]:
    """Yield Σ ω E exp(−t z) of each block of rows, and its gradient in the kernel's layout."""
    gradient = np.empty((table.n_levels, table.padded)) if with_gradient else np.empty(0)

    def of_block(phi: FloatArray, part: slice) -> tuple[float, FloatArray]:
        t = rows.t[part, 0]
        with np.errstate(over="ignore"):
            weight = rows.weight[part] * np.exp(-t * rows.offset)
            terms = table.log_terms(phi, -t, weight, gradient if with_gradient else None, rows.n_threads)
            return float(weight @ np.exp(terms)), gradient

    yield from replace(rows, n_threads=1).map_blocks(of_block)


@dataclass(frozen=True)
class _ExponentialObjective:
    """The exponential bound minus KL(q‖p) as a function of softmax logits."""

    rows: LabelledRows
    levels: FloatArray
    log_prior: FloatArray
    stop: threading.Event

    def value_and_gradient(self, flat_logits: FloatArray) -> tuple[float, FloatArray]:
        """Return value and gradient at raveled logits."""
        raise_if_set(self.stop)
        log_q, q = self.probabilities(flat_logits.reshape(self.log_prior.shape))
        value, gradient = exponential_bound(self.rows, self.levels, q)
        gain = self._gain(log_q, q)
        slope = gradient + gain
        # ∂/∂θ_j = q_j ⊙ (g_j − q_jᵀg_j)
        slope -= np.einsum("jk,jk->j", q, slope)[:, None]
        return value + float(np.vdot(q, gain)), (q * slope).ravel()

    def value(self, logits: FloatArray) -> float:
        """Return the value alone."""
        log_q, q = self.probabilities(logits)
        blocks = _over_blocks(self.rows, _ExponentialTable(self.levels, q), with_gradient=False)
        return float(np.vdot(q, self._gain(log_q, q))) - sum(v for v, _ in blocks)

    def _gain(self, log_q: FloatArray, q: FloatArray) -> FloatArray:
        return np.subtract(self.log_prior, log_q, out=np.zeros_like(q), where=q > 0)

    def probabilities(self, logits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log q and q."""
        allowed = np.where(self.log_prior > -np.inf, logits, -np.inf)
        log_q = allowed - logsumexp(allowed, axis=1, keepdims=True)
        return log_q, np.exp(log_q)


def fit_exponential(
    rows: LabelledRows,
    start: _Posterior,
    *,
    max_iter: int,
    stop: threading.Event,
) -> _Posterior:
    """Maximise the exponential bound from a posterior on the same levels: by coordinates, or by L-BFGS without Φ."""
    objective = _ExponentialObjective(rows, start.levels, np.broadcast_to(start.log_prior, start.q.shape), stop)
    if rows.is_held:
        q, outcome = _ascend_weight_by_weight(objective, start.q, max_iter)
        weights = FactorizedCategorical(start.weights.levels, q)
        return with_outcome(replace(start, weights=weights), outcome, stop)
    q = start.q
    if rows.n_samples >= 2 * rows.start_size:
        q, _ = _ascend_weight_by_weight(replace(objective, rows=rows.sample(rows.start_size)), q, max_iter)
    logits = np.log(np.maximum(q, 1e-30))
    flat, outcome = lbfgs(objective.value_and_gradient, logits.ravel(), max_iter)
    logits = flat.reshape(logits.shape)
    q = objective.probabilities(logits)[1]
    weights = FactorizedCategorical(start.weights.levels, q / q.sum(axis=1, keepdims=True))
    return with_outcome(replace(start, weights=weights), replace(outcome, elbo=objective.value(logits)), stop)


def _ascend_weight_by_weight(
    objective: _ExponentialObjective, q: FloatArray, max_iter: int
) -> tuple[FloatArray, Outcome]:
    """Coordinate ascent, Φ in memory: the bound is linear in q_j, so ``q_j ∝ p_j exp(∂bound/∂q_j)`` is the best q_j.

    ``∂bound/∂q_jk = −Σ_i ω_i exp(−t_i offset) exp(−t_i φ_ij w̄_jk) Π_{l≠j} E exp(−t_i φ_il w_l)``. Gradients in logits
    vanish where q is nearly certain, as it often is at the start; this step does not.
    """
    rows, q, outcome = objective.rows, np.array(q), Outcome()
    levels = np.broadcast_to(objective.levels, q.shape)
    exponents = np.ascontiguousarray((-rows.t * rows.x).T)
    log_weight = np.log(rows.weight)[:, None]
    trace = [objective.value(_log(q))]
    try:
        while outcome.n_iter < max_iter and not outcome.converged:
            raise_if_set(objective.stop)
            log_terms = exponential_log_terms(rows, objective.levels, q)[:, None] + log_weight
            for j in range(len(q)):
                x = exponents[j, :, None] * levels[j]
                largest = x.max(axis=1, keepdims=True)
                np.exp(x - largest, out=x)
                rest = log_terms - np.log(x @ q[j, :, None])  # without the j-th factor, times exp(largest)
                slope = -(np.exp(np.minimum(rest, LARGEST_EXPONENT)).T @ x)[0]
                q[j] = softmax(objective.log_prior[j] + slope)
                log_terms = rest + np.log(x @ q[j, :, None])
            trace.append(objective.value(_log(q)))
            outcome.n_iter += 1
            outcome.converged = trace[-1] - trace[-2] <= RISE + RELATIVE_RISE * abs(trace[-1])
    except KeyboardInterrupt:
        objective.stop.set()
        trace.append(objective.value(_log(q)))
        outcome.interrupted = True
    outcome.elbo, outcome.trace = float(trace[-1]), np.array(trace)
    return q, outcome


def _log(q: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(q)


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
    turned, t = rows.rotated(np.sqrt(variance) * start.vectors), float(start.prior_variance)
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
