"""Ascent of the ELBO of a mixture by gradients in logits: along the Taylor bound, or with sampled entropies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_generator
from pydirect.direct.mixture_ascent import Climb, MixtureState
from pydirect.direct.mixture_entropy import (
    SMALLEST_MASS,
    pairwise_entropy,
    sample_indices,
    score_gradient,
    stochastic_entropy,
    taylor_entropy,
)
from pydirect.distributions.priors import MixturePriorTable
from pydirect.optimize.gradient import Adam, lbfgs, through_softmax
from pydirect.optimize.outcome import Outcome

# Steps of stochastic gradients, and how far each moves a logit.
STOCHASTIC_STEPS = 100
STEP_SIZE = 0.005


@dataclass(frozen=True)
class Energy:
    """Expected log-likelihood and log-prior of a mixture, the noise at its optimum; value and gradient."""

    climb: Climb

    def __call__(self, alpha: FloatArray, q: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Value, gradients in alpha and q as if their entries were free, and the noise posterior."""
        model = self.climb.model
        statistics = model.statistics
        levels, diagonal = model.levels, statistics.A.diagonal()
        s = np.einsum("ijw,jw->ij", q, np.broadcast_to(levels, q.shape[1:]))
        v = np.einsum("ijw,jw->ij", q, np.broadcast_to(levels**2, q.shape[1:]))
        errors, slopes = statistics.squared_error_and_gradient(s, v - s**2)
        log_prior, offsets = self.climb.priors(q)
        allowed = np.isfinite(log_prior)
        finite = np.where(allowed, log_prior, 0.0)
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
    energy = Energy(climb)
    rise = 1e-12 if climb.small else climb.tolerance / (abs(state.elbo) + 1.0) / 10
    risen = climb.ascend(state)
    if risen.interrupted:
        return risen
    centre_of_risen, outcome = _best_centre(risen, climb.max_iter, rise)
    if outcome.interrupted:
        return replace(risen, converged=False, interrupted=True)

    def bound(start: tuple[MixtureState, FloatArray]) -> float:
        state, log_centre = start
        return energy(state.alpha, state.q)[0] + taylor_entropy(state.alpha, state.q, log_centre)[0]

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
        value, d_alpha, d_q, _ = energy(alpha, q)
        entropy, h_alpha, h_q, h_centre = taylor_entropy(alpha, q, log_centre)
        gradient = [through_softmax(alpha, d_alpha + h_alpha), through_softmax(q, d_q + h_q).ravel(), h_centre.ravel()]
        return value + entropy, np.concatenate(gradient)

    best, outcome = lbfgs(objective, start, climb.max_iter, relative_rise=rise, n_corrections=20)
    alpha, q, _ = unpack(best)
    trace = [] if outcome.interrupted else outcome.trace[: outcome.n_iter].tolist()
    return MixtureState(
        alpha,
        q,
        energy(alpha, q)[3],
        objective(best)[0],
        state.trace + trace,
        state.n_iter + len(trace),
        outcome.converged,
        outcome.interrupted,
    )


def ascend_stochastic(state: MixtureState, climb: Climb, n_samples: int, random_state: int) -> MixtureState:
    """Adam on all logits (Kingma & Ba 2015), with fresh samples at every step and steps that shrink to nothing.

    The entropy is not known: what the steps gain is judged by the pairwise bound of it, and where that is lower, where
    they started is kept.
    """
    energy = Energy(climb)
    rng = as_generator(random_state)
    alpha, q = state.alpha, state.q
    allowed = np.isfinite(np.broadcast_to(climb.priors(q)[0], q.shape))
    table = climb.table if climb.table is not None and climb.table.bound == "stochastic" else None
    parameters = [np.log(alpha), np.where(allowed, np.log(np.maximum(q, SMALLEST_MASS)), -np.inf)]
    ascents = [Adam(p.shape) for p in parameters]
    trace: list[float] = []
    interrupted = False
    n_steps = min(climb.max_iter, STOCHASTIC_STEPS)
    try:
        with single_blas_thread():
            for step in range(n_steps):
                value, d_alpha, d_q, _ = energy(alpha, q)
                indices = sample_indices(alpha, q, n_samples, rng)
                entropy, h_alpha, h_q = stochastic_entropy(alpha, q, indices, climb.n_threads)
                trace.append(value + float(entropy.mean()))
                d_alpha, d_q = d_alpha + h_alpha, d_q + h_q
                if table is not None:
                    p_alpha, p_q = _exact_prior_gradient(table, alpha, q, indices, climb.n_threads)
                    d_alpha, d_q = d_alpha + p_alpha, d_q + p_q
                gradients = [through_softmax(alpha, d_alpha), through_softmax(q, d_q)]
                for p, g, adam in zip(parameters, gradients, ascents, strict=True):
                    adam.step = STEP_SIZE * (1 - step / n_steps)
                    p += adam(g)
                alpha, q = softmax(parameters[0]), softmax(parameters[1], axis=2)
    except KeyboardInterrupt:
        interrupted = True
    value, _, _, q_noise = energy(alpha, q)
    elbo = value + pairwise_entropy(alpha, q)[0]
    end = replace(state, alpha=alpha, q=q, q_noise=q_noise, elbo=elbo) if elbo > state.elbo else state
    return replace(
        end,
        trace=state.trace + trace,
        n_iter=state.n_iter + len(trace),
        converged=state.converged and not interrupted,
        interrupted=interrupted,
    )


def _exact_prior_gradient(
    table: MixturePriorTable, alpha: FloatArray, q: FloatArray, indices: NDArray[np.uint8], n_threads: int
) -> tuple[FloatArray, FloatArray]:
    """Unbiased gradient of ``E_q log p`` less that of its bound, which the energy has already."""
    responsibilities = [table.responsibilities(component) for component in q]
    bounds = np.stack([table.effective(rho) for rho in responsibilities])
    offsets = np.array([table.offset(rho) for rho in responsibilities])
    finite = np.where(np.isfinite(bounds), bounds, 0.0)
    average = np.einsum("i,ijw->jw", alpha, finite)
    gradient_alpha, gradient_q = score_gradient(
        alpha, q, indices, table.log_mass_of(indices, n_threads), average, n_threads
    )
    gradient_alpha -= np.einsum("ijw,ijw->i", q, finite) + offsets
    return gradient_alpha, gradient_q - alpha[:, None, None] * finite
