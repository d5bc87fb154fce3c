"""Posteriors of discrete weights under the Jaakkola bound: in the decorrelated basis, or on shared levels."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from pydirect._validation import FloatArray
from pydirect.distributions.priors import DensityPrior, GaussianPrior
from pydirect.logistic.ascent import Ascent, BoundParameters, Latent, Posterior, RowSource, Solution, Solve, climb
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.regression.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.regression.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate


@dataclass(frozen=True)
class LogisticFit(Generic[Posterior]):
    """A posterior, decorrelated or sequential, and what was found with it.

    Attributes
    ----------
    posterior : DecorrelatedPosterior or SequentialPosterior
        Of weights in units of √variance. Its `elbo` is a lower bound on log Pr(t), less the penalty of the variance's
        prior.
    variance : float
        Prior variance of the weights.
    xi : ndarray of shape (n_samples,) or None
        Jaakkola and Jordan's ξ at the end, of a decorrelated posterior; None for passes over a stream, which keep none.
    """

    posterior: Posterior
    variance: float
    xi: FloatArray | None = None


@dataclass(frozen=True)
class ScaledLatent:
    """Moments of f* for weights in units of √variance."""

    posterior: Latent
    variance: float

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance for rows of Φ; (n_rows,) each."""
        mean, variance = self.posterior.latent_moments(phi, n_threads)
        return np.sqrt(self.variance) * mean, self.variance * variance


def decorrelated_solve(
    prior: DensityPrior, n_levels: int, variance_prior: VariancePrior
) -> Solve[DecorrelatedPosterior]:
    """Return the step with discrete weights in the basis where they do not interact, at a fixed prior variance."""

    def solve(regression: GaussianStatistics, log_variance: float) -> Solution[DecorrelatedPosterior]:
        variance = float(np.exp(log_variance))
        rotated = decorrelate(regression).target(0).scaled(variance)
        posterior = fit_decorrelated(rotated, 1.0, prior=prior, n_levels=n_levels, n_noise_levels=1)
        cost = posterior.weights.kl(posterior.log_prior) + variance_prior.penalty(variance)
        return Solution(posterior, ScaledLatent(posterior, variance), cost, log_variance, posterior.interrupted)

    return solve


def mean_field_solve(
    levels: FloatArray, log_prior: FloatArray, *, optimizer: str, n_threads: int
) -> Solve[MeanFieldPosterior]:
    """Return the step with discrete weights of the features themselves; each starts at the last posterior."""
    last: MeanFieldPosterior | None = None

    def solve(regression: GaussianStatistics, log_variance: float) -> Solution[MeanFieldPosterior]:
        nonlocal last
        last = fit_mean_field(
            regression,
            levels,
            log_prior,
            [1.0],
            start=last,
            optimizer=optimizer,
            n_threads=n_threads,
        )
        return Solution(last, last, last.weights.kl(last.log_prior), log_variance, last.interrupted)

    return solve


def ascend_continuous(
    source: RowSource,
    starts: Sequence[tuple[BoundParameters, float]],
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
) -> list[Ascent[FullGaussian]]:
    """Fit continuous weights of problems and their prior variance, by the Gaussian evidence whatever the prior's shape.

    `starts`: for each problem, parameters of the bound and the log of the weights' prior variance. Raises
    KeyboardInterrupt when the user interrupts before there is a posterior of all rows.
    """
    solve = gaussian_solve(variance_prior)
    ascents = [Ascent(solve, parameters, log_variance, max_iter) for parameters, log_variance in starts]
    climb(source, ascents, stop)
    if not all(ascent.trace for ascent in ascents):
        raise KeyboardInterrupt
    return ascents


def ascend_decorrelated(
    source: RowSource,
    starts: Sequence[tuple[BoundParameters, float]],
    *,
    prior: DensityPrior,
    variance_prior: VariancePrior,
    n_levels: int,
    max_iter: int,
    stop: threading.Event,
) -> list[Ascent[DecorrelatedPosterior]]:
    """Fit problems in the basis where weights do not interact.

    ξ and, by empirical Bayes, the prior variance are found with continuous weights, for which a step is one
    factorisation. The basis is then that of Φᵀdiag(2λ)Φ at this ξ; only a prior that is not Gaussian moves ξ again.

    `starts`: as in `ascend_continuous`. `prior`: in units of the prior standard deviation. Raises KeyboardInterrupt
    when the user interrupts before there is a posterior of all rows.
    """
    wide = variance_prior.scaled(prior.variance)
    continuous = ascend_continuous(source, starts, wide, max_iter=max_iter, stop=stop)
    single_step = isinstance(prior, GaussianPrior) or stop.is_set()
    solve, shift = decorrelated_solve(prior, n_levels, variance_prior), float(np.log(prior.variance))
    discrete = [
        Ascent(solve, before.best.parameters, before.best.log_variance - shift, 1 if single_step else max_iter)
        for before in continuous
    ]
    climb(source, discrete, stop)
    for ascent, before in zip(discrete, continuous, strict=True):
        if single_step or not ascent.trace:
            ascent.continue_trace(before)
    return discrete
