"""Posteriors of the weights of several functions: Gaussian and rotated, or on shared levels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, cast

import numpy as np

from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.linear.fit import fit_gaussian
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import Posterior, Solution, Solve, State
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate


@dataclass(frozen=True)
class LogisticFit(Generic[Posterior]):
    """Posteriors, Gaussian or sequential, and what was found with them.

    Attributes
    ----------
    posteriors : list of GaussianPosterior or SequentialPosterior
        One per function, of weights in units of √variance. The sum of their ELBOs, in equal shares, is that of the
        problem, less the penalty of the variance's prior.
    variance : float
        Prior variance of the weights.
    """

    # One per function, of weights in units of √variance. The sum of their ELBOs, in equal shares, is that of the
    # problem, less the penalty of the variance's prior.
    posteriors: list[Posterior]
    variance: float  # prior variance of the weights

    @property
    def posterior(self) -> Posterior:
        """The posterior of the only function."""
        [posterior] = self.posteriors
        return posterior


@dataclass(frozen=True)
class DiscreteLatent:
    """Moments of f* of posteriors of several functions, with weights in units of √variance."""

    posteriors: list[GaussianPosterior] | list[MeanFieldPosterior]
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


def gaussian_posteriors(state: State, prior_variance: float) -> list[GaussianPosterior]:
    """Return the posteriors of rotated weights at a state, in units of √variance, with this prior variance there."""
    n_functions = state.mean.shape[1]
    rotated = decorrelate(GaussianStatistics(np.zeros_like(state.mean), np.zeros(n_functions), 0.0, state.gram))
    c = rotated.rotation.transposed_times(state.targets)
    rotated = replace(rotated, c=c, yty=(c**2 / rotated.eigenvalues[:, None]).sum(axis=0))  # the least that can be
    targets = [rotated.target(k).scaled(float(np.exp(state.log_variance))) for k in range(n_functions)]
    posteriors = [fit_gaussian(target, 1.0, prior_variance=prior_variance, n_noise_levels=1) for target in targets]
    # Which directions the rows inform is the same for all: so is their rotation, which predictions turn to once.
    return [replace(posterior, rotation=posteriors[0].rotation) for posterior in posteriors]


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
