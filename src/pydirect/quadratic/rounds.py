"""Rounds of training of a quadratic network: starts, L-BFGS or coordinate ascent, levels around the posterior.

The prior on a symmetric grid is a saddle, because every odd moment vanishes there: starts are tilted away from it.
After a first round on levels that all weights of a layer share, the levels of each weight are placed around its
posterior and training goes on.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from pydirect._validation import FloatArray
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import evenly_spaced_levels
from pydirect.distributions.noise import NoiseGrid
from pydirect.distributions.priors import DensityPrior, Prior, grid_log_mass
from pydirect.optimize.gradient import lbfgs
from pydirect.optimize.outcome import Outcome
from pydirect.quadratic.engines import NetworkShape
from pydirect.quadratic.network import NetworkPosterior, QuadraticNetwork

# Range of the levels: in the first round in standard deviations of the prior, later of the posterior.
FIRST_REACH, LATER_REACH = 2.0, 3.0
# Starts: posterior means and widths in standard deviations of the prior.
START_SPREAD, START_WIDTH = 0.5, 0.3
# Logits of a start that has probabilities of zero.
LOWEST_LOGIT = -40.0
# Empirical Bayes looks for prior scales around this at least.
SMALLEST_SCALE = 1e-8
# An iteration that raises the ELBO by less than this fraction of it is the last.
RELATIVE_RISE = 1e-6


@dataclass(frozen=True)
class Run:
    """One start and its current state."""

    scale: FloatArray  # prior standard deviation of each layer
    levels: FloatArray  # (n_weights, n_levels)
    log_prior: FloatArray
    logits: FloatArray
    elbo: float = -np.inf  # of this round; −inf before it was trained
    trace: tuple[FloatArray, ...] = ()
    converged: bool = False

    @property
    def q(self) -> FloatArray:
        """Probabilities of the levels, (n_weights, n_levels)."""
        return FactorizedCategorical.from_logits(self.levels, self.logits).q


@dataclass(frozen=True)
class Problem:
    """What all runs share."""

    shape: NetworkShape
    prior: Prior
    n_samples: float
    noise: NoiseGrid
    optimizer: str
    max_iter: int
    stop: threading.Event  # set when the user interrupts

    def model(self, engine: Any, run: Run, n_threads: int) -> QuadraticNetwork:
        """Return the model with the levels and priors of a run."""
        return QuadraticNetwork(
            self.shape, engine, self.n_samples, run.levels, run.log_prior, self.noise, n_threads=n_threads
        )

    def by_layer(self, values: FloatArray) -> FloatArray:
        """Repeat the value of each layer over its weights, as a column."""
        return np.repeat(values, [part.stop - part.start for part in self.shape.slices])[:, None]


# --- starts


def start_at_random(problem: Problem, scale: FloatArray, n_levels: int, rng: np.random.Generator) -> Run:
    """Draw a start: levels shared by the weights of a layer, and for every weight a bump of q around a random mean."""
    column = problem.by_layer(scale)
    unit = np.broadcast_to(evenly_spaced_levels(n_levels, FIRST_REACH), (problem.shape.n_weights, n_levels))
    means = START_SPREAD * rng.standard_normal((problem.shape.n_weights, 1))
    log_prior = np.ascontiguousarray(np.broadcast_to(problem.prior.log_mass(unit[0]), unit.shape))
    logits = np.where(np.isfinite(log_prior), -0.5 * ((unit - means) / START_WIDTH) ** 2, -np.inf)
    return Run(scale, unit * column, log_prior, logits)


def start_from(problem: Problem, start: NetworkPosterior, n_levels: int) -> Run:
    """Start from an earlier posterior."""
    if not isinstance(start, NetworkPosterior):
        raise TypeError(f"start must be a NetworkPosterior, got {type(start).__name__}")
    if start.shape != problem.shape or start.q.shape[1] != n_levels:
        raise ValueError(
            f"start must have shape {problem.shape} and {n_levels} levels, got {start.shape} and {start.q.shape[1]}"
        )
    logits = np.maximum(start.weights.logits, LOWEST_LOGIT)
    log_prior = np.ascontiguousarray(np.broadcast_to(start.log_prior, logits.shape))
    return Run(start.prior_scale, np.array(start.levels), log_prior, logits)


# --- rounds


def place_levels_anew(problem: Problem, run: Run, fit_prior_scale: bool) -> Run:
    """Place levels evenly around each weight's posterior, with prior masses density × spacing.

    The spread is the posterior's, but not below what the old levels can resolve.
    """
    assert isinstance(problem.prior, DensityPrior)
    weights = FactorizedCategorical(run.levels, run.q)
    spacing = np.ptp(run.levels, axis=1) / (run.levels.shape[1] - 1)
    spread = np.maximum(weights.std, 0.5 * spacing)[:, None]
    scale = run.scale
    if fit_prior_scale:
        scale = np.array([_prior_scale(problem.prior, weights, part) for part in problem.shape.slices])
    unit = np.linspace(-LATER_REACH, LATER_REACH, run.levels.shape[1])
    column = problem.by_layer(scale)
    levels = weights.mean[:, None] + spread * unit
    log_prior = grid_log_mass(problem.prior, levels / column, spread * (unit[1] - unit[0]) / column)
    logits = np.broadcast_to(-0.5 * unit**2, levels.shape)
    return Run(scale, levels, log_prior, logits, trace=run.trace)


def _prior_scale(prior: Prior, weights: FactorizedCategorical, layer: slice) -> float:
    """Return the scale s of a layer's prior that maximises ``Σ_j E log p(w_j / s) − log s`` (empirical Bayes)."""
    assert isinstance(prior, DensityPrior)
    levels, q = weights.levels[layer], weights.q[layer]
    root_mean_square = float(np.sqrt(np.mean(weights.variance[layer] + weights.mean[layer] ** 2)))

    def loss(log_scale: float) -> float:
        return float(log_scale * len(q) - np.sum(q * prior.log_density(levels * np.exp(-log_scale))))

    middle = np.log(max(root_mean_square, SMALLEST_SCALE))
    return float(np.exp(minimize_scalar(loss, bounds=(middle - 3, middle + 3), method="bounded").x))


def improve(problem: Problem, engines: queue.SimpleQueue[Any], n_threads: int, run: Run) -> Run:
    """Optimise one run for one round; after an interruption before the first step, return the run as it was."""
    if problem.stop.is_set():
        return run
    engine = engines.get()
    try:
        model = problem.model(engine, run, n_threads)
        optimise = _by_lbfgs if problem.optimizer == "lbfgs" else _by_coordinates
        logits, outcome = optimise(problem, model, run)
    finally:
        engines.put(engine)
    if outcome.interrupted:
        problem.stop.set()
    trace = outcome.trace[-max(outcome.n_iter, 1) :]
    if trace.size == 0 or not np.isfinite(trace[-1]):
        return run
    return replace(run, logits=logits, elbo=float(trace[-1]), trace=(*run.trace, trace), converged=outcome.converged)


def _by_lbfgs(problem: Problem, model: QuadraticNetwork, run: Run) -> tuple[FloatArray, Outcome]:
    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        if problem.stop.is_set():
            raise KeyboardInterrupt
        return model.elbo_and_gradient(theta)

    allowed = np.isfinite(run.log_prior)
    start = model.pad(np.where(allowed, run.logits, 0.0)).ravel()
    theta, outcome = lbfgs(objective, start, problem.max_iter, relative_rise=RELATIVE_RISE)
    logits = theta.reshape(problem.shape.n_weights, -1)[:, : run.levels.shape[1]]
    return np.where(allowed, logits, -np.inf), outcome


def _by_coordinates(problem: Problem, model: QuadraticNetwork, run: Run) -> tuple[FloatArray, Outcome]:
    """Exact coordinate ascent: R is linear in every q_k, and ``q_k ∝ p_k exp(−½ τ ∂R/∂q_k)`` maximises the ELBO."""
    q, outcome, trace = run.q, Outcome(), []
    try:
        _, noise = model.noise_posterior(model.expected_squared_error(q))
        for outcome.n_iter in range(1, problem.max_iter + 1):
            error = model.sweep(q, noise.precision)
            fit, noise = model.noise_posterior(error)
            trace.append(fit - FactorizedCategorical(run.levels, q).kl(run.log_prior))
            if len(trace) > 1 and trace[-1] - trace[-2] <= RELATIVE_RISE * abs(trace[-1]):
                outcome.converged = True
                break
            if problem.stop.is_set():
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        outcome.interrupted, outcome.converged = True, False
    outcome.trace = np.array(trace)
    with np.errstate(divide="ignore"):
        return np.log(q), outcome
