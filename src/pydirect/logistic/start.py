"""Where the ascent of the Jaakkola bound starts: a fit of continuous weights to a sample of the rows, or batches."""

from __future__ import annotations

import threading

import numpy as np

from pydirect._validation import as_generator
from pydirect.logistic.ascent import Ascent, climb, raise_if_set
from pydirect.logistic.bound import best_log_xi
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.passes import SumParameters
from pydirect.logistic.rows import LabelledRows, RowParameters

# Size of the sample whose fit is the start; twice as many rows need no sample.
START_ROWS = 4_000
START_ROWS_PER_WEIGHT = 8
# Passes over the rows in batches, and the exponent with which their steps get shorter.
STOCHASTIC_EPOCHS = 2
STOCHASTIC_DECAY = 0.6


def start_size(rows: LabelledRows) -> int:
    """Return the number of rows of the sample."""
    return max(START_ROWS, START_ROWS_PER_WEIGHT * rows.n_weights)


def sampled(rows: LabelledRows) -> LabelledRows:
    """Return a sample to start from, or all rows where they are few."""
    size = start_size(rows)
    return rows.sample(size) if rows.n_samples >= 2 * size else rows


def ascend_gaussian(
    start: RowParameters, log_variance: float, variance_prior: VariancePrior, max_iter: int, stop: threading.Event
) -> Ascent[FullGaussian]:
    """Fit continuous weights and their prior variance to rows in memory."""
    ascent = Ascent(gaussian_solve(variance_prior), start, log_variance, max_iter)
    climb(start.rows, [ascent], stop)
    return ascent


def starting_point(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    *,
    batch_size: int | None,
    max_iter: int,
    random_state: int,
    stop: threading.Event,
) -> tuple[RowParameters, float]:
    """Return parameters of the bound and a log prior variance to start from: from batches of rows or from a sample."""
    if batch_size is not None:
        return _stochastic_start(rows, variance_prior, batch_size, as_generator(random_state), stop)
    log_variance = float(np.log(variance_prior.centre))
    sample = sampled(rows)
    if sample is rows:
        return RowParameters.at_one(rows), log_variance
    ascent = ascend_gaussian(RowParameters.at_one(sample), log_variance, variance_prior, max_iter, stop)
    mean, variance = rows.moments(ascent.best.solution.latent)
    return RowParameters(rows, best_log_xi(mean, variance)), ascent.best.log_variance


def starting_sums(
    rows: LabelledRows, variance_prior: VariancePrior, *, max_iter: int, stop: threading.Event
) -> tuple[SumParameters, float]:
    """Return sums and a log prior variance to start passes from, from a fit to a sample of the rows.

    `rows`: a sample of all rows, reweighted to their total weight.
    """
    start = RowParameters.at_one(rows.sample(min(start_size(rows), rows.n_samples)))
    ascent = ascend_gaussian(start, float(np.log(variance_prior.centre)), variance_prior, max_iter, stop)
    raise_if_set(stop)
    return SumParameters(ascent.best.parameters.regression()), ascent.best.log_variance


def _stochastic_start(
    rows: LabelledRows, variance_prior: VariancePrior, batch_size: int, rng: np.random.Generator, stop: threading.Event
) -> tuple[RowParameters, float]:
    """Natural gradients from batches of rows (Hoffman et al. 2013), for a few epochs.

    The natural parameters of the Gaussian are A + I/t and c at the best ξ, sums over rows: a step mixes in the sums of
    a batch, as if all rows were like it, at the ξ of the present weights.
    """
    gram, c = np.zeros((rows.n_weights, rows.n_weights)), np.zeros(rows.n_weights)
    variance, posterior, n_steps = variance_prior.centre, None, 0
    batches = (pair for _ in range(STOCHASTIC_EPOCHS) for pair in rows.batches(batch_size, rng))
    try:
        for batch, repetitions in batches:
            raise_if_set(stop)
            xi = np.ones(batch.n_samples) if posterior is None else np.exp(best_log_xi(*batch.moments(posterior)))
            statistics = batch.weighted_statistics(xi)
            n_steps += 1
            rate = n_steps**-STOCHASTIC_DECAY
            gram += rate * (repetitions * statistics.A - gram)
            c += rate * (repetitions * statistics.c[:, 0] - c)
            posterior = FullGaussian.solve(gram, c, variance)
            variance = posterior.better_variance(variance_prior, variance)
    except KeyboardInterrupt:
        stop.set()
    log_variance = float(np.log(variance))
    if posterior is None:
        return RowParameters.at_one(rows), log_variance
    return RowParameters(rows, best_log_xi(*rows.moments(posterior))), log_variance
