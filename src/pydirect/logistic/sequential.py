"""Weights on levels, drawn one after another, under the Jaakkola bound.

At given ξ the bound is a Gaussian regression of noise variance one,

    log Pr(t | w) ≥ constant + cᵀw − ½ wᵀAw,    A = Σ 2λω φφᵀ,  c = Σ ω(t/2 − 2λ offset) φ

so that `fit_sequential` draws from it. Where four bits cost nothing ξ² = E z² hardly depends on the levels: ξ and the
prior variance come from continuous weights, in the few directions about which the data say anything, and the weights
are drawn once, when these are at rest.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array
from pydirect.distributions.priors import GaussianPrior, Prior, variance_of
from pydirect.logistic.ascent import Ascent, Step
from pydirect.logistic.discrete import LogisticFit, ascend_continuous
from pydirect.logistic.gaussian import FullGaussian, VariancePrior
from pydirect.logistic.passes import RowPasses
from pydirect.logistic.rows import LabelledRows
from pydirect.logistic.start import starting_point, starting_sums
from pydirect.optimize.outcome import Outcome
from pydirect.regression.sequential import (
    CoarseLevelsWarning,
    fit_sequential,
    is_coarse,
    warn_of_coarse_levels,
    with_common_scales,
)
from pydirect.regression.sequential_posterior import SequentialPosterior
from pydirect.statistics.gaussian import TargetStatistics


@dataclass(frozen=True)
class Lattice:
    """Levels of the weights, their prior and the number of draws, as `fit_sequential` takes them.

    The prior is scaled so that its variance is that which empirical Bayes finds. Problems that are drawn together have
    the same own scales, in units of their prior standard deviations, so that devices store them once.
    """

    prior: Prior = field(default_factory=GaussianPrior)
    n_levels: int = 15
    levels: ArrayLike | None = None
    level_scales: str = "own"
    ties: NDArray[np.intp] | None = None
    n_draws: int = 64


@dataclass(frozen=True)
class RestingBound:
    """The bound of one problem at the ξ and the prior variance of its best step of continuous weights.

    - `gram`, `c`: A, (n_directions, n_directions), and c of the regression.
    - `constant`: of the bound, less the penalty of the prior variance.
    - `variance`: prior variance of the weights.
    """

    gram: FloatArray
    c: FloatArray
    constant: float
    variance: float

    @classmethod
    def of(cls, step: Step[FullGaussian], variance_prior: VariancePrior) -> RestingBound:
        """Return the bound at a step's ξ; its constant follows from its value at the step's posterior."""
        sums, q, variance = step.parameters.regression(), step.solution.posterior, float(np.exp(step.log_variance))
        gram, c = sums.A, sums.c[:, 0]
        with single_blas_thread():
            second_moment = np.vdot(q.root, gram @ q.root) + q.mean @ (gram @ q.mean)  # E wᵀAw
        log_likelihood = step.bound + step.solution.cost
        constant = log_likelihood - c @ q.mean + 0.5 * second_moment - variance_prior.penalty(variance)
        return cls(gram, c, float(constant), variance)

    def regression(self, directions: FloatArray | None) -> TargetStatistics:
        """Return A and c of all weights from those of directions that hold all information; nothing of n or yᵀy."""
        if directions is None:
            return TargetStatistics(self.gram, self.c, 0.0, 0.0)
        with single_blas_thread():
            return TargetStatistics(directions @ self.gram @ directions.T, directions @ self.c, 0.0, 0.0)

    def draw(
        self,
        lattice: Lattice,
        directions: FloatArray | None,
        random_state: int,
        n_threads: int,
        level_exponents: NDArray[np.int8] | None = None,
    ) -> SequentialPosterior:
        """Draw weights, in units of √variance; the log weights are those of the bound."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoarseLevelsWarning)  # left to the caller
            posterior = fit_sequential(
                self.regression(directions),
                1.0,
                self.variance / variance_of(lattice.prior),
                prior=lattice.prior,
                n_levels=lattice.n_levels,
                levels=lattice.levels,
                level_scales=lattice.level_scales,
                ties=lattice.ties if lattice.level_scales == "own" else None,
                level_exponents=level_exponents,
                n_draws=lattice.n_draws,
                random_state=random_state,
                n_threads=n_threads,
            )
        return replace(
            posterior.in_units_of(float(np.sqrt(self.variance))),
            log_weights=self.constant + posterior.log_weights,
            log_evidence_continuous=self.constant + posterior.log_evidence_continuous,
        )


def ascend_to_rest(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    *,
    batch_size: int | None,
    max_iter: int,
    random_state: int,
    stop: threading.Event,
) -> Ascent[FullGaussian]:
    """Fit continuous weights and their prior variance to rows in memory; arguments as of `fit_logistic_sequential`."""
    start = starting_point(
        rows, variance_prior, batch_size=batch_size, max_iter=max_iter, random_state=random_state, stop=stop
    )
    return ascend_continuous(rows, [start], variance_prior, max_iter=max_iter, stop=stop)[0]


def draw_at_rest(
    ascents: Sequence[Ascent[FullGaussian]],
    lattice: Lattice,
    variance_prior: VariancePrior,
    *,
    directions: FloatArray | None,
    random_states: Sequence[int],
    n_threads: int,
    interrupted: bool,
) -> list[LogisticFit[SequentialPosterior]]:
    """Draw the weights of problems whose continuous weights have come to rest, or were interrupted on the way.

    `directions`: those in which the ascents' rows are given, as of `fit_logistic_sequential`. `random_states`: for each
    problem.
    """
    bounds = [RestingBound.of(ascent.best, variance_prior) for ascent in ascents]
    draws = [
        partial(bound.draw, lattice, directions, seed, n_threads)
        for bound, seed in zip(bounds, random_states, strict=True)
    ]
    posteriors = with_common_scales(draws) if lattice.level_scales == "own" else [draw(None) for draw in draws]
    fits = []
    for ascent, bound, posterior in zip(ascents, bounds, posteriors, strict=True):
        elbo = float(posterior.log_weights.mean())
        trace = np.append(ascent.trace, elbo)
        outcome = Outcome(elbo, trace, len(trace), ascent.converged and not interrupted, interrupted)
        fits.append(LogisticFit(replace(posterior, outcome=outcome), bound.variance))
    return fits


def fit_logistic_sequential(
    rows: LabelledRows,
    lattice: Lattice | None = None,
    *,
    directions: FloatArray | None = None,
    variance_prior: VariancePrior | None = None,
    batch_size: int | None = None,
    max_iter: int = 1000,
    random_state: int = 0,
    stop: threading.Event | None = None,
) -> LogisticFit[SequentialPosterior]:
    """Draw weights on levels one after another, each given those before it.

    ξ and, by empirical Bayes, the prior variance are those of continuous weights.

    Parameters
    ----------
    rows : LabelledRows
        Of Φ, or of Φ times `directions`.
    lattice : Lattice
        By default 15 levels of own scales and a Gaussian prior.
    directions : ndarray of shape (n_weights, n_directions), optional
        Orthonormal directions about which the data say anything; see `informative_directions`.
    variance_prior : VariancePrior
        Of a weight's variance; by default a wide one around the variance at which z has a variance of 4 at a typical
        row.
    batch_size, max_iter, random_state, stop
        As in `fit_logistic`.

    Warns
    -----
    CoarseLevelsWarning
        As in `fit_sequential`.

    Returns
    -------
    LogisticFit
        Its posterior, of weights in units of √variance, has the continuous weights' bound at the same ξ for
        `log_evidence_continuous`, so that `gap` is what the levels cost.
    """
    as_count(max_iter, "max_iter")
    if batch_size is not None:
        as_count(batch_size, "batch_size")
    if directions is not None:
        directions = as_float_array(directions, "directions", ("n_weights", rows.n_weights))
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if variance_prior is None:
        variance_prior = VariancePrior.wide(rows.mean_square())
    ascent = ascend_to_rest(
        rows, variance_prior, batch_size=batch_size, max_iter=max_iter, random_state=random_state, stop=stop
    )
    [fit] = draw_at_rest(
        [ascent],
        Lattice() if lattice is None else lattice,
        variance_prior,
        directions=directions,
        random_states=[random_state],
        n_threads=rows.n_threads,
        interrupted=stop.is_set(),
    )
    if is_coarse(fit.posterior):
        warn_of_coarse_levels(fit.posterior)
    return fit


def ascend_passes_to_rest(
    passes: RowPasses, samples: Sequence[LabelledRows], variance_prior: VariancePrior, max_iter: int
) -> list[Ascent[FullGaussian]]:
    """Fit several problems as `ascend_to_rest` does, in the same passes over rows that are not held.

    `samples`: as in `fit_passes_decorrelated`. Raises KeyboardInterrupt when the user interrupts before there is a
    posterior of all rows.
    """
    stop = passes.stop
    starts = [starting_sums(sample, variance_prior, max_iter=max_iter, stop=stop) for sample in samples]
    return ascend_continuous(passes, starts, variance_prior, max_iter=max_iter, stop=stop)
