"""`Trees`: decision trees as arrays, which predict without the library that grew them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import ordered_map, resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect.persistence.schema import AnyFinite, AtLeast, Indices, Shape

# Pairs of a row and a tree that one thread follows at a time.
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
        if self.in_turn and len(self.root) % len(self.base):
            raise ValueError(f"trees must be as many for each of {len(self.base)} outputs, got {len(self.root)}")

    @property
    def in_turn(self) -> bool:
        """Whether each tree is of one output."""
        return self.value.shape[1] == 1

    @cached_property
    def depth(self) -> int:
        """Largest number of steps to a leaf."""
        steps, node, parents = 0, np.arange(len(self.column)), self.root
        while len(parents := parents[self.left[parents] != node[parents]]):
            parents = np.concatenate([self.left[parents], self.right[parents]])
            steps += 1
        return steps

    @classmethod
    def joined(cls, base: FloatArray, n_columns: int, parts: Sequence[Self], scale: float = 1.0) -> Self:
        """Return trees of several one after another, with values times a factor."""
        starts = np.concatenate([[0], np.cumsum([len(part.column) for part in parts])]).astype(np.int32)

        def all_of(name: str, shift: bool = False) -> NDArray[Any]:
            own = [getattr(p, name) + (s if shift else 0) for p, s in zip(parts, starts, strict=False)]
            return np.concatenate(own).astype(getattr(parts[0], name).dtype)

        root, left, right = (all_of(name, shift=True) for name in ("root", "left", "right"))
        value, single = scale * all_of("value"), parts[0].single
        return cls(n_columns, base, root, all_of("column"), all_of("threshold"), left, right, value, single)

    @classmethod
    def boosted(cls, rounds: Iterable[Sequence[Any]], n_outputs: int, n_columns: int) -> Self:
        """Take trees out of scikit-learn's histogram boosting: of every round, one predictor for each output."""
        nodes = [predictor.nodes for trees in rounds for predictor in trees]
        root = np.concatenate([[0], np.cumsum([len(own) for own in nodes])]).astype(np.int32)
        every, place = np.concatenate(nodes), np.arange(root[-1], dtype=np.int32)
        start, leaf = np.repeat(root[:-1], np.diff(root)), every["is_leaf"].astype(bool)
        left, right = (np.where(leaf, place, start + every[side]).astype(np.int32) for side in ("left", "right"))
        column = np.where(leaf, 0, every["feature_idx"]).astype(np.int32)
        threshold = np.where(leaf, 0.0, np.clip(every["num_threshold"], *_LIMITS))
        value = np.where(leaf, every["value"], 0.0)[:, None]
        return cls(n_columns, np.zeros(n_outputs), root[:-1], column, threshold, left, right, value)

    @classmethod
    def forest(cls, trees: Sequence[Any], n_outputs: int, n_columns: int) -> Self:
        """Take trees out of scikit-learn's forest, whose mean is the sum of these."""
        parts = []
        for tree in trees:
            own, place = tree.tree_, np.arange(tree.tree_.node_count, dtype=np.int32)
            leaf = own.children_left < 0
            left, right = (
                np.where(leaf, place, side).astype(np.int32) for side in (own.children_left, own.children_right)
            )
            value = own.value[:, :, 0] if own.n_outputs > 1 else own.value[:, 0]
            value = value / (value.sum(axis=1, keepdims=True) if n_outputs > 1 else 1.0)
            column, threshold = np.where(leaf, 0, own.feature).astype(np.int32), np.where(leaf, 0.0, own.threshold)
            value = np.where(leaf[:, None], value, 0.0)
            root, base = np.zeros(1, np.int32), np.zeros(n_outputs)
            parts.append(cls(n_columns, base, root, column, threshold, left, right, value, True))
        return cls.joined(np.zeros(n_outputs), n_columns, parts, 1 / len(parts))

    def leaves(self, x: FloatArray) -> NDArray[np.int32]:
        """The leaf of every row in every tree, (n_rows, n_trees)."""
        values: NDArray[Any] = x.astype(np.float32 if self.single else np.float64).ravel()
        first = np.arange(0, len(values), self.n_columns)[:, None]
        node = np.broadcast_to(self.root, (len(first), len(self.root)))
        for _ in range(self.depth):
            goes_left = values.take(first + self.column.take(node)) <= self.threshold.take(node)
            node = np.where(goes_left, self.left.take(node), self.right.take(node))
        return node

    def steps(self, x: FloatArray) -> FloatArray:
        """Sums after every round of trees that belong to the outputs in turn, (n_rows, n_rounds, n_outputs)."""
        value = self.value[:, 0].take(self.leaves(x)).reshape(len(x), -1, len(self.base))
        return self.base + np.cumsum(value, axis=1)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Sums of the trees at rows of numbers, (n_rows, n_outputs)."""

        def of_rows(rows: slice) -> FloatArray:
            leaves = self.leaves(x[rows])
            if self.in_turn:
                return self.value[:, 0].take(leaves).reshape(len(leaves), -1, len(self.base)).sum(axis=1)
            total = np.zeros((len(leaves), len(self.base)))
            for own in leaves.T:
                total += self.value[own]
            return total

        size = max(1, BLOCK // max(len(self.root), 1))
        blocks = (slice(begin, begin + size) for begin in range(0, len(x), size))
        found = list(ordered_map(of_rows, blocks, resolve_n_threads()))
        return self.base + (np.concatenate(found) if found else np.zeros((0, len(self.base))))


_LIMITS = (-np.finfo(float).max, np.finfo(float).max)
