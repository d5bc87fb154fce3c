"""Several objectives, all to be maximised: Pareto fronts, their hypervolume, and what a new row may add to it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_float_array

BLOCK_NUMBERS = 2**22


def pareto_front(values: ArrayLike) -> NDArray[np.bool_]:
    """Return which rows are dominated by no other, (n_rows,); of equal rows the first.

    `values`: array_like of shape (n_rows, n_objectives).

    Parameters
    ----------
    values : array_like of shape (n_rows, n_objectives)
        Values of the objectives, more is better.

    Returns
    -------
    ndarray of bool of shape (n_rows,)
        Whether a row is on the front.
    """
    points = as_float_array(values, "values", ("n_rows", "n_objectives"))
    # A row is dominated only by rows of a larger sum, or equal ones: those stand before it.
    order = np.argsort(-points.sum(axis=1), kind="stable")
    front: list[int] = []
    for i in order:
        if not (points[front] >= points[i]).all(axis=1).any():
            front.append(int(i))
    mask = np.zeros(len(points), dtype=bool)
    mask[front] = True
    return mask


def hypervolume(values: ArrayLike, reference: ArrayLike) -> float:
    """Return the volume that rows dominate above a reference point, in the product of the objectives' units.

    Parameters
    ----------
    values : array_like of shape (n_rows, n_objectives)
        Values of the objectives, more is better.
    reference : array_like of shape (n_objectives,)
        Values that are just worth having; rows that are not above it in every objective add nothing.

    Returns
    -------
    float
        The volume.
    """
    points, reference = _points(values, reference)
    return _volume(points - reference)


def _volume(points: FloatArray) -> float:
    """Volume between the origin and points in the positive orthant: slabs of the last objective, from the top."""
    points = points[(points > 0).all(axis=1)]
    if points.shape[1] == 1 or not len(points):
        return float(points.max(initial=0.0))
    points = points[np.argsort(-points[:, -1])]
    depths = points[:, -1] - np.append(points[1:, -1], 0.0)
    return sum(float(depth) * _volume(points[: k + 1, :-1]) for k, depth in enumerate(depths) if depth > 0)


def hypervolume_improvement(values: ArrayLike, front: ArrayLike, reference: ArrayLike) -> FloatArray:
    """Return the expected growth of the hypervolume by one more row, from draws.

    Parameters
    ----------
    values : array_like of shape (n_rows, n_objectives, n_functions) or (n_rows, n_objectives)
        Draws at candidates, as ``sample_functions`` returns them for several outputs.
    front : array_like of shape (n_seen, n_objectives)
        Values so far. Their number to the power of the objectives less one decides what it takes: meant for two and
        three objectives.
    reference : array_like of shape (n_objectives,)
        Point above which volumes are measured.

    Returns
    -------
    ndarray of shape (n_rows,)
        Expected growth of the volume.
    """
    drawn = np.asarray(values, dtype=np.float64)
    if drawn.ndim == 2:
        drawn = drawn[:, :, None]
    if drawn.ndim != 3:
        raise ValueError(f"values must have shape (n_rows, n_objectives, n_functions), got {drawn.shape}")
    seen, reference = _points(front, reference)
    if drawn.shape[1] != len(reference):
        raise ValueError(f"values must be of {len(reference)} objectives, as reference, got {drawn.shape[1]}")
    lower, upper = _free_boxes(seen, reference)
    found = np.empty(len(drawn))
    size = max(1, BLOCK_NUMBERS // max(1, len(lower) * drawn.shape[2]))
    for begin in range(0, len(drawn), size):
        block = drawn[begin : begin + size, :, :, None]
        edges = np.maximum(np.minimum(block, upper.T[:, None]) - lower.T[:, None], 0.0)
        found[begin : begin + size] = edges.prod(axis=1).sum(axis=2).mean(axis=1)
    return found


def _free_boxes(points: FloatArray, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return corners of disjoint boxes, (n_boxes, n_objectives), that fill what no point dominates above a reference.

    Slabs of the last objective: between two values of it, points count that are above both.
    """
    points = np.maximum(points, reference)
    if len(reference) == 1:
        return np.array([[points.max(initial=reference[0])]]), np.array([[np.inf]])
    edges = np.unique(np.append(points[:, -1], [reference[-1], np.inf]))
    lower, upper = [], []
    for low, high in pairwise(edges):
        above = points[points[:, -1] >= high, :-1]
        inner = _free_boxes(above[pareto_front(above)] if len(above) else above, reference[:-1])
        lower.append(np.column_stack([inner[0], np.full(len(inner[0]), low)]))
        upper.append(np.column_stack([inner[1], np.full(len(inner[1]), high)]))
    return np.vstack(lower), np.vstack(upper)


def _points(values: ArrayLike, reference: ArrayLike) -> tuple[FloatArray, FloatArray]:
    corner = as_float_array(reference, "reference", ("n_objectives",))
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != len(corner) or not np.isfinite(points).all():
        raise ValueError(f"values must be finite of shape (n_rows, {len(corner)}), got shape {points.shape}")
    return points, corner
