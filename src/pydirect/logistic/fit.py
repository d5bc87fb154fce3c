"""Fits of logistic regression with discrete weights, on rows in memory or by passes over a stream."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import as_level_count, as_levels
from pydirect.distributions.priors import as_log_masses
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import Ascent, State, climb, with_outcome
from pydirect.logistic.discrete import LogisticFit, gaussian_posteriors, mean_field_solve, with_shares
from pydirect.logistic.exponential import FEWEST_LEVELS, fit_exponential, fit_exponential_decorrelated
from pydirect.logistic.gaussian import FullGaussian, VariancePrior
from pydirect.logistic.rows import LabelledRows, RowPasses, sharpest
from pydirect.logistic.start import ascend_rows, ascend_stream, starting_state

BOUNDS = ("jaakkola", "exponential")


@single_blas_thread()
def fit_logistic(
    rows: LabelledRows,
    levels: ArrayLike,
    log_prior: ArrayLike,
    *,
    bound: str = "jaakkola",
    start: State | None = None,
    optimizer: str = "pipeline",
    max_iter: int = 1000,
    stop: threading.Event | None = None,
) -> MeanFieldPosterior:
    """Fit the factorised posterior of logistic regression on given levels.

    Parameters
    ----------
    rows : LabelledRows
        Of one function, with ``likelihood="jaakkola"``.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels)
        Log masses of the levels; -inf forbids one.
    bound : {"jaakkola", "exponential"}, default="jaakkola"
        On the expected log-likelihood; the second starts from the first's posterior.
    start : State, optional
        A and means to start from; by default those of continuous weights with the prior's variance.
    optimizer : str, default="pipeline"
        Of the quadratic problem at given ξ; see `fit_mean_field`.
    max_iter : int, default=1000
        Largest number of evaluations of Jaakkola and Jordan's bound, then of iterations over the exponential one.
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
    >>> rows = LabelledRows.from_arrays(phi, t, likelihood="jaakkola")
    >>> levels = evenly_spaced_levels(9, 4.0)
    >>> posterior = fit_logistic(rows, levels, GaussianPrior(2.0).log_mass(levels))
    >>> posterior.weights.values(posterior.weights.most_probable()).tolist()
    [3.0, 0.0]
    """
    as_choice(bound, "bound", BOUNDS)
    as_count(max_iter, "max_iter")
    _require_jaakkola(rows, "a factorised posterior")
    levels = as_levels(levels, rows.n_weights)
    log_prior = as_log_masses(log_prior, levels, rows.n_weights)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if start is None:
        # Continuous weights with the prior's variance, unless the prior is on one level only.
        prior = VariancePrior(_prior_variance(levels, log_prior), 0.0)
        if prior.centre > 0:
            start = ascend_rows(rows, prior, max_iter=max_iter, stop=stop).best.solution.state
        else:
            start = starting_state(rows, rows.n_weights, 1, VariancePrior(1.0, 0.0))
    solve = mean_field_solve(levels, log_prior, optimizer=optimizer, n_threads=rows.n_threads)
    ascent = Ascent(solve, start, max_iter)
    climb(rows, ascent, stop)
    posterior = with_outcome(ascent.best.solution.posterior, ascent.result(stop), stop)
    if bound == "jaakkola" or posterior.interrupted:
        return posterior
    return fit_exponential(rows, posterior, max_iter=max_iter, stop=stop)


def _require_jaakkola(rows: LabelledRows, what: str) -> None:
    if rows.likelihood != "jaakkola":
        raise ValueError(f"rows must have likelihood='jaakkola' for {what}, got {rows.likelihood!r}")


def check_logistic_levels(n_levels: int, bound: str) -> None:
    """Raise unless posteriors in the decorrelated basis can be put on a number of levels."""
    if as_level_count(n_levels) < FEWEST_LEVELS and bound == "exponential":
        raise ValueError(f"n_levels must be at least {FEWEST_LEVELS} for the exponential bound, got {n_levels}")


def _prior_variance(levels: FloatArray, log_prior: FloatArray) -> float:
    """Mean variance of the weights' priors."""
    w, mass = np.broadcast_arrays(np.atleast_2d(levels), np.exp(np.atleast_2d(log_prior)))
    mass = mass / mass.sum(axis=1, keepdims=True)
    return float(((mass * w**2).sum(axis=1) - (mass * w).sum(axis=1) ** 2).mean())


@single_blas_thread()
def fit_logistic_decorrelated(
    rows: LabelledRows,
    *,
    prior_variance: float = 1.0,
    variance_prior: VariancePrior | None = None,
    n_levels: int = 15,
    bound: str | None = None,
    max_iter: int = 1000,
    stop: threading.Event | None = None,
) -> LogisticFit[GaussianPosterior]:
    """Fit Gaussian weights in the basis where they do not interact.

    The ELBO's precisions and, by empirical Bayes, the prior variance of the weights are found first. The basis is then
    that of A = Φᵀdiag(h)Φ at these precisions.

    Parameters
    ----------
    rows : LabelledRows
        Rows with labels.
    prior_variance : float, default=1.0
        Of the weights in units of the variance that is found.
    variance_prior : VariancePrior, optional
        By default a wide one around the variance at which z has a variance of 4 at a typical row.
    n_levels : int, default=15
        Of each weight under the exponential bound, at least 7.
    bound : {None, "exponential"}, optional
        By default that of the rows' likelihood; the exponential one starts from Jaakkola's.
    max_iter : int, default=1000
        As in `fit_logistic`.
    stop : threading.Event, optional
        As in `fit_logistic`.

    Returns
    -------
    LogisticFit
        Posteriors and prior variance.
    """
    if bound is not None:
        as_choice(bound, "bound", ("exponential",))
        _require_jaakkola(rows, "the exponential bound")
    as_count(max_iter, "max_iter")
    check_logistic_levels(n_levels, bound or rows.likelihood)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if variance_prior is None:
        variance_prior = VariancePrior.wide(rows.mean_square())
    continuous = ascend_rows(rows, variance_prior.scaled(prior_variance), max_iter=max_iter, stop=stop)
    fit = finish_decorrelated(continuous, prior_variance, stop)
    if bound is None or fit.posterior.interrupted or fit.posterior.rotation.shape[1] == 0:
        return fit
    posterior = fit_exponential_decorrelated(
        rows, fit.posterior, variance=fit.variance, n_levels=n_levels, max_iter=max_iter, stop=stop
    )
    outcome = posterior.outcome.less(variance_prior.penalty(fit.variance))
    return replace(fit, posteriors=[replace(posterior, outcome=outcome)])


def finish_decorrelated(
    continuous: Ascent[FullGaussian], prior_variance: float, stop: threading.Event, precision_factor: float = 1.0
) -> LogisticFit[GaussianPosterior]:
    """Return the posteriors of rotated weights, in units of the prior deviation over √prior_variance.

    `precision_factor`: of A in the covariance; see `pydirect.logistic.sharpness`.
    """
    rest = continuous.best.solution.state
    log_variance = rest.log_variance - float(np.log(prior_variance))
    state = replace(rest, log_variance=log_variance, gram=precision_factor * rest.gram)
    posteriors = with_shares(gaussian_posteriors(state, prior_variance), continuous.result(stop))
    return LogisticFit(posteriors, float(np.exp(log_variance)))


# --- rows that are not held


@single_blas_thread()
def fit_passes_decorrelated(
    passes: RowPasses,
    sample: LabelledRows,
    *,
    prior_variance: float,
    variance_prior: VariancePrior,
    max_iter: int,
) -> LogisticFit[GaussianPosterior]:
    """Fit as `fit_logistic_decorrelated` does, by passes over rows that are not held, and sharpen several classes.

    `sample`: some of the rows, reweighted to the total weight of all, from which the ascent starts; its left-out labels
    choose the factor of the classes' precision, see `pydirect.logistic.sharpness`. Raises KeyboardInterrupt when the
    user interrupts before there is a posterior of all rows. Later, the best posterior is returned, flagged.
    """
    continuous = ascend_stream(passes, sample, variance_prior.scaled(prior_variance), max_iter, passes.stop)
    factor = sharpest(sample, continuous)[0] if sample.n_functions > 1 and not passes.stop.is_set() else 1.0
    return finish_decorrelated(continuous, prior_variance, passes.stop, factor)
