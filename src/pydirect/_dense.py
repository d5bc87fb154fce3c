"""Dense algebra of one result: the same bits for any batch of rows, layout, number of threads and instruction set.

BLAS promises none of these. Every entry is a sum of chains of fused multiply-adds in the order of the inner axis: a row
of a product has the same bits alone and among others, and sums over blocks of rows have those of the sums over all.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._validation import FloatArray

# Length of the chains of products: sums over blocks of as many rows are those over all.
GRAM_ROWS = 256
INVERSE_BLOCK = 256
TINY = float(np.finfo(np.float64).tiny)
# Of a squared length, what rounding leaves of a row that depends on others.
DEPENDENT = 1e-28

_Real = TypeVar("_Real", np.float32, np.float64)


def product(a: NDArray[Any], b: NDArray[Any], n_threads: int = 1) -> Any:
    """Return a @ b of vectors or matrices, in the wider of their precisions."""
    if a.dtype != b.dtype:
        dtype = np.result_type(a, b)
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    left, right = np.atleast_2d(a), b if b.ndim == 2 else b[:, None]
    out = np.zeros((len(left), right.shape[1]), a.dtype)
    _core.add_product(left, right, None, out, False, 1.0, n_threads)
    return out.reshape(a.shape[:-1] + b.shape[1:])


def stacked_product(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a @ b for stacks of matrices, (n, n_rows, k) or (n_rows, k) and (n, k, n_columns)."""
    return np.stack([product(a if a.ndim == 2 else a[i], each) for i, each in enumerate(b)])


def subtract_product(a: NDArray[_Real], b: NDArray[_Real], out: NDArray[_Real], n_threads: int = 1) -> None:
    """Subtract a @ b from a matrix, one of whose strides is that of an entry."""
    _core.add_product(a, b, None, out, False, -1.0, n_threads)


def add_gram(
    rows: NDArray[_Real], out: NDArray[_Real], weight: NDArray[_Real] | None = None, n_threads: int = 1
) -> None:
    """Add rowsᵀ diag(weight) rows to a matrix on and above the diagonal; what is below becomes undefined."""
    _core.add_product(rows.T, rows, weight, out, True, 1.0, n_threads)


def gram(rows: NDArray[_Real], weight: NDArray[_Real] | None = None, n_threads: int = 1) -> NDArray[_Real]:
    """Return rowsᵀ diag(weight) rows, (n_columns, n_columns)."""
    out = np.zeros((rows.shape[1], rows.shape[1]), rows.dtype)
    add_gram(rows, out, weight, n_threads)
    return mirrored(out, n_threads)


def mirrored(upper: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Copy the upper triangle of a matrix to the lower one."""
    if upper.dtype == np.float64:
        _core.mirror_upper_triangle(upper.view(np.float64), n_threads)
    else:
        np.copyto(upper, upper.T, where=np.tri(len(upper), k=-1, dtype=bool))
    return upper


def cholesky(a: NDArray[_Real], n_threads: int = 1) -> tuple[NDArray[_Real], int]:
    """Factorise a symmetric matrix, in its memory if it is C-ordered, from its upper triangle.

    Returns lower L with LLᵀ = a, Fortran-ordered, and the number of the first pivot that is not positive, from one, or
    zero: as LAPACK does.
    """
    upper = np.ascontiguousarray(a)
    rank = _core.factorise(upper, n_threads)
    return upper.T, 0 if rank == len(upper) else rank + 1


def solve_lower(lower: NDArray[_Real], right: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Return L⁻¹ right, of a vector or a matrix; only the lower triangle of `lower` is read."""
    x = right.copy("K")
    _core.solve_lower(lower, x if x.ndim == 2 else x[:, None], n_threads)
    return x


def solve_upper(upper: NDArray[_Real], right: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Return U⁻¹ right, of a vector or a matrix; only the upper triangle of `upper` is read."""
    x = right.copy("C")
    upside_down = x[::-1] if x.ndim == 2 else x[::-1, None]
    _core.solve_lower(upper[::-1, ::-1], upside_down, n_threads)
    return x


def solve_factored(lower: NDArray[_Real], right: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Return (LLᵀ)⁻¹ right."""
    return solve_upper(lower.T, solve_lower(lower, right, n_threads), n_threads)


def inverse_lower(lower: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Return L⁻¹, block by block of columns, as what is above the diagonal is known to be zero."""
    n = len(lower)
    out = np.eye(n, dtype=lower.dtype)
    for begin in range(0, n, INVERSE_BLOCK):
        _core.solve_lower(lower[begin:, begin:], out[begin:, begin : begin + INVERSE_BLOCK], n_threads)
    return out


def orthonormal(rows: FloatArray) -> FloatArray:
    """Orthonormalise a few rows in order (Gram and Schmidt, twice); those that depend on earlier ones become zero."""
    found = np.zeros_like(rows)
    for j, row in enumerate(rows):
        rest = row[None] / max(float(np.abs(row).max()), TINY)
        before = float(squared_norms(rest)[0])
        for _ in range(2):
            rest = rest - product(product(rest, found[:j].T), found[:j])
        after = float(squared_norms(rest)[0])
        if after > before * DEPENDENT:
            found[j] = rest[0] / np.sqrt(after)
    return found


def congruent(lower: NDArray[_Real], a: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Return L⁻¹ a L⁻ᵀ of a symmetric matrix, in its memory if it is C-ordered; the upper triangle is computed."""
    out = half_rows(lower, np.ascontiguousarray(a), n_threads)
    for begin in range(0, len(out), INVERSE_BLOCK):
        end = min(begin + INVERSE_BLOCK, len(out))
        _core.solve_lower(lower[:end, :end], out[:end, begin:end], n_threads)
    return mirrored(out, n_threads)


def half_rows(lower: NDArray[_Real], rows: NDArray[_Real], n_threads: int = 1) -> NDArray[_Real]:
    """Return rows L⁻ᵀ, (n_rows, n), in the memory of C-ordered rows."""
    _core.solve_lower(lower, rows.T, n_threads)
    return rows


def squared_norms(rows: FloatArray, n_threads: int = 1) -> FloatArray:
    """Return the squared lengths of rows, (n_rows,)."""
    one, mean, norms = np.ones(rows.shape[1]), np.empty(len(rows)), np.empty(len(rows))
    _core.row_moments(np.ascontiguousarray(rows), one, one, mean, norms, n_threads)
    return norms
