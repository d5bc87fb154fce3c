"""Ascents of a mixture's ELBO: by coordinates under the pairwise bound on its entropy, or by gradients in logits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from pydirect import _core
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_instance
from pydirect.direct.mean_field import MeanFieldPosterior, MeanFieldRegression, fit_regression
from pydirect.direct.mixture_posterior import SMALLEST_ALPHA, SMALLEST_MASS, MixturePosterior, taylor_entropy
from pydirect.distributions.categorical import FactorizedCategorical, padded
from pydirect.distributions.priors import MixturePriorTable
from pydirect.optimize.gradient import lbfgs, through_softmax
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.optimize.quadratic import MOVE_THRESHOLD, SMALL_PROBLEM

# A weight is split where both halves keep this much of its mass.
SMALLEST_HALF = 0.01
# Nats that an iteration must gain where there are more than a few weights.
TOLERANCE = 1e-2
# Rounds between weights and responsibilities of a mixture prior.
PRIOR_ROUNDS = 20


@dataclass
class MixtureState(WithOutcome):
    """Where an optimiser stands."""

    alpha: FloatArray
    q: FloatArray  # (n_components, n_weights, n_levels)
    q_noise: FloatArray
    outcome: Outcome = field(default_factory=lambda: Outcome(-np.inf))

    def stopped(self) -> MixtureState:
        """Return the same after an interruption."""
        return replace(self, outcome=self.outcome.stopped())


@dataclass(frozen=True)
class Climb:
    """Coordinate ascent on the components of one problem, under the pairwise bound."""

    model: MeanFieldRegression
    table: MixturePriorTable | None
    a: NDArray[np.float32]
    max_iter: int
    n_threads: int

    @property
    def small(self) -> bool:
        """Whether the problem is small enough for the dense paths."""
        return self.model.statistics.n_weights <= SMALL_PROBLEM

    def priors(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effective log prior of each component, (n_components or 1, ...), and what the bound adds to its ELBO."""
        if self.table is None:
            return self.model.log_prior[None], np.zeros(len(q))
        found = [self.table.responsibilities(component) for component in q]
        return np.stack([self.table.effective(f) for f in found]), np.array([self.table.offset(f) for f in found])

    def solver(self, state: MixtureState) -> _core.Mixture:
        """Return the compiled solver at a state."""
        log_prior, offsets = self.priors(state.q)
        arguments = self.model.solver_arguments(self.a, log_prior, self.n_threads)
        solver = _core.Mixture(**arguments, n_components=len(state.alpha))
        solver.set_noise(state.q_noise)
        for i, q in enumerate(state.q):
            solver.set_component(i, padded(q))
        solver.set_alpha(state.alpha)
        solver.set_offsets(offsets)
        return solver

    def ascend(self, state: MixtureState) -> MixtureState:
        """Sweep until nothing rises; under a mixture prior in turns with its responsibilities, never downhill."""
        m = self.model.levels.shape[1]
        fine = 1e-6 if self.small else 1.0
        rise = 1e-12 if self.small else TOLERANCE / (abs(state.elbo) + 1.0)
        for _ in range(1 if self.table is None else PRIOR_ROUNDS):
            before = state.elbo
            try:
                solver, outcome = self.solver(state), replace(state.outcome)
                outcome.add(solver.ascend(self.max_iter, fine * MOVE_THRESHOLD, rise, 1 if self.small else 20))
                outcome.elbo = solver.elbo()
                q = np.ascontiguousarray(solver.probabilities()[:, :, :m])
                risen = MixtureState(solver.alpha, q, solver.q_noise, outcome)
                state = risen if self.table is None else self.evaluated(risen)
            except KeyboardInterrupt:
                return state.stopped()
            if self.table is None or state.elbo - before <= rise * (abs(state.elbo) + 1.0):
                break
        else:
            state.outcome.converged = False
        return state

    def evaluated(self, state: MixtureState) -> MixtureState:
        """Return a state with its ELBO, under a mixture prior with the responsibilities of its own components."""
        return replace(state, outcome=replace(state.outcome, elbo=self.solver(state).elbo()))


def start_state(start: MeanFieldPosterior | MixturePosterior, climb: Climb, n_components: int) -> MixtureState:
    """Validate a start and evaluate it under this model, which need not be the one that it was fitted to."""
    as_instance(start, "start", MeanFieldPosterior, MixturePosterior)
    model = climb.model
    shape = (model.statistics.n_weights, model.levels.shape[1])
    if start.q.shape != shape or start.noise.q.shape != model.noise.levels.shape:
        got = f"got {start.q.shape} and {start.noise.q.shape[-1]}"
        raise ValueError(f"start must have probabilities of shape {shape}, {model.noise.n_levels} noise levels, {got}")
    alpha, q = np.ones(1), start.q[None]
    if isinstance(start, MixturePosterior):
        alpha, q = start.alpha, start.component_q
    if len(alpha) > n_components:
        raise ValueError(f"start must have at most n_components = {n_components} components, got {len(alpha)}")
    state = climb.evaluated(MixtureState(alpha, q, start.noise.q))
    if not np.isfinite(state.elbo):
        raise ValueError("start must not give mass to a level that log_prior forbids")
    return state


def fit_factorized(climb: Climb, optimizer: str) -> MixtureState:
    """Best factorised posterior; under a mixture prior from its marginals and from each of its global components."""
    table, model = climb.table, climb.model
    starts = [model.log_prior]
    if table is not None and table.n_groups == 1 and len(table.log_masses) > 1:
        starts += list(table.log_masses)
    best: MixtureState | None = None
    for log_prior in starts:
        one = replace(model, log_prior=np.ascontiguousarray(log_prior))
        posterior = fit_regression(one, optimizer=optimizer, max_iter=climb.max_iter, n_threads=climb.n_threads)
        state = MixtureState(np.ones(1), posterior.q[None], posterior.noise.q, posterior.outcome)
        if table is not None:  # what the start maximised is not the bound of this prior
            state.outcome = replace(state.outcome, trace=np.empty(0), n_iter=0)
            state = climb.evaluated(state)
            if not state.interrupted:
                state = climb.ascend(state)
        if best is None or state.elbo > best.elbo:
            best = state
        if state.interrupted:
            return best.stopped()
    assert best is not None
    return best


# Cuts of a factorised posterior into the components of a mixture that is the same distribution


def split_components(state: MixtureState, climb: Climb, n_components: int) -> MixtureState:
    """Cut a factorised posterior into components that together are the same distribution.

    Each cut halves one weight's levels in the component that weighs most. What is gained by it is, to second order,
    what the weight's halves differ in, times how much the others answer to it: ``τ² Σ_k A_jk² v_k`` (Laplace). Where
    all weights are decided, the smaller half is one of (almost) no mass, from which another optimum may be reached: the
    weight whose partner would make up for most of that is cut first.
    """
    q, model = state.q[0], climb.model
    if q.shape[1] == 1:
        return state
    order = np.broadcast_to(np.argsort(model.levels, axis=1), q.shape)
    sorted_q, sorted_levels = (
        np.take_along_axis(table, order, axis=1) for table in (q, np.broadcast_to(model.levels, q.shape))
    )
    weights = FactorizedCategorical(model.levels, q)
    tau = model.noise.precision(state.q_noise)
    with single_blas_thread():
        squares = np.square(climb.a)
        np.fill_diagonal(squares, 0.0)
        answer = tau**2 * (squares @ weights.variance.astype(np.float32)).astype(np.float64)
        squares /= (tau * climb.a.diagonal() + model.prior_precision()).astype(np.float32)
        partner = tau**2 * squares.max(axis=1).astype(np.float64)

    log_prior = np.broadcast_to(model.log_prior, q.shape)
    prior = np.maximum(np.exp(log_prior - log_prior.max(axis=1, keepdims=True)), SMALLEST_MASS)
    between, cut, log_small, distance = _halves(sorted_q, sorted_levels)
    undecided = between * answer
    decided = np.where(distance > 0, log_small + 0.5 * distance**2 * partner, -np.inf)
    parts: list[tuple[float, FloatArray, frozenset[int]]] = [(1.0, q, frozenset())]
    while len(parts) < n_components:
        parts.sort(key=lambda part: -part[0])
        place = _next_cut(undecided, parts, 0.0) or _next_cut(decided, parts, -np.inf)
        if place is None:
            break  # nothing is left to cut
        index, j = place
        alpha, whole, used = parts.pop(index)
        lower = np.zeros(q.shape[1], dtype=bool)
        lower[order[j, : cut[j] + 1]] = True
        for half in (lower, ~lower):
            part = whole.copy()
            part[j] = np.where(half, whole[j], 0.0)
            mass = part[j].sum()
            # Levels that q has given up come from the prior, which is all that is known of them.
            part[j] = part[j] / mass if mass > 1e-290 else np.where(half, prior[j], 0.0)
            part[j] /= part[j].sum()
            parts.append((max(alpha * mass, SMALLEST_ALPHA), part, used | {j}))
    alphas = np.array([alpha for alpha, _, _ in parts])
    return replace(state, alpha=alphas / alphas.sum(), q=np.stack([q for _, q, _ in parts]))


def _next_cut(
    score: FloatArray, parts: list[tuple[float, FloatArray, frozenset[int]]], lowest: float
) -> tuple[int, int] | None:
    """Find the heaviest part with a weight not yet cut that scores above `lowest`, and the best such weight."""
    for index, (_, _, used) in enumerate(parts):
        still = score.copy()
        still[list(used)] = lowest
        if still.max() > lowest:
            return index, int(still.argmax())
    return None


def _halves(q: FloatArray, levels: FloatArray) -> tuple[FloatArray, NDArray[np.intp], FloatArray, FloatArray]:
    """Cut each row of ascending levels in two.

    Returns the variance between the halves where both have some mass, the last level of the lower half, and of that cut
    the log of the smaller half's mass and how far apart the halves' nearest levels are.
    """
    rows = np.arange(len(q))
    mass = np.cumsum(q, axis=1)[:, :-1]
    moment = np.cumsum(q * levels, axis=1)
    mean, moment = moment[:, -1:], moment[:, :-1]
    allowed = (mass > SMALLEST_HALF) & (mass < 1.0 - SMALLEST_HALF)
    between = np.where(allowed, (moment - mean * mass) ** 2 / np.where(allowed, mass * (1.0 - mass), 1.0), 0.0)
    upper = np.cumsum(q[:, ::-1], axis=1)[:, -2::-1]
    small = np.where(np.diff(levels, axis=1) > 0, np.minimum(mass, upper), 0.0)
    cut = np.where(allowed.any(axis=1), between.argmax(axis=1), small.argmax(axis=1))
    log_small = np.log(np.maximum(small[rows, cut], 1e-300))
    return between[rows, cut], cut, log_small, np.diff(levels, axis=1)[rows, cut]


# Gradients in logits, along the Taylor bound


def energy(climb: Climb, alpha: FloatArray, q: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Expected log-likelihood and log-prior of a mixture, the noise at its optimum.

    Value, gradients in alpha and q as if their entries were free, and the noise posterior.
    """
    model, statistics, levels = climb.model, climb.model.statistics, climb.model.levels
    diagonal = statistics.A.diagonal()
    s = np.einsum("ijw,jw->ij", q, np.broadcast_to(levels, q.shape[1:]))
    v = np.einsum("ijw,jw->ij", q, np.broadcast_to(levels**2, q.shape[1:]))
    errors, slopes = statistics.squared_error_and_gradient(s, v - s**2)
    log_prior, offsets = climb.priors(q)
    finite = np.where(np.isfinite(log_prior), log_prior, 0.0)
    prior = np.einsum("ijw,ijw->i", q, np.broadcast_to(finite, q.shape)) + offsets

    q_noise, share = model.noise.given(alpha @ errors, statistics.n_samples)
    tau = model.noise.precision(q_noise)
    residual = diagonal * s - 0.5 * slopes
    tilt = tau * (residual[:, :, None] - 0.5 * diagonal[:, None] * levels) * levels + finite
    return float(share + alpha @ prior), prior - 0.5 * tau * errors, alpha[:, None, None] * tilt, q_noise


def _log_marginal(state: MixtureState) -> FloatArray:
    return np.log(np.maximum(np.einsum("i,ijw->jw", state.alpha, state.q), SMALLEST_MASS))


def _best_centre(state: MixtureState, max_iter: int, relative_rise: float) -> tuple[FloatArray, Outcome]:
    """Log of the centre at which `taylor_entropy` is highest; it is concave in that, and the centre not normalised.

    About ``a_j = max_i q_j^(i)`` no pair of components counts for more than one, however many weights differ. At the
    marginals, components that differ in k weights count for exponentially many.
    """
    start = np.log(np.maximum(state.q.max(axis=0), SMALLEST_MASS))

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, _, _, gradient = taylor_entropy(state.alpha, state.q, theta.reshape(start.shape))
        return value, gradient.ravel()

    best, outcome = lbfgs(objective, start.ravel(), max_iter, relative_rise=relative_rise, n_corrections=20)
    return best.reshape(start.shape), outcome


def ascend_taylor(state: MixtureState, climb: Climb) -> MixtureState:
    """L-BFGS on all logits and the logarithm of the centre.

    It starts from the split posterior, which is factorised and its own best centre, or from the pairwise fit and the
    best centre of that, whichever is higher under this bound.
    """
    rise = 1e-12 if climb.small else TOLERANCE / (abs(state.elbo) + 1.0) / 10
    risen = climb.ascend(state)
    if risen.interrupted:
        return risen
    centre_of_risen, outcome = _best_centre(risen, climb.max_iter, rise)
    if outcome.interrupted:
        return risen.stopped()

    def bound(start: tuple[MixtureState, FloatArray]) -> float:
        state, log_centre = start
        return energy(climb, state.alpha, state.q)[0] + taylor_entropy(state.alpha, state.q, log_centre)[0]

    state, log_centre = max((state, _log_marginal(state)), (risen, centre_of_risen), key=bound)
    shape, r = state.q.shape, len(state.alpha)
    allowed = np.isfinite(np.broadcast_to(climb.priors(state.q)[0], shape))
    logits = np.where(allowed, np.log(np.maximum(state.q, SMALLEST_MASS)), 0.0)
    start = np.concatenate([np.log(state.alpha), logits.ravel(), log_centre.ravel()])
    splits = np.cumsum([r, state.q.size])

    def unpack(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        own, weights, log_centre = np.split(theta, splits)
        table = np.where(allowed, weights.reshape(shape), -np.inf)
        return softmax(own), softmax(table, axis=2), log_centre.reshape(shape[1:])

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        alpha, q, log_centre = unpack(theta)
        value, d_alpha, d_q, _ = energy(climb, alpha, q)
        entropy, h_alpha, h_q, h_centre = taylor_entropy(alpha, q, log_centre)
        gradient = [through_softmax(alpha, d_alpha + h_alpha), through_softmax(q, d_q + h_q).ravel(), h_centre.ravel()]
        return value + entropy, np.concatenate(gradient)

    best, outcome = lbfgs(objective, start, climb.max_iter, relative_rise=rise, n_corrections=20)
    alpha, q, _ = unpack(best)
    trace = np.empty(0) if outcome.interrupted else outcome.trace[: outcome.n_iter]
    total = replace(state.outcome, elbo=objective(best)[0], interrupted=outcome.interrupted)
    total.add((len(trace), outcome.converged, trace))
    return MixtureState(alpha, q, energy(climb, alpha, q)[3], total)
