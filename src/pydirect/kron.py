"""Kronecker algebra: vectors over a whole grid of hypotheses, as sums of products that are never expanded.

b variables of m values each have m^b joint values. A vector with one entry per joint value is held as a sum of
terms ``Σ_t c_t ⊗_j f_j^(t)`` with one factor of m entries per variable; most factors are all ones, and a term stores
only the others (Evans & Nair 2018, section 3). Data points share the factors and differ in the coefficients. A
Kronecker vector is a sum of one term.

Examples
--------
2000 weights of 15 levels: W has 15^2000 columns. The expectation of ``φᵀw`` under a factorised distribution is an inner
product of two vectors with that many entries.

>>> import numpy as np
>>> b, levels = 2000, np.linspace(-3.0, 3.0, 15)
>>> rng = np.random.default_rng(0)
>>> q = kronecker_vector(rng.dirichlet(np.ones(15), size=b))
>>> q.n_entries == 15**2000
True
>>> phi = rng.standard_normal(b)
>>> f = KroneckerSum.from_terms((15,) * b, [{j: levels} for j in range(b)], phi)  # φᵀw per hypothesis
>>> mean = f.inner(q).value
>>> s = np.array([q.factor(0, j) @ levels for j in range(b)])
>>> bool(np.isclose(mean[0], phi @ s, rtol=1e-12))
True

The variance of the first tenth of the sum from its square, which has 20,100 terms:

>>> some = KroneckerSum.from_terms((15,) * b, [{j: levels} for j in range(200)], phi[:200])
>>> square = some.square()
>>> square.n_terms
20100
>>> variance = square.inner(q).value - some.inner(q).value ** 2
>>> v = np.array([q.factor(0, j) @ levels**2 for j in range(b)]) - s**2
>>> bool(np.isclose(variance[0], phi[:200] ** 2 @ v[:200], rtol=1e-9))
True

Numbers beyond the range of float64 are no obstacle: the logarithm of the sum of all entries of ``q ⊙ q``.

>>> bool(np.isclose(q.inner(q).log[0], sum(np.log(q.factor(0, j) @ q.factor(0, j)) for j in range(b))))
True
>>> q.inner(q).log[0] < np.log(np.finfo(float).tiny)
np.True_
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, as_float_array

__all__ = ["KroneckerSum", "ScaledNumbers", "kronecker_vector", "row_of_weights"]

# The sum of two of them and of what a product of factors adds fits into int64.
MAX_EXPONENT = 2**60
# Exponentials of numbers up to this magnitude are normal numbers.
HALF_SPREAD = 708.0

_ARRAYS = ("sizes", "start", "position", "index", "coefficients", "exponent", "offset", "values")
_DTYPES = tuple(map(np.dtype, ("i8", "i8", "i4", "i4", "f8", "i8", "i8", "f8")))


@dataclass(frozen=True, eq=False)
class ScaledNumbers:
    """Numbers ``mantissa · 2^exponent`` of any size, to the full precision of float64."""

    mantissa: FloatArray  # in ±[½, 1), or zero
    exponent: NDArray[np.int64]

    @property
    def sign(self) -> FloatArray:
        """Sign of each number: −1, 0 or 1."""
        return np.sign(self.mantissa)

    @property
    def log(self) -> FloatArray:
        """Logarithm of the magnitude of each number."""
        with np.errstate(divide="ignore"):
            return np.log(np.abs(self.mantissa)) + self.exponent * np.log(2.0)

    @property
    def value(self) -> FloatArray:
        """Numbers as float64, zero where they underflow."""
        if (self.exponent > 1024).any():
            raise OverflowError(f"numbers must be below 2^1024 to be float64, got up to 2^{self.exponent.max()}")
        return np.ldexp(self.mantissa, np.maximum(self.exponent, -2000).astype(np.int32))


@dataclass(frozen=True, eq=False)
class KroneckerSum:
    """``Σ_t c_tl 2^(e_t) ⊗_j f_j^(t)`` for data points l, as read-only arrays; writeable ones are copied.

    No operation under- or overflows: powers of two move into a term's exponent. Only the entries of a factor, and the
    coefficients of a term, must lie within 2^2045 of each other, else there is an OverflowError.
    """

    sizes: NDArray[np.int64]  # (n_positions,): number of entries of a factor at each of the b positions
    start: NDArray[np.int64]  # (n_terms + 1,): start of each term's factors in `position` and `index`
    # Positions, increasing within a term, and indices of the factors of all terms that are not all ones.
    position: NDArray[np.int32]
    index: NDArray[np.int32]
    coefficients: FloatArray  # (n_terms, n_data)
    exponent: NDArray[np.int64]  # (n_terms,): exponent of two of a term's coefficients; zero unless products needed it
    offset: NDArray[np.int64]  # (n_factors + 1,): start of each factor in `values`
    values: FloatArray  # concatenated entries of the factors

    def __post_init__(self) -> None:
        for name, dtype in zip(_ARRAYS, _DTYPES, strict=True):
            object.__setattr__(self, name, _constant(getattr(self, name), name, dtype))
        if (self.sizes < 1).any():
            raise ValueError(f"sizes must be at least 1, got {self.sizes.min()}")
        if self.coefficients.ndim == 2 and self.n_data == 0:
            raise ValueError(f"coefficients must have shape (n_terms, n_data), got {self.coefficients.shape}")
        for name in ("coefficients", "values"):
            numbers = getattr(self, name)
            if not np.isfinite(numbers).all():
                raise ValueError(f"{name} must be finite, got {numbers[~np.isfinite(numbers)][0]}")
        if (np.abs(self.exponent) > MAX_EXPONENT).any():
            raise OverflowError(f"exponents must be within ±{MAX_EXPONENT}, got {self.exponent.tolist()}")
        _core.kron_check(self._arrays)

    @classmethod
    def from_terms(
        cls, sizes: Sequence[int], terms: Sequence[Mapping[int, ArrayLike]], coefficients: ArrayLike = 1.0
    ) -> KroneckerSum:
        """Build a sum from the factors that are not all ones."""
        lengths = np.array([as_count(m, "sizes") for m in sizes], dtype=np.int64)
        weights = np.asarray(coefficients)
        weights = np.full(len(terms), weights) if weights.ndim == 0 else weights
        weights = weights[:, None] if weights.ndim == 1 else weights
        stored = [(p, term[p]) for term in terms for p in sorted(term)]
        if outside := [p for p, _ in stored if not 0 <= p < len(lengths)]:
            raise ValueError(f"terms must have positions below {len(lengths)}, got {outside[0]}")
        factors = [as_float_array(own, f"factor at position {p}", (int(lengths[p]),)) for p, own in stored]
        return cls(
            lengths,
            np.cumsum([0, *(len(term) for term in terms)], dtype=np.int64),
            np.array([p for p, _ in stored], dtype=np.int32),
            np.arange(len(factors), dtype=np.int32),
            as_float_array(weights, "coefficients", (len(terms), "n_data")),
            np.zeros(len(terms), dtype=np.int64),
            np.cumsum([0, *(len(f) for f in factors)], dtype=np.int64),
            np.concatenate([np.empty(0), *factors]),
        ).compact()

    @property
    def _arrays(self) -> _core._KroneckerArrays:
        return cast("_core._KroneckerArrays", tuple(getattr(self, name) for name in _ARRAYS))

    @property
    def n_positions(self) -> int:
        """Number of factors b of a term."""
        return len(self.sizes)

    @property
    def n_terms(self) -> int:
        """Number of terms h."""
        return self.coefficients.shape[0]

    @property
    def n_data(self) -> int:
        """Number of data points, each with its own coefficients."""
        return self.coefficients.shape[1]

    @property
    def n_entries(self) -> int:
        """Number of entries of the vector: the product of the sizes."""
        return reduce(int.__mul__, self.sizes.tolist(), 1)

    def factor(self, term: int, position: int) -> FloatArray:
        """Factor of a term at a position; ones if none is stored, (n_levels,)."""
        begin, end = self.start[term], self.start[term + 1]
        (found,) = np.nonzero(self.position[begin:end] == position)
        if found.size == 0:
            return np.ones(self.sizes[position])
        k = self.index[begin + found[0]]
        return self.values[self.offset[k] : self.offset[k + 1]]

    def __repr__(self) -> str:
        return f"KroneckerSum({self.n_terms} terms, {self.n_positions} positions, {self.n_data} data points)"

    # Sums

    def __add__(self, other: KroneckerSum) -> KroneckerSum:
        """Sum of both, whose equal terms `compact` merges."""
        if not isinstance(other, KroneckerSum):
            return NotImplemented
        self._require_same_grid(other)
        n = max(self.n_data, other.n_data)
        coefficients = [np.broadcast_to(s.coefficients, (s.n_terms, n)) for s in (self, other)]
        return KroneckerSum(
            self.sizes,
            np.concatenate([self.start, other.start[1:] + self.start[-1]]),
            np.concatenate([self.position, other.position]),
            np.concatenate([self.index, other.index + np.int32(len(self.offset) - 1)]),
            np.concatenate(coefficients),
            np.concatenate([self.exponent, other.exponent]),
            np.concatenate([self.offset, other.offset[1:] + self.offset[-1]]),
            np.concatenate([self.values, other.values]),
        )

    def __neg__(self) -> KroneckerSum:
        return self * -1.0

    def __sub__(self, other: KroneckerSum) -> KroneckerSum:
        return self + -other if isinstance(other, KroneckerSum) else NotImplemented

    def compact(self) -> KroneckerSum:
        """Merge terms with equal factors, adding their coefficients, and drop zero terms."""
        return self._with(_core.kron_compact(self._arrays))

    # Products

    def __mul__(self, other: KroneckerSum | ArrayLike) -> KroneckerSum:
        """Element-wise product with another sum, or with one number for all data points or per data point."""
        if not isinstance(other, KroneckerSum):
            numbers = np.asarray(other)
            if numbers.dtype.kind not in "fiub":
                raise TypeError(f"other must be a KroneckerSum or real numbers, got {other!r}")
            row = numbers[None] if numbers.ndim == 0 else numbers
            row = as_float_array(row, "other", (self.n_data if self.n_data > 1 and row.size != 1 else "n_data",))
            other = KroneckerSum.from_terms(self.sizes.tolist(), [{}], row[None])
        self._require_same_grid(other)
        return self._with(_core.kron_multiply(self._arrays, other._arrays, 1))

    __rmul__ = __mul__
    __array_ufunc__ = None  # an array on the left defers the product to this class

    def square(self, n_threads: int | None = None) -> KroneckerSum:
        """Element-wise square, including cross terms (eq. 33); raises as the product does."""
        return self._with(_core.kron_square(self._arrays, resolve_n_threads(n_threads)))

    def scale(self, position: int, levels: ArrayLike) -> KroneckerSum:
        """Product with a row of W: each entry times the level of one variable (eqs. 29 and 30)."""
        return self * row_of_weights(self.sizes.tolist(), position, levels)

    def inner(self, other: KroneckerSum, n_threads: int | None = None) -> ScaledNumbers:
        """Inner product with another sum per data point (Proposition 1), whatever the number of factors."""
        self._require_same_grid(other)
        return ScaledNumbers(*_core.kron_inner(self._arrays, other._arrays, resolve_n_threads(n_threads)))

    # Logarithm and exponential

    def log(self) -> KroneckerSum:
        """Element-wise logarithm of a Kronecker vector of positive entries as a sum of b terms (Proposition 2).

        For q ⊙ log q, where 0 log 0 = 0, take the logarithm of q with its zeros replaced by ones.
        """
        if self.n_terms != 1 or self.n_data != 1:
            raise ValueError(f"log must be of one term and one data point, got {self.n_terms} and {self.n_data}")
        constant, factors = self.coefficients[0, 0], {p: self.factor(0, p) for p in self.position.tolist()}
        smallest = min(constant, *(factor.min() for factor in factors.values()), np.inf)
        if not smallest > 0:
            raise ValueError(f"log must be of positive factors and coefficient, got {smallest}")
        terms = [{}, *({p: np.log(factor)} for p, factor in factors.items())]
        coefficients = np.ones(len(terms))
        coefficients[0] = np.log(constant) + self.exponent[0] * np.log(2.0)
        return KroneckerSum.from_terms(self.sizes.tolist(), terms, coefficients)

    def exp(self) -> KroneckerSum:
        """Element-wise exponential of a sum whose terms have one factor each, as one Kronecker vector; of any size."""
        longest = int(np.diff(self.start).max(initial=0))
        if longest > 1 or self.n_data != 1:
            raise ValueError(f"exp must be of terms of one factor and one data point, got {longest} and {self.n_data}")
        logs: dict[int, Any] = {}
        with np.errstate(over="ignore", invalid="ignore"):
            c = np.ldexp(self.coefficients[:, 0], np.clip(self.exponent, -5000, 5000).astype(np.int32))
            constants, c = c[np.diff(self.start) == 0], c[np.diff(self.start) == 1]
            for p, k, factor in zip(self.position.tolist(), self.index, c, strict=True):
                logs[p] = logs.get(p, 0.0) + factor * self.values[self.offset[k] : self.offset[k + 1]]
        if not np.isfinite(np.concatenate([constants, *logs.values()])).all():
            raise OverflowError("exp must be of logarithms within the range of float64")
        spread = max((np.ptp(own) for own in logs.values()), default=0.0)
        if spread > 2 * HALF_SPREAD:
            raise OverflowError(f"exp must be of factors within {2 * HALF_SPREAD:g} of themselves, got {spread:g}")
        # Split off the largest entries, and of their sum whole powers of two; the rest is in [0, log 2).
        largest = {p: own.max() - max(np.ptp(own) - HALF_SPREAD, 0.0) for p, own in logs.items()}
        total = math.fsum([*constants, *largest.values()])
        exponent = math.floor(total / math.log(2.0))
        term = {p: np.exp(own - largest[p]) for p, own in logs.items()}
        found = KroneckerSum.from_terms(self.sizes.tolist(), [term], math.exp(total - exponent * math.log(2.0)))
        return replace(found, exponent=found.exponent + exponent)

    # Entries

    def evaluate(self, points: ArrayLike, n_threads: int | None = None) -> ScaledNumbers:
        """Entries at points of the grid."""
        raw = np.asarray(points)
        if raw.dtype.kind not in "iu":
            raise TypeError(f"points must hold integers, got dtype {raw.dtype}")
        if raw.ndim != 2 or raw.shape[1] != self.n_positions:
            raise ValueError(f"points must have shape (n_points, {self.n_positions}), got {raw.shape}")
        grid = np.ascontiguousarray(raw, dtype=np.int64)
        return ScaledNumbers(*_core.kron_entries(self._arrays, grid, resolve_n_threads(n_threads)))

    def _with(self, arrays: tuple[Any, ...]) -> KroneckerSum:
        for array in arrays:  # not shared, so that no copy is needed
            array.flags.writeable = False
        return KroneckerSum(self.sizes, *arrays)

    def _require_same_grid(self, other: KroneckerSum) -> None:
        if not isinstance(other, KroneckerSum):
            raise TypeError(f"other must be a KroneckerSum, got {other!r}")
        if not np.array_equal(self.sizes, other.sizes):
            raise ValueError("sums must have the same sizes at all positions")
        if self.n_data != other.n_data and 1 not in (self.n_data, other.n_data):
            raise ValueError(f"sums must be of as many data points, or one, got {self.n_data} and {other.n_data}")


def _constant(array: Any, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a read-only C-ordered array, without a copy if it is one already."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be an array of {dtype.name}, got {got}")
    if array.flags.writeable or not array.flags.c_contiguous:
        array = array.copy(order="C")
        array.flags.writeable = False
    return array


def kronecker_vector(factors: Sequence[ArrayLike] | FloatArray, coefficients: ArrayLike = 1.0) -> KroneckerSum:
    """``c ⊗_j f_j``, a sum of one term.

    Examples
    --------
    >>> from pydirect.kron import kronecker_vector
    >>> kronecker_vector([[1.0, 2.0], [10.0, 100.0]]).evaluate([[0, 0], [1, 1]]).value.tolist()
    [[10.0], [200.0]]
    """
    weights = np.atleast_1d(np.asarray(coefficients))[None, :]
    return KroneckerSum.from_terms([np.size(f) for f in factors], [dict(enumerate(factors))], weights)


def row_of_weights(sizes: Sequence[int], position: int, levels: ArrayLike) -> KroneckerSum:
    """Row of W (eq. 3): the value of one variable per hypothesis.

    Examples
    --------
    >>> from pydirect.kron import row_of_weights
    >>> row_of_weights([2, 2], 1, [-1.0, 1.0]).evaluate([[0, 0], [0, 1]]).value.tolist()
    [[-1.0], [1.0]]
    """
    return KroneckerSum.from_terms(sizes, [{position: levels}])
