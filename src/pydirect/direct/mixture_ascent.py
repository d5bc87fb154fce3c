"""Coordinate ascent on the components of a mixture, under the pairwise bound on its entropy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._validation import FloatArray, as_instance
from pydirect.direct.mean_field import MeanFieldPosterior, MeanFieldRegression, fit_regression
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.distributions.priors import MixturePriorTable
from pydirect.optimize.quadratic import MOVE_THRESHOLD, SMALL_PROBLEM

# Rounds between weights and responsibilities of a mixture prior.
PRIOR_ROUNDS = 20


@dataclass
class MixtureState:
    """Where an optimiser stands."""

    alpha: FloatArray
    q: FloatArray  # (n_components, n_weights, n_levels)
    q_noise: FloatArray
    elbo: float
    trace: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False


@dataclass(frozen=True)
class Climb:
    """Coordinate ascent on the components of one problem, under the pairwise bound."""

    model: MeanFieldRegression
    table: MixturePriorTable | None
    a: NDArray[np.float32]
    max_iter: int
    tolerance: float
    n_threads: int

    @property
    def small(self) -> bool:
        """Whether the problem is small enough for the dense paths."""
        return self.model.statistics.n_weights <= SMALL_PROBLEM

    def priors(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effective log prior of each component, (n_components or 1, ...), and what the bound adds to its ELBO."""
        if self.table is None:
            return self.model.log_prior[None], np.zeros(len(q))
        responsibilities = [self.table.responsibilities(component) for component in q]
        log_prior = np.stack([self.table.effective(rho) for rho in responsibilities])
        return log_prior, np.array([self.table.offset(rho) for rho in responsibilities])

    def solver(self, state: MixtureState) -> _core.Mixture:
        """Return the compiled solver at a state."""
        model, statistics = self.model, self.model.statistics
        log_prior, offsets = self.priors(state.q)
        solver = _core.Mixture(
            a=self.a,
            a_exact=statistics.A,
            diagonal=np.ascontiguousarray(statistics.A.diagonal()),
            c=statistics.c,
            yty=statistics.yty,
            n_samples=statistics.n_samples,
            levels=_padded(model.levels),
            log_prior=_padded(log_prior, -np.inf),
            prior_precision=model.prior_precision(),
            noise_levels=model.noise.levels,
            noise_log_prior=model.noise.log_prior,
            n_components=len(state.alpha),
            n_threads=self.n_threads,
        )
        solver.set_noise(state.q_noise)
        for i, q in enumerate(state.q):
            solver.set_component(i, _padded(q))
        solver.set_alpha(state.alpha)
        solver.set_offsets(offsets)
        return solver

    def ascend(self, state: MixtureState) -> MixtureState:
        """Sweep until nothing rises; under a mixture prior in turns with its responsibilities, never downhill."""
        m = self.model.levels.shape[1]
        fine = 1e-6 if self.small else 1.0
        rise = 1e-12 if self.small else self.tolerance / (abs(state.elbo) + 1.0)
        for _ in range(1 if self.table is None else PRIOR_ROUNDS):
            before = state.elbo
            try:
                solver = self.solver(state)
                n_iter, converged, trace = solver.ascend(
                    self.max_iter, fine * MOVE_THRESHOLD, rise, 1 if self.small else 20
                )
                q = np.ascontiguousarray(solver.probabilities()[:, :, :m])
                trace, n_iter = state.trace + trace.tolist(), state.n_iter + n_iter
                risen = MixtureState(solver.alpha, q, solver.q_noise, solver.elbo(), trace, n_iter, converged)
                state = risen if self.table is None else self.evaluated(risen)
            except KeyboardInterrupt:
                return replace(state, converged=False, interrupted=True)
            if self.table is None or state.elbo - before <= rise * (abs(state.elbo) + 1.0):
                break
        else:
            state.converged = False
        return state

    def evaluated(self, state: MixtureState) -> MixtureState:
        """Return a state with its ELBO, under a mixture prior with the responsibilities of its own components."""
        return replace(state, elbo=self.solver(state).elbo())


def start_state(start: MeanFieldPosterior | MixturePosterior, climb: Climb, n_components: int) -> MixtureState:
    """Validate a start and evaluate it under this model, which need not be the one that it was fitted to."""
    as_instance(start, "start", MeanFieldPosterior, MixturePosterior)
    model = climb.model
    shape = (model.statistics.n_weights, model.levels.shape[1])
    if start.q.shape != shape or start.noise.q.shape != model.noise.levels.shape:
        raise ValueError(
            f"start must have probabilities of shape {shape} and {model.noise.n_levels} noise levels, got "
            f"{start.q.shape} and {start.noise.q.size}"
        )
    alpha, q = np.ones(1), start.q[None]
    if isinstance(start, MixturePosterior):
        alpha, q = start.alpha, start.component_q
    if len(alpha) > n_components:
        raise ValueError(f"start must have at most n_components = {n_components} components, got {len(alpha)}")
    state = climb.evaluated(MixtureState(alpha, q, start.noise.q, -np.inf))
    if not np.isfinite(state.elbo):
        raise ValueError("start must not give mass to a level that log_prior forbids")
    return state


def _padded(table: FloatArray, value: float = 0.0) -> FloatArray:
    """Pad the last axis to the kernels' width."""
    width = [(0, 0)] * (table.ndim - 1) + [(0, -table.shape[-1] % _core.LEVEL_PADDING)]
    return np.ascontiguousarray(np.pad(table, width, constant_values=value))


def fit_factorized(climb: Climb, optimizer: str) -> MixtureState:
    """Best factorised posterior; under a mixture prior from its marginals and from each of its global components."""
    table, model = climb.table, climb.model
    starts = [model.log_prior]
    if table is not None and table.n_groups == 1 and len(table.log_masses) > 1:
        starts += list(table.log_masses)
    best: MixtureState | None = None
    for log_prior in starts:
        posterior = fit_regression(
            replace(model, log_prior=np.ascontiguousarray(log_prior)),
            optimizer=optimizer,
            max_iter=climb.max_iter,
            n_threads=climb.n_threads,
        )
        state = MixtureState(
            np.ones(1),
            posterior.q[None],
            posterior.noise.q,
            posterior.elbo,
            posterior.elbo_trace.tolist(),
            posterior.n_iter,
            posterior.converged,
            posterior.interrupted,
        )
        if table is not None:  # what the start maximised is not the bound of this prior
            state = climb.evaluated(replace(state, trace=[], n_iter=0))
            if not state.interrupted:
                state = climb.ascend(state)
        if best is None or state.elbo > best.elbo:
            best = state
        if state.interrupted:
            return replace(best, converged=False, interrupted=True)
    assert best is not None
    return best
