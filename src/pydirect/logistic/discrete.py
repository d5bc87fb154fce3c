"""Posteriors of discrete weights: in the decorrelated basis, or on shared levels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, cast

import numpy as np

from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.distributions.priors import DensityPrior
from pydirect.linear.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.logistic.ascent import Posterior, Solution, Solve, State
from pydirect.logistic.gaussian import VariancePrior
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate


@dataclass(frozen=True)
class LogisticFit(Generic[Posterior]):
    """Posteriors, decorrelated or sequential, and what was found with them.

    Attributes
    ----------
    posteriors : list of DecorrelatedPosterior or SequentialPosterior
        One per function, of weights in units of √variance. The sum of their ELBOs, in equal shares, is that of the
        problem, less the penalty of the variance's prior.
    variance : float
        Prior variance of the weights.
    """

    posteriors: list[Posterior]
    variance: float

    @property
    def posterior(self) -> Posterior:
        """The posterior of the only function."""
        [posterior] = self.posteriors
        return posterior


@dataclass(frozen=True)
class DiscreteLatent:
    """Moments of f* of posteriors of several functions, with weights in units of √variance."""

    posteriors: list[DecorrelatedPosterior] | list[MeanFieldPosterior]
    variance: float = 1.0
    mean: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        coefficients = [posterior.coefficients for posterior in self.posteriors]
        object.__setattr__(self, "mean", np.sqrt(self.variance) * np.stack(coefficients, axis=1))

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (n_rows, n_functions) and variance (n_rows,) of φᵀw; the mean one where functions differ."""
        moments = [posterior.latent_moments(phi) for posterior in self.posteriors]
        mean, variance = (np.stack(part, axis=1) for part in zip(*moments, strict=True))
        return np.sqrt(self.variance) * mean, self.variance * variance.mean(axis=1)


def with_shares(posteriors: list[Posterior], outcome: Outcome) -> list[Posterior]:
    """Return the posteriors of functions with equal shares of the bound."""
    n = len(posteriors)
    share = replace(outcome, elbo=outcome.elbo / n, trace=outcome.trace / n)
    return [cast(Any, replace)(posterior, outcome=share) for posterior in posteriors]


def decorrelated_solve(
    prior: DensityPrior, n_levels: int, variance_prior: VariancePrior
) -> Solve[list[DecorrelatedPosterior]]:
    """Return the step with discrete weights in the basis where they do not interact, at a fixed prior variance."""

    def solve(state: State) -> Solution[list[DecorrelatedPosterior]]:
        variance = float(np.exp(state.log_variance))
        n_functions = state.mean.shape[1]
        rotated = decorrelate(GaussianStatistics(np.zeros_like(state.mean), np.zeros(n_functions), 0.0, state.gram))
        c = rotated.rotation.transposed_times(state.targets)
        rotated = replace(rotated, c=c, yty=(c**2 / rotated.eigenvalues[:, None]).sum(axis=0))  # the least that can be
        posteriors = [
            fit_decorrelated(rotated.target(k).scaled(variance), 1.0, prior=prior, n_levels=n_levels, n_noise_levels=1)
            for k in range(n_functions)
        ]
        # Which directions the rows inform is the same for all: so is their rotation, which predictions turn to once.
        posteriors = [replace(posterior, rotation=posteriors[0].rotation) for posterior in posteriors]
        kl = sum(posterior.weights.kl(posterior.log_prior) for posterior in posteriors)
        cost = kl + variance_prior.penalty(variance)
        interrupted = any(posterior.interrupted for posterior in posteriors)
        return Solution(state, posteriors, DiscreteLatent(posteriors, variance), cost, state.log_variance, interrupted)

    return solve


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
        return Solution(state, last, DiscreteLatent([last]), kl, state.log_variance, last.interrupted)

    return solve
