"""Basis functions of quantised linear models, and inputs of quantised networks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap, Rotation
from pydirect.quadratic.engines import INPUT_SCALE, NetworkShape


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

    features: Basis
    order: NDArray[np.intp]
    vectors: FloatArray | None
    mean_missing: float
    missing_scale: FloatArray
    outside_scale: FloatArray
    edges: NDArray[np.intp]

    @classmethod
    def of_columns(
        cls, features: Basis, order: NDArray[np.intp], missing_scale: FloatArray, mean_missing: float = 0.0
    ) -> LinearBasis:
        """Return a basis of columns of Φ, without what only fits need."""
        features = replace(features, target_scale=None, names=None, parameters={})
        none = np.zeros(len(missing_scale))
        return cls(features, order, None, mean_missing, missing_scale, none, np.zeros(len(none) + 1, dtype=np.intp))

    @property
    def input_map(self) -> InputMap:
        """From columns of X to inputs of the feature map."""
        return self.features.input_map

    def transform(self, x: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return basis functions at rows of X, (n_rows, n_basis_functions), and the variance of f* that they lack.

        The second, (n_rows, n_outputs), is standardised; see `DirectRegressor`.
        """
        inputs = np.ascontiguousarray(self.features.inputs(x))
        phi = np.ascontiguousarray(self.features.map.transform(inputs, np.float64, n_threads))
        directions = phi if self.vectors is None else phi @ self.vectors
        return np.take(directions, self.order, axis=1), self._missing(inputs, phi, directions)

    def combined(
        self, x: FloatArray, weights: FloatArray, with_missing: bool, n_threads: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Return k(x, Z), or Φ where there are no landmarks, times `weights`, and the missing variance if asked for.

        `weights`, (n_weights, n_columns): from `weights_of_functions`. Nothing is whitened or rotated row by row.
        """
        inputs = np.ascontiguousarray(self.features.inputs(x))
        functions = self.features.functions(inputs, n_threads)
        values = functions @ weights
        if not with_missing:
            return values, np.zeros((len(x), len(self.missing_scale)))
        phi = self.features.whitened(functions)
        rotated = phi @ self.vectors if self.vectors is not None and self.outside_scale.any() else None
        return values, self._missing(inputs, phi, rotated)

    def weights_of_functions(self, matrix: FloatArray) -> FloatArray:
        """Return the weights with which `combined` gives basis functions times `matrix`, (n_basis_functions, n)."""
        assert self.vectors is not None
        among_all = np.zeros((self.vectors.shape[1], matrix.shape[1]))
        among_all[self.order] = matrix
        return self.features.weights_of_functions(self.vectors @ among_all)

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


@dataclass(frozen=True)
class NetworkBasis:
    """Inputs of a network with quadratic activations, and its shape.

    - `matrix`, (n_columns, n_inputs): the network's inputs are standardised columns times this, clipped to ±largest.
    - `reach`, (n_layers,) or (0,): largest magnitude of network inputs, and of the sums of every hidden layer, at rows
      of X; empty without rows.
    """

    input_map: InputMap
    matrix: FloatArray
    shape: NetworkShape
    largest: float
    reach: FloatArray

    @classmethod
    def of(cls, input_map: InputMap, rotation: Rotation, shape: NetworkShape) -> NetworkBasis:
        """Return the inputs of a fitted network; how far they reach is not known yet."""
        return cls(input_map, INPUT_SCALE * rotation.matrix, shape, shape.largest_input, np.empty(0))

    def transform(self, x: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return the network's inputs at rows of X, (n_rows, n_inputs), and its missing variance, zero, (n_rows, 1)."""
        return np.clip(self.input_map.transform(x) @ self.matrix, -self.largest, self.largest), np.zeros((len(x), 1))
