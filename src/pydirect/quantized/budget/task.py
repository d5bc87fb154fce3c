"""Data of a search for small models: inputs of the features, responses, the kernel, and the loss of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.assemble import Encoding, Weights, assemble
from pydirect.quantized.basis import LinearBasis
from pydirect.quantized.budget.costs import Form
from pydirect.quantized.budget.draws import Samples
from pydirect.quantized.fitted import Outputs
from pydirect.quantized.integer.compile import INPUT_REACH, lay_out
from pydirect.quantized.linear import without_unused
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics

# Weight of a point between rows, where the kernel's posterior mean stands for a response.
WEIGHT_BETWEEN = 0.3


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Data of a search; subclasses hold targets or labels.

    - `inputs`, (n_rows, n_inputs): of the feature map, clipped to the range of integers.
    - `y`, (n_rows, n_outputs): responses that frequencies are chosen for, in units of ``outputs.scale`` about
      ``outputs.offset``.
    - `weight`, (n_rows,).
    """

    input_map: InputMap
    inputs: FloatArray
    y: FloatArray
    weight: FloatArray | None
    outputs: Outputs
    hyperparameters: KernelHyperparameters
    rng: np.random.Generator
    n_threads: int

    @property
    def n_outputs(self) -> int:
        """Number of outputs, or of problems of a classifier."""
        return self.y.shape[1]

    def rows(self, chosen: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, responses and weights of some rows."""
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        return np.ascontiguousarray(self.inputs[chosen]), self.y[chosen], weight[chosen]

    def subset(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, responses and weights of at most `most` random rows."""
        return self.rows(np.sort(self.rng.permutation(len(self.y))[:most]))

    def examples(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, responses and weights that frequencies and weights are to explain, of at most `most` rows."""
        return self.subset(most)

    def restricted(self, chosen: NDArray[np.intp]) -> Self:
        """Return the task on some of the rows."""
        x, y, weight = self.rows(chosen)
        return replace(self, inputs=x, y=y, weight=weight)

    def kernel_mean(self, points: FloatArray, x: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Posterior mean of the kernel's Gaussian process given rows, (n_points, n_outputs)."""
        covariance = self.hyperparameters.covariance(x, x, self.n_threads)
        covariance[np.diag_indices_from(covariance)] += self.hyperparameters.noise_variance * weight.mean() / weight
        alpha = solve(covariance, y, assume_a="pos")
        return np.asarray(self.hyperparameters.covariance(points, x, self.n_threads) @ alpha)

    def order(self) -> NDArray[np.intp]:
        """Return the rows in random order: the first of them are held out."""
        return self.rng.permutation(len(self.y))

    def statistics(self, features: FourierFeatures) -> GaussianStatistics:
        """Collect the sufficient statistics of all rows."""
        return collect_statistics(features, *self.examples(len(self.y)), n_threads=self.n_threads)

    def sample_functions(self, model: QuantizedPredictor) -> FloatArray:
        """Functions of a model's samples at all rows without its offset, (n_rows, n_outputs, n_samples)."""
        assert isinstance(model.basis, LinearBasis)
        phi = model.basis.features.map.transform(self.inputs)[:, model.basis.order]
        return np.einsum("ij,ksj->iks", phi, model.weights, optimize=True)

    def calibration(self, model: QuantizedPredictor) -> float:
        """Factor on a model's standard deviations that these rows ask for."""
        return 1.0

    @abstractmethod
    def loss(self, model: QuantizedPredictor) -> float:
        """Mean loss of a model at all rows."""

    @abstractmethod
    def cast(self, features: FourierFeatures, form: Form) -> QuantizedPredictor:
        """Fit weights of these features and draw samples of them on levels."""

    def assembled(
        self, features: FourierFeatures, samples: Samples, outputs: Outputs, form: Form
    ) -> QuantizedPredictor:
        """Assemble a model of samples in integer arithmetic."""
        codes, scale = samples.codes, samples.scale
        order = lay_out(features, (codes != form.zero).any(axis=0), scale).order
        basis = LinearBasis.of_columns(
            Basis(self.input_map, features, reach=INPUT_REACH), order, np.zeros(self.n_outputs)
        )
        none = np.zeros((1, 1))
        weights = Weights(np.ascontiguousarray(codes.T[order]), form.grid, samples.unit, none, scale[order, None])
        encoding = Encoding("auto", form.feature_bits, form.frequency_bits, "integer")
        return assemble(without_unused(basis), weights, outputs, encoding)


def points_between(x: FloatArray, n_points: int, rng: np.random.Generator) -> FloatArray:
    """Return random points on lines between two rows, (n_points, n_inputs)."""
    first, second = rng.integers(0, len(x), (2, n_points))
    share = rng.random((n_points, 1))
    return np.ascontiguousarray(share * x[first] + (1 - share) * x[second])


def mapped_inputs(x: FloatArray, weight: FloatArray | None) -> tuple[InputMap, FloatArray]:
    """Return the map that standardises columns, and its values, clipped to the range of integers."""
    input_map = InputMap.fit(x, weight, rank=False)
    if input_map.n_outputs == 0:
        raise ValueError("X must have a column that varies")
    return input_map, np.clip(input_map.transform(x), -INPUT_REACH, INPUT_REACH)
