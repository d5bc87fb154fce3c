"""Orthonormal directions: a matrix, or the factors that it is formed from when all of it is needed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import eigh, lapack

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.persistence.schema import As, Shape

# Number of weights from which eigenvectors are kept in factors: below, they are formed in no time.
SMALLEST_FACTORED = 512
# Of so few columns a product with reflectors is faster one by one than in blocks.
FEW_COLUMNS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Rotation:
    """Orthonormal columns V.

    - `matrix` (n_weights, n_directions)
    """

    kind = "Rotation"  # in files, of all subclasses

    matrix: Annotated[NDArray[Any], As(NDArray[np.float64 | np.float32]), Shape("n_weights", "n_directions*")]

    def __repr__(self) -> str:
        return f"<Rotation of shape {self.shape}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Rotation, (self.matrix,)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of weights and of directions."""
        return cast(tuple[int, int], self.matrix.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the matrix."""
        return self.matrix.dtype

    @property
    def is_formed(self) -> bool:
        """Whether the matrix is there already."""
        return True

    def times(self, x: FloatArray) -> FloatArray:
        """Return V x, for x of shape (n_directions,) or (n_directions, n)."""
        with single_blas_thread():
            return np.asarray(self.matrix @ x)

    def transposed_times(self, x: FloatArray) -> FloatArray:
        """Return Vᵀ x, for x of shape (n_weights,) or (n_weights, n)."""
        with single_blas_thread():
            return np.asarray(self.matrix.T @ x)

    def columns(self, mask: NDArray[np.bool_]) -> Rotation:
        """Return some of the directions."""
        return self if mask.all() else Rotation(np.ascontiguousarray(self.matrix[:, mask]))

    def astype(self, dtype: DTypeLike) -> Rotation:
        """Return the rotation with a matrix of this type."""
        return self if self.dtype == dtype else Rotation(self.matrix.astype(dtype))

    def formed(self) -> Rotation:
        """Return the rotation with its matrix alone."""
        return self


class _Formed(Rotation):
    """A rotation whose matrix is formed when it is first asked for: the same bits whenever and wherever that is."""

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike) -> None:
        self.__dict__.update(_shape=shape, _dtype=np.dtype(dtype), _lock=threading.Lock())

    @property
    def matrix(self) -> NDArray[Any]:
        """The matrix, (n_weights, n_directions)."""
        with self.__dict__["_lock"]:
            if not self.is_formed:
                with single_blas_thread():
                    self.__dict__["_matrix"] = self._form()
            return cast(NDArray[Any], self.__dict__["_matrix"])

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of weights and of directions."""
        return cast(tuple[int, int], self.__dict__["_shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the matrix."""
        return cast("np.dtype[Any]", self.__dict__["_dtype"])

    @property
    def is_formed(self) -> bool:
        """Whether the matrix is there already."""
        return "_matrix" in self.__dict__

    def _form(self) -> NDArray[Any]:
        raise NotImplementedError

    def astype(self, dtype: DTypeLike) -> Rotation:
        """Return the rotation with a matrix of this type."""
        return self if self.dtype == dtype else _Rounded(self, dtype)

    def formed(self) -> Rotation:
        """Return the rotation with its matrix alone."""
        return Rotation(self.matrix)


class _Factored(_Formed):
    """Columns of V = QS for A = QTQᵀ and T = SΛSᵀ tridiagonal: Q is a product of reflectors.

    Products with few columns take a fraction of the time that V takes, and their bits do not depend on it.
    """

    def __init__(self, q: Reflectors, inner: FloatArray, chosen: NDArray[np.intp], whole: _Factored | None) -> None:
        super().__init__((len(inner), len(chosen)), np.float64)
        self.__dict__.update(_q=q, _inner=inner, _chosen=chosen, _whole=whole)

    _q: Reflectors
    _inner: FloatArray
    _chosen: NDArray[np.intp]
    _whole: _Factored | None

    def times(self, x: FloatArray) -> FloatArray:
        """Return V x, for x of shape (n_directions,) or (n_directions, n)."""
        among_all = np.zeros((self._inner.shape[1], *x.shape[1:]))
        among_all[self._chosen] = x
        with single_blas_thread():
            return self._q.times(self._inner @ among_all)

    def transposed_times(self, x: FloatArray) -> FloatArray:
        """Return Vᵀ x, for x of shape (n_weights,) or (n_weights, n)."""
        with single_blas_thread():
            return np.asarray((self._inner.T @ self._q.transposed_times(x))[self._chosen])

    def columns(self, mask: NDArray[np.bool_]) -> Rotation:
        """Return some of the directions."""
        whole = self._whole or self
        return self if mask.all() else _Factored(self._q, self._inner, self._chosen[mask], whole)

    def _form(self) -> NDArray[Any]:
        if self._whole is None:
            return self._q.times(self._inner)
        if 2 * len(self._chosen) > self._inner.shape[1]:  # targets choose directions of their own from the same ones
            return np.ascontiguousarray(self._whole.matrix[:, self._chosen])
        return self._q.times(self._inner[:, self._chosen])


class _Rounded(_Formed):
    """Another rotation in another precision, which is let go of once the matrix is there."""

    def __init__(self, exact: Rotation, dtype: DTypeLike) -> None:
        super().__init__(exact.shape, dtype)
        self.__dict__["_exact"] = exact

    _exact: Rotation

    def _form(self) -> NDArray[Any]:
        matrix = self._exact.matrix.astype(self.dtype)
        del self.__dict__["_exact"]  # only now: the user may have interrupted
        return matrix


@dataclass(frozen=True)
class Reflectors:
    """An orthogonal matrix Q as a product of Householder reflectors, as LAPACK's ``sytrd`` leaves them.

    - `columns`, (n, n), Fortran-ordered: of the reflectors below the diagonal; the first is the identity.
    - `scales`, (n,)
    """

    columns: FloatArray
    scales: FloatArray

    def times(self, x: FloatArray) -> FloatArray:
        """Return Q x."""
        return self._product(b"N", x)

    def transposed_times(self, x: FloatArray) -> FloatArray:
        """Return Qᵀ x."""
        return self._product(b"T", x)

    def _product(self, which: bytes, x: FloatArray) -> FloatArray:
        each = np.asfortranarray(x.reshape(len(x), -1))
        size = each.shape[1]
        if size > FEW_COLUMNS:
            size = int(lapack.dormqr(b"L", which, self.columns, self.scales, each, -1)[1][0])
        product, _, info = lapack.dormqr(b"L", which, self.columns, self.scales, each, size)
        assert info == 0
        return np.asarray(product).reshape(x.shape, order="F")


def diagonalise(a: FloatArray) -> tuple[FloatArray, Rotation]:
    """Return eigenvalues of a symmetric matrix, increasing, and the rotation to its eigenvectors."""
    n = len(a)
    with single_blas_thread():
        if n < SMALLEST_FACTORED or not hasattr(lapack, "dstevd"):  # SciPy before 1.16
            eigenvalues, vectors = eigh(a, driver="evd", check_finite=False)
            return eigenvalues, Rotation(vectors)
        # LAPACK leaves reflectors that begin below the diagonal: on it, when a column stands before the first.
        columns = np.empty((n, n + 1), order="F")
        columns[:, 0], columns[:, 1:] = 0.0, a.T
        work = int(lapack.dsytrd_lwork(n, lower=1)[0])
        _, diagonal, beside, scales, _ = lapack.dsytrd(columns[:, 1:], lower=1, lwork=work, overwrite_a=True)
        eigenvalues, inner, info = lapack.dstevd(diagonal, beside, overwrite_d=True, overwrite_e=True)
        if info:
            raise np.linalg.LinAlgError("the eigenvalues of the tridiagonal form did not converge")
        q = Reflectors(columns[:, :n], np.concatenate([[0.0], scales]))
        return eigenvalues, _Factored(q, inner, np.arange(n), None)
