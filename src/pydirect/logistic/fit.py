"""Fits of logistic regression, on rows in memory or by passes over a stream: Gaussian weights, or weights on levels."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import raise_if_set, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count
from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.distributions.categorical import as_levels
from pydirect.distributions.priors import as_log_prior
from pydirect.linear.fit import fit_gaussian
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import (
    Ascent,
    LikelihoodMoments,
    Posterior,
    RowSource,
    Solution,
    Solve,
    State,
    climb,
    with_outcome,
)
from pydirect.logistic.exponential import fit_exponential
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.latent import JaakkolaLikelihood
from pydirect.logistic.rows import ROWS_WITHOUT_START, LabelledRows
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import Rotation, decorrelate

BOUNDS = ("jaakkola", "exponential")


@dataclass(frozen=True)
class LogisticFit(Generic[Posterior]):
    """Posteriors of any kind, and the prior variance that was found with them."""

    # One per function, of weights in units of √variance. The sum of their ELBOs, in equal shares, is that of the
    # problem, less the penalty of the variance's prior.
    posteriors: list[Posterior]
    variance: float  # prior variance of the weights

    @property
    def scaled(self) -> list[tuple[Posterior, float]]:
        """Posteriors and the prior deviation."""
        return [(posterior, float(np.sqrt(self.variance))) for posterior in self.posteriors]

    @property
    def posterior(self) -> Posterior:
        """The posterior of the only function."""
        [posterior] = self.posteriors
        return posterior

    @cached_property
    def mean(self) -> FloatArray:
        """Means of the weights, (n_weights, n_functions)."""
        return np.sqrt(self.variance) * np.stack([posterior.coefficients for posterior in self.posteriors], axis=1)

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (n_rows, n_functions) and variance (n_rows,) of φᵀw; the mean one where functions differ."""
        moments = [posterior.latent_moments(phi) for posterior in self.posteriors]
        mean, variance = (np.stack(part, axis=1) for part in zip(*moments, strict=True))
        return np.sqrt(self.variance) * mean, self.variance * variance.mean(axis=1)


def mean_field_solve(
    levels: FloatArray, log_prior: FloatArray, *, optimizer: str, n_threads: int
) -> Solve[MeanFieldPosterior]:
    """Return the step with discrete weights of the features themselves; each starts at the last posterior."""
    last: MeanFieldPosterior | None = None

    def solve(state: State) -> Solution[MeanFieldPosterior]:
        nonlocal last
        last = fit_mean_field(
            GaussianStatistics(state.targets, np.zeros(1), 0.0, gram=state.gram),
            levels,
            log_prior,
            [1.0],
            start=last,
            optimizer=optimizer,
            n_threads=n_threads,
        )
        kl = last.weights.kl(last.log_prior)
        return Solution(state, last, LogisticFit([last], 1.0), kl, state.log_variance, last.interrupted)

    return solve


# --- where the ascent starts: at zero logits, at a fit to a sample of the rows, or near another fit


def state_of(rows: LabelledRows, fit: LogisticFit[GaussianPosterior]) -> State:
    """Return the state that a step from Gaussian posteriors leads to."""
    return State.after(rows.evaluate(fit), fit.mean, float(np.log(fit.variance)))


def starting_state(rows: LabelledRows, log_variance: float, near: LikelihoodMoments | None = None) -> State:
    """Return the state of weights nearest to logits of given moments, by default where a likelihood is expanded first.

    That is regression at their precisions h. About a first guess f, targets are those of Newton's step, f + r/h with
    residuals r; logits of another fit are targets themselves, as h of several classes is too small where they are near.
    """
    zero = np.zeros((rows.n_weights, rows.n_functions))
    guess = rows.model.first_guess(rows.t, rows.offset)
    moments = LikelihoodMoments(zero, guess, np.zeros(rows.n_samples)) if near is None else near
    return State.after(rows.evaluate(moments, target_step=float(near is None)), zero, log_variance)


@single_blas_thread()
def ascend_rows(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
    near: Ascent[FullGaussian] | None = None,
    moved: float = 0.0,
) -> Ascent[FullGaussian]:
    """Fit continuous weights and their prior variance to rows in memory, on a sample of them first where they are many.

    `near` is a fit of the same rows in other features to start from, with the log of the prior variance `moved`.
    KeyboardInterrupt is raised before there is a posterior.
    """
    size = rows.start_size
    # Features of unbuffered rows are computed again for every step of the means.
    solve = gaussian_solve(variance_prior, rows.improved if rows.is_held else None)
    found = None if near is None else near.best
    if found is not None and isinstance(found.latent, LikelihoodMoments):
        state = starting_state(rows, found.state.log_variance + moved, found.latent)
    elif rows.n_samples >= ROWS_WITHOUT_START * size:
        raise_if_set(stop)
        state = ascend_rows(rows.sample(size), variance_prior, max_iter=max_iter, stop=stop).best.state
    else:
        state = starting_state(rows, float(np.log(variance_prior.centre)))
    return climb(rows, Ascent(solve, state, max_iter), stop)


@single_blas_thread()
def ascend_stream(
    source: RowSource, sample: LabelledRows, variance_prior: VariancePrior, max_iter: int, stop: threading.Event
) -> Ascent[FullGaussian]:
    """Fit as `ascend_rows` does, by passes over rows, from a fit to a `sample` reweighted to their total weight."""
    few = sample.sample(min(sample.start_size, sample.n_samples))
    first = ascend_rows(few, variance_prior, max_iter=max_iter, stop=stop)
    raise_if_set(stop)
    return climb(source, Ascent(gaussian_solve(variance_prior), first.best.state, max_iter), stop)


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
    if not isinstance(rows.model, JaakkolaLikelihood):
        model = type(rows.model).__name__
        raise ValueError(f"rows must have likelihood='jaakkola' for a factorised posterior, got {model}")
    levels = as_levels(levels, rows.n_weights)
    log_prior = as_log_prior(log_prior, levels, rows.n_weights)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if start is None:
        # Continuous weights with the prior's variance, unless the prior is on one level only.
        prior = VariancePrior(_prior_variance(levels, log_prior), 0.0)
        if prior.centre > 0:
            start = ascend_rows(rows, prior, max_iter=max_iter, stop=stop).best.state
        else:
            start = starting_state(rows, 0.0)
    solve = mean_field_solve(levels, log_prior, optimizer=optimizer, n_threads=rows.n_threads)
    ascent = climb(rows, Ascent(solve, start, max_iter), stop)
    posterior = with_outcome(ascent.best.posterior, ascent.result(stop), stop)
    if bound == "jaakkola" or posterior.interrupted:
        return posterior
    return fit_exponential(rows, posterior, max_iter=max_iter, stop=stop)


def _prior_variance(levels: FloatArray, log_prior: FloatArray) -> float:
    """Mean variance of the weights' priors."""
    w, mass = np.broadcast_arrays(np.atleast_2d(levels), np.exp(np.atleast_2d(log_prior)))
    mass = mass / mass.sum(axis=1, keepdims=True)
    return float(((mass * w**2).sum(axis=1) - (mass * w).sum(axis=1) ** 2).mean())


@single_blas_thread()
def fit_logistic_decorrelated(
    rows: LabelledRows,
    *,
    variance_prior: VariancePrior | None = None,
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
    variance_prior : VariancePrior, optional
        By default a wide one around the variance at which z has a variance of 4 at a typical row.
    max_iter : int, default=1000
        As in `fit_logistic`.
    stop : threading.Event, optional
        As in `fit_logistic`.

    Returns
    -------
    LogisticFit
        Posteriors and prior variance.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.logistic import LabelledRows, fit_logistic_decorrelated
    >>> rows = LabelledRows.from_arrays(np.eye(2).repeat(20, axis=0), np.repeat([1.0, -1.0], 20))
    >>> [posterior] = fit_logistic_decorrelated(rows).posteriors
    >>> posterior.coefficients.round(1).tolist()
    [1.3, -1.3]
    """
    as_count(max_iter, "max_iter")
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if variance_prior is None:
        variance_prior = VariancePrior.wide(rows.mean_square())
    return finish_decorrelated(ascend_rows(rows, variance_prior, max_iter=max_iter, stop=stop), stop)


def finish_decorrelated(
    continuous: Ascent[FullGaussian], stop: threading.Event, precision_factor: float = 1.0
) -> LogisticFit[GaussianPosterior]:
    """Return the posteriors of rotated weights, in units of the prior deviation.

    `precision_factor`: of A in the covariance; see `RowsLeftOut`.
    """
    state = replace(continuous.best.state, gram=precision_factor * continuous.best.state.gram)
    variance, n = float(np.exp(state.log_variance)), state.mean.shape[1]
    rotated = decorrelate(GaussianStatistics(np.zeros_like(state.mean), np.zeros(n), 0.0, state.gram))
    c = rotated.rotation.transposed_times(state.targets)
    rotated = replace(rotated, c=c, yty=(c**2 / rotated.eigenvalues[:, None]).sum(axis=0))  # the least that can be
    posteriors = [fit_gaussian(rotated.target(k).scaled(variance), 1.0, n_noise_levels=1) for k in range(n)]
    outcome = continuous.result(stop)
    share = replace(outcome, elbo=outcome.elbo / n, trace=outcome.trace / n)
    # Which directions the rows inform is the same for all: so is their rotation, which predictions turn to once.
    rotation = posteriors[0].rotation
    return LogisticFit([replace(own, rotation=rotation, outcome=share) for own in posteriors], variance)


def turned(fit: LogisticFit[GaussianPosterior], vectors: FloatArray) -> LogisticFit[GaussianPosterior]:
    """Turn posteriors in rotated directions back to the weights of the features."""
    whole = Rotation(vectors @ fit.posteriors[0].vectors)  # the same for all functions
    return replace(fit, posteriors=[replace(posterior, rotation=whole) for posterior in fit.posteriors])
