"""Kernel hyperparameters by maximum marginal likelihood, and the rows that they are learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.repeated import RowCounts, distinct_index, merge_repeated
from pydirect.features.screen import screen_columns
from pydirect.features.search import MAX_ROWS, Referee, search
from pydirect.features.search_record import HyperparameterSearch


def fit_hyperparameters(
    x: FloatArray,
    y: FloatArray,
    sample_weight: FloatArray,
    n_linear: int,
    rng: np.random.Generator,
    *,
    max_rows: int = MAX_ROWS,
    n_threads: int = 1,
    referee: Referee | None = None,
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
        Positive: how many times each row is repeated; see `pydirect.features.repeated`.
    n_linear : int
        Number of leading inputs that enter the linear part.
    rng : numpy.random.Generator
        Selects the rows.
    max_rows : int, default=1000
        Largest number of rows in the marginal likelihood.
    n_threads : int, default=1
        Number of threads; results have the same bits for any.
    referee : callable, optional
        From hyperparameters to the evidence of all rows, which chooses between searches on several subsets where there
        are many more rows than `max_rows`.

    Returns
    -------
    KernelHyperparameters
        The best that were found.
    """
    counts = RowCounts.of(x, y, sample_weight).where_learned(sample_weight)
    return search_hyperparameters(x, y, counts, n_linear, rng, max_rows=max_rows, n_threads=n_threads, referee=referee)[
        0
    ]


def search_hyperparameters(
    x: FloatArray,
    y: FloatArray,
    counts: FloatArray,
    n_linear: int,
    rng: np.random.Generator,
    *,
    max_rows: int = MAX_ROWS,
    n_threads: int = 1,
    referee: Referee | None = None,
    tied: NDArray[np.intp] | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Return what `fit_hyperparameters` does, and the record of the search.

    `counts`, (n_samples,): how many rows each counts for, as of `RowCounts.where_learned`, for the referee too. `tied`,
    (n_inputs,): the length-scale of each input; see `MarginalLikelihood`.
    """

    def objective(rows: NDArray[np.intp]) -> MarginalLikelihood:
        return MarginalLikelihood(x[rows], y[rows], counts[rows], n_linear, n_threads, tied)

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(x[:, :n_linear], y, rng, n_threads)
        return search(objective, len(x), scores, rng, max_rows=max_rows, referee=referee)


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

    @cached_property
    def merged(self) -> tuple[NDArray[np.intp], FloatArray, NDArray[np.intp]]:
        """First and total weight of equal rows, and where each row went; see `merge_repeated`."""
        return merge_repeated(self.x, self.y, self.weight)

    @cached_property
    def counts(self) -> RowCounts:
        """What the rows count for in inference."""
        index, weight = self.distinct
        return RowCounts.of(self.x[index], self.y[index], weight)

    @property
    def is_plain(self) -> bool:
        """Whether all rows differ and have a weight of one."""
        index, weight = self.distinct
        return len(index) == len(self.x) and bool((weight == 1).all())

    def divided(self, repetitions: float) -> TrainingRows:
        """Return the same rows with their weights divided by a number."""
        weight = np.ones(len(self.x)) if self.weight is None else self.weight
        return replace(self, weight=weight / repetitions)
