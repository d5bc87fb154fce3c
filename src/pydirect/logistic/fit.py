"""Fits of logistic regression with discrete weights, on rows in memory or by passes over a stream."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator
from pydirect.distributions.levels import as_levels
from pydirect.distributions.priors import DensityPrior, GaussianPrior, Prior, as_log_masses
from pydirect.logistic.ascent import Ascent, BoundParameters, climb
from pydirect.logistic.bound import SMALLEST_XI
from pydirect.logistic.discrete import LogisticFit, ascend_decorrelated, mean_field_solve
from pydirect.logistic.exponential import FEWEST_LEVELS, fit_exponential, fit_exponential_decorrelated
from pydirect.logistic.gaussian import VariancePrior
from pydirect.logistic.passes import RowPasses
from pydirect.logistic.rows import LabelledRows, RowParameters
from pydirect.logistic.start import ascend_gaussian, starting_point, starting_sums
from pydirect.regression.decorrelated import DecorrelatedPosterior
from pydirect.regression.mean_field import MeanFieldPosterior
from pydirect.regression.tilted import check_level_count

BOUNDS = ("jaakkola", "exponential")


def fit_logistic(
    rows: LabelledRows,
    levels: ArrayLike,
    log_prior: ArrayLike,
    *,
    bound: str = "jaakkola",
    xi: FloatArray | None = None,
    optimizer: str = "pipeline",
    batch_size: int | None = None,
    max_iter: int = 1000,
    random_state: int = 0,
    stop: threading.Event | None = None,
) -> MeanFieldPosterior:
    """Fit the factorised posterior of logistic regression on given levels.

    Parameters
    ----------
    rows : LabelledRows
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels)
        Log masses of the levels; -inf forbids one.
    bound : {"jaakkola", "exponential"}
        On the expected log-likelihood; the second starts from the first's posterior.
    xi : ndarray of shape (n_samples,), optional
        Start of Jaakkola and Jordan's ξ; by default that of continuous weights.
    optimizer : str
        Of the quadratic problem at given ξ; see `fit_mean_field`.
    batch_size : int, optional
        Number of rows per stochastic step. For Jaakkola and Jordan's bound, natural gradients from batches find a
        start if there is no `xi`, and steps of all rows finish; for the exponential bound, Adam replaces L-BFGS.
    max_iter : int
        Largest number of evaluations of Jaakkola and Jordan's bound, then of L-BFGS iterations or epochs.
    random_state : int
    stop : threading.Event, optional
        Set by another thread, it ends the fit as an interruption does; an interruption sets it.

    Returns
    -------
    MeanFieldPosterior
        Its `elbo` is a lower bound on log Pr(t).

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior, evenly_spaced_levels, fit_logistic
    >>> from pydirect.logistic import LabelledRows
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((500, 2))
    >>> t = np.where(phi @ [3.0, 0.0] + rng.logistic(size=500) > 0, 1, -1)
    >>> levels = evenly_spaced_levels(9, 4.0)
    >>> posterior = fit_logistic(LabelledRows.from_arrays(phi, t), levels, GaussianPrior(2.0).log_mass(levels))
    >>> posterior.weights.values(posterior.weights.most_probable()).tolist()
    [3.0, 0.0]
    """
    _check_options(bound, batch_size, max_iter)
    levels = as_levels(levels, rows.n_weights)
    log_prior = as_log_masses(log_prior, levels, rows.n_weights)
    if xi is not None:
        xi = as_float_array(xi, "xi", (rows.n_samples,))
        if not (xi >= 0).all():
            raise ValueError(f"xi must not be negative, got {xi.min()}")
        xi = np.maximum(xi, SMALLEST_XI)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    start: BoundParameters = RowParameters.at_one(rows)
    # Continuous weights with the prior's variance, unless the prior is on one level only.
    prior = VariancePrior(_prior_variance(levels, log_prior), 0.0)
    if xi is not None:
        start = RowParameters(rows, np.log(xi))
    elif prior.centre > 0:
        first = starting_point(
            rows, prior, batch_size=batch_size, max_iter=max_iter, random_state=random_state, stop=stop
        )
        start = ascend_gaussian(*first, prior, max_iter, stop).best.parameters
    solve = mean_field_solve(levels, log_prior, optimizer=optimizer, n_threads=rows.n_threads)
    ascent = Ascent(solve, start, 0.0, max_iter)
    climb(rows, [ascent], stop)
    posterior = ascent.result(stop)
    if bound == "jaakkola" or posterior.interrupted:
        return posterior
    rng = as_generator(random_state)
    return fit_exponential(rows, posterior, batch_size=batch_size, max_iter=max_iter, rng=rng, stop=stop)


def _check_options(bound: str, batch_size: int | None, max_iter: int) -> None:
    as_choice(bound, "bound", BOUNDS)
    as_count(max_iter, "max_iter")
    if batch_size is not None:
        as_count(batch_size, "batch_size")


def check_logistic_levels(n_levels: int, prior: Prior, bound: str) -> None:
    """Raise unless posteriors in the decorrelated basis can be put on a number of levels."""
    check_level_count(n_levels, prior)
    if bound == "exponential" and n_levels < FEWEST_LEVELS:
        raise ValueError(f"n_levels must be at least {FEWEST_LEVELS} for the exponential bound, got {n_levels}")


def _prior_variance(levels: FloatArray, log_prior: FloatArray) -> float:
    """Mean variance of the weights' priors."""
    w, mass = np.broadcast_arrays(np.atleast_2d(levels), np.exp(np.atleast_2d(log_prior)))
    mass = mass / mass.sum(axis=1, keepdims=True)
    return float(((mass * w**2).sum(axis=1) - (mass * w).sum(axis=1) ** 2).mean())


def fit_logistic_decorrelated(
    rows: LabelledRows,
    *,
    prior: DensityPrior | None = None,
    variance_prior: VariancePrior | None = None,
    n_levels: int = 15,
    bound: str = "jaakkola",
    batch_size: int | None = None,
    max_iter: int = 1000,
    random_state: int = 0,
    stop: threading.Event | None = None,
) -> LogisticFit[DecorrelatedPosterior]:
    """Fit in the basis where weights do not interact, on levels that have the moments of each one's posterior.

    ξ and, by empirical Bayes, the prior variance of the weights are found with continuous weights, for which a step is
    one factorisation. The basis is then that of Φᵀdiag(2λ)Φ at this ξ; only a prior that is not Gaussian moves ξ again.

    Parameters
    ----------
    rows : LabelledRows
    prior : DensityPrior
        In units of the prior standard deviation; standard Gaussian by default.
    variance_prior : VariancePrior
        By default a wide one around the variance at which z has a variance of 4 at a typical row.
    n_levels : int
        As in `fit_decorrelated`: neither Jaakkola and Jordan's bound nor moments depend on it. The exponential bound
        needs at least 7.
    bound, batch_size, max_iter, random_state, stop
        As in `fit_logistic`.
    """
    _check_options(bound, batch_size, max_iter)
    prior = GaussianPrior() if prior is None else prior
    check_logistic_levels(n_levels, prior, bound)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if variance_prior is None:
        variance_prior = VariancePrior.wide(rows.mean_square())
    start = starting_point(
        rows,
        variance_prior.scaled(prior.variance),
        batch_size=batch_size,
        max_iter=max_iter,
        random_state=random_state,
        stop=stop,
    )
    [ascent] = ascend_decorrelated(
        rows, [start], prior=prior, variance_prior=variance_prior, n_levels=n_levels, max_iter=max_iter, stop=stop
    )
    posterior, variance = ascent.result(stop), float(np.exp(ascent.best.log_variance))
    if bound == "exponential" and not posterior.interrupted and posterior.vectors.shape[1] > 0:
        posterior = fit_exponential_decorrelated(
            rows,
            posterior,
            variance=variance,
            prior=prior,
            batch_size=batch_size,
            max_iter=max_iter,
            rng=as_generator(random_state),
            stop=stop,
        )
        posterior = replace(posterior, outcome=posterior.outcome.less(variance_prior.penalty(variance)))
    return LogisticFit(posterior, variance, np.exp(ascent.best.parameters.coordinates))


# --- rows that are not held


def fit_passes_decorrelated(
    passes: RowPasses,
    samples: Sequence[LabelledRows],
    *,
    prior: DensityPrior,
    variance_prior: VariancePrior,
    n_levels: int,
    max_iter: int,
) -> list[LogisticFit[DecorrelatedPosterior]]:
    """Fit several problems as `fit_logistic_decorrelated` does, in the same passes over rows that are not held.

    `samples`: for each problem, some of its rows, reweighted to the total weight of all, from which the ascent starts.
    `prior`, `variance_prior`, `n_levels`, `max_iter`: as in `fit_logistic_decorrelated`. Raises KeyboardInterrupt when
    the user interrupts before there is a posterior of all rows. Later, the best posteriors are returned, flagged.
    """
    wide, stop = variance_prior.scaled(prior.variance), passes.stop
    starts = [starting_sums(sample, wide, max_iter=max_iter, stop=stop) for sample in samples]
    ascents = ascend_decorrelated(
        passes, starts, prior=prior, variance_prior=variance_prior, n_levels=n_levels, max_iter=max_iter, stop=stop
    )
    return [LogisticFit(ascent.result(stop), float(np.exp(ascent.best.log_variance))) for ascent in ascents]
