"""Kronecker algebra: vectors over a whole grid of hypotheses that are never formed.

b variables of m values each have m^b joint values. A vector with an entry for every one of them is held as a sum of
terms ``Σ_t c_t ⊗_j f_j^(t)``, one factor of m entries for every variable; most factors are all ones, and a term stores
only those that are not (Evans & Nair 2018, section 3). Data points share the factors and differ in the coefficients. A
Kronecker vector is a sum of one term.

Examples
--------
2000 weights of 15 levels: W has 15^2000 columns. The expectation of ``(φᵀw)²`` under a distribution that factorises is
an inner product of two vectors of as many entries.

>>> import numpy as np
>>> b, levels = 2000, np.linspace(-3.0, 3.0, 15)
>>> rng = np.random.default_rng(0)
>>> q = kronecker_vector(rng.dirichlet(np.ones(15), size=b))
>>> q.n_entries == 15**2000
True
>>> phi = rng.standard_normal(b)
>>> f = KroneckerSum.from_terms((15,) * b, [{j: levels} for j in range(b)], phi)  # φᵀw of every hypothesis
>>> mean = f.inner(q).value
>>> s = np.array([q.factor(0, j) @ levels for j in range(b)])
>>> bool(np.isclose(mean[0], phi @ s, rtol=1e-12))
True

The variance from a square of a tenth of it, 20,100 terms:

>>> some = KroneckerSum.from_terms((15,) * b, [{j: levels} for j in range(200)], phi[:200])
>>> square = some.square()
>>> square.n_terms
20100
>>> variance = square.inner(q).value - some.inner(q).value ** 2
>>> v = np.array([q.factor(0, j) @ levels**2 for j in range(b)]) - s**2
>>> bool(np.isclose(variance[0], phi[:200] ** 2 @ v[:200], rtol=1e-9))
True

Numbers that no float64 can hold are no obstacle: the sum of all entries of ``q ⊙ q`` has its logarithm.

>>> bool(np.isclose(q.inner(q).log[0], sum(np.log(q.factor(0, j) @ q.factor(0, j)) for j in range(b))))
True
>>> q.inner(q).log[0] < np.log(np.finfo(float).tiny)
np.True_
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, as_float_array

__all__ = ["KroneckerSum", "ScaledNumbers", "kronecker_vector", "row_of_weights"]

# What an operation may hold; what a pair of terms takes in a product, and a pair of factors in an inner product.
MAX_BYTES, PAIR_BYTES, DOT_BYTES = 4 * 2**30, 64, 16
# Entries that an explicit expansion may have, all data points together.
MAX_EXPANSION = 10_000_000


@dataclass(frozen=True, eq=False)
class ScaledNumbers:
    """Numbers ``mantissa · 2^exponent`` of any size, to the full precision of float64.

    Attributes
    ----------
    mantissa : ndarray of float64
        In ±[½, 1), or zero.
    exponent : ndarray of int64
    """

    mantissa: FloatArray
    exponent: NDArray[np.int64]

    @property
    def sign(self) -> FloatArray:
        """−1, 0 or 1."""
        return np.sign(self.mantissa)

    @property
    def log(self) -> FloatArray:
        """Logarithm of the absolute value; −inf for zero."""
        with np.errstate(divide="ignore"):
            return np.log(np.abs(self.mantissa)) + self.exponent * np.log(2.0)

    @property
    def value(self) -> FloatArray:
        """As float64; too small is zero.

        Raises
        ------
        OverflowError
            When one is too large for float64.
        """
        if (self.exponent > 1024).any():
            raise OverflowError(f"numbers must be below 2^1024 to be float64, got up to 2^{self.exponent.max()}")
        return np.ldexp(self.mantissa, np.maximum(self.exponent, -2000).astype(np.int32))


# Attributes of a sum: name, type and number of axes.
_ARRAYS: tuple[tuple[str, type[np.generic], int], ...] = (
    ("sizes", np.int64, 1),
    ("start", np.int64, 1),
    ("position", np.int32, 1),
    ("index", np.int32, 1),
    ("coefficients", np.float64, 2),
    ("offset", np.int64, 1),
    ("values", np.float64, 1),
)


@dataclass(frozen=True, eq=False)
class KroneckerSum:
    """``Σ_t c_tl ⊗_j f_j^(t)`` for data points l, as arrays that must not be changed.

    `kronecker_vector`, `row_of_weights` and `from_terms` make one.

    Attributes
    ----------
    sizes : ndarray of shape (n_positions,), int64
        Entries of a factor at each of the b positions.
    start : ndarray of shape (n_terms + 1,), int64
        Where each term's factors begin in `position` and `index`.
    position, index : ndarray of shape (n_factors_of_all_terms,), int32
        Positions of the factors that are not all ones, increasing within a term, and which factors they are.
    coefficients : ndarray of shape (n_terms, n_data)
    offset : ndarray of shape (n_factors + 1,), int64
        Where each factor begins in `values`.
    values : ndarray
        Entries of the factors, end to end.
    """

    sizes: NDArray[np.int64]
    start: NDArray[np.int64]
    position: NDArray[np.int32]
    index: NDArray[np.int32]
    coefficients: FloatArray
    offset: NDArray[np.int64]
    values: FloatArray

    def __post_init__(self) -> None:
        for name, dtype, n_axes in _ARRAYS:
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != n_axes:
                raise TypeError(f"{name} must be an array of {np.dtype(dtype)} with {n_axes} axes, got {array!r}")
            view = np.ascontiguousarray(array).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        self._check()

    def _check(self) -> None:
        """Raise unless the arrays fit each other; the kernels trust them."""
        h, n_factors, n_stored = self.n_terms, len(self.offset) - 1, len(self.position)
        begins = np.zeros(n_stored, dtype=bool)
        begins[self.start[self.start < n_stored]] = True
        right = (
            len(self.start) == h + 1
            and n_factors >= 0
            and self.start[0] == self.offset[0] == 0
            and (np.diff(self.start) >= 0).all()
            and (np.diff(self.offset) >= 0).all()
            and self.start[-1] == n_stored == len(self.index)
            and self.offset[-1] == len(self.values)
            and (self.sizes > 0).all()
            and ((0 <= self.position) & (self.position < self.n_positions)).all()
            and ((0 <= self.index) & (self.index < n_factors)).all()
            and (begins[1:] | (np.diff(self.position) > 0)).all()
        )
        if not right or not (np.diff(self.offset)[self.index] == self.sizes[self.position]).all():
            raise ValueError(
                "arrays must describe terms with factors of the positions' sizes, in order; see from_terms"
            )

    @classmethod
    def from_terms(
        cls, sizes: Sequence[int], terms: Sequence[Mapping[int, ArrayLike]], coefficients: ArrayLike = 1.0
    ) -> KroneckerSum:
        """Build a sum from the factors that are not all ones.

        Parameters
        ----------
        sizes : sequence of int
            Entries of a factor at each position.
        terms : sequence of mappings
            Position to factor, one mapping a term; an empty one is a vector of ones.
        coefficients : array_like of shape (n_terms,) or (n_terms, n_data), or float
            One number serves all terms.

        Returns
        -------
        KroneckerSum
            Equal terms merged.

        Raises
        ------
        ValueError
            When a position does not exist or a factor has another length.

        Examples
        --------
        ``3 f⊗1 − 1⊗g``:

        >>> KroneckerSum.from_terms((2, 2), [{0: [1.0, 2.0]}, {1: [0.0, 5.0]}], [3.0, -1.0]).expand().tolist()
        [[3.0, -2.0, 6.0, 1.0]]
        """
        lengths = np.array([as_count(m, "sizes") for m in sizes], dtype=np.int64)
        weights = np.array(coefficients)
        if weights.ndim == 0:
            weights = np.full(len(terms), weights)
        if weights.ndim == 1:
            weights = weights[:, None]
        if weights.ndim == 2 and weights.shape[0] == len(terms) == 0:
            weights = np.zeros((0, max(weights.shape[1], 1)))
        else:
            weights = as_float_array(weights, "coefficients", (len(terms), "n_data"))
        positions: list[int] = []
        factors: list[FloatArray] = []
        for term in terms:
            for p in sorted(term):
                if not 0 <= p < len(lengths):
                    raise ValueError(f"terms must have positions below {len(lengths)}, got {p}")
                factors.append(as_float_array(term[p], f"factor at position {p}", (int(lengths[p]),)))
                positions.append(p)
        return cls(
            lengths,
            np.cumsum([0, *(len(term) for term in terms)], dtype=np.int64),
            np.array(positions, dtype=np.int32),
            np.arange(len(factors), dtype=np.int32),
            weights,
            np.cumsum([0, *(len(f) for f in factors)], dtype=np.int64),
            np.concatenate([np.empty(0), *factors]),
        ).compact()

    @property
    def _arrays(self) -> _core._KroneckerArrays:
        return self.sizes, self.start, self.position, self.index, self.coefficients, self.offset, self.values

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
        """Number of data points, each with coefficients of its own."""
        return self.coefficients.shape[1]

    @property
    def n_entries(self) -> int:
        """Entries of the vector: the product of the sizes."""
        return reduce(int.__mul__, self.sizes.tolist(), 1)

    def factor(self, term: int, position: int) -> FloatArray:
        """Factor of a term at a position; ones where none is stored."""
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
        """Sum of both; equal terms stand side by side until `compact` merges them."""
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
            np.concatenate([self.offset, other.offset[1:] + self.offset[-1]]),
            np.concatenate([self.values, other.values]),
        )

    def __neg__(self) -> KroneckerSum:
        return self * -1.0

    def __sub__(self, other: KroneckerSum) -> KroneckerSum:
        return self + -other if isinstance(other, KroneckerSum) else NotImplemented

    def compact(self) -> KroneckerSum:
        """Merge terms of equal factors, adding their coefficients, and drop terms that are zero."""
        return self._with(_core.kron_compact(self._arrays))

    # Products

    def __mul__(self, other: KroneckerSum | ArrayLike) -> KroneckerSum:
        """Element-wise product with another sum, or with one number for all data points or each of them.

        Raises
        ------
        OverflowError
            When an entry of a product of factors, or a coefficient, is too large for float64. One that is too small,
            below 5e-324, becomes zero: inner products alone have no range to leave.
        ValueError
            When there would be more pairs of terms than memory allows, with the bytes that they would take.
        """
        if not isinstance(other, KroneckerSum):
            n = np.shape(other)[0] if np.ndim(other) == 1 and self.n_data == 1 else self.n_data
            numbers = as_float_array(np.broadcast_to(other, (n,)), "factor", (n,))
            with np.errstate(over="ignore"):
                scaled = self.coefficients * numbers
            return self._with((self.start, self.position, self.index, scaled, self.offset, self.values))
        self._require_same_grid(other)
        _require_memory("a product", self.n_terms * other.n_terms * (PAIR_BYTES + 8 * max(self.n_data, other.n_data)))
        return self._with(_core.kron_multiply(self._arrays, other._arrays, 1))

    __rmul__ = __mul__
    __array_ufunc__ = None  # an array on the left leaves the product to us

    def square(self, n_threads: int | None = None) -> KroneckerSum:
        """Element-wise square, cross terms and all (eq. 33); raises as the product does."""
        _require_memory("a square", self.n_terms * (self.n_terms + 1) // 2 * (PAIR_BYTES + 8 * self.n_data))
        return self._with(_core.kron_square(self._arrays, resolve_n_threads(n_threads)))

    def scale(self, position: int, levels: ArrayLike) -> KroneckerSum:
        """Multiply by a row of W: every entry by the level of one variable there (eqs. 29 and 30)."""
        return self * row_of_weights(self.sizes.tolist(), position, levels)

    def inner(self, other: KroneckerSum, n_threads: int | None = None) -> ScaledNumbers:
        """Inner product with another sum, data point by data point (Proposition 1).

        Nothing is lost to the range of float64, whatever the number of factors.

        Parameters
        ----------
        other : KroneckerSum
            On the same grid, with as many data points or one.
        n_threads : int, optional

        Returns
        -------
        ScaledNumbers
            Of shape (n_data,).
        """
        self._require_same_grid(other)
        counts = [_factors_by_position(s, distinct=False) + 1 for s in (self, other)]
        if DOT_BYTES * int(counts[0] @ counts[1]) > MAX_BYTES:  # at most so many; the true number takes longer
            counts = [_factors_by_position(s, distinct=True) + 1 for s in (self, other)]
        _require_memory("an inner product", DOT_BYTES * int(counts[0] @ counts[1]))
        return ScaledNumbers(*_core.kron_inner(self._arrays, other._arrays, resolve_n_threads(n_threads)))

    # Logarithm and exponential

    def log(self) -> KroneckerSum:
        """Element-wise logarithm of a Kronecker vector as a sum of b terms (Proposition 2).

        Raises
        ------
        ValueError
            When there is more than one term or data point, or an entry is not positive.
        """
        if self.n_terms != 1 or self.n_data != 1:
            raise ValueError(f"log must be of one term and one data point, got {self.n_terms} and {self.n_data}")
        constant = self.coefficients[0, 0]
        factors = {int(p): self.factor(0, int(p)) for p in self.position}
        smallest = min([constant, *(f.min() for f in factors.values())])
        if not smallest > 0:
            raise ValueError(f"log must be of positive factors and coefficient, got {smallest}")
        terms: list[Mapping[int, ArrayLike]] = [{}, *({p: np.log(f)} for p, f in factors.items())]
        return KroneckerSum.from_terms(self.sizes.tolist(), terms, [np.log(constant), *np.ones(len(factors))])

    def exp(self) -> KroneckerSum:
        """Element-wise exponential of a sum whose terms have one factor each, as one Kronecker vector.

        Raises
        ------
        ValueError
            When a term has two factors, or there is more than one data point.
        OverflowError
            When an exponential is too large for float64.
        """
        longest = int(np.diff(self.start).max(initial=0))
        if longest > 1 or self.n_data != 1:
            raise ValueError(f"exp must be of terms of one factor and one data point, got {longest} and {self.n_data}")
        logs: dict[int, FloatArray] = {}
        constant = 0.0
        for t, c in enumerate(self.coefficients[:, 0]):
            if self.start[t] == self.start[t + 1]:
                constant += c
                continue
            p = int(self.position[self.start[t]])
            logs[p] = logs.get(p, 0.0) + c * self.factor(t, p)
        with np.errstate(over="ignore"):
            factors = {p: np.exp(f) for p, f in logs.items()}
            scale = np.exp(constant)
        if not all(np.isfinite(f).all() for f in [*factors.values(), scale]):
            raise OverflowError("exp must have factors and a coefficient within the range of float64")
        return KroneckerSum.from_terms(self.sizes.tolist(), [factors], scale)

    # Entries

    def evaluate(self, points: ArrayLike, n_threads: int | None = None) -> ScaledNumbers:
        """Entries at points of the grid.

        Parameters
        ----------
        points : array_like of int, shape (n_points, n_positions)
            Which value every variable takes.
        n_threads : int, optional

        Returns
        -------
        ScaledNumbers
            Of shape (n_points, n_data).
        """
        raw = np.asarray(points)
        if raw.dtype.kind not in "iu":
            raise TypeError(f"points must hold integers, got dtype {raw.dtype}")
        if raw.ndim != 2 or raw.shape[1] != self.n_positions:
            raise ValueError(f"points must have shape (n_points, {self.n_positions}), got {raw.shape}")
        if (raw < 0).any() or (raw >= self.sizes).any():
            raise ValueError("points must be indices into the factors: not negative, below the sizes")
        grid = np.ascontiguousarray(raw, dtype=np.int64)
        return ScaledNumbers(*_core.kron_entries(self._arrays, grid, resolve_n_threads(n_threads)))

    def expand(self, max_entries: int = MAX_EXPANSION) -> FloatArray:
        """All entries, (n_data, n_entries), the last variable varying fastest: `numpy.kron`, term by term.

        Raises
        ------
        ValueError
            When there would be more than `max_entries` numbers.
        """
        if self.n_entries * self.n_data > max_entries:
            log10 = np.log10(self.sizes).sum() + np.log10(self.n_data)
            count = f"{self.n_entries * self.n_data}" if log10 < 15 else f"10^{log10:.1f}"
            raise ValueError(f"expansions must have at most {max_entries} entries, got {count}")
        out = np.zeros((self.n_data, self.n_entries))
        for t, c in enumerate(self.coefficients):
            entries: NDArray[Any] = np.ones(1)
            for p in range(self.n_positions):
                entries = np.kron(entries, self.factor(t, p))
            out += c[:, None] * entries
        return out

    def _with(self, arrays: tuple[Any, ...]) -> KroneckerSum:
        result = KroneckerSum(self.sizes, *arrays)
        if not np.isfinite(result.coefficients).all():
            raise OverflowError("coefficients must stay within the range of float64")
        return result

    def _require_same_grid(self, other: Any) -> None:
        if not isinstance(other, KroneckerSum):
            raise TypeError(f"other must be a KroneckerSum, got {type(other).__name__}")
        if not np.array_equal(self.sizes, other.sizes):
            raise ValueError("sums must have the same sizes at all positions")
        if self.n_data != other.n_data and 1 not in (self.n_data, other.n_data):
            raise ValueError(f"sums must have as many data points, or one, got {self.n_data} and {other.n_data}")


def _require_memory(operation: str, n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"{operation} of so many terms would take {n_bytes / 2**30:.3g} GiB, of at most {MAX_BYTES / 2**30:.3g}"
        )


def _factors_by_position(sum_: KroneckerSum, distinct: bool) -> NDArray[np.int64]:
    """Count the factors stored at every position; repeated ones once when `distinct`."""
    stored = np.stack([sum_.position, sum_.index])
    position = np.unique(stored, axis=1)[0] if distinct else sum_.position
    return np.bincount(position, minlength=sum_.n_positions).astype(np.int64)


def kronecker_vector(factors: Sequence[ArrayLike] | FloatArray, coefficients: ArrayLike = 1.0) -> KroneckerSum:
    """``c ⊗_j f_j``, a sum of one term.

    Parameters
    ----------
    factors : sequence of b array_like, or ndarray of shape (b, m)
    coefficients : float or array_like of shape (n_data,)

    Returns
    -------
    KroneckerSum

    Examples
    --------
    >>> kronecker_vector([[1.0, 2.0], [3.0, 5.0]]).expand().tolist()
    [[3.0, 5.0, 6.0, 10.0]]
    """
    weights = np.atleast_1d(np.asarray(coefficients))[None, :]
    return KroneckerSum.from_terms([np.size(f) for f in factors], [dict(enumerate(factors))], weights)


def row_of_weights(sizes: Sequence[int], position: int, levels: ArrayLike) -> KroneckerSum:
    """Row of W (eq. 3): the value of one variable for every hypothesis.

    Parameters
    ----------
    sizes : sequence of int
    position : int
    levels : array_like of shape (sizes[position],)

    Returns
    -------
    KroneckerSum

    Examples
    --------
    >>> row_of_weights((2, 2), 1, [-1.0, 1.0]).expand().tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    return KroneckerSum.from_terms(sizes, [{position: levels}])
