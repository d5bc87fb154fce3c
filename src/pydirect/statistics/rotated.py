"""Sufficient statistics in the basis of eigenvectors of ΦᵀΦ, where weights do not interact."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import eigh, lapack, qr

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_output, short_repr
from pydirect.persistence.schema import As, Shape
from pydirect.statistics.gaussian import GaussianStatistics, only_target, quotient, scale_of
from pydirect.statistics.running import RunningStatistics

# Number of weights from which eigenvectors are kept in factors: below, they are formed in no time.
SMALLEST_FACTORED = 512
# Of so few columns a product with reflectors is faster one by one than in blocks.
FEW_COLUMNS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Rotation:
    """Orthonormal columns V.

    - `matrix` (n_weights, n_directions)
    - `shape`: numbers of weights and of directions.
    - `dtype`: type of the matrix.
    """

    kind = "Rotation"  # in files, of all subclasses

    matrix: Annotated[NDArray[Any], As(NDArray[np.float64 | np.float32]), Shape("n_weights", "n_directions*")]
    shape: tuple[int, int] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.__dict__.update(shape=self.matrix.shape, dtype=self.matrix.dtype)

    def __repr__(self) -> str:
        return f"<Rotation of shape {self.shape}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Rotation, (self.matrix,)

    @property
    def is_formed(self) -> bool:
        """Whether the matrix is there already."""
        return "_form" not in self.__dict__

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
        return Rotation(self.matrix)


class _Formed(Rotation):
    """A rotation whose matrix is formed when it is first asked for: the same bits whenever and wherever that is."""

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike, form: Callable[[], NDArray[Any]]) -> None:
        self.__dict__.update(shape=shape, dtype=np.dtype(dtype), _lock=threading.Lock(), _form=form)

    @property
    def matrix(self) -> NDArray[Any]:
        """The matrix, (n_weights, n_directions)."""
        own = self.__dict__
        with own["_lock"]:
            if not self.is_formed:
                with single_blas_thread():
                    own["_matrix"] = own["_form"]()
                del own["_form"]  # and what it holds; only now, as the user may have interrupted
            return cast(NDArray[Any], own["_matrix"])

    def astype(self, dtype: DTypeLike) -> Rotation:
        """Return the rotation with a matrix of this type."""
        return self if self.dtype == dtype else _Formed(self.shape, dtype, lambda: self.matrix.astype(dtype))


class _Factored(_Formed):
    """Columns of V = QS for A = QTQᵀ and T = SΛSᵀ tridiagonal: Q is a product of reflectors.

    Products with few columns take a fraction of the time that V takes, and their bits do not depend on it.
    """

    def __init__(self, q: Reflectors, inner: FloatArray, chosen: NDArray[np.intp], whole: _Factored | None) -> None:
        super().__init__((len(inner), len(chosen)), np.float64, self._product)
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
            return np.asarray((self._inner.T @ self._q.times(x, b"T"))[self._chosen])

    def columns(self, mask: NDArray[np.bool_]) -> Rotation:
        """Return some of the directions."""
        return self if mask.all() else _Factored(self._q, self._inner, self._chosen[mask], self._whole or self)

    def _product(self) -> NDArray[Any]:
        if self._whole is None:
            return self._q.times(self._inner)
        if 2 * len(self._chosen) > self._inner.shape[1]:  # targets choose directions of their own from the same ones
            return np.ascontiguousarray(self._whole.matrix[:, self._chosen])
        return self._q.times(self._inner[:, self._chosen])


class Reflectors(NamedTuple):
    """An orthogonal matrix Q as a product of Householder reflectors, as LAPACK's ``sytrd`` leaves them.

    - `columns`, (n, n), Fortran-ordered: of the reflectors below the diagonal; the first is the identity.
    - `scales`, (n,)
    """

    columns: FloatArray
    scales: FloatArray

    def times(self, x: FloatArray, which: bytes = b"N") -> FloatArray:
        """Return Q x, or Qᵀ x for ``b"T"``."""
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


@dataclass(frozen=True)
class RotatedTarget:
    """Statistics of one target in the decorrelated basis.

    - `c` (n_directions,): VᵀΦᵀy
    """

    rotation: Rotation
    eigenvalues: FloatArray
    c: FloatArray
    yty: float
    n_samples: float

    __repr__ = short_repr

    def squared_error(self, mean: FloatArray, second_moment: FloatArray) -> float:
        """Return ``R = yᵀy − 2 sᵀc + Σ_j λ_j E w_j²``: eq. 8 with a diagonal A."""
        return float(self.yty - 2 * (mean @ self.c) + self.eigenvalues @ second_moment)

    def keep(self, mask: np.ndarray) -> RotatedTarget:
        """Return the statistics restricted to some directions."""
        rotation = self.rotation.columns(mask)
        return replace(self, rotation=rotation, eigenvalues=self.eigenvalues[mask], c=self.c[mask])

    def scaled(self, variance: float) -> RotatedTarget:
        """Return the statistics of √variance Φ: weights of prior variance one instead of `variance`."""
        return replace(self, eigenvalues=self.eigenvalues * variance, c=self.c * np.sqrt(variance))


@dataclass(frozen=True)
class RotatedStatistics:
    """Statistics in the decorrelated basis: ΦᵀΦ is diagonal there.

    - `rotation`: To orthonormal columns V, (n_weights, n_directions); directions on which A vanishes may be missing.
    - `eigenvalues` (n_directions,)
    - `c` (n_directions, n_outputs): VᵀΦᵀy
    - `yty` (n_outputs,)
    - `gram` (n_weights, n_weights): A, where it was formed.
    """

    rotation: Rotation
    eigenvalues: FloatArray
    c: FloatArray
    yty: FloatArray
    n_samples: float
    gram: FloatArray | None = None

    __repr__ = short_repr

    @property
    def n_outputs(self) -> int:
        """Number of targets that share A."""
        return self.c.shape[1]

    def divided(self, repetitions: float) -> RotatedStatistics:
        """Return the statistics of rows whose weights are divided."""
        if repetitions == 1:
            return self
        found: RotatedStatistics = quotient(self, repetitions, "gram", "eigenvalues", "c", "yty", "n_samples")
        return found

    def outputs(self, chosen: slice) -> RotatedStatistics:
        """Return the statistics of consecutive targets, which share the rotation."""
        return replace(self, c=self.c[:, chosen], yty=self.yty[chosen])

    def target(self, k: int) -> RotatedTarget:
        """Return the statistics of one target, which share the rotation."""
        k = as_output(k, self.n_outputs)
        c = np.ascontiguousarray(self.c[:, k])
        return RotatedTarget(self.rotation, self.eigenvalues, c, float(self.yty[k]), self.n_samples)


def as_rotated_target(rotated: RotatedTarget | RotatedStatistics) -> RotatedTarget:
    """Validate rotated statistics of one target."""
    return only_target(rotated, "rotated", RotatedTarget, RotatedStatistics)


def decorrelate(statistics: GaussianStatistics) -> RotatedStatistics:
    """Diagonalise A; through the rows (a thin factorisation) when there are fewer rows than weights.

    Examples
    --------
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.statistics import decorrelate
    >>> rotated = decorrelate(GaussianStatistics.from_arrays([[2.0, 0.0], [0.0, 1.0]], [1.0, 1.0]))
    >>> rotated.eigenvalues.round(12).tolist()
    [1.0, 4.0]
    """
    gram = None
    with single_blas_thread():
        if statistics.rows is not None:
            eigenvalues, left = eigh(statistics.rows @ statistics.rows.T, driver="evd", check_finite=False)
            used = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
            eigenvalues = eigenvalues[used]
            rotation = Rotation(_orthonormal((statistics.rows.T @ left[:, used]) / np.sqrt(eigenvalues)))
        else:
            gram = statistics.A
            eigenvalues, rotation = diagonalise(gram)
            used = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
            eigenvalues, rotation = eigenvalues[used], rotation.columns(used)
        # By Cauchy and Schwarz no direction explains more than there is; where rounding of A (of float32 blocks, above
        # all) says otherwise, the evidence would run away.
        largest = np.sqrt(np.outer(eigenvalues, statistics.yty))
        c = np.clip(rotation.transposed_times(statistics.c), -largest, largest)
        return RotatedStatistics(rotation, eigenvalues, c, statistics.yty, statistics.n_samples, gram)


def _orthonormal(vectors: FloatArray) -> FloatArray:
    """Remove from each column what it has of later ones, which are of larger eigenvalues.

    Rounding leaves about ε √(λ_max/λ) of the leading directions in a direction of eigenvalue λ: more than the data say
    about it where targets are nearly noise-free.
    """
    q, r = qr(vectors[:, ::-1], mode="economic", overwrite_a=True, check_finite=False)
    # Contiguous: files keep C or Fortran order, and BLAS rounds products of reversed columns otherwise.
    return np.asfortranarray((q * np.sign(r.diagonal()))[:, ::-1])


# Of targets from their mean: squares of smaller deviations lose digits, or vanish.
SMALLEST_DEVIATION = 1e-145


@dataclass
class Standardised:
    """Statistics of standardised targets, which models of one feature map can share.

    - `location`, `scale`, (n_outputs,): of the targets; the scale is 1 where they are constant.
    - `repetitions`: number of times that an average row counts.
    """

    location: FloatArray
    scale: FloatArray
    gaussian: GaussianStatistics
    repetitions: float

    __repr__ = short_repr

    @classmethod
    def of(cls, statistics: RunningStatistics, repetitions: float | None = None) -> Self:
        """Standardise the targets; by default weights count relative to each other alone."""
        location, scale = statistics.target_location_scale()
        _require_squares(statistics, scale)
        constant, scale = scale == 0, scale_of(location, scale, statistics.n_rows)
        gaussian = statistics.gaussian(location, scale)
        gaussian.c[:, constant], gaussian.yty[constant] = 0.0, 0.0  # exact, as standardised targets are
        if repetitions is None:
            repetitions = statistics.n_samples / statistics.effective_rows
        return cls(location, scale, gaussian, repetitions)

    @cached_property
    def rotated(self) -> RotatedStatistics:
        """The same in the decorrelated basis."""
        return decorrelate(self.gaussian)


def _require_squares(statistics: RunningStatistics, scale: FloatArray) -> None:
    """Raise where squares of the targets' deviations leave the range of numbers.

    Where squares cannot show whether a target is constant, products with the features can: none is larger than the
    deviations of both allow.
    """
    spread = np.sqrt(statistics.n_samples * statistics.scatter.diagonal())
    used = spread > 0
    deviation = np.abs(statistics.cross[:, used] / spread[used]).max(axis=1, initial=0.0)
    noise = 20 * np.finfo(float).eps * np.abs(statistics.y_mean)
    deviation = np.where(scale > 0, scale, np.where(deviation > noise, deviation, 0.0))
    small = (deviation > 0) & (deviation < SMALLEST_DEVIATION)
    if small.any():
        raise ValueError(f"y must vary by at least {SMALLEST_DEVIATION:g} or not at all, got {deviation[small][0]:.1g}")
