"""`Trees`: decision trees as arrays, which predict without the library that grew them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import ordered_map, resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect.persistence.schema import AnyFinite, AtLeast, Indices, Shape

# Values of leaves that one thread looks up at a time.
BLOCK = 2**18


@dataclass(frozen=True, eq=False)
class Trees:
    """The sum of trees, each from rows of numbers to its values, one after another for the outputs or for all at once.

    A row goes from a node to ``left`` where its column is at most the threshold, in single precision if ``single``, and
    else to ``right``; both are larger than the node, and leaves lead nowhere, to themselves. ``base`` (n_outputs,) is
    where sums begin; ``value`` (n_nodes, 1), of trees that belong to the outputs in turn, or (n_nodes, n_outputs).
    """

    n_columns: Annotated[int, AtLeast(1)]
    base: Annotated[FloatArray, Shape("n_outputs")]
    root: Annotated[NDArray[np.int32], Shape("n_trees*"), Indices("n_nodes")]
    column: Annotated[NDArray[np.int32], Shape("n_nodes*"), AtLeast(0)]
    threshold: Annotated[FloatArray, Shape("n_nodes*"), AnyFinite]
    left: Annotated[NDArray[np.int32], Shape("n_nodes*"), Indices("n_nodes")]
    right: Annotated[NDArray[np.int32], Shape("n_nodes*"), Indices("n_nodes")]
    value: Annotated[FloatArray, Shape("n_nodes*", "n_outputs or 1")]
    single: bool = False

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
        threshold, value = np.clip(nodes["num_threshold"], -largest, largest), scale * nodes["value"][:, None]
        below, leaf = (nodes["left"], nodes["right"]), nodes["is_leaf"].astype(bool)
        return cls._of([*map(len, trees)], leaf, nodes["feature_idx"], threshold, below, value, base, n_columns)

    @classmethod
    def forest(cls, trees: Sequence[Any], n_columns: int) -> Self:
        """Take trees out of scikit-learn's forest for classes, whose mean is the sum of these."""
        own = [tree.tree_ for tree in trees]
        names = ("feature", "threshold", "children_left", "children_right", "value")
        column, threshold, left, right, votes = (np.concatenate([getattr(t, name) for t in own]) for name in names)
        value, base = votes[:, 0], np.zeros(votes.shape[2])
        value = value / value.sum(axis=1, keepdims=True) / len(own)
        sizes = [tree.node_count for tree in own]
        return cls._of(sizes, left < 0, column, threshold, (left, right), value, base, n_columns, True)

    @classmethod
    def _of(
        cls,
        sizes: Sequence[int],
        leaf: NDArray[np.bool_],
        column: NDArray[Any],
        threshold: FloatArray,
        below: tuple[NDArray[Any], NDArray[Any]],
        value: FloatArray,
        base: ArrayLike,
        n_columns: int,
        single: bool = False,
    ) -> Self:
        """Return trees of `sizes` nodes, which lead to nodes `below` of their own tree."""
        start, place = np.cumsum(sizes) - sizes, np.arange(len(leaf))
        left, right = (np.where(leaf, place, side + np.repeat(start, sizes)).astype(np.int32) for side in below)
        column, threshold = np.where(leaf, 0, column).astype(np.int32), np.where(leaf, 0.0, threshold)
        value = np.where(leaf[:, None], value, 0.0)
        return cls(n_columns, np.array(base), start.astype(np.int32), column, threshold, left, right, value, single)

    def values(self, x: FloatArray) -> FloatArray:
        """What every round of trees adds, one tree for each output or one for all, (n_rows, n_rounds, n_outputs)."""
        numbers: NDArray[Any] = x.astype(np.float32 if self.single else np.float64).ravel()
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
