"""Empirical Bayes: scales of the levels or of a Gaussian prior on them that maximise the ELBO, given the posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from pydirect._validation import FloatArray, as_count, as_instance
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import as_levels
from pydirect.regression.mean_field import MeanFieldPosterior
from pydirect.regression.mixture_posterior import MixturePosterior
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics

_Posterior = TypeVar("_Posterior", bound=MeanFieldPosterior | MixturePosterior)
# Rounds end when the scale changes by less than this fraction.
SETTLED = 1e-4


def best_level_scale(
    statistics: TargetStatistics | GaussianStatistics, posterior: MeanFieldPosterior | MixturePosterior
) -> float:
    """Find the factor on all levels that maximises the ELBO given q: ``t = sᵀc / (sᵀAs + diag(A)ᵀ(v − s²))``.

    The prior's masses belong to the levels and move with them: this is the maximum over the prior's scale. In
    Theorem 1 only R = yᵀy − 2t sᵀc + t² (...) depends on t, whatever the noise.

    Parameters
    ----------
    statistics : GaussianStatistics or TargetStatistics
        Of one target; of several, ``statistics.target(k)``.
    posterior : MeanFieldPosterior or MixturePosterior

    Returns
    -------
    float
        1 where the weights explain nothing, or a negative factor would be best.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong type, or the numbers of weights of posterior and statistics differ.
    """
    target = as_target_statistics(statistics)
    as_instance(posterior, "posterior", MeanFieldPosterior, MixturePosterior)
    if posterior.weights.n_weights != target.n_weights:
        raise ValueError(
            f"posterior must have {target.n_weights} weights, as statistics have, got {posterior.weights.n_weights}"
        )
    alpha = posterior.alpha if isinstance(posterior, MixturePosterior) else np.ones(1)
    components = posterior.components if isinstance(posterior, MixturePosterior) else [posterior.weights]
    s = np.stack([c.mean for c in components])
    spread = np.stack([c.variance for c in components]) @ target.A.diagonal()
    fit = alpha @ (s @ target.c)
    power = alpha @ (np.einsum("ij,ij->i", s, s @ target.A) + spread)
    return float(fit / power) if fit > 0 and power > 0 else 1.0


def fit_level_scale(
    fit: Callable[[FloatArray, _Posterior | None], _Posterior],
    statistics: TargetStatistics | GaussianStatistics,
    levels: ArrayLike,
    *,
    max_rounds: int = 20,
) -> tuple[_Posterior, float]:
    """Learn the scale of the levels, and with them of the prior, together with the posterior.

    Fits and closed-form scales in turns; the ELBO of what is returned is the highest seen.

    Parameters
    ----------
    fit : callable
        From levels and a posterior to start from, on those levels (or None), to a posterior: `fit_mean_field` or
        `fit_mixture` with all else bound.
    statistics : GaussianStatistics or TargetStatistics
        Of one target; of several, ``statistics.target(k)``.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
    max_rounds : int

    Returns
    -------
    posterior : MeanFieldPosterior or MixturePosterior
    scale : float
        Its levels are `levels` times this.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics, fit_mean_field
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((100, 6))
    >>> statistics = GaussianStatistics.from_arrays(phi, phi @ [0.7, 0.0, -0.7, 0.7, 0.0, 0.0])
    >>> mass = np.log([0.25, 0.5, 0.25])
    >>> posterior, scale = fit_level_scale(
    ...     lambda levels, start: fit_mean_field(statistics, levels, mass, [0.01], start=start),
    ...     statistics, [-1.0, 0.0, 1.0])
    >>> round(scale, 6)
    0.7
    """
    if not callable(fit):
        raise TypeError(f"fit must be callable, from levels and a start to a posterior, got {fit!r}")
    target = as_target_statistics(statistics)
    as_count(max_rounds, "max_rounds")
    grid = as_levels(levels, target.n_weights)
    best, scale = fit(grid, None), 1.0
    candidate, total = best, 1.0
    for _ in range(max_rounds):
        factor = best_level_scale(target, candidate)
        if abs(factor - 1.0) <= SETTLED:
            break
        total *= factor
        candidate = fit(grid * total, _rescaled(candidate, factor))
        risen = candidate.elbo > best.elbo
        if risen:
            best, scale = candidate, total
        if candidate.interrupted:
            return replace(best, outcome=replace(best.outcome, interrupted=True, converged=False)), scale
        if not risen:
            break
    return best, scale


def _rescaled(posterior: _Posterior, factor: float) -> _Posterior:
    if isinstance(posterior, MixturePosterior):
        return replace(posterior, levels=posterior.levels * factor)
    weights = FactorizedCategorical(posterior.weights.levels * factor, posterior.weights.q)
    return replace(posterior, weights=weights)


def in_prior_units(posterior: _Posterior, prior_sd: float) -> _Posterior:
    """Divide a posterior's levels by the prior standard deviation."""
    if isinstance(posterior, MixturePosterior):
        return replace(posterior, levels=posterior.levels / prior_sd)
    weights = FactorizedCategorical(posterior.weights.levels / prior_sd, posterior.weights.q)
    return replace(posterior, weights=weights)


def best_prior_scale(weights: FactorizedCategorical) -> float:
    """Find the standard deviation of a Gaussian prior on given levels that maximises ``Σ_j q_jᵀ log p_j``.

    ``p_j ∝ exp(−β w̄_j²/2)`` is an exponential family: its second moments must add up to those of q. Newton's method on
    log β, safeguarded.

    Parameters
    ----------
    weights : FactorizedCategorical

    Returns
    -------
    float
        ``β^(-1/2)``, within a thousandfold of the levels' own size.

    Raises
    ------
    TypeError
        When `weights` are not a FactorizedCategorical, as a posterior's ``weights`` are.
    """
    as_instance(weights, "weights", FactorizedCategorical)
    levels = np.broadcast_to(weights.levels, weights.q.shape)
    squares = levels**2
    size = float(squares.mean()) or 1.0
    target = float(weights.second_moment.sum())
    low, high = -np.log(1e6 * size), np.log(1e6 / size)
    x = float(np.clip(np.log(len(squares) / target) if target > 0 else high, low, high))
    for _ in range(100):
        beta = np.exp(x)
        p = softmax(-0.5 * beta * squares, axis=1)
        moments = (p * squares).sum(axis=1)
        excess = float(moments.sum()) - target  # positive: the prior is too wide, β must rise
        low, high = (x, high) if excess > 0 else (low, x)
        slope = -0.5 * beta * float(((p * squares**2).sum(axis=1) - moments**2).sum())
        proposal = x - excess / slope if slope < 0 else np.inf
        new = proposal if low < proposal < high else 0.5 * (low + high)
        if abs(new - x) <= 1e-12 * (1 + abs(x)):
            break
        x = new
    return float(np.exp(-0.5 * x))
