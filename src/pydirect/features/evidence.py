"""Kernel hyperparameters by maximum marginal likelihood, and the rows that they are learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_search import NearestRows
from pydirect.features.parts import try_product
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
    axes: NDArray[np.intp] | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Return what `fit_hyperparameters` does, and the record of the search.

    `counts`, (n_samples,): how many rows each counts for, as of `RowCounts.where_learned`, for the referee too. `tied`,
    (n_inputs,): the length-scale of each input; see `MarginalLikelihood`. `axes`: inputs of which a product is tried.
    """

    def objective(rows: NDArray[np.intp]) -> MarginalLikelihood:
        return MarginalLikelihood(x[rows], y[rows], counts[rows], n_linear, n_threads, tied)

    def nearest(rows: NDArray[np.intp], first: MarginalLikelihood) -> NearestRows:
        return NearestRows(x[rows], y[rows], counts[rows], first)

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(x[:, :n_linear], y, rng, n_threads)
        options: dict[str, Any] = {"max_rows": max_rows, "referee": referee, "nearest": nearest}
        found, record = search(objective, len(x), scores, rng, **options)
        return (
            (found, record)
            if axes is None
            else try_product(objective, found, record, axes, len(x), rng, max_rows, referee)
        )


@dataclass(frozen=True)
class TrainingRows:
    """Rows x (n_rows, n_features_in), standardised targets or labels ±1 (n_rows, n_outputs), weights (n_rows,)."""

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
