"""Kernel models and trees beside them, as frozen data: `Trees` as arrays, `FittedClassPool` and `FittedMeanPool`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import ordered_map, resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect.fitted.classification import FittedClassifier, normalised
from pydirect.fitted.predictor import Components, Predictor
from pydirect.fitted.regression import FittedRegressor, of_part
from pydirect.logistic.pool import log_probability_of, pooled_log_probability
from pydirect.persistence.schema import AnyFinite, Ascending, AtLeast, Between, Indices, Shape

# Values of leaves that one thread looks up at a time.
BLOCK = 2**18


@dataclass(frozen=True, eq=False)
class Trees:
    """The sum of trees, each from rows of numbers to its values, one after another for the outputs or for all at once.

    A row goes from a node to ``left`` where its column is at most the threshold and else to ``right``; both are larger
    than the node, and leaves lead nowhere, to themselves. ``base`` (n_outputs,) is where sums begin; ``value``
    (n_nodes, 1), of trees that belong to the outputs in turn, or (n_nodes, n_outputs).
    """

    n_columns: Annotated[int, AtLeast(1)]
    base: Annotated[FloatArray, Shape("n_outputs")]
    root: Annotated[NDArray[np.int32], Shape("n_trees*"), Indices("n_nodes")]
    column: Annotated[NDArray[np.int32], Shape("n_nodes*"), AtLeast(0)]
    threshold: Annotated[FloatArray, Shape("n_nodes*"), AnyFinite]
    left: Annotated[NDArray[np.int32], Shape("n_nodes*"), Indices("n_nodes")]
    right: Annotated[NDArray[np.int32], Shape("n_nodes*"), Indices("n_nodes")]
    value: Annotated[FloatArray, Shape("n_nodes*", "n_outputs or 1")]

    __repr__ = short_repr

    def check(self) -> None:
        """Raise unless every row reaches a leaf, and trees belong to outputs."""
        node = np.arange(len(self.column))
        inner = self.left != node
        if (inner & ((self.left <= node) | (self.right <= node))).any() or (~inner & (self.right != node)).any():
            raise ValueError("nodes of trees must lead to later ones, or be leaves")
        if (self.column >= self.n_columns).any():
            raise ValueError(f"columns of trees must be below {self.n_columns}")
        if self.value.shape[1] == 1 and len(self.root) % len(self.base):
            raise ValueError(f"trees must be as many for each of {len(self.base)} outputs, got {len(self.root)}")

    @cached_property
    def depth(self) -> int:
        """Largest number of steps to a leaf."""
        steps, node, parents = 0, np.arange(len(self.column)), self.root
        while len(parents := parents[self.left[parents] != node[parents]]):
            parents = np.concatenate([self.left[parents], self.right[parents]])
            steps += 1
        return steps

    @classmethod
    def boosted(cls, rounds: Sequence[Sequence[Any]], base: ArrayLike, n_columns: int, scale: float = 1.0) -> Self:
        """Take trees out of scikit-learn's histogram boosting: of every round, one predictor for each output.

        Their values are multiplied by `scale`; `base`, (n_outputs,), is where sums begin.
        """
        trees = [predictor.nodes for own in rounds for predictor in own]
        nodes = np.concatenate(trees)
        largest = np.finfo(float).max  # rows with larger numbers are refused
        threshold, leaf = np.clip(nodes["num_threshold"], -largest, largest), nodes["is_leaf"].astype(bool)
        sizes, place = [*map(len, trees)], np.arange(len(leaf))
        start = np.cumsum(sizes) - sizes
        below = (nodes[side] + np.repeat(start, sizes) for side in ("left", "right"))  # in their own tree
        left, right = (np.where(leaf, place, side).astype(np.int32) for side in below)
        column, threshold = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32), np.where(leaf, 0.0, threshold)
        value = np.where(leaf, scale * nodes["value"], 0.0)[:, None]
        return cls(n_columns, np.array(base), start.astype(np.int32), column, threshold, left, right, value)

    def values(self, x: FloatArray) -> FloatArray:
        """What every round of trees adds, one tree for each output or one for all, (n_rows, n_rounds, n_outputs)."""
        numbers = np.ravel(x)
        first = np.arange(0, len(numbers), self.n_columns)[:, None]
        node = np.broadcast_to(self.root, (len(first), len(self.root)))
        for _ in range(self.depth):
            goes_left = numbers.take(first + self.column.take(node)) <= self.threshold.take(node)
            node = np.where(goes_left, self.left.take(node), self.right.take(node))
        return self.value.take(node, axis=0).reshape(len(x), -1, len(self.base))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Sums of the trees at rows of numbers, (n_rows, n_outputs)."""
        size = max(1, BLOCK // max(len(self.root) * self.value.shape[1], 1))
        blocks = (slice(begin, begin + size) for begin in range(0, len(x), size))
        sums = ordered_map(lambda rows: self.values(x[rows]).sum(axis=1), blocks, resolve_n_threads())
        return self.base + np.concatenate([np.zeros((0, len(self.base))), *sums])


of_kernel = partial(of_part, "kernel")


@dataclass(frozen=True, eq=False)
class FittedClassPool:
    """A log-linear pool of a kernel model and, of encoded rows, boosted trees.

    ``weights`` (n_parts,) are of the parts there are, in this order; ``order`` (n_classes,) the place of every class
    among the outputs of the trees. ``moves`` (n_classes,) are logarithms of factors of the odds, and
    ``left_out_probability`` quantiles of the pool's probabilities of labels left out, ascending.
    """

    kernel: FittedClassifier
    boosted: Trees | None
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
        return cls(kernel, None, np.ones(1), ("kernel",), order, none, sets, np.zeros(len(order)))

    @property
    def part_weights(self) -> list[float]:
        """Weight of each part."""
        return self.weights.tolist()

    def check(self) -> None:
        """Raise unless all parts are of the same classes and columns."""
        n_classes, trees = len(self.kernel.classes), self.boosted
        if len(self.weights) != 1 + (trees is not None):
            raise ValueError("weights must be one for each part")
        n_outputs = n_classes if n_classes > 2 else 1
        if trees is not None and (len(trees.base), trees.n_columns) != (n_outputs, self.basis.n_features_in):
            raise ValueError("trees must be of the kernel model's classes and columns")
        if sorted(self.order) != [*range(n_classes)] or len(self.left_out_log_loss) not in (0, len(self.weights) + 1):
            raise ValueError("order and losses must be of all classes and parts")

    def log_proba(self, x: FloatArray) -> FloatArray:
        """Log probabilities of the pool, (n_rows, n_classes)."""
        log_p = self.kernel.log_proba(x)
        if self.boosted is not None and self.weights.tolist() != [1.0, 0.0]:
            of_trees = log_probability_of(self.boosted(x))[:, self.order]
            log_p = pooled_log_probability(self.weights, np.stack([log_p, of_trees]))
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
