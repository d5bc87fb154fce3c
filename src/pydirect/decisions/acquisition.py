"""Acquisition functions, from mean and deviation in closed form or from draws; Pareto fronts and their hypervolume.

All of them seek maxima: to minimise, give means, values and the best so far with the opposite sign. Deviations are
those of f, without the noise: ``predict_parts`` returns them, and ``sample_functions`` draws of f.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from pydirect._validation import FloatArray, as_count, as_float_array, as_number

LOG_ROOT_TWO_PI = 0.5 * np.log(2 * np.pi)
LARGE = 100.0  # standard deviations below the best, from which a series has more digits


def expected_improvement(mean: ArrayLike, std: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the expected improvement E max(f − best, 0) of Gaussian f: σ (φ(z) + z Φ(z)), z = (μ − best)/σ.

    Mockus 1975; Jones, Schonlau & Welch 1998. Where observations are noisy, `best` is the largest posterior *mean* at
    the rows seen, not the largest observation; `improvement_of_draws` also knows how uncertain it is.

    Examples
    --------
    >>> from pydirect.decisions import expected_improvement
    >>> expected_improvement([0.0, 1.0], [1.0, 0.1], best=1.0).round(3)
    array([0.083, 0.04 ])
    """
    return np.exp(log_expected_improvement(mean, std, best))


def log_expected_improvement(mean: ArrayLike, std: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the log of the expected improvement, accurate also where the improvement itself underflows.

    Ament et al. 2023, "Unexpected improvements to expected improvement for Bayesian optimization", equation 9.

    Examples
    --------
    >>> from pydirect.decisions import log_expected_improvement
    >>> log_expected_improvement([0.0], [0.01], best=1.0).round(1)  # the improvement itself underflows
    array([-5014.7])
    """
    mean, std, best = _moments(mean, std, best)
    certain = std == 0
    z = (mean - best) / np.where(certain, 1.0, std)
    with np.errstate(divide="ignore"):
        exact = np.log(np.maximum(mean - best, 0.0))
        return np.where(certain, exact, np.log(np.where(certain, 1.0, std)) + _log_h(z))


def _log_h(z: FloatArray) -> FloatArray:
    """Return the log of φ(z) + zΦ(z), which is φ(z) (1 − |z| Φ(z)/φ(z)) for negative z."""
    near, size = np.maximum(z, -1.0), np.maximum(-z, 1.0)
    direct = np.log(np.exp(-0.5 * near**2 - LOG_ROOT_TWO_PI) + near * ndtr(near))
    # |z| Φ(z)/φ(z) = 1 − 1/z² + 3/z⁴ − …: for large |z| the series, as the difference loses all digits.
    ratio = np.minimum(np.sqrt(np.pi / 2) * size * erfcx(size / np.sqrt(2.0)), 1.0)
    inverse = np.maximum(size, LARGE) ** -2.0
    series = np.log1p(inverse * (-3.0 + inverse * (15.0 - 105.0 * inverse))) + np.log(inverse)
    with np.errstate(divide="ignore"):
        rest = np.where(size > LARGE, series, np.log1p(-ratio))
    return np.where(z > -1.0, direct, -0.5 * size**2 - LOG_ROOT_TWO_PI + rest)


def probability_of_improvement(mean: ArrayLike, std: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the probability P(f > best) of Gaussian f, as `expected_improvement` takes it.

    Examples
    --------
    >>> from pydirect.decisions import probability_of_improvement
    >>> probability_of_improvement([0.0, 1.0], [1.0, 1.0], best=0.0).round(3)
    array([0.5  , 0.841])
    """
    return np.exp(log_probability_of_feasibility(mean, std, lower=best))


def upper_confidence_bound(mean: ArrayLike, std: ArrayLike, n_std: float = 2.0) -> FloatArray:
    """Return the upper confidence bound μ + n_std · σ of Gaussian f.

    Examples
    --------
    >>> from pydirect.decisions import upper_confidence_bound
    >>> upper_confidence_bound([0.0, 1.0], [1.0, 0.1])
    array([2. , 1.2])
    """
    mean, std = _moments(mean, std)
    return mean + as_number(n_std, "n_std", at_least=0.0) * std


def log_probability_of_feasibility(
    mean: ArrayLike, std: ArrayLike, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf
) -> FloatArray:
    """Return the log of P(lower ≤ g ≤ upper), accurate far from the bounds.

    Add it to `log_expected_improvement` for each constraint (Gardner et al. 2014), independent of f and of each other.

    Examples
    --------
    >>> from pydirect.decisions import log_probability_of_feasibility
    >>> log_probability_of_feasibility([0.0, 50.0], [1.0, 1.0], upper=0.0).round().tolist()
    [-1.0, -1255.0]
    """
    mean, std, low, high = _moments(mean, std, lower, upper)
    if not (low <= high).all():
        raise ValueError(f"lower must not be above upper, got {lower!r} and {upper!r}")
    scale = np.where(std == 0, 1.0, std)
    below, above = (low - mean) / scale, (high - mean) / scale
    # Both in the left tail, where logs of probabilities have digits.
    flip = below > -above
    below, above = np.where(flip, -above, below), np.where(flip, -below, above)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = log_ndtr(above) + np.log1p(-np.exp(np.minimum(log_ndtr(below) - log_ndtr(above), 0.0)))
    certain = np.where((low <= mean) & (mean <= high), 0.0, -np.inf)
    return np.where(std == 0, certain, found)


# --- from draws


def improvement_of_draws(values: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the expected improvement from joint draws, E max(f(x) − best, 0), (n_rows,).

    With ``functions = model.sample_functions(n)``, ``functions(X_seen).max(axis=0)`` as `best` is the largest value at
    the rows seen for each draw: where observations are noisy, nobody knows which of them it is (Letham et al. 2019).

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.decisions import improvement_of_draws
    >>> values = np.array([[0.0, 2.0], [1.0, 1.5]])  # two rows, two draws
    >>> improvement_of_draws(values, best=1.0)
    array([0.5 , 0.25])
    """
    drawn, largest = _draws(values, best)
    return np.maximum(drawn - largest, 0.0).mean(axis=1)


def batch_of_draws(values: ArrayLike, best: ArrayLike, n: int) -> NDArray[np.intp]:
    """Choose a batch of `n` rows by their joint expected improvement, each the best given those before it, (n,).

    The improvement of a batch is E max(max_j f(x_j) − best, 0) over the draws; greedy choices reach at least 63 % of
    that of the best batch, as it is submodular (Wilson, Hutter & Deisenroth 2018).

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.decisions import batch_of_draws
    >>> values = np.array([[0.0, 2.0], [0.1, 1.9], [1.5, 0.0]])  # the second row tells little beside the first
    >>> batch_of_draws(values, best=0.0, n=2)
    array([0, 2])
    """
    drawn, largest = _draws(values, best)

    def gains(chosen: list[int]) -> FloatArray:
        best = np.maximum(largest, drawn[chosen].max(axis=0, initial=-np.inf))
        found = np.maximum(drawn - best, 0.0).mean(axis=1)
        if np.delete(found, chosen).any():
            return found
        return np.asarray((drawn - best).mean(axis=1))  # of no draw any is better: the likeliest to be close

    return best_one_by_one(n, len(drawn), gains)


def thompson_batch(values: ArrayLike, n: int) -> NDArray[np.intp]:
    """Choose a batch of `n` rows by Thompson sampling: where the first draw is largest, then the second, and so on.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.decisions import thompson_batch
    >>> thompson_batch(np.array([[0.0, 2.0], [1.0, 1.5], [0.5, 0.0]]), n=2)
    array([1, 0])
    """
    drawn, _ = _draws(values, 0.0)
    if drawn.shape[1] < as_count(n, "n") <= len(drawn):
        raise ValueError(f"values must be of at least n = {n} functions, got {drawn.shape[1]}")
    return best_one_by_one(n, len(drawn), lambda chosen: drawn[:, len(chosen)])


def best_one_by_one(n: int, n_rows: int, scores: Callable[[list[int]], FloatArray]) -> NDArray[np.intp]:
    """Choose n different rows, each of the largest of the `scores` (n_rows,) that those chosen before it give."""
    if as_count(n, "n") > n_rows:
        raise ValueError(f"n must be at most the number of rows, {n_rows}, got {n}")
    chosen: list[int] = []
    free = np.ones(n_rows, dtype=bool)
    for _ in range(n):
        best = int(np.argmax(np.where(free, scores(chosen), -np.inf)))
        best = best if free[best] else int(np.argmax(free))  # where nothing promises anything
        chosen.append(best)
        free[best] = False
    return np.array(chosen, dtype=np.intp)


def _moments(mean: ArrayLike, std: ArrayLike, *bounds: ArrayLike) -> list[FloatArray]:
    """Return the arguments as arrays of one shape; raise unless deviations are none below zero."""
    arrays = [np.asarray(value, dtype=np.float64) for value in (mean, std, *bounds)]
    if not (arrays[1] >= 0).all():
        raise ValueError(f"std must not be negative, got {arrays[1].min()}")
    return list(np.broadcast_arrays(*arrays))


def _draws(values: ArrayLike, best: ArrayLike) -> tuple[FloatArray, FloatArray]:
    drawn = as_float_array(values, "values", ("n_rows", "n_functions"))
    largest = np.asarray(best, dtype=np.float64)
    if largest.shape not in ((), drawn.shape[1:]):
        raise ValueError(f"best must be a number or one per function, {drawn.shape[1]}, got shape {largest.shape}")
    return drawn, largest


def pareto_front(values: ArrayLike) -> NDArray[np.bool_]:
    """Return which rows are dominated by no other, (n_rows,); of equal rows the first.

    Examples
    --------
    >>> from pydirect.decisions import pareto_front
    >>> pareto_front([[1.0, 3.0], [2.0, 2.0], [1.0, 2.0]])
    array([ True,  True, False])
    """
    points = as_float_array(values, "values", ("n_rows", "n_objectives"))
    # A row is dominated only by rows of a larger sum, or an equal one where rounding hides what differs, and a larger
    # first value that differs: those stand before it.
    order = np.lexsort((*-points.T[::-1], -points.sum(axis=1)))
    front: list[int] = []
    for i in order:
        if not (points[front] >= points[i]).all(axis=1).any():
            front.append(int(i))
    mask = np.zeros(len(points), dtype=bool)
    mask[front] = True
    return mask


def hypervolume(values: ArrayLike, reference: ArrayLike) -> float:
    """Return the volume that rows dominate above a reference point, in the product of the objectives' units.

    - `reference` (n_objectives,): Values that are just worth having; rows that are not above it in every objective add
      nothing.

    Examples
    --------
    >>> from pydirect.decisions import hypervolume
    >>> hypervolume([[1.0, 3.0], [2.0, 2.0]], reference=[0.0, 0.0])
    5.0
    """
    points, reference = _points(values, reference)
    return _volume(points - reference)


def _volume(points: FloatArray) -> float:
    """Volume between the origin and points in the positive orthant: slabs of the last objective, from the top."""
    points = points[(points > 0).all(axis=1)]
    if points.shape[1] == 1 or not len(points):
        return float(points.max(initial=0.0))
    points = points[np.argsort(-points[:, -1])]
    depths = -np.diff(points[:, -1], append=0.0)
    return sum(float(depth) * _volume(points[: k + 1, :-1]) for k, depth in enumerate(depths) if depth > 0)


def hypervolume_improvement(values: ArrayLike, front: ArrayLike, reference: ArrayLike) -> FloatArray:
    """Return the expected growth of the hypervolume by one more row, from draws, (n_rows,).

    - `values` (n_rows, n_objectives, n_functions) or (n_rows, n_objectives): Draws at candidates, as
      ``sample_functions`` returns them for several outputs.

    Examples
    --------
    >>> from pydirect.decisions import hypervolume_improvement
    >>> hypervolume_improvement([[3.0, 1.0], [1.0, 1.0]], [[1.0, 3.0], [2.0, 2.0]], reference=[0.0, 0.0])
    array([1., 0.])
    """
    seen, reference = _points(front, reference)
    drawn = np.asarray(values, dtype=np.float64)
    drawn = drawn[:, :, None] if drawn.ndim == 2 else drawn
    if drawn.ndim != 3 or drawn.shape[1] != len(reference):
        raise ValueError(f"values must have shape (n_rows, {len(reference)}, n_functions), got {np.shape(values)}")
    found = np.zeros(len(drawn))
    for low, high in zip(*_free_boxes(seen, reference), strict=True):
        edges = np.minimum(drawn, high[:, None]) - low[:, None]
        found += np.maximum(edges, 0.0).prod(axis=1).mean(axis=1)
    return found


def _free_boxes(points: FloatArray, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return corners of disjoint boxes, (n_boxes, n_objectives), that fill what no point dominates above a reference.

    Slabs of the last objective: between two values of it, points count that are above both.
    """
    points = np.maximum(points, reference)
    if len(reference) == 1:
        return np.array([[points.max(initial=reference[0])]]), np.array([[np.inf]])
    points = points[pareto_front(points)] if len(points) else points
    lower, upper = [], []
    for low, high in pairwise(np.unique(np.append(points[:, -1], [reference[-1], np.inf]))):
        inner = _free_boxes(points[points[:, -1] >= high, :-1], reference[:-1])
        lower.append(np.column_stack([inner[0], np.full(len(inner[0]), low)]))
        upper.append(np.column_stack([inner[1], np.full(len(inner[1]), high)]))
    return np.vstack(lower), np.vstack(upper)


def _points(values: ArrayLike, reference: ArrayLike) -> tuple[FloatArray, FloatArray]:
    corner = as_float_array(reference, "reference", ("n_objectives",))
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != len(corner) or not np.isfinite(points).all():
        raise ValueError(f"values must be finite of shape (n_rows, {len(corner)}), got shape {points.shape}")
    return points, corner
