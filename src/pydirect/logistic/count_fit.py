"""Fits of count regression: the weighted passes of classification, with the dispersion learned along the way."""

from __future__ import annotations

import threading

import numpy as np

from pydirect.logistic.ascent import Ascent, climb
from pydirect.logistic.count_rows import CountRows
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.start import ascend_rows

# Times that the dispersion and the weights are improved in turn, and the change of log α that is none.
MOST_ROUNDS = 8
SAME_LOG_DISPERSION = 0.02


def ascend_counts(
    rows: CountRows,
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
    near: Ascent[FullGaussian] | None = None,
) -> tuple[CountRows, Ascent[FullGaussian]]:
    """Fit continuous weights, their prior variance and, of a negative binomial, the dispersion.

    Weights maximise the bound at a given dispersion, the dispersion at given weights, in turn: every round raises the
    bound. `near`: a fit of the same rows in other features, to start from. Returns the rows with the dispersion found.

    Parameters
    ----------
    rows : CountRows
        Rows with counts.
    variance_prior : VariancePrior
        Prior of the variance of the weights.
    max_iter : int
        Largest number of iterations.
    stop : threading.Event
        Set to end the fit early.
    near : Ascent, optional
        A fit to start from.

    Returns
    -------
    (CountRows, Ascent)
        The rows with the dispersion that was found, and the fit.
    """
    ascent = ascend_rows(rows, variance_prior, max_iter=max_iter, stop=stop, near=near)
    for _ in range(MOST_ROUNDS if rows.counts.dispersion > 0 else 0):
        if stop.is_set():
            break
        improved = rows.with_best_dispersion(ascent.best.solution.latent)
        change = abs(np.log(improved.counts.dispersion / rows.counts.dispersion))
        again = Ascent(
            gaussian_solve(variance_prior, improved.improved if improved.is_held else None),
            ascent.best.solution.state,
            max_iter,
        )
        climb(improved, again, stop)
        if not again.trace:  # interrupted
            break
        rows, ascent = improved, again
        if change < SAME_LOG_DISPERSION:
            break
    return rows, ascent
