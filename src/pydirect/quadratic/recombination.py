"""Recombination of weighted points: fewer points with the same sums of features (Carathéodory's theorem).

Source: recombination of measures in a tree (Litterer & Lyons, "High order recombination and an application to cubature
on Wiener space", 2012; Tchernychova, "Carathéodory cubature measures", 2015), here with simplex pivots that start from
a pivoted QR factorisation and are applied in blocks.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_float_array

# Pivots that are applied together, as one product of matrices.
_PIVOT_BLOCK = 32


def recombine(features: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Return sparse non-negative weights with the same sums of features (Carathéodory's theorem).

    `features`, (n_rows, n_features): include a column of ones to keep the total weight. `weights`, (n_rows,): not
    negative. Returns w ≥ 0 with featuresᵀw = featuresᵀweights to rounding error, and no more positive entries than the
    numerical rank of the features, (n_rows,).

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(6.0)
    >>> w = recombine(np.column_stack([np.ones(6), x]), np.ones(6))
    >>> int((w > 0).sum()), round(float(w.sum()), 9), round(float(w @ x), 9)
    (2, 6.0, 15.0)
    """
    features = as_float_array(features, "features", ("n_rows", "n_features"))
    weights = as_float_array(weights, "weights", (len(features),))
    if (weights < 0).any():
        raise ValueError(f"weights must not be negative, got {weights.min()}")
    out = np.zeros(len(weights))
    used = np.flatnonzero(weights)
    if features[used].any():
        with single_blas_thread():
            columns = features[used].T * weights[used]
            factor = recombining_factor(columns)
            kept = np.flatnonzero(factor)
            total = columns.sum(axis=1)
            out[used[kept]] = weights[used[kept]] * corrected(columns[:, kept], factor[kept], total)
    return out


def recombining_factor(columns: FloatArray) -> FloatArray:
    """Return u ≥ 0 with columns @ u = columns @ 1, at most as many positive entries as the rank.

    A basis of the columns is chosen by pivoted QR; the coefficients B⁻¹a of the others are a simplex tableau. Every
    other column is then removed or changes places with one of the basis, so that u stays non-negative.
    """
    upper, order = scipy.linalg.qr(columns, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(upper.diagonal())
    # Too high a rank costs a row or two, too low a rank an error: with heavy tails they are hard to distinguish.
    rank = int((diagonal > np.finfo(float).eps * diagonal[0]).sum())
    tableau = np.asfortranarray(scipy.linalg.solve_triangular(upper[:rank, :rank], upper[:rank, rank:]))
    basis = order[:rank].copy()
    factor = np.ones(rank)
    others = order[rank:]
    for begin in range(0, len(others), _PIVOT_BLOCK):
        end = min(begin + _PIVOT_BLOCK, len(others))
        _pivot_block(tableau, begin, end, others, basis, factor)
    out = np.zeros(columns.shape[1])
    out[basis] = factor
    return out


def _pivot_block(
    tableau: FloatArray, begin: int, end: int, others: NDArray[np.intp], basis: NDArray[np.intp], factor: FloatArray
) -> None:
    """Eliminate the columns begin … end of the tableau and update those behind them, in place.

    A pivot on entry p of a column c turns every later column t into t − g t_p / c_p with g = c − e_p. Inside the block
    this is done at once; for the columns behind it the multipliers t_p / c_p of all pivots solve a triangular system.
    """
    steps: list[FloatArray] = []
    pivots: list[int] = []
    values: list[float] = []
    for j in range(begin, end):
        column = tableau[:, j]
        step, pivot = _ratio_test(column, factor)
        if pivot < 0:  # removed itself
            np.maximum(factor + column, 0.0, out=factor)
            continue
        np.maximum(factor - step * column, 0.0, out=factor)
        factor[pivot] = 1.0 + step
        basis[pivot] = others[j]
        change, value = column.copy(), float(column[pivot])
        change[pivot] -= 1.0
        rest = tableau[:, j + 1 : end]
        rest -= np.outer(change, rest[pivot] / value)
        steps.append(change)
        pivots.append(pivot)
        values.append(value)
    if pivots and end < tableau.shape[1]:
        changes = np.stack(steps, axis=1)
        system = np.tril(changes[pivots], -1) + np.diag(values)
        behind = tableau[:, end:]
        multipliers = scipy.linalg.solve_triangular(system, behind[pivots], lower=True, check_finite=False)
        behind -= changes @ multipliers


def _ratio_test(column: FloatArray, factor: FloatArray) -> tuple[float, int]:
    """Return the change of the entering factor from one, and the entry of the basis that this change makes zero.

    The entering factor may become zero itself: step −1, entry −1. That is preferred, because it changes nothing else;
    otherwise the direction with the larger pivot is taken.
    """
    # Entries of the size of rounding errors are no pivots.
    noise = 64 * np.finfo(float).eps * max(1.0, float(np.abs(column).max()))
    with np.errstate(all="ignore"):
        ratio = factor / column
    down = np.where(column < -noise, ratio, -np.inf)
    lower = int(down.argmax())
    if down[lower] <= -1.0:
        return -1.0, -1
    up = np.where(column > noise, ratio, np.inf)
    upper = int(up.argmin())
    if np.isfinite(up[upper]) and column[upper] > -column[lower]:
        return float(up[upper]), upper
    return float(down[lower]), lower


def corrected(columns: FloatArray, factor: FloatArray, total: FloatArray) -> FloatArray:
    """Return `factor` after one step of refinement towards columns @ factor = total, as far as it stays positive."""
    residual = total - columns @ factor
    step = scipy.linalg.lstsq(columns, residual, cond=1e-13, lapack_driver="gelsy", check_finite=False)[0]
    with np.errstate(all="ignore"):
        room = np.where(step < 0, factor / -step, np.inf).min()
    return np.asarray(factor + step * min(1.0, float(room)))
