"""`FittedClassPool` and `FittedMeanPool`: kernel models and trees beside them, as frozen data that predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, short_repr
from pydirect.fitted.classification import FittedClassifier, normalised
from pydirect.fitted.predictor import Components, Predictor
from pydirect.fitted.regression import FittedRegressor, of_part
from pydirect.fitted.trees import Trees
from pydirect.logistic.pool import log_of_votes, log_probability_of, pooled_log_probability
from pydirect.persistence.schema import Ascending, AtLeast, Between, Shape

of_kernel = partial(of_part, "kernel")


@dataclass(frozen=True, eq=False)
class FittedClassPool:
    """A log-linear pool of a kernel model and, of encoded rows, boosted trees and a forest.

    ``weights`` (n_parts,) are of the parts there are, in this order; ``order`` (n_classes,) the place of every class
    among the outputs of all but the first. ``moves`` (n_classes,) are logarithms of factors of the odds, and
    ``left_out_probability`` quantiles of the pool's probabilities of labels left out, ascending.
    """

    kernel: FittedClassifier
    boosted: Trees | None
    forest: Trees | None
    weights: Annotated[FloatArray, Shape("n_parts"), AtLeast(0.0)]
    names: Annotated[tuple[str, ...], Shape("n_parts")]
    order: Annotated[NDArray[np.intp], Shape("n_classes")]
    left_out_log_loss: Annotated[FloatArray, Shape("n_losses*")]  # of the parts, then of the pool
    left_out_probability: Annotated[FloatArray, Shape("n_pooled*"), Between(0.0, 1.0), Ascending]
    moves: Annotated[FloatArray, Shape("n_classes")]

    basis, posteriors = of_kernel("basis"), of_kernel("posteriors")
    classes, one_dimensional = of_kernel("classes"), of_kernel("one_dimensional")
    n_samples, elbo_units = of_kernel("n_samples"), of_kernel("elbo_units")

    __repr__ = short_repr

    @classmethod
    def alone(cls, kernel: FittedClassifier, order: NDArray[np.intp]) -> Self:
        """Return a kernel model as a pool of its own, with the order of classes that trees would have."""
        none, sets = np.empty(0), kernel.left_out_probability
        return cls(kernel, None, None, np.ones(1), ("kernel",), order, none, sets, np.zeros(len(order)))

    @property
    def part_weights(self) -> list[float]:
        """Weight of each part."""
        return self.weights.tolist()

    def check(self) -> None:
        """Raise unless all parts are of the same classes and columns."""
        n_classes = len(self.kernel.classes)
        both = (self.boosted, n_classes if n_classes > 2 else 1), (self.forest, n_classes)
        trees = [(own, n) for own, n in both if own is not None]
        if len(self.weights) != 1 + len(trees):
            raise ValueError("weights must be one for each part")
        if any(len(own.base) != n or own.n_columns != self.basis.n_features_in for own, n in trees):
            raise ValueError("trees must be of the kernel model's classes and columns")
        if sorted(self.order) != [*range(n_classes)] or len(self.left_out_log_loss) not in (0, len(self.weights) + 1):
            raise ValueError("order and losses must be of all classes and parts")

    def log_probabilities(self, x: FloatArray) -> FloatArray:
        """Log probabilities that each part gives, (n_parts, n_rows, n_classes); zeros of parts without weight."""
        found, k = np.zeros((len(self.weights), len(x), len(self.classes))), 0
        if self.weights[0] > 0:
            found[0] = self.kernel.log_proba(x)
        for of, trees in ((log_probability_of, self.boosted), (log_of_votes, self.forest)):
            k += trees is not None
            if trees is not None and self.weights[k] > 0:
                found[k] = of(trees(x))[:, self.order]
        return found

    def log_proba(self, x: FloatArray) -> FloatArray:
        """Log probabilities of the pool, (n_rows, n_classes)."""
        if np.count_nonzero(self.weights) == 1 and self.weights[0] == 1.0:
            log_p = self.kernel.log_proba(x)
        else:
            log_p = pooled_log_probability(self.weights, self.log_probabilities(x))
        return normalised(log_p + self.moves) if self.moves.any() else log_p


@dataclass(frozen=True, eq=False, repr=False)
class FittedMeanPool(Predictor):
    """The mean of a kernel model and boosted trees, one for each output, of ``weight`` (n_outputs,) in it.

    With ``moves`` the kernel model's distribution, whose deviations have then their best factor, is moved to that mean;
    else it is as it was, and the mean alone is the pool's.
    """

    kernel: FittedRegressor
    trees: Annotated[tuple[Trees, ...], Shape("n_trees*")]
    weight: Annotated[FloatArray, Shape("n_outputs"), Between(0.0, 1.0)]
    # Of the parts, then of the pool.
    left_out_rmse: Annotated[FloatArray, Shape("n_errors*", "n_outputs"), AtLeast(0.0)]
    moves: bool = False

    names: ClassVar = ("kernel", "boosted trees")
    units, basis, n_columns = of_kernel("units"), of_kernel("basis"), of_kernel("n_columns")
    posteriors, n_samples = of_kernel("posteriors"), of_kernel("n_samples")
    elbo_units, mean_noise = of_kernel("elbo_units"), of_kernel("mean_noise")
    noise_of, noise_draws = of_kernel("noise_of"), of_kernel("noise_draws")

    def check(self) -> None:
        """Raise unless trees are of the same outputs and columns."""
        if len(self.trees) not in (0, self.units.n_outputs) or len(self.weight) != self.units.n_outputs:
            raise ValueError("trees and weights must be one for each output")
        if any(own.n_columns != self.basis.n_features_in or len(own.base) != 1 for own in self.trees):
            raise ValueError("trees must take the kernel model's columns")

    @classmethod
    def alone(cls, kernel: FittedRegressor) -> Self:
        """Return a kernel model as a pool of its own."""
        n_outputs = kernel.units.n_outputs
        return cls(kernel, (), np.zeros(n_outputs), np.zeros((0, n_outputs)))

    def calibrated(self, factor: float) -> Self:
        """Return the model with this factor of all predictive deviations."""
        return replace(self, kernel=self.kernel.calibrated(factor))

    @property
    def part_weights(self) -> tuple[FloatArray, FloatArray]:
        """Weight of each part in the mean of every output."""
        return 1 - self.weight, self.weight

    def trees_at(self, x: FloatArray) -> FloatArray:
        """Predictions of the trees, (n_rows, n_outputs), in y's units."""
        return np.concatenate([own(x) for own in self.trees], axis=1)

    def predict(self, x: FloatArray, with_std: bool) -> tuple[FloatArray, FloatArray | None]:
        if self.moves:
            return super().predict(x, with_std)
        mean, std = self.kernel.predict(x, with_std)
        if not self.weight.any():
            return mean, std
        kernel = mean.reshape(len(x), -1)
        return self.units.shape(kernel + self.weight * (self.trees_at(x) - kernel)), std

    def _shift(self, x: FloatArray) -> FloatArray:
        """What the mean is moved by, standardised, (n_rows, n_outputs)."""
        found = np.zeros((len(x), self.units.n_outputs))
        for rows in self.blocks(x) if self.moves else ():
            of_trees = (self.trees_at(x[rows]) - self.units.location) / self.units.scale
            found[rows] = self.weight * (of_trees - self.kernel.latent_moments(x[rows], with_variance=False)[0])
        return found

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        mean, variance = self.kernel.latent_moments(x, with_variance)
        return mean + self._shift(x), variance

    def components(self, x: FloatArray) -> list[Components]:
        shifts = self._shift(x).T
        found = zip(self.kernel.components(x), shifts, strict=True)
        return [(weights, means + own[:, None], v) for (weights, means, v), own in found]

    def variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        mean, variance, noise = self.kernel.variance_parts(x)
        return mean + self._shift(x), variance, noise

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return self.kernel.latent_draws(x, n_samples, rng) + self._shift(x)[:, :, None]
