"""Cholesky factorisations in single precision, with the exact residual where that is not enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cholesky, lapack

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray

# What single precision holds with all its digits, and sums of some such numbers.
SINGLE_RANGE = (1e-37, 1e38)


def in_single_precision(a: FloatArray) -> NDArray[np.float32]:
    """Return ``A = ΦᵀΦ`` in the precision in which optimisers multiply by it, or raise ValueError beyond its range."""
    largest = float(a.diagonal().max(initial=0.0))
    if largest and not SINGLE_RANGE[0] <= largest <= SINGLE_RANGE[1]:
        raise ValueError(
            "X must be nearer to 1 in size for a mean-field posterior, which is optimised in single precision: the "
            f"largest sum of squares of a basis function is {largest:.3g}. Rescale X, or use posterior='gaussian'"
        )
    return a.astype(np.float32)


def cholesky_of_ridge(
    a: FloatArray, ridge: FloatArray, narrow: NDArray[np.float32] | None = None
) -> NDArray[np.floating[Any]]:
    """Upper factor U, C-ordered, of UᵀU = A + diag(ridge); below the diagonal stands what was there.

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
    raise np.linalg.LinAlgError(
        f"A + ridge must be positive definite, but its Cholesky factorisation failed at column {failed_at}: raise the "
        "ridge or rescale the problem"
    )


def factorise_ridge(
    a: NDArray[np.floating[Any]], ridge: FloatArray | float, precision: type[np.floating[Any]] = np.float64
) -> tuple[NDArray[np.floating[Any]], int]:
    """Factor as from `cholesky_of_ridge`, in one precision; and the column at which it failed, from one, or zero."""
    copy: NDArray[Any] = a.astype(precision)
    np.einsum("jj->j", copy)[...] += np.asarray(ridge).astype(precision)
    with single_blas_thread():
        factorise = lapack.spotrf if precision is np.float32 else lapack.dpotrf
        factor, failed_at = factorise(copy.T, lower=1, overwrite_a=1, clean=0)
    return factor.T, failed_at


def solve_factored(factor: NDArray[np.floating[Any]], right: FloatArray) -> FloatArray:
    """Solve UᵀU x = right for a factor from `cholesky_of_ridge`, without a copy of it; (n_weights, ...)."""
    single = factor.dtype == np.float32
    lower, right = factor.T, right.astype(factor.dtype)  # as Fortran sees the same memory
    with single_blas_thread():
        if right.ndim == 1:  # two triangular solves are many times faster than LAPACK's driver for one column
            solve = blas.strsv if single else blas.dtrsv
            return solve(lower, solve(lower, right, lower=1), lower=1, trans=1).astype(np.float64)
        return (lapack.spotrs if single else lapack.dpotrs)(lower, right, lower=1)[0].astype(np.float64)


def ridge_factor(precision: FloatArray, ridge: float) -> FloatArray:
    """Return the lower Cholesky factor of a symmetric matrix plus a multiple of the identity, in its memory."""
    precision[np.diag_indices_from(precision)] += ridge
    with single_blas_thread():
        return np.asarray(cholesky(precision.T, lower=True, overwrite_a=True, check_finite=False))
