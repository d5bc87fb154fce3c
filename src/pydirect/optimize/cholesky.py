"""Cholesky factorisations in single precision, with the exact residual where that is not enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect import _dense
from pydirect._dense import cholesky
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray

# What single precision holds with all its digits, and sums of some such numbers.
SINGLE_RANGE = (1e-37, 1e38)


def in_single_precision(a: FloatArray) -> NDArray[np.float32]:
    """Return ``A = ΦᵀΦ`` in the precision in which optimisers multiply by it, or raise ValueError beyond its range."""
    largest = float(a.diagonal().max(initial=0.0))
    if largest and not SINGLE_RANGE[0] <= largest <= SINGLE_RANGE[1]:
        raise ValueError(f"X must be nearer to 1 in size for a mean-field posterior, got squares of {largest:.3g}")
    return a.astype(np.float32)


def cholesky_of_ridge(
    a: FloatArray, ridge: FloatArray, narrow: NDArray[np.float32] | None = None
) -> NDArray[np.floating[Any]]:
    """Upper factor U, C-ordered, of UᵀU = A + diag(ridge).

    Single precision serves until the ridge is below its rounding of A's largest eigenvalue or numbers leave its range;
    `narrow` is A in it. Then double precision, with the ridge raised to the rounding of sums in double, then in single.
    """
    largest, b = float(a.diagonal().max(initial=0.0)), a.shape[0]
    rounding = [b * largest * np.finfo(np.float64).eps, np.sqrt(b) * largest * np.finfo(np.float32).eps]
    in_range = SINGLE_RANGE[0] <= largest + float(ridge.max(initial=0.0)) <= SINGLE_RANGE[1]
    attempts: list[tuple[type[np.floating[Any]], float]] = [(np.float32, 0.0)] if in_range else []
    attempts += [(np.float64, raised) for raised in (0.0, *rounding)]
    for precision, raised in attempts:
        single = precision is np.float32
        factor, failed_at = factorise_ridge(narrow if single and narrow is not None else a, ridge + raised, precision)
        if not failed_at:
            return factor
    raise np.linalg.LinAlgError(f"A + ridge must be positive definite, failed at column {failed_at}")


def factorise_ridge(
    a: NDArray[np.floating[Any]], ridge: FloatArray | float, precision: type[np.floating[Any]] = np.float64
) -> tuple[NDArray[np.floating[Any]], int]:
    """Factor as from `cholesky_of_ridge`, in one precision; and the column at which it failed, from one, or zero."""
    copy: NDArray[Any] = a.astype(precision)
    np.einsum("jj->j", copy)[...] += np.asarray(ridge).astype(precision)
    factor, failed_at = cholesky(copy, resolve_n_threads())
    return factor.T, failed_at


def solve_factored(factor: NDArray[np.floating[Any]], right: FloatArray) -> FloatArray:
    """Solve UᵀU x = right for a factor from `cholesky_of_ridge`; (n_weights, ...)."""
    solved = _dense.solve_factored(factor.T, right.astype(factor.dtype), resolve_n_threads())
    return np.asarray(solved, dtype=np.float64)


def ridge_factor(precision: FloatArray, ridge: float) -> FloatArray:
    """Return the lower Cholesky factor of a symmetric matrix plus a multiple of the identity, in its memory."""
    precision[np.diag_indices_from(precision)] += ridge
    factor, failed_at = cholesky(precision, resolve_n_threads())
    if failed_at:
        raise np.linalg.LinAlgError(f"the matrix must be positive definite, but failed at column {failed_at}")
    return factor
