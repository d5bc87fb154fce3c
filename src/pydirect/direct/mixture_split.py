"""Cuts of a factorised posterior into the components of a mixture that is the same distribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldRegression
from pydirect.direct.mixture_ascent import Climb, MixtureState
from pydirect.direct.mixture_entropy import SMALLEST_ALPHA, SMALLEST_HALF, SMALLEST_MASS
from pydirect.distributions.categorical import FactorizedCategorical


def split_components(state: MixtureState, climb: Climb, n_components: int) -> MixtureState:
    """Cut a factorised posterior into components that together are the same distribution.

    Each cut halves one weight's levels in the component that weighs most. What is gained by it is, to second order,
    what the weight's halves differ in, times how much the others answer to it: ``τ² Σ_k A_jk² v_k`` (Laplace). Where
    all weights are decided, the smaller half is one of (almost) no mass, from which another optimum may be reached: the
    weight whose partner would make up for most of that is cut first.
    """
    q, model = state.q[0], climb.model
    order = np.argsort(model.levels, axis=1)
    sorted_q = np.take_along_axis(q, np.broadcast_to(order, q.shape), axis=1)
    sorted_levels = np.broadcast_to(np.take_along_axis(model.levels, order, axis=1), q.shape)
    if q.shape[1] == 1:
        return state
    weights = FactorizedCategorical(model.levels, q)
    tau = model.noise.precision(state.q_noise)
    with single_blas_thread():
        squares = np.square(climb.a)
        np.fill_diagonal(squares, 0.0)
        answer = tau**2 * (squares @ weights.variance.astype(np.float32)).astype(np.float64)
        squares /= (tau * climb.a.diagonal() + model.prior_precision()).astype(np.float32)
        partner = tau**2 * squares.max(axis=1).astype(np.float64)

    between, cut, log_small, distance = _halves(sorted_q, sorted_levels)
    undecided = between * answer
    decided = np.where(distance > 0, log_small + 0.5 * distance**2 * partner, -np.inf)
    parts: list[tuple[float, FloatArray, frozenset[int]]] = [(1.0, q, frozenset())]
    while len(parts) < n_components:
        parts.sort(key=lambda part: -part[0])
        place = _next_cut(undecided, parts, 0.0)
        if place is None:
            place = _next_cut(decided, parts, -np.inf)
        if place is None:
            break  # nothing is left to cut
        index, j = place
        alpha, whole, used = parts.pop(index)
        lower = np.zeros(q.shape[1], dtype=bool)
        lower[np.broadcast_to(order, q.shape)[j, : cut[j] + 1]] = True
        for half in (lower, ~lower):
            part = whole.copy()
            part[j] = np.where(half, whole[j], 0.0)
            mass = part[j].sum()
            # Levels that q has given up come from the prior, which is all that is known of them.
            part[j] = part[j] / mass if mass > 1e-290 else np.where(half, _prior_mass(model, j), 0.0)
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
        j = int(still.argmax())
        if still[j] > lowest:
            return index, j
    return None


def _prior_mass(model: MeanFieldRegression, j: int) -> FloatArray:
    log_p = model.log_prior[j if len(model.log_prior) > 1 else 0]
    return np.maximum(np.exp(log_p - log_p.max()), SMALLEST_MASS)


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
