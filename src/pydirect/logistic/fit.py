"""Logistic classification with discrete weights: Pr(t | w) = σ(t z), z = offset + φᵀw, t = ±1.

The expectation of log σ has no closed form, but two lower bounds do:

- ``"jaakkola"``: log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²), λ(ξ) = tanh(ξ/2)/(4ξ), best at ξ² = E z²
  (Jaakkola & Jordan 2000). It is quadratic in z: for given ξ this is Gaussian regression with A = Φᵀdiag(2λ)Φ and
  c = Φᵀt/2, and everything that solves that solves this.
- ``"exponential"``: log σ(tz) ≥ −exp(−tz), whose expectation is a product over the weights (Evans & Nair 2018,
  Theorem 2). The tighter of the two where z is large and t known from it, as for classes far apart; where they overlap
  it is much the looser, and its best z is half the log-odds: probabilities from it are too timid.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator
from pydirect.distributions.levels import as_level_count, as_levels
from pydirect.distributions.priors import DensityPrior, GaussianPrior, as_log_masses
from pydirect.logistic.ascent import AscentState, climb, with_outcome
from pydirect.logistic.bound import SMALLEST_XI, jaakkola_bound, log_xi_of
from pydirect.logistic.exponential import fit_exponential, fit_exponential_decorrelated
from pydirect.logistic.gaussian import (
    LOG_VARIANCE_SD,
    VariancePrior,
    continuous_log_xi,
    gaussian_step,
    mean_square,
    starting_point,
    typical_variance,
)
from pydirect.logistic.rows import LabelledRows
from pydirect.regression.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.regression.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.statistics.rotated import decorrelate

BOUNDS = ("jaakkola", "exponential")


def _discrete_state(
    rows: LabelledRows, posterior: MeanFieldPosterior, variance: float, penalty: float = 0.0
) -> AscentState:
    """State of a discrete posterior with weights in units of √variance."""
    mean, spread = rows.moments(posterior, variance)
    bound = jaakkola_bound(rows.t, mean, spread, rows.weight) - posterior.weights.kl(posterior.log_prior) - penalty
    log_xi = log_xi_of(mean, spread)
    return AscentState(posterior, variance, bound, log_xi, log_xi, posterior.interrupted)


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
        Of the expected log-likelihood; the second starts from the first's posterior.
    xi : ndarray of shape (n_samples,), optional
        Start of Jaakkola and Jordan's ξ; by default the better of 1 and that of continuous weights.
    optimizer : str
        Of the quadratic problem at given ξ; see `fit_mean_field`.
    batch_size : int, optional
        Rows a stochastic step. For Jaakkola and Jordan's bound, natural gradients from batches find where to start from
        without `xi`, and steps of all rows finish; for the exponential bound, Adam takes the place of L-BFGS.
    max_iter : int
        Values of ξ, then L-BFGS iterations or epochs.
    random_state : int
    stop : threading.Event, optional
        Ends the fit as an interruption does when another thread sets it, and is set by an interruption.

    Returns
    -------
    MeanFieldPosterior
        Its `elbo` is a lower bound of log Pr(t).

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior, LabelledRows, evenly_spaced_levels, fit_logistic
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((500, 2))
    >>> t = np.where(phi @ [3.0, 0.0] + rng.logistic(size=500) > 0, 1, -1)
    >>> levels = evenly_spaced_levels(9, 4.0)
    >>> posterior = fit_logistic(LabelledRows.from_arrays(phi, t), levels, GaussianPrior(2.0).log_mass(levels))
    >>> posterior.weights.values(posterior.weights.most_probable()).tolist()
    [3.0, 0.0]
    """
    as_choice(bound, "bound", BOUNDS)
    as_count(max_iter, "max_iter")
    if batch_size is not None:
        as_count(batch_size, "batch_size")
    levels = as_levels(levels, rows.n_weights)
    log_prior = as_log_masses(log_prior, levels, rows.n_weights)
    if xi is not None:
        xi = as_float_array(xi, "xi", (rows.n_samples,))
        if not (xi >= 0).all():
            raise ValueError(f"xi must not be negative, got {xi.min()}")
        xi = np.maximum(xi, SMALLEST_XI)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    last: MeanFieldPosterior | None = None

    def step(log_xi: FloatArray) -> AscentState:
        nonlocal last
        options: dict[str, Any] = {"optimizer": optimizer, "random_state": random_state, "n_threads": rows.n_threads}
        last = fit_mean_field(rows.weighted_statistics(np.exp(log_xi)), levels, log_prior, [1.0], start=last, **options)
        return _discrete_state(rows, last, 1.0)

    # Optima are local where levels are coarse: without a start, the better of two.
    starts = (
        [np.log(xi)]
        if xi is not None
        else [continuous_log_xi(rows, levels, log_prior, max_iter, batch_size, random_state, stop)]
    )
    if xi is None:
        starts.append(np.zeros(rows.n_samples))
    best, outcome = climb(step, starts[0], max_iter, stop)
    for start in starts[1:]:
        last = None
        other = climb(step, start, max_iter, stop)
        if other[0].bound > best.bound:
            best, outcome = other
    posterior = with_outcome(best.posterior, best.bound, outcome, stop)
    if bound == "jaakkola" or posterior.interrupted:
        return posterior
    return fit_exponential(rows, posterior, batch_size, max_iter, as_generator(random_state), stop)


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
) -> LogisticFit:
    """Fit in the basis where weights do not interact, with levels around each one's posterior.

    ξ and, by empirical Bayes, the prior variance of the weights are found with continuous weights, for which a step is
    one factorisation. The basis is then that of Φᵀdiag(2λ)Φ at this ξ; only a prior that is not Gaussian moves ξ again.

    Parameters
    ----------
    rows : LabelledRows
    prior : DensityPrior
        In units of the prior standard deviation; standard Gaussian by default.
    variance_prior : VariancePrior
        By default a wide one about the variance at which z has a variance of 4 at a typical row.
    n_levels : int
    bound, batch_size, max_iter, random_state, stop
        As in `fit_logistic`.

    Returns
    -------
    LogisticFit
    """
    as_choice(bound, "bound", BOUNDS)
    as_count(max_iter, "max_iter")
    as_level_count(n_levels)
    if batch_size is not None:
        as_count(batch_size, "batch_size")
    prior = GaussianPrior() if prior is None else prior
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if variance_prior is None:
        variance_prior = VariancePrior(typical_variance(mean_square(rows)), LOG_VARIANCE_SD)
    unit = prior.variance  # of the prior as it is given; found by the Gaussian evidence whatever its shape

    gaussian_prior = VariancePrior(variance_prior.centre * unit, variance_prior.sd)
    start = starting_point(rows, gaussian_prior, max_iter, batch_size, random_state, stop)
    found, outcome = climb(gaussian_step(rows, gaussian_prior), start, max_iter, stop)
    variance = found.variance / unit

    def step(log_xi: FloatArray) -> AscentState:
        rotated = decorrelate(rows.weighted_statistics(np.exp(log_xi))).scaled(variance)
        posterior = fit_decorrelated(rotated, 1.0, prior=prior, n_levels=n_levels, n_noise_levels=1)
        return _discrete_state(rows, posterior, variance, variance_prior.penalty(variance))

    log_xi = found.following[:-1]
    if isinstance(prior, GaussianPrior) or outcome.interrupted:
        best = step(log_xi)
        outcome.trace[0][-1] = best.bound
    else:
        best, outcome = climb(step, log_xi, max_iter, stop)
    posterior = with_outcome(best.posterior, best.bound, outcome, stop)
    if bound == "exponential" and not posterior.interrupted and posterior.vectors.shape[1] > 0:
        rng = as_generator(random_state)
        posterior = fit_exponential_decorrelated(rows, posterior, variance, prior, batch_size, max_iter, rng, stop)
        penalty = variance_prior.penalty(variance)
        posterior = replace(posterior, elbo=posterior.elbo - penalty, elbo_trace=posterior.elbo_trace - penalty)
    return LogisticFit(posterior, variance, np.exp(best.following))


@dataclass(frozen=True)
class LogisticFit:
    """A posterior with what was found beside it.

    Attributes
    ----------
    posterior : DecorrelatedPosterior
        Of weights in units of √variance. Its `elbo` is a lower bound of log Pr(t), less what the prior of the variance
        takes off.
    variance : float
        Prior variance of the weights.
    xi : ndarray of shape (n_samples,)
        Jaakkola and Jordan's ξ at the end.
    """

    posterior: DecorrelatedPosterior
    variance: float
    xi: FloatArray
