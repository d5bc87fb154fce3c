"""Where the ascent starts: at zero logits, or at a fit of continuous weights to a sample of the rows."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np

from pydirect._threads import raise_if_set, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import Ascent, LikelihoodMoments, RowSource, State, climb
from pydirect.logistic.discrete import DiscreteLatent, LogisticFit
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.rows import LabelledRows

# Size of the sample whose fit is the start; twice as many rows need no sample.
START_ROWS = 4_000
START_ROWS_PER_WEIGHT = 8


@dataclass(frozen=True)
class ZeroLatent:
    """Weights that are zero, (n_weights, n_functions)."""

    mean: FloatArray

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Zeros for rows of Φ."""
        return np.zeros((len(phi), self.mean.shape[1])), np.zeros(len(phi))


@single_blas_thread()
def starting_state(source: RowSource, n_weights: int, n_functions: int, variance_prior: VariancePrior) -> State:
    """Return the state that a step from zero weights leads to."""
    zero = np.zeros((n_weights, n_functions))
    return State.after(source.evaluate(ZeroLatent(zero)), zero, float(np.log(variance_prior.centre)))


def state_of(rows: LabelledRows, fit: LogisticFit[GaussianPosterior]) -> State:
    """Return the state that a step from Gaussian posteriors leads to."""
    latent = DiscreteLatent(fit.posteriors, fit.variance)
    return State.after(rows.evaluate(latent), latent.mean, float(np.log(fit.variance)))


def state_from(rows: LabelledRows, moments: LikelihoodMoments, log_variance: float) -> State:
    """Return the state of weights that come nearest to logits of given moments, by regression at their precisions."""
    terms = rows.terms(rows.t, *rows.moments(moments))
    mean = np.zeros((rows.n_weights, rows.n_functions))
    # Precision h and residual r of a logit f are those of a Gaussian target f + r/h.
    target = replace(terms, residual=terms.residual + terms.precision[:, None] * moments.row_mean)
    return State.after(rows.summed(target), mean, log_variance)


@single_blas_thread()
def ascend_rows(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
    near: Ascent[FullGaussian] | None = None,
) -> Ascent[FullGaussian]:
    """Fit continuous weights and their prior variance to rows in memory, on a sample of them first where they are many.

    `near` is a fit of the same rows in other features to start from. KeyboardInterrupt is raised before there is a
    posterior.
    """
    size = start_size(rows)
    # Features of unbuffered rows are computed again for every step of the means.
    solve = gaussian_solve(variance_prior, rows.improved if rows.is_held else None)
    found = None if near is None else near.best.solution
    if found is not None and isinstance(found.latent, LikelihoodMoments):
        state = state_from(rows, found.latent, found.state.log_variance)
    elif rows.n_samples >= 2 * size:
        raise_if_set(stop)
        state = ascend_rows(rows.sample(size), variance_prior, max_iter=max_iter, stop=stop).best.solution.state
    else:
        guess = LikelihoodMoments(
            np.zeros((rows.n_weights, rows.n_functions)), rows.first_guess, np.zeros(rows.n_samples)
        )
        state = state_from(rows, guess, float(np.log(variance_prior.centre)))
    return _climbed(rows, Ascent(solve, state, max_iter), stop)


@single_blas_thread()
def ascend_stream(
    source: RowSource, sample: LabelledRows, variance_prior: VariancePrior, max_iter: int, stop: threading.Event
) -> Ascent[FullGaussian]:
    """Fit as `ascend_rows` does, by passes over rows, from a fit to a `sample` reweighted to their total weight."""
    first = ascend_rows(
        sample.sample(min(start_size(sample), sample.n_samples)), variance_prior, max_iter=max_iter, stop=stop
    )
    raise_if_set(stop)
    return _climbed(source, Ascent(gaussian_solve(variance_prior), first.best.solution.state, max_iter), stop)


def _climbed(source: RowSource, ascent: Ascent[FullGaussian], stop: threading.Event) -> Ascent[FullGaussian]:
    """Return an ascent that has converged or was interrupted; raise KeyboardInterrupt without a posterior."""
    climb(source, ascent, stop)
    if not ascent.trace:
        raise KeyboardInterrupt
    return ascent


def start_size(rows: LabelledRows) -> int:
    """Return the number of rows of the sample."""
    return max(START_ROWS, START_ROWS_PER_WEIGHT * rows.n_weights)
