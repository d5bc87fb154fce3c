"""Fitted models as data, which estimators hand over to be quantised: posteriors, basis, units and rows of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._dense import product
from pydirect._validation import FloatArray, as_float_array, column_names
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.features.basis import Basis
from pydirect.features.kernel import KernelHyperparameters
from pydirect.linear.posterior import GaussianPosterior
from pydirect.persistence.schema import AtLeast, Binds, Positive, Shape, Size
from pydirect.predictive.transformed import TargetUnits
from pydirect.tables.encoding import listed


def as_numpy(X: Any) -> Any:
    """Return the values of a data frame, and anything else unchanged."""
    return X.to_numpy() if hasattr(X, "to_numpy") else X


def as_rows(X: ArrayLike, n_features: int, feature_names: tuple[str, ...]) -> FloatArray:
    """Validate rows of X, (n_rows, n_features); a data frame must have the named columns in this order."""
    if (names := tuple(column_names(X) or ())) and feature_names and names != feature_names:
        hint = " (encode tables first, by columns_.encode(X) of the fitted model)" if len(names) < n_features else ""
        raise ValueError(f"X must have the columns {listed(feature_names)} in this order{hint}, got {listed(names)}")
    return as_float_array(as_numpy(X), "X", ("n_rows", n_features))


@dataclass(frozen=True)
class LinearBasis:
    """Basis functions of a quantised model: columns of Φ, or of Φ rotated.

    - `features`: from rows of X to Φ.
    - `order`, int (n_basis_functions,): columns that have weights, in the order of the codes.
    - `vectors`, (n_weights, n_directions): Φ is multiplied by these first.
    - `missing_scale`, (n_outputs,): prior variance of a weight, standardised: the factor on the variance that the basis
      functions lack.
    - `outside_scale`, (n_outputs,): the same for directions that the posterior dropped.
    - `edges`, int (n_outputs + 1,): where the directions of every output begin, when there are vectors.
    """

    features: Annotated[Basis, Binds(n_features_in="n_features_in")]
    order: Annotated[NDArray[np.intp], Shape("n_basis_functions*")]
    vectors: Annotated[FloatArray, Shape("n_weights*", "n_directions*")] | None
    mean_missing: Annotated[float, AtLeast(0.0)]
    missing_scale: Annotated[FloatArray, Shape("n_outputs"), AtLeast(0.0)]
    outside_scale: Annotated[FloatArray, Shape("n_outputs"), AtLeast(0.0)]
    edges: Annotated[NDArray[np.intp], Shape("n_edges")]

    def check(self) -> None:
        """Raise unless the vectors are of Φ, and order and edges name their columns."""
        n_weights, vectors = self.features.n_weights, self.vectors
        if vectors is not None and len(vectors) != n_weights:
            raise ValueError(f"vectors must have {n_weights} rows, got {len(vectors)}")
        n_columns = n_weights if vectors is None else vectors.shape[1]
        if not ((self.order >= 0) & (self.order < n_columns)).all() or len(np.unique(self.order)) < len(self.order):
            raise ValueError(f"order must name columns below {n_columns}, each at most once")
        if len(self.edges) != len(self.missing_scale) + 1:
            raise ValueError("edges do not fit the outputs")

    @classmethod
    def of_columns(cls, features: Basis, missing_scale: FloatArray, mean_missing: float = 0.0) -> LinearBasis:
        """Return the basis of all columns of Φ, without what only fits need."""
        features = replace(features, target_scale=None, names=None, parameters={})
        order, none = np.arange(features.n_weights), np.zeros(len(missing_scale))
        return cls(features, order, None, mean_missing, missing_scale, none, np.zeros(len(none) + 1, dtype=np.intp))

    def combined(
        self, x: FloatArray, weights: FloatArray, with_missing: bool, n_threads: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return k(x, Z), or Φ where there are no landmarks, times `weights`, and the missing variance if asked for.

        `weights`, (n_weights, n_columns): from `weights_of_functions`. Nothing is whitened or rotated row by row.
        """
        inputs = np.ascontiguousarray(self.features.inputs(x))
        functions = self.features.functions(inputs, n_threads)
        values = product(functions, weights, n_threads)
        if not with_missing:
            return values, np.zeros((len(x), len(self.missing_scale)))
        phi = self.features.whitened(functions)
        rotated = phi @ self.vectors if self.vectors is not None and self.outside_scale.any() else None
        return values, self._missing(inputs, phi, rotated)

    def weights_of_functions(self, matrix: FloatArray) -> FloatArray:
        """Return the weights with which `combined` gives basis functions times `matrix`, (n_basis_functions, n)."""
        vectors = self.vectors
        among_all = np.zeros((self.features.n_weights if vectors is None else vectors.shape[1], matrix.shape[1]))
        among_all[self.order] = matrix
        return self.features.weights_of_functions(among_all if vectors is None else vectors @ among_all)

    def _missing(self, inputs: FloatArray, phi: FloatArray, rotated: FloatArray | None) -> FloatArray:
        """Return the variance of f* that the basis functions lack, (n_rows, n_outputs); `rotated`: Φ in directions."""
        missing = np.zeros((len(inputs), len(self.missing_scale)))
        lacking = self.features.missing_variance(inputs, phi, self.mean_missing)
        if lacking is not None:
            missing += lacking[:, None] * self.missing_scale
        if rotated is not None and self.outside_scale.any():
            norm = np.einsum("ij,ij->i", phi, phi)
            for k, (begin, end) in enumerate(pairwise(self.edges)):
                inside = np.einsum("ij,ij->i", rotated[:, begin:end], rotated[:, begin:end])
                missing[:, k] += self.outside_scale[k] * np.maximum(norm - inside, 0.0)
        return missing


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
    - `target`: of a regressor whose output is y on another scale, the way back to y.
    """

    scale: Annotated[FloatArray, Shape("n_outputs")]
    offset: Annotated[FloatArray, Shape("n_outputs")]
    noise: Annotated[FloatArray, Shape("n_outputs"), AtLeast(0.0)]
    calibration: Annotated[float, Positive]
    one_dimensional: bool
    n_features_in: Annotated[int, AtLeast(1), Size("n_features_in")]
    feature_names: tuple[str, ...] = ()
    classes: Annotated[NDArray[Any], Shape("n_classes")] | None = None
    target: TargetUnits | None = None

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
        """Validate rows of X; a data frame must have the columns of the fit.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_features_in)
            Numbers.
        """
        return as_rows(X, self.n_features_in, self.feature_names)


@dataclass(frozen=True)
class FittedBasisModel:
    """Fitted model whose functions are linear in basis functions.

    - `posteriors`: per output, of weights in units of their prior standard deviation.
    - `prior_scale`, (n_outputs,): prior standard deviation of the weights, in units of the standardised target.
    - `mean_missing`: variance that the basis functions lack at an average training row, which the noise includes.
    - `n_levels`: number of levels that Gaussian weights are drawn on.
    """

    basis: Basis
    posteriors: Sequence[SequentialPosterior | MeanFieldPosterior | MixturePosterior | GaussianPosterior]
    prior_scale: FloatArray
    mean_missing: float
    outputs: Outputs
    n_levels: int = 15


class Quantizable(Protocol):
    """An estimator that `quantize` takes: it hands over its fitted model as data."""

    def quantizable(self) -> FittedBasisModel:
        """Return the fitted model as data; TypeError when its weights have no levels."""


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
    - `target`: from targets (n_rows, n_outputs) to the way back from another scale of theirs, where one is asked for.
    """

    max_search_rows: int
    n_threads: int
    rng: np.random.Generator
    classifier: ClassifierFits | None = None
    target: Callable[[FloatArray], TargetUnits | None] | None = None


class Searchable(Protocol):
    """An estimator that `fit_quantized` takes."""

    def search_settings(self) -> SearchSettings:
        """Return the parameters that the search uses."""
