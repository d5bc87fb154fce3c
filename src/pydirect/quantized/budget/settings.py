"""What `fit_quantized` takes from an estimator: its parameters, and for labels a way to fit its classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.features.kernel import KernelHyperparameters
from pydirect.linear.posterior import GaussianPosterior


@dataclass(frozen=True)
class ClassifierFit:
    """A fitted classifier.

    - `logit`, (n_rows, n_problems): mean at the training rows; one problem for two classes, one per class for more.
    - `intercept`, (n_problems,).
    - `posteriors`: per problem, of weights in units of their prior standard deviation.
    - `prior_scale`, (n_problems,).
    """

    logit: FloatArray
    intercept: FloatArray
    posteriors: Sequence[MeanFieldPosterior | GaussianPosterior]
    prior_scale: FloatArray
    hyperparameters: KernelHyperparameters | None


@dataclass(frozen=True)
class ClassifierFits:
    """Ways to weight and to fit labels.

    - `weighted`: from rows, labels and weights to the same with class weights; rows without weight are left out.
    - `fit`: from rows, labels and weights, and the keywords ``features``, ``n_basis_functions`` and ``seed``, to a
      `ClassifierFit`.
    """

    weighted: Callable[[FloatArray, NDArray[Any], FloatArray], tuple[FloatArray, NDArray[Any], FloatArray]]
    fit: Callable[..., ClassifierFit]


@dataclass(frozen=True)
class SearchSettings:
    """Parameters of an estimator that the search uses.

    - `classifier`: none for regression.
    """

    max_search_rows: int
    n_threads: int
    rng: np.random.Generator
    classifier: ClassifierFits | None = None


class Searchable(Protocol):
    """An estimator that `fit_quantized` takes."""

    def search_settings(self) -> SearchSettings:
        """Return the parameters that the search uses."""
