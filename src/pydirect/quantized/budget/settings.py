"""What `fit_within` takes from an estimator: its parameters, and for labels a way to fit its classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.regression.decorrelated import DecorrelatedPosterior
from pydirect.regression.mean_field import MeanFieldPosterior


@dataclass(frozen=True)
class ClassifierFit:
    """A fitted classifier.

    Attributes
    ----------
    logit : ndarray of shape (n_rows, n_problems)
        Mean at the training rows; one problem for two classes, one per class for more.
    intercept : ndarray of shape (n_problems,)
    posteriors : sequence of MeanFieldPosterior or DecorrelatedPosterior
        Per problem, of weights in units of their prior standard deviation.
    prior_scale : ndarray of shape (n_problems,)
    hyperparameters : KernelHyperparameters or None
    """

    logit: FloatArray
    intercept: FloatArray
    posteriors: Sequence[MeanFieldPosterior | DecorrelatedPosterior]
    prior_scale: FloatArray
    hyperparameters: KernelHyperparameters | None


@dataclass(frozen=True)
class ClassifierFits:
    """Ways to weight and to fit labels.

    Attributes
    ----------
    weighted : function
        From rows, labels and weights to the same with class weights; rows without weight are left out.
    fit : function
        From rows, labels and weights, and the keywords ``features``, ``n_features`` and ``seed``, to a `ClassifierFit`.
    """

    weighted: Callable[[FloatArray, NDArray[Any], FloatArray], tuple[FloatArray, NDArray[Any], FloatArray]]
    fit: Callable[..., ClassifierFit]


@dataclass(frozen=True)
class SearchSettings:
    """Parameters of an estimator that the search uses.

    Attributes
    ----------
    max_hyperparameter_rows : int
    n_threads : int
    rng : numpy.random.Generator
    classifier : ClassifierFits or None
        None for regression.
    """

    max_hyperparameter_rows: int
    n_threads: int
    rng: np.random.Generator
    classifier: ClassifierFits | None = None


class Searchable(Protocol):
    """An estimator that `fit_within` takes."""

    def search_settings(self) -> SearchSettings:
        """Return the parameters that the search uses."""
