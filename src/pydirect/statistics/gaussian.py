"""All that regression keeps of the data: A = ΦᵀΦ, c = Φᵀy, yᵀy and n, as sums over data points.

Built in blocks of rows straight from X through a feature map, so that Φ (n_samples × n_weights) is never stored unless
it is the smaller of the two.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from pydirect import _core
from pydirect._dense import GRAM_ROWS, add_gram, congruent, gram, half_rows, mirrored
from pydirect._threads import resolve_n_threads
from pydirect._validation import (
    FloatArray,
    as_float_array,
    as_instance,
    as_output,
    as_sample_weight,
    as_target,
    short_repr,
)

Block = NDArray[Any]
T = TypeVar("T")
# Bytes of a block of features: long enough for BLAS to reach its speed, and below the 32 MiB from which glibc's
# allocator returns every block to the system and pays for its pages again.
BLOCK_BYTES = 16 * 2**20
# Likewise where rows are predicted.
PREDICTION_BYTES = 32 * 2**20
# What 1 + c² exceeds one by, with the coefficient of variation c of weights that are equal but for rounding.
SAME_WEIGHTS = 1e-9


class RowFeatures(Protocol):
    """What statistics need of a feature map."""

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ of shape (n_rows, n_weights), C-ordered."""


@dataclass(frozen=True)
class TargetStatistics:
    """Sufficient statistics of one target: what inference of linear-Gaussian models sees of the data.

    - `A` (n_weights, n_weights): ΦᵀΦ
    - `c` (n_weights,): Φᵀy
    - `yty`: yᵀy
    """

    A: FloatArray  # the paper's name
    c: FloatArray
    yty: float
    n_samples: float

    __repr__ = short_repr

    @property
    def n_weights(self) -> int:
        """Number of basis functions b."""
        return len(self.c)

    def squared_error(self, mean: FloatArray, variance: FloatArray | None = None) -> Any:
        """Return ``R = yᵀy − 2 sᵀc + sᵀAs + Σ_j a_jj v_j``, the expected squared error (eq. 8), (n_posteriors,)."""
        return self.squared_error_and_gradient(mean, variance)[0]

    def squared_error_and_gradient(
        self, mean: FloatArray, variance: FloatArray | None = None
    ) -> tuple[Any, FloatArray]:
        """Return R and its gradient in the means, ``2 (As − c)``; arguments as of `squared_error`."""
        product = mean @ self.A
        error = self.yty - 2 * (mean @ self.c) + np.einsum("...j,...j->...", product, mean)
        if variance is not None:
            error = error + variance @ self.A.diagonal()
        return error, 2.0 * (product - self.c)


@dataclass
class GaussianStatistics:
    """Sufficient statistics of Gaussian regression on fixed basis functions.

    Attributes
    ----------
    c : ndarray of shape (n_weights, n_outputs)
        Φᵀdiag(ω)y
    yty : ndarray of shape (n_outputs,)
        yᵀdiag(ω)y
    n_samples : float
        Σω, the number of data points when weights count repetitions.
    gram : ndarray of shape (n_weights, n_weights) or None, optional
        A = Φᵀdiag(ω)Φ, when stored explicitly.
    rows : ndarray of shape (n_rows, n_weights) or None, optional
        diag(√ω)Φ, stored instead when there are fewer rows than weights: A = rowsᵀrows has low rank.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> first = GaussianStatistics.from_arrays([[1.0, 0.0], [1.0, 2.0]], [1.0, 3.0])
    >>> second = GaussianStatistics.from_arrays([[1.0, 1.0]], [2.0])
    >>> both = first + second
    >>> both.n_samples, both.gram.tolist(), both.c.ravel().tolist()
    (3.0, [[3.0, 3.0], [3.0, 5.0]], [6.0, 8.0])
    """

    c: FloatArray
    yty: FloatArray
    n_samples: float
    gram: FloatArray | None = None
    rows: FloatArray | None = None

    __repr__ = short_repr

    @property
    def n_weights(self) -> int:
        """Number of basis functions b."""
        return self.c.shape[0]

    @property
    def n_outputs(self) -> int:
        """Number of targets that share A."""
        return self.c.shape[1]

    @property
    def mean_square(self) -> float:
        """Mean of φᵀφ over the data points: tr A / n."""
        squares = np.trace(self.A) if self.rows is None else np.einsum("ij,ij->", self.rows, self.rows)
        return float(squares) / self.n_samples

    @property
    def A(self) -> FloatArray:  # the paper's name
        """ΦᵀΦ, (n_weights, n_weights); formed on first use when rows are stored."""
        return self.form_gram()

    def form_gram(self) -> FloatArray:
        """Form and keep A, unless it is stored; return it, (n_weights, n_weights)."""
        if self.gram is None:
            assert self.rows is not None
            self.gram = gram(self.rows, n_threads=resolve_n_threads())  # whole, for other threads that look
        return self.gram

    def target(self, k: int) -> TargetStatistics:
        """Return the statistics of one target, which share A."""
        k = as_output(k, self.n_outputs)
        return TargetStatistics(self.A, np.ascontiguousarray(self.c[:, k]), float(self.yty[k]), self.n_samples)

    def outputs(self, chosen: slice) -> GaussianStatistics:
        """Return the statistics of consecutive targets, which share A."""
        return replace(self, c=np.ascontiguousarray(self.c[:, chosen]), yty=self.yty[chosen])

    def leading(self, n_weights: int) -> GaussianStatistics:
        """Return the statistics of the leading basis functions."""
        return replace(self, c=self.c[:n_weights], gram=self.A[:n_weights, :n_weights].copy(), rows=None)

    def divided(self, repetitions: float) -> GaussianStatistics:
        """Return the statistics of rows whose weights are divided."""
        rows = None if self.rows is None else self.rows / np.sqrt(repetitions)
        return replace(quotient(self, repetitions, "c", "yty", "n_samples", "gram"), rows=rows)

    @classmethod
    def from_arrays(cls, phi: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> GaussianStatistics:
        """Build from a design matrix."""
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        return collect_statistics(IdentityFeatures(phi.shape[1]), phi, y, sample_weight)

    def __add__(self, other: GaussianStatistics) -> GaussianStatistics:
        """Statistics of both sets of data together."""
        if self.c.shape != other.c.shape:
            raise ValueError(f"statistics must have the same shape, got {self.c.shape} and {other.c.shape}")
        n_samples = self.n_samples + other.n_samples
        return GaussianStatistics(self.c + other.c, self.yty + other.yty, n_samples, gram=self.A + other.A)


def quotient(sums: Any, divisor: float, *names: str) -> Any:
    """Return sums of which some are divided, those that there are."""
    parts = {name: getattr(sums, name) for name in names}
    return replace(sums, **{name: part / divisor for name, part in parts.items() if part is not None})


def as_target_statistics(statistics: TargetStatistics | GaussianStatistics) -> TargetStatistics:
    """Validate the statistics of one target."""
    return only_target(statistics, "statistics", TargetStatistics, GaussianStatistics)


def only_target(statistics: Any, name: str, of_one: type[T], of_several: type) -> T:
    """Return the statistics of the one target that they must be of."""
    as_instance(statistics, name, of_one, of_several)
    if isinstance(statistics, of_one):
        return statistics
    if statistics.n_outputs != 1:
        raise ValueError(f"{name} must be of one target, got {statistics.n_outputs}: choose {name}.target(k)")
    return cast(T, statistics.target(0))


@dataclass(frozen=True)
class IdentityFeatures:
    """Rows that are Φ already."""

    n_weights: int

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ = x, (n_rows, n_weights)."""
        return np.ascontiguousarray(x, dtype=dtype)


def block_rows(n_weights: int, dtype: DTypeLike) -> int:
    """Rows of a block: a function of the width alone, never of the number of threads; a multiple of `GRAM_ROWS`."""
    return max(1, BLOCK_BYTES // (n_weights * np.dtype(dtype).itemsize * GRAM_ROWS)) * GRAM_ROWS


def collect_statistics(
    features: RowFeatures,
    x: FloatArray,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    block_dtype: DTypeLike = np.float64,
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> GaussianStatistics:
    """Sum over the rows of `x`, block by block through the feature map.

    Parameters
    ----------
    features : RowFeatures
        From rows of inputs to Φ.
    x : ndarray of shape (n_samples, n_features_in)
        Rows of inputs.
    y : ndarray of shape (n_samples, n_outputs)
        Targets.
    sample_weight : ndarray of shape (n_samples,), optional
        How many times each row counts; by default once.
    block_dtype : {float64, float32}, default=np.float64
        Precision of the features and of the products inside a block; sums over blocks are float64 always.
    n_threads : int, optional
        Number of threads; results have the same bits for any.
    progress : callable, optional
        Called with the number of rows done and the number of rows after every block.

    Returns
    -------
    GaussianStatistics
        The sums.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import collect_statistics
    >>> from pydirect.features import PolynomialFeatures
    >>> x = np.linspace(-1, 1, 5)[:, None]
    >>> statistics = collect_statistics(PolynomialFeatures(1, degree=2), x, x[:, 0] ** 2)
    >>> statistics.n_samples, statistics.gram.shape
    (5.0, (3, 3))
    """
    n_threads = resolve_n_threads(n_threads)
    # A constant alone needs no inputs: a matrix of no columns is one.
    width: int | str = np.shape(x)[1] if np.ndim(x) == 2 else "n_features_in"
    x = as_float_array(x, "x", ("n_samples", width))
    y = as_target(y, len(x))
    sample_weight = as_sample_weight(sample_weight, len(x))
    x, y, sample_weight = rows_that_count(x, y, sample_weight)
    n_rows, b = x.shape[0], features.n_weights
    few = n_rows < b
    root = np.ones(n_rows) if sample_weight is None else np.sqrt(sample_weight)
    weighted_y = y * root[:, None]
    n_samples = float(n_rows if sample_weight is None else sample_weight.sum())
    yty = np.einsum("nk,nk->k", weighted_y, weighted_y)
    c, total = np.zeros((y.shape[1], b)), None if few else np.zeros((b, b))
    for begin, end in row_blocks(n_rows, n_rows if few else block_rows(b, block_dtype)):
        phi = (features.transform if few else partial(summed, features))(x[begin:end], block_dtype, n_threads)
        if sample_weight is not None:
            phi = phi * root[begin:end, None].astype(block_dtype)
        add_products(phi, weighted_y[begin:end], c)
        if total is not None:
            add_gram_of(phi, total, n_threads)
        if progress is not None:
            progress(end, n_rows)
    if total is None:
        return GaussianStatistics(np.ascontiguousarray(c.T), yty, n_samples, rows=np.asarray(phi, dtype=np.float64))
    c, total = whitened_sums(c, mirrored(total, n_threads), factor_of_sums(features, block_dtype), n_threads)
    return GaussianStatistics(np.ascontiguousarray(c.T), yty, n_samples, gram=total)


def rows_that_count(
    x: FloatArray, y: FloatArray, weight: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Leave out rows of weight zero, which are rows that are not there."""
    if weight is None or weight.all():
        return x, y, weight
    used = weight > 0
    return x[used], y[used], weight[used]


def sums_are_of_kernel(features: RowFeatures | None, dtype: DTypeLike) -> bool:
    """Whether blocks of a precision are summed before they are whitened: where the map says so and in float64."""
    return getattr(features, "sums_of_kernel", False) and np.dtype(dtype) == np.float64


def summed(features: RowFeatures, x: FloatArray, dtype: DTypeLike, n_threads: int) -> Block:
    """Return what is summed over rows: Φ, or kernel functions F with Φ = FW."""
    if sums_are_of_kernel(features, dtype):
        return features.summands(x, n_threads)  # type: ignore[attr-defined]
    return features.transform(x, dtype, n_threads)


def factor_of_sums(features: RowFeatures | None, dtype: DTypeLike) -> FloatArray | None:
    """Return the lower triangular L that turns sums into those of Φ = F L⁻ᵀ; None if they are of Φ."""
    return features.factor if sums_are_of_kernel(features, dtype) else None  # type: ignore[union-attr]


def whitened_sums(
    c: FloatArray, gram: FloatArray, factor: FloatArray | None, n_threads: int = 1
) -> tuple[FloatArray, FloatArray]:
    """Return sums of Φ = F L⁻ᵀ from those of F: L⁻¹FᵀF L⁻ᵀ and, in rows, yᵀF L⁻ᵀ; in their memory.

    `c`, (n_outputs, n_weights), and `gram`, (n_weights, n_weights), symmetric.
    """
    if factor is None:
        return c, gram
    return half_rows(factor, c, n_threads), congruent(factor, gram, n_threads)


def counted_rows(n_rows: float, total: float, squared: float) -> float:
    """Return what rows of weights ω count for if these count relative to each other, given Σω and Σω².

    With at most one for each row, Σ min(ω/ω̄, 1): if the weights' logarithms are Gaussian, erfc(√(log(1 + c²)/8)) of all
    rows, with the weights' coefficient of variation c. Equal weights leave `n_rows` as it is.
    """
    spread = n_rows * squared / total**2  # 1 + c²
    if not 1 + SAME_WEIGHTS < spread < math.inf:  # or weights whose squares are no numbers
        return n_rows
    return n_rows * math.erfc(math.sqrt(math.log(spread) / 8))


def row_blocks(n_rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of consecutive blocks of rows."""
    for begin in range(0, n_rows, size):
        yield begin, min(begin + size, n_rows)


def blocks_of(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Return blocks of rows of bounded memory while predicting, given the number of floats per row."""
    size = max(16, PREDICTION_BYTES // (8 * max(n_columns, 1)))
    return (slice(*bounds) for bounds in row_blocks(n_rows, size))


def add_products(phi: Block, y: FloatArray, total: FloatArray) -> None:
    """Add yᵀΦ, for y of shape (n_rows, n_outputs), to a total in double precision, (n_outputs, n_weights)."""
    for own, of_output in zip(total, np.ascontiguousarray(y.T), strict=True):
        _core.add_transposed_product(phi, of_output, own)


def add_gram_of(phi: Block, total: FloatArray, n_threads: int = 1) -> None:
    """Add the upper triangle of ΦᵀΦ to that of a total in double precision."""
    if phi.dtype == np.float64:
        add_gram(phi, total, n_threads=n_threads)
    else:
        _core.add_upper_triangle(gram(phi, n_threads=n_threads), total, n_threads)


def weighted_location_scale(x: FloatArray, sample_weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of columns; the deviation of a column that is constant up to rounding is zero."""
    if x.shape[1] == 0:
        return np.empty(0), np.empty(0)
    if sample_weight is not None:
        x, sample_weight = x[sample_weight > 0], sample_weight[sample_weight > 0]
    # Relative to the first row, so that a large common offset loses no digits, and in units of a power of two, so that
    # squares neither overflow nor underflow and scaling does not round.
    size = np.abs(x).max(axis=0)
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 2, -1000))
    origin = x[0] / unit
    shifted = x / unit - origin
    mean = np.average(shifted, axis=0, weights=sample_weight)
    scale = np.sqrt(np.average((shifted - mean) ** 2, axis=0, weights=sample_weight))
    noise = 10 * np.finfo(float).eps * (size / unit)
    return unit * (origin + mean), np.where(scale > noise, unit * scale, 0.0)


def scale_of(location: FloatArray, spread: FloatArray, n_rows: float) -> FloatArray:
    """Return the unit of targets: their deviation, 1 of constant ones; of a single row, its distance from zero."""
    constant = np.where(location != 0, np.abs(location), 1.0) if n_rows <= 1 else 1.0
    return np.where(spread > 0, spread, constant)


def fingerprint(value: Any) -> str:
    """Return a digest of a feature map's class and everything in it, the same in every process.

    `value`: dataclasses, arrays, numbers and strings are read field by field; any other object (a scikit-learn
    transformer) by joblib's hash of its state, and one that cannot be pickled by its identity.
    """
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[Any], object], value: Any) -> None:
    if isinstance(value, np.ndarray) and value.dtype != object:
        update(f"{value.dtype.str}{value.shape}".encode())
        update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    elif is_dataclass(value) and not isinstance(value, type):
        update(f"{type(value).__name__}(".encode())
        for f in fields(value):
            if f.compare:
                update(f"{f.name}=".encode())
                _feed(update, getattr(value, f.name))
        update(b")")
    elif isinstance(value, np.generic):
        _feed(update, value.item())
    elif value is None or isinstance(value, str | int | float):
        update(f"{value!r},".encode())
    else:
        import joblib

        try:
            digest = joblib.hash(value)
        except Exception:  # it cannot be pickled: whatever its own methods raise
            digest = str(id(value))
        update(digest.encode())
