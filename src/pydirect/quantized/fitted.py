"""Fitted models as data, which estimators hand over to be quantised: posteriors, their basis, units of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.features.basis import Basis
from pydirect.linear.decorrelated import DecorrelatedPosterior
from pydirect.quadratic.network import NetworkPosterior
from pydirect.quantized.basis import NetworkBasis
from pydirect.quantized.rows import as_rows


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Units of the outputs of a fitted model, and names of its inputs.

    - `scale`, `offset`, (n_outputs,): from the model's function to units of the output; of logits one, and the prior
      mean.
    - `noise`, (n_outputs,): noise variance, in squared units of the output; zero for logits.
    - `calibration`: factor on standard deviations.
    - `one_dimensional`: whether predictions have no axis of outputs.
    - `feature_names`: empty when the model was fitted to an array.
    - `classes`, (n_classes,): classes of a classifier.
    """

    scale: FloatArray
    offset: FloatArray
    noise: FloatArray
    calibration: float
    one_dimensional: bool
    n_features_in: int
    feature_names: tuple[str, ...] = ()
    classes: NDArray[Any] | None = None

    @classmethod
    def of_logits(
        cls, intercept: FloatArray, classes: NDArray[Any], n_features_in: int, feature_names: tuple[str, ...]
    ) -> Outputs:
        """Return the outputs of a classifier: one logit for two classes, one per class for more."""
        n = len(intercept)
        return cls(
            scale=np.ones(n),
            offset=intercept,
            noise=np.zeros(n),
            calibration=1.0,
            one_dimensional=n == 1,
            n_features_in=n_features_in,
            feature_names=feature_names,
            classes=classes,
        )

    def rows(self, X: ArrayLike) -> FloatArray:
        """Validate rows of X; a data frame must have the columns of the fit."""
        return as_rows(X, self.n_features_in, self.feature_names)


@dataclass(frozen=True)
class FittedBasisModel:
    """Fitted model whose functions are linear in basis functions.

    - `posteriors`: per output, of weights in units of their prior standard deviation.
    - `prior_scale`, (n_outputs,): prior standard deviation of the weights, in units of the standardised target.
    - `mean_missing`: variance that the basis functions lack at an average training row, which the noise includes.
    """

    basis: Basis
    posteriors: Sequence[SequentialPosterior | MeanFieldPosterior | MixturePosterior | DecorrelatedPosterior]
    prior_scale: FloatArray
    mean_missing: float
    outputs: Outputs


@dataclass(frozen=True)
class FittedNetwork:
    """Fitted network with quadratic activations.

    - `posteriors`: per output.
    """

    basis: NetworkBasis
    posteriors: Sequence[NetworkPosterior]
    outputs: Outputs


class Quantizable(Protocol):
    """An estimator that `quantize` takes: it hands over its fitted model as data."""

    def quantizable(self) -> FittedBasisModel | FittedNetwork:
        """Return the fitted model as data; TypeError when its weights have no levels."""
