"""Posteriors that do not factorise: mixtures ``q = Σ_i α_i ⊗_j q_j^(i)`` (Evans & Nair 2018, section 4).

The expected log-likelihood and log-prior of a mixture are those of its components, averaged; only its entropy is not,
and it is bounded or sampled. A mixture gains at most log n_components nats over its components.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import resolve_n_threads
from pydirect._validation import as_choice, as_count
from pydirect.direct.mean_field import MeanFieldPosterior, MeanFieldRegression
from pydirect.direct.mixture_ascent import (
    Climb,
    MixtureState,
    ascend_taylor,
    fit_factorized,
    split_components,
    start_state,
)
from pydirect.direct.mixture_posterior import ENTROPIES, MixturePosterior, as_component_count, pairwise_entropy
from pydirect.distributions.noise import warn_at_edge
from pydirect.distributions.priors import MixturePrior, MixturePriorTable
from pydirect.optimize.cholesky import in_single_precision
from pydirect.optimize.quadratic import OPTIMIZERS
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics

# A component of less weight than this is dropped, as is one whose overlap with another differs from one by less.
DEGENERATE = 1e-12


def fit_mixture(
    statistics: TargetStatistics | GaussianStatistics,
    levels: ArrayLike,
    log_prior: ArrayLike | MixturePrior | MixturePriorTable,
    noise_levels: ArrayLike,
    log_noise_prior: ArrayLike | None = None,
    *,
    n_components: int = 5,
    entropy: str = "pairwise",
    optimizer: str = "pipeline",
    start: MeanFieldPosterior | MixturePosterior | None = None,
    max_iter: int = 1000,
    n_threads: int | None = None,
) -> MixturePosterior:
    """Fit a mixture of factorised posteriors from statistics alone.

    The factorised posterior is found first and split: at the weight that the others depend on most, half of its levels
    go to one component and half to the other, and so on in the larger component. The split mixture is the same
    distribution as before, with the same ELBO; then all components rise together, each weight at its optimum given all
    else, never lowering the ELBO.

    Parameters
    ----------
    statistics : TargetStatistics or GaussianStatistics
        As in `fit_mean_field`.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take: shared, or of every weight.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels), MixturePrior or MixturePriorTable
        Log masses of the levels, or a prior that does not factorise, in general or for these levels.
    noise_levels : array_like of shape (n_noise_levels,)
        Values that the noise variance can take.
    log_noise_prior : array_like of shape (n_noise_levels,), optional
        Log masses of their prior, uniform by default.
    n_components : int, default=5
        Largest number of components; fewer where fewer weights are undecided. 1 fits a factorised posterior, under
        either kind of prior.
    entropy : {"pairwise", "taylor"}, default="pairwise"
        Of the mixture: the bound of `pairwise_entropy` (default), or that of `taylor_entropy` (Theorem 3), whose centre
        is optimised too, by L-BFGS.
    optimizer : str, default="pipeline"
        As in `fit_mean_field`.
    start : MeanFieldPosterior or MixturePosterior, optional
        A posterior of at most `n_components` components, with the same numbers of levels and noise levels, to rise
        from instead of fitting a factorised one. One component is then split; the number of several stays.
    max_iter : int, default=1000
        Largest number of iterations of any one stage.
    n_threads : int, optional
        By default OpenMP's number. Results have the same bits for any number.

    Returns
    -------
    MixturePosterior
        ``elbo`` is a lower bound of log p(y).

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Warns
    -----
    NoiseGridWarning
        When the noise posterior piles up at an edge of its grid.

    Examples
    --------
    The data determine only the sum of two weights:

    >>> import numpy as np
    >>> from pydirect import GaussianStatistics, fit_mixture
    >>> phi, levels = np.ones((50, 2)), np.array([0.0, 1.0])
    >>> statistics = GaussianStatistics.from_arrays(phi, np.ones(50))
    >>> posterior = fit_mixture(statistics, levels, np.log([0.5, 0.5]), [0.1], n_components=2)
    >>> sorted(posterior.component_q[:, 0, 1].round(3).tolist()), posterior.alpha.round(3).tolist()
    ([0.0, 1.0], [0.5, 0.5])
    """
    n_components = as_component_count(n_components)
    as_choice(entropy, "entropy", ENTROPIES)
    as_choice(optimizer, "optimizer", OPTIMIZERS)
    as_count(max_iter, "max_iter")
    target = as_target_statistics(statistics)
    if isinstance(log_prior, MixturePrior):
        log_prior = log_prior.table(levels, target.n_weights)
    table = log_prior if isinstance(log_prior, MixturePriorTable) else None
    if isinstance(log_prior, MixturePriorTable):
        log_prior = log_prior.marginal
    model = MeanFieldRegression.of(target, levels, log_prior, noise_levels, log_noise_prior)
    threads = resolve_n_threads(n_threads)
    climb = Climb(model, table, in_single_precision(target.A), max_iter, threads)

    if start is not None:
        state = climb.ascend(start_state(start, climb, n_components))
    else:
        state = fit_factorized(climb, optimizer)
    if n_components > 1 and not state.interrupted:
        if len(state.alpha) == 1:
            state = split_components(state, climb, n_components)
        state = ascend_taylor(state, climb) if entropy == "taylor" else climb.ascend(state)
    posterior = _posterior(state, climb)
    warn_at_edge(posterior.noise)
    return posterior


def _posterior(state: MixtureState, climb: Climb) -> MixturePosterior:
    """Drop components of no weight, merge equal ones, and evaluate what is reported."""
    kept = state.alpha > DEGENERATE
    alpha = np.where(kept, state.alpha, 0.0)
    for i in range(len(alpha)):
        for k in range(i):
            if alpha[i] > 0 and alpha[k] > 0:
                overlap = np.einsum("jw,jw->j", np.sqrt(state.q[i]), np.sqrt(state.q[k]))
                if np.log(np.maximum(overlap, 1e-300)).sum() > -DEGENERATE:
                    alpha[k] += alpha[i]
                    alpha[i] = 0.0
    kept = alpha > 0
    alpha, q = alpha[kept] / alpha.sum(), np.ascontiguousarray(state.q[kept])
    lower, upper = pairwise_entropy(alpha, q)
    return MixturePosterior(
        levels=climb.model.levels,
        component_q=q,
        alpha=alpha,
        noise=climb.model.noise.posterior(state.q_noise),
        log_prior=climb.priors(q)[0],
        entropy_lower=lower,
        entropy_upper=max(lower, upper),
        outcome=state.outcome.at(state.elbo),
    )
