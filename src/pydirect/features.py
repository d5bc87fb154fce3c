"""Feature maps: from inputs to basis functions Φ, written block by block where they stay.

A feature map is fixed once built: statistics are sums over its outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pydirect import _core
from pydirect._validation import FloatArray, as_count, as_float_array

Block = NDArray[Any]


@dataclass(frozen=True)
class PrecomputedFeatures:
    """The inputs are the basis functions."""

    kind: ClassVar[str] = "precomputed"
    n_features_in: int

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.n_features_in

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ = X."""
        return np.ascontiguousarray(x, dtype=dtype)


@dataclass(frozen=True)
class LinearFeatures:
    """The inputs and a constant: its weight is the intercept.

    Parameters
    ----------
    n_features_in : int
    intercept_scale : float
        Value of the constant feature, the prior standard deviation of the intercept in units of a weight's.
    """

    kind: ClassVar[str] = "linear"
    n_features_in: int
    intercept_scale: float = 1.0

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.n_features_in + 1

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return [X | intercept_scale]."""
        out = np.empty((x.shape[0], self.n_weights), dtype=dtype)
        out[:, :-1] = x
        out[:, -1] = self.intercept_scale
        return out


@dataclass(frozen=True)
class PolynomialFeatures:
    """All monomials of the inputs up to a degree, the constant included.

    Parameters
    ----------
    n_features_in : int
    degree : int

    Raises
    ------
    ValueError
        When there would be more than 20,000 of them.
    """

    kind: ClassVar[str] = "polynomial"
    n_features_in: int
    degree: int = 2

    def __post_init__(self) -> None:
        as_count(self.degree, "degree")
        if self.n_weights > 20_000:
            raise ValueError(
                f"degree must give at most 20000 monomials, got {self.n_weights} "
                f"for degree {self.degree} of {self.n_features_in} inputs"
            )

    @property
    def n_weights(self) -> int:
        """Number of monomials, C(d + degree, degree)."""
        return math.comb(self.n_features_in + self.degree, self.degree)

    @cached_property
    def monomials(self) -> list[tuple[int, ...]]:
        """The inputs multiplied in each feature, shorter products first; the empty product is the constant."""
        inputs = range(self.n_features_in)
        return [m for k in range(self.degree + 1) for m in combinations_with_replacement(inputs, k)]

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return the monomials; each is a shorter one times one more input."""
        column = {m: k for k, m in enumerate(self.monomials)}
        out = np.empty((self.n_weights, x.shape[0]), dtype=dtype)
        out[0] = 1.0
        for m, k in column.items():
            if m:
                np.multiply(out[column[m[:-1]]], x[:, m[-1]], out=out[k], casting="same_kind")
        return np.ascontiguousarray(out.T)


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features of a stationary kernel, beside scaled inputs and a constant.

    Φ(x) = [a ⊙ cos(xW) | a ⊙ sin(xW) | x ⊙ linear_scale | constant], so that a standard Gaussian prior on the weights is
    a Gaussian process with the kernel Σ a² cos(W·(x − x′)) plus a linear one (Rahimi & Recht 2007; Evans & Nair 2018,
    section 5.2 and appendix E).

    Parameters
    ----------
    frequencies : ndarray of shape (n_features_in, n_frequencies)
        Radians per unit of x.
    amplitudes : ndarray of shape (n_frequencies,)
        a: √(signal variance / n_frequencies) when all frequencies are of one kernel.
    linear_scale : ndarray of shape (n_features_in,) or None
        Standard deviations of the linear weights; None for no linear features.
    constant : float or None
        Value of the constant feature; None for none.
    """

    kind: ClassVar[str] = "fourier"
    frequencies: FloatArray
    amplitudes: FloatArray
    linear_scale: FloatArray | None = None
    constant: float | None = None

    def __post_init__(self) -> None:
        shape = as_float_array(self.frequencies, "frequencies", ("n_features_in", "n_frequencies")).shape
        as_float_array(self.amplitudes, "amplitudes", (shape[1],))
        if self.linear_scale is not None:
            as_float_array(self.linear_scale, "linear_scale", (shape[0],))

    @property
    def n_features_in(self) -> int:
        """Number of inputs."""
        return self.frequencies.shape[0]

    @property
    def n_frequencies(self) -> int:
        """Number of frequencies: half the number of Fourier features."""
        return self.frequencies.shape[1]

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        linear = 0 if self.linear_scale is None else self.n_features_in
        return 2 * self.n_frequencies + linear + (self.constant is not None)

    @cached_property
    def _tables(self) -> dict[np.dtype[Any], tuple[Block, Block]]:
        """Frequencies in turns a unit of x, and amplitudes, padded to the kernels' width, by precision."""
        padding = (0, -self.n_frequencies % 16)
        turns = np.pad(self.frequencies / (2 * np.pi), ((0, 0), padding))
        amplitudes = np.pad(self.amplitudes, padding)
        return {np.dtype(t): (turns.astype(t), amplitudes.astype(t)) for t in (np.float64, np.float32)}

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ of shape (n_rows, n_weights).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in), float64
        dtype : {float64, float32}
        n_threads : int
        """
        dtype = np.dtype(dtype)
        out = np.empty((x.shape[0], self.n_weights), dtype=dtype)
        x = np.ascontiguousarray(x)
        turns, amplitudes = self._tables[dtype]
        _core.fourier_features(x, turns, amplitudes, self.n_frequencies, out, n_threads)
        begin = 2 * self.n_frequencies
        if self.linear_scale is not None:
            np.multiply(x, self.linear_scale, out=out[:, begin : begin + self.n_features_in], casting="same_kind")
        if self.constant is not None:
            out[:, -1] = self.constant
        return out


@dataclass(frozen=True)
class TransformerFeatures:
    """The output of a fitted scikit-learn transformer.

    Parameters
    ----------
    transformer : object
        Has ``transform(X)``; fitted.
    n_features_in : int
    n_weights : int
        Columns of its output.
    """

    kind: ClassVar[str] = "transformer"
    transformer: Any
    n_features_in: int
    n_weights: int

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return the transformer's output as a dense array."""
        out = self.transformer.transform(x)
        out = out.toarray() if hasattr(out, "toarray") else np.asarray(out)
        return np.ascontiguousarray(as_float_array(out, "transformed X", (x.shape[0], self.n_weights)), dtype=dtype)


FixedFeatures = PrecomputedFeatures | LinearFeatures | PolynomialFeatures | FourierFeatures
FeatureMap = FixedFeatures | TransformerFeatures
