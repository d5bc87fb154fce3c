"""Kernel hyperparameters by maximum marginal likelihood: a race of starts on few rows, then the best on more.

The marginal likelihood of many columns has bad optima: all length-scales long and everything noise. Starts with long
length-scales, with short ones, and with short ones of only those columns that a screen has found differ in which they
end in, and the marginal likelihood itself says which is best.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.race import Patience, Run, descend, race
from pydirect.features.screen import RELEVANT, screen_columns

MAX_ROWS = 1000
# Rows of the race.
FIRST_ROWS = 512
# The winner's further iterations, on the rows of the race if there are no more, or on up to `max_rows`.
FEW_ROWS = (48, Patience(6, 0.0005))
MANY_ROWS = (40, Patience(4, 0.005))
# Share of the targets' variance from which noise is taken for a sign of a bad optimum.
ALL_NOISE = 0.8
# Tables with at most so many rows are looked through for repeated ones.
MOST_MERGED_ROWS = 4000


def fit_hyperparameters(
    x: FloatArray,
    y: FloatArray,
    sample_weight: FloatArray,
    n_linear: int,
    rng: np.random.Generator,
    *,
    max_rows: int = MAX_ROWS,
    n_threads: int = 1,
) -> KernelHyperparameters:
    """Fit kernel hyperparameters: maximise marginal likelihood times priors, on few rows first, then up to `max_rows`.

    Rows should be distinct, as returned by `distinct_rows`.

    Parameters
    ----------
    x : ndarray of shape (n_samples, n_inputs)
        Standardised inputs, then their normal scores.
    y : ndarray of shape (n_samples, n_outputs)
        Standardised targets.
    sample_weight : ndarray of shape (n_samples,)
        Positive.
    n_linear : int
        Number of leading inputs that enter the linear part.
    rng : numpy.random.Generator
        Selects the rows.
    max_rows : int
    n_threads : int
    """
    weight = sample_weight / sample_weight.mean()
    n = len(x)
    order = rng.permutation(n)

    def objective(n_rows: int) -> MarginalLikelihood:
        chosen = np.sort(order[:n_rows])
        return MarginalLikelihood(x[chosen], y[chosen], weight[chosen], n_linear, n_threads)

    with single_blas_thread():
        few, many = min(n, FIRST_ROWS, max_rows), min(n, max_rows)
        likelihood = objective(few)
        starts = starting_points(likelihood, screen_columns(x[:, :n_linear], y, rng))
        best, *others = race(likelihood, starts)
        if few == many:
            best = descend(likelihood, best, *FEW_ROWS)
        else:
            likelihood = objective(many)
            if best.theta[0] > np.log(ALL_NOISE):
                best, other = race(likelihood, [best, starts[1]])
                others.append(other)
            best = descend(likelihood, best, *MANY_ROWS)
    return likelihood.unpack(best.theta, sum(run.n_evaluations for run in [best, *others]))


def starting_points(likelihood: MarginalLikelihood, scores: FloatArray) -> list[Run]:
    """Return the starts of the race: long length-scales, short ones, and those that a screen of columns suggests."""
    d, long = likelihood.d, likelihood.start
    short = long.copy()
    short[[*range(2, 2 + d), 3 + d]] += np.log(0.3)
    runs = [Run("long", long), Run("short", short)]
    relevant = np.flatnonzero(scores > RELEVANT)
    if relevant.size:
        screened = long.copy()
        screened[1] = 0.0
        screened[2 : 2 + d] = likelihood.mean[2 : 2 + d] + 1.0
        screened[2 + relevant] = 0.25 * np.log(relevant.size)
        screened[2 + d] = np.log(0.1)
        runs.append(Run("screened", screened))
    return runs


def distinct_rows(
    x: FloatArray, y: FloatArray, sample_weight: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Merge repeated rows of small tables and add up their weights; see `distinct_index`."""
    index, weight = distinct_index(x, y, sample_weight)
    return x[index], y[index], weight


def distinct_index(
    x: FloatArray, y: FloatArray, sample_weight: FloatArray | None
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the indices of distinct rows (all rows in large tables) and their total weights; zero weights are dropped.

    A weight of two is then the same as a row given twice. The likelihood of exact copies is always largest without
    noise: hyperparameters are therefore learned from distinct rows, with weights relative to their mean.
    """
    weight = np.ones(len(x)) if sample_weight is None else sample_weight
    used = np.flatnonzero(weight > 0)
    if len(used) > MOST_MERGED_ROWS:
        return used, weight[used]
    _, first, where = np.unique(np.hstack([x[used], y[used]]), axis=0, return_index=True, return_inverse=True)
    return used[first], np.bincount(where.ravel(), weights=weight[used]).astype(np.float64)


@dataclass(frozen=True)
class TrainingRows:
    """Rows that features are fitted to.

    - `x`, (n_rows, n_features_in).
    - `y`, (n_rows, n_outputs): standardised targets, or labels ±1.
    - `weight`, (n_rows,).
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray | None

    @cached_property
    def distinct(self) -> tuple[NDArray[np.intp], FloatArray]:
        """Indices of the distinct rows and their weights; see `distinct_index`."""
        return distinct_index(self.x, self.y, self.weight)
