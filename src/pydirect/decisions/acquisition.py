"""Acquisition functions: what a measurement promises, from mean and deviation in closed form, or from draws.

All of them seek maxima: to minimise, give means, values and the best so far with the opposite sign. Deviations are
those of f, without the noise: ``predict_parts`` returns them, and ``sample_functions`` draws of f.
"""

from __future__ import annotations

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

    Parameters
    ----------
    mean, std : array_like
        Of f, of shapes that broadcast. Deviations of zero are allowed.
    best : array_like
        Largest value so far.

    Returns
    -------
    ndarray
        In units of f. It underflows far below the best: to compare such candidates, use `log_expected_improvement`.
    """
    return np.exp(log_expected_improvement(mean, std, best))


def log_expected_improvement(mean: ArrayLike, std: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the log of the expected improvement, accurate also where the improvement itself underflows.

    Ament et al. 2023, "Unexpected improvements to expected improvement for Bayesian optimization", equation 9.

    Parameters
    ----------
    mean, std, best : array_like
        As of `expected_improvement`.

    Returns
    -------
    ndarray
        −inf where f is certain to be no better.
    """
    mean, std, best = _moments(mean, std, best)
    certain = std == 0
    z = (mean - best) / np.where(certain, 1.0, std)
    with np.errstate(divide="ignore"):
        exact = np.log(np.maximum(mean - best, 0.0))
        return np.where(certain, exact, np.log(np.where(certain, 1.0, std)) + _log_h(z))


def _log_h(z: FloatArray) -> FloatArray:
    """Return the log of φ(z) + zΦ(z), which is φ(z) (1 − |z| Φ(z)/φ(z)) for negative z."""
    near, far = np.maximum(z, -1.0), np.minimum(z, -1.0)
    direct = np.log(np.exp(-0.5 * near**2 - LOG_ROOT_TWO_PI) + near * ndtr(near))
    # |z| Φ(z)/φ(z) = 1 − 1/z² + 3/z⁴ − …: for large |z| the series, as the difference loses all digits.
    size = np.maximum(-far, 1.0)
    ratio = np.minimum(np.sqrt(np.pi / 2) * size * erfcx(size / np.sqrt(2.0)), 1.0)
    inverse = np.maximum(size, LARGE) ** -2.0
    series = np.log1p(inverse * (-3.0 + inverse * (15.0 - 105.0 * inverse))) + np.log(inverse)
    with np.errstate(divide="ignore"):
        rest = np.where(size > LARGE, series, np.log1p(-ratio))
    return np.where(z > -1.0, direct, -0.5 * far**2 - LOG_ROOT_TWO_PI + rest)


def probability_of_improvement(mean: ArrayLike, std: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the probability P(f > best) of Gaussian f, as `expected_improvement` takes it.

    Parameters
    ----------
    mean : array_like
        Means.
    std : array_like
        Standard deviations, of the same shape.
    best : float or array_like
        Best value so far: one number, or one per draw or row.

    Returns
    -------
    ndarray
        Probabilities.
    """
    return np.exp(log_probability_of_feasibility(mean, std, lower=best))


def upper_confidence_bound(mean: ArrayLike, std: ArrayLike, n_std: float = 2.0) -> FloatArray:
    """Return the upper confidence bound μ + n_std · σ of Gaussian f.

    Parameters
    ----------
    mean : array_like
        Means.
    std : array_like
        Standard deviations, of the same shape.
    n_std : float, default=2.0
        Number of standard deviations above the mean.

    Returns
    -------
    ndarray
        Bounds.
    """
    mean, std, _ = _moments(mean, std, 0.0)
    return mean + as_number(n_std, "n_std", at_least=0.0) * std


def probability_of_feasibility(
    mean: ArrayLike, std: ArrayLike, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf
) -> FloatArray:
    """Return the probability P(lower ≤ g ≤ upper) that a Gaussian constraint g holds.

    Parameters
    ----------
    mean : array_like
        Means.
    std : array_like
        Standard deviations, of the same shape.
    lower : array_like, default=-np.inf
        Lower bound of g.
    upper : array_like, default=np.inf
        Upper bound of g.

    Returns
    -------
    ndarray
        Probabilities.
    """
    return np.exp(log_probability_of_feasibility(mean, std, lower, upper))


def log_probability_of_feasibility(
    mean: ArrayLike, std: ArrayLike, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf
) -> FloatArray:
    """Return the log of P(lower ≤ g ≤ upper), accurate far from the bounds.

    Add it to `log_expected_improvement` for each constraint (Gardner et al. 2014), independent of f and of each other.

    Parameters
    ----------
    mean, std : array_like
        Of g.
    lower : array_like, default=-np.inf
        Lower bounds, which may be infinite.
    upper : array_like, default=np.inf
        Upper bounds, which may be infinite.

    Returns
    -------
    ndarray
        −inf where g is certain to be outside.

    Raises
    ------
    ValueError
        If a lower bound is above its upper one.
    """
    mean, std, _ = _moments(mean, std, 0.0)
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if not (low <= high).all():
        raise ValueError(f"lower must not be above upper, got {lower!r} and {upper!r}")
    mean, std, low, high = np.broadcast_arrays(mean, std, low, high)
    certain = std == 0
    scale = np.where(certain, 1.0, std)
    below, above = (low - mean) / scale, (high - mean) / scale
    # Both in the left tail, where logs of probabilities have digits.
    flip = below > -above
    below, above = np.where(flip, -above, below), np.where(flip, -below, above)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest, smaller = log_ndtr(above), log_ndtr(below)
        found = largest + np.log1p(-np.exp(np.minimum(smaller - largest, 0.0)))
        inside = np.log(((low <= mean) & (mean <= high)).astype(np.float64))
    return np.where(certain, inside, found)


# --- from draws


def improvement_of_draws(values: ArrayLike, best: ArrayLike) -> FloatArray:
    """Return the expected improvement from joint draws, E max(f(x) − best, 0), (n_rows,).

    With ``functions = model.sample_functions(n)``, ``functions(X_seen).max(axis=0)`` as `best` is the largest value at
    the rows seen for each draw: where observations are noisy, nobody knows which of them it is (Letham et al. 2019).

    Parameters
    ----------
    values : array_like of shape (n_rows, n_functions)
        Joint draws of f at the rows.
    best : array_like of shape (n_functions,) or ()
        Best value so far: one number, or one per draw or row.

    Returns
    -------
    ndarray of shape (n_rows,)
        Expected improvements.
    """
    drawn, largest = _draws(values, best)
    return np.maximum(drawn - largest, 0.0).mean(axis=1)


def batch_of_draws(values: ArrayLike, best: ArrayLike, n: int) -> NDArray[np.intp]:
    """Choose a batch of `n` rows by their joint expected improvement, each the best given those before it.

    The improvement of a batch is E max(max_j f(x_j) − best, 0) over the draws; greedy choices reach at least 63 % of
    that of the best batch, as it is submodular (Wilson, Hutter & Deisenroth 2018).

    Parameters
    ----------
    values : array_like of shape (n_rows, n_functions)
        Joint draws of f at the rows.
    best : array_like of shape (n_functions,) or ()
        Best value so far: one number, or one per draw or row.
    n : int
        Number of rows to choose.

    Returns
    -------
    ndarray of int, shape (n,)
        Different rows, the most promising first.
    """
    drawn, largest = _draws(values, best)
    n = _batch_size(n, len(drawn))
    chosen = np.empty(n, dtype=np.intp)
    free = np.ones(len(drawn), dtype=bool)
    for k in range(n):
        gains = np.maximum(drawn - largest, 0.0).mean(axis=1)
        if not gains[free].any():  # of no draw any is better: the likeliest to be close
            gains = (drawn - largest).mean(axis=1)
        chosen[k] = np.argmax(np.where(free, gains, -np.inf))
        free[chosen[k]] = False
        largest = np.maximum(largest, drawn[chosen[k]])
    return chosen


def thompson_batch(values: ArrayLike, n: int) -> NDArray[np.intp]:
    """Choose a batch of `n` rows by Thompson sampling: where the first draw is largest, then the second, and so on.

    Parameters
    ----------
    values : array_like of shape (n_rows, n_functions)
        At least `n` functions.
    n : int
        Number of rows to choose.

    Returns
    -------
    ndarray of int, shape (n,)
        Different rows: each draw's largest of those that are left.
    """
    drawn, _ = _draws(values, 0.0)
    n = _batch_size(n, len(drawn))
    if drawn.shape[1] < n:
        raise ValueError(f"values must be of at least n = {n} functions, got {drawn.shape[1]}")
    chosen = np.empty(n, dtype=np.intp)
    free = np.ones(len(drawn), dtype=bool)
    for k in range(n):
        chosen[k] = np.argmax(np.where(free, drawn[:, k], -np.inf))
        free[chosen[k]] = False
    return chosen


def _moments(mean: ArrayLike, std: ArrayLike, best: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the arguments as arrays; raise unless deviations are none below zero."""
    arrays = [np.asarray(value, dtype=np.float64) for value in (mean, std, best)]
    if not (arrays[1] >= 0).all():
        raise ValueError(f"std must not be negative, got {arrays[1].min()}")
    return arrays[0], arrays[1], arrays[2]


def _draws(values: ArrayLike, best: ArrayLike) -> tuple[FloatArray, FloatArray]:
    drawn = as_float_array(values, "values", ("n_rows", "n_functions"))
    largest = np.asarray(best, dtype=np.float64)
    if largest.shape not in ((), drawn.shape[1:]):
        raise ValueError(f"best must be a number or one per function, {drawn.shape[1]}, got shape {largest.shape}")
    return drawn, largest


def _batch_size(n: int, n_rows: int) -> int:
    if as_count(n, "n") > n_rows:
        raise ValueError(f"n must be at most the number of rows, {n_rows}, got {n}")
    return int(n)
