"""Kernel hyperparameters by maximum marginal likelihood, and the rows that they are learned from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.screen import screen_columns
from pydirect.features.search import MAX_ROWS, Referee, search
from pydirect.features.search_record import HyperparameterSearch

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
        Positive.
    n_linear : int
        Number of leading inputs that enter the linear part.
    rng : numpy.random.Generator
        Selects the rows.
    max_rows : int
    n_threads : int
    referee : callable, optional
        From hyperparameters to the evidence of all rows, which chooses between searches on several subsets where there
        are many more rows than `max_rows`.
    """
    return search_hyperparameters(
        x, y, sample_weight, n_linear, rng, max_rows=max_rows, n_threads=n_threads, referee=referee
    )[0]


def search_hyperparameters(
    x: FloatArray,
    y: FloatArray,
    sample_weight: FloatArray,
    n_linear: int,
    rng: np.random.Generator,
    *,
    max_rows: int = MAX_ROWS,
    n_threads: int = 1,
    referee: Referee | None = None,
    tied: NDArray[np.intp] | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Return what `fit_hyperparameters` does, and the record of the search.

    `tied`, (n_inputs,): the length-scale of each input; see `MarginalLikelihood`.
    """
    weight = sample_weight / sample_weight.mean()

    def objective(rows: NDArray[np.intp]) -> MarginalLikelihood:
        return MarginalLikelihood(x[rows], y[rows], weight[rows], n_linear, n_threads, tied)

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(x[:, :n_linear], y, rng, n_threads)
        return search(objective, len(x), scores, rng, max_rows=max_rows, referee=referee)


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


def distinct_in_order(rows: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find equal rows.

    Returns the index of the first of each, (n_distinct,), in ascending order; and for every row the number of the first
    that equals it, (n_rows,).
    """
    _, first, where = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[where.ravel()]


def merge_repeated(
    x: FloatArray, y: FloatArray, weight: FloatArray | None
) -> tuple[NDArray[np.intp], FloatArray, NDArray[np.intp]]:
    """Merge rows that are the same in x and y.

    Returns the index of the first of each, (n_distinct,), in ascending order; the total weights of each; and for every
    row given the number of its merged row, (n_rows,).
    """
    first, where = distinct_in_order(np.hstack([x, y]))
    return first, np.bincount(where, weights=weight, minlength=len(first)).astype(np.float64), where


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
        """First and total weight of equal rows of any number, and where each row went; see `merge_repeated`."""
        return merge_repeated(self.x, self.y, self.weight)
