"""Feature maps: from standardised inputs to basis functions Φ.

A feature map is immutable, because statistics are sums over its outputs. Each map checks its own numbers after it was
read from a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import blas, lapack

from pydirect import _core
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, short_repr
from pydirect.features.inputs import LARGEST
from pydirect.features.kernel import KernelHyperparameters, PreparedRows, linear_inputs
from pydirect.persistence.fields import require_array, require_number, require_type

Block = NDArray[Any]
# Sums are of kernel functions where this bounds what rounding adds to them, as a fraction of the noise variance:
# predictions then move by less than a thousandth of their deviation, as the bound is seldom reached.
LARGEST_ROUNDING = 4e-3
# Rows that sums are expected to be over where nobody knows.
MANY_ROWS = 1e6


@dataclass(frozen=True)
class PrecomputedFeatures:
    """Precomputed features: the inputs are the basis functions.

    Parameters
    ----------
    n_features_in : int
        Number of inputs.
    """

    kind: ClassVar[str] = "precomputed"
    n_features_in: int

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.n_features_in

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ = X.

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        dtype : dtype, default=np.float64
            Type of the result.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        return np.ascontiguousarray(x, dtype=dtype)

    def check(self) -> None:
        """Raise unless all numbers are in their ranges."""
        require_type(self.n_features_in, "n_features_in", int)


@dataclass(frozen=True)
class LinearFeatures:
    """Linear features: the inputs and a constant, whose weight is the intercept.

    Parameters
    ----------
    n_features_in : int
        Number of inputs.
    intercept_scale : float, default=1.0
        Value of the constant feature: the prior standard deviation of the intercept relative to that of a weight.
    """

    kind: ClassVar[str] = "linear"
    n_features_in: int
    intercept_scale: float = 1.0

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.n_features_in + 1

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return [X | intercept_scale].

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        dtype : dtype, default=np.float64
            Type of the result.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        out = np.empty((x.shape[0], self.n_weights), dtype=dtype)
        out[:, :-1] = x
        out[:, -1] = self.intercept_scale
        return out

    def check(self) -> None:
        """Raise unless all numbers are in their ranges."""
        require_type(self.n_features_in, "n_features_in", int)
        require_number(self.intercept_scale, "intercept_scale")


@dataclass(frozen=True)
class PolynomialFeatures:
    """Polynomial features: all monomials of the inputs up to a degree, including the constant.

    Parameters
    ----------
    n_features_in : int
        Number of inputs.
    degree : int, default=2
        Largest degree of a monomial.

    Raises
    ------
    ValueError
        If there are more than 20,000 monomials.
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
        """Indices of the inputs multiplied in each feature, shorter products first; the empty one is the constant."""
        inputs = range(self.n_features_in)
        return [m for k in range(self.degree + 1) for m in combinations_with_replacement(inputs, k)]

    @property
    def largest_input(self) -> float:
        """Largest magnitude of inputs for which no power overflows."""
        return float(LARGEST ** (1 / self.degree))

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return the monomials; each is computed as a shorter one times one more input.

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        dtype : dtype, default=np.float64
            Type of the result.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        column = {m: k for k, m in enumerate(self.monomials)}
        out = np.empty((self.n_weights, x.shape[0]), dtype=dtype)
        out[0] = 1.0
        for m, k in column.items():
            if m:
                np.multiply(out[column[m[:-1]]], x[:, m[-1]], out=out[k], casting="same_kind")
        return np.ascontiguousarray(out.T)

    def check(self) -> None:
        """Raise unless all numbers are in their ranges."""
        require_type(self.n_features_in, "n_features_in", int)


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features of a stationary kernel, beside scaled inputs and a constant.

    Φ(x) = [a ⊙ cos(xW) | a ⊙ sin(xW) | x ⊙ linear_scale | constant], so that a standard Gaussian prior on the weights
    is a Gaussian process with the kernel Σ a² cos(W·(x − x′)) plus a linear one (Rahimi & Recht 2007; Evans & Nair
    2018, section 5.2 and appendix E).

    Parameters
    ----------
    frequencies : ndarray of shape (n_features_in, n_frequencies)
        Radians per unit of x.
    amplitudes : ndarray of shape (n_frequencies,)
        a: √(signal variance / n_frequencies) when all frequencies are of one kernel.
    linear_scale : ndarray of shape (n_linear,) or None, optional
        Standard deviations of the weights of the leading inputs, which are clipped to ±5; None for no linear features.
    constant : float or None, optional
        Value of the constant feature; None for none.
    """

    kind: ClassVar[str] = "fourier"
    frequencies: FloatArray
    amplitudes: FloatArray
    linear_scale: FloatArray | None = None
    constant: float | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        shape = as_float_array(self.frequencies, "frequencies", ("n_features_in", "n_frequencies")).shape
        as_float_array(self.amplitudes, "amplitudes", (shape[1],))
        if self.linear_scale is not None and len(self.linear_scale) > shape[0]:
            raise ValueError(f"linear_scale must have at most {shape[0]} entries, got {len(self.linear_scale)}")

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
        linear = 0 if self.linear_scale is None else len(self.linear_scale)
        return 2 * self.n_frequencies + linear + (self.constant is not None)

    @property
    def pairs(self) -> NDArray[np.intp]:
        """Number of a group for every weight, (n_weights,): the two functions of a frequency are one group."""
        first = np.arange(self.n_frequencies)
        return np.concatenate([first, first, np.arange(len(first), self.n_weights - len(first))])

    @cached_property
    def _tables(self) -> dict[np.dtype[Any], tuple[Block, Block]]:
        """Frequencies in turns per unit of x, and amplitudes, padded to the kernels' width, by precision."""
        padding = (0, -self.n_frequencies % 16)
        turns = np.pad(self.frequencies / (2 * np.pi), ((0, 0), padding))
        amplitudes = np.pad(self.amplitudes, padding)
        return {
            np.dtype(t): (np.ascontiguousarray(turns, dtype=t), amplitudes.astype(t)) for t in (np.float64, np.float32)
        }

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ of shape (n_rows, n_weights).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in), float64
            Rows of inputs.
        dtype : {float64, float32}, default=np.float64
            Type of Φ.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        dtype = np.dtype(dtype)
        out = np.empty((x.shape[0], self.n_weights), dtype=dtype)
        x = np.ascontiguousarray(x)
        turns, amplitudes = self._tables[dtype]
        _core.fourier_features(x, turns, amplitudes, self.n_frequencies, out, n_threads)
        begin = 2 * self.n_frequencies
        if self.linear_scale is not None:
            n_linear = len(self.linear_scale)
            linear = linear_inputs(x, n_linear)
            np.multiply(linear, self.linear_scale, out=out[:, begin : begin + n_linear], casting="same_kind")
        if self.constant is not None:
            out[:, -1] = self.constant
        return out

    def check(self) -> None:
        """Raise unless all numbers are in their ranges."""
        require_array(self.frequencies, "frequencies", "n_features_in", "n_frequencies")
        require_array(self.amplitudes, "amplitudes", self.n_frequencies)
        if self.linear_scale is not None:
            require_array(self.linear_scale, "linear_scale", *self.linear_scale.shape[:1])
        if self.constant is not None:
            require_number(self.constant, "constant")


@dataclass(frozen=True)
class NystroemFeatures:
    """Nyström features, whitened kernel functions at landmarks Z: Φ(x) = k(x, Z) L⁻ᵀ with LLᵀ = k(Z, Z).

    A standard Gaussian prior on the weights is the Gaussian process projected onto the landmarks: exact at
    the landmarks, and everywhere if all training rows are landmarks (Williams & Seeger 2001).

    Parameters
    ----------
    landmarks : ndarray of shape (n_landmarks, n_features_in)
        Rows Z.
    hyperparameters : KernelHyperparameters
        Those of the kernel k.
    sums_of_kernel : bool, default=False
        Whether sums over rows are of k(x, Z), whitened once in the end, L⁻¹(Σkkᵀ)L⁻ᵀ, instead of row by row, which
        takes as long as the sums themselves. Rounding is then magnified by the condition of k(Z, Z); see `rounding`.
    """

    kind: ClassVar[str] = "nystroem"
    landmarks: FloatArray
    hyperparameters: KernelHyperparameters
    sums_of_kernel: bool = False

    __repr__ = short_repr

    @classmethod
    def at(
        cls, landmarks: FloatArray, hyperparameters: KernelHyperparameters, n_rows: float = MANY_ROWS
    ) -> NystroemFeatures:
        """Build from landmarks, and raise unless their covariance can be factorised.

        `n_rows` that sums will be over, at the noise variance of the hyperparameters, decide what the sums are of.

        Parameters
        ----------
        landmarks : ndarray of shape (n_landmarks, n_inputs)
            Rows Z.
        hyperparameters : KernelHyperparameters
            Those of the kernel k.
        n_rows : float, default=1e6
            Number of rows that sums will be over.
        """
        features = cls(landmarks, hyperparameters)
        features.prepare(whitening=True)
        return features.for_sums(n_rows, hyperparameters.noise_variance)

    def for_sums(self, n_rows: float, noise_variance: float) -> NystroemFeatures:
        """Return the same features with sums over rows of k(x, Z) if that is accurate enough, else of Φ.

        Parameters
        ----------
        n_rows : float
            Number of rows that sums will be over.
        noise_variance : float
            Variance σ² of the noise.

        Returns
        -------
        NystroemFeatures
            The features.
        """
        accurate = self.rounding(n_rows) <= LARGEST_ROUNDING * noise_variance
        chosen = replace(self, sums_of_kernel=accurate)
        chosen.__dict__.update({k: v for k, v in vars(self).items() if k in ("_factorised", "_prepared")})
        return chosen

    def rounding(self, n_rows: float) -> float:
        """Bound of what rounding of Σkkᵀ over a number of rows adds to an eigenvalue of ΦᵀΦ.

        Errors of ε Σk² are magnified by ‖L⁻¹‖² at most, whose bound ‖L⁻¹‖₁ ‖L⁻¹‖∞ and a factor of four also cover that
        errors of many entries add up.

        Parameters
        ----------
        n_rows : float
            Number of rows that sums will be over.

        Returns
        -------
        float
            The bound.
        """
        whitening, mean_square = self._factorised
        size = np.abs(whitening)
        magnified = size.sum(axis=0).max() * size.sum(axis=1).max()
        return float(4 * np.finfo(float).eps * n_rows * mean_square * magnified)

    @property
    def whitening(self) -> FloatArray:
        """L⁻ᵀ, upper triangular, (n_landmarks, n_landmarks); files do without it, as it follows from the landmarks.

        The smallest multiple of the identity for which the factorisation succeeds is added to k(Z, Z), which repeated
        rows make singular.
        """
        return self._factorised[0]

    @cached_property
    def _factorised(self) -> tuple[FloatArray, float]:
        """L⁻ᵀ, and the mean square of k(Z, Z)."""
        with single_blas_thread():  # the same bits for any number of threads
            k = self.kernel_functions(self.landmarks)
            factor = cholesky_with_jitter(k, float(k.diagonal().mean()))
            if factor is not None:
                inverse = np.ascontiguousarray(np.tril(lapack.dtrtri(factor, lower=1)[0]))
                return inverse.T, float(np.mean(np.square(k)))
        raise ValueError("the covariance of the landmarks cannot be factorised, got hyperparameters beyond their range")

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # what is computed once is left out

    def prepare(self, whitening: bool) -> None:
        """Compute what is computed once: rows scaled for the kernel and, on request, the whitening.

        Parameters
        ----------
        whitening : bool
            Whether the whitening is needed too.
        """
        if whitening:
            self._factorised  # noqa: B018
        self._prepared  # noqa: B018

    @cached_property
    def _prepared(self) -> PreparedRows:
        return self.hyperparameters.prepared(self.landmarks)

    @property
    def n_features_in(self) -> int:
        """Number of inputs."""
        return self.landmarks.shape[1]

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.landmarks.shape[0]

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ of shape (n_rows, n_weights).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        dtype : dtype, default=np.float64
            Type of the result.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        return np.ascontiguousarray(self.whitened(self.kernel_functions(x, n_threads)), dtype=dtype)

    def kernel_functions(self, x: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return k(x, Z), (n_rows, n_landmarks).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_landmarks)
            Kernel functions.
        """
        return self.hyperparameters.covariance(x, self._prepared, n_threads)

    def whitened(self, k: FloatArray) -> FloatArray:
        """Return Φ = k L⁻ᵀ, in the memory of k.

        Parameters
        ----------
        k : ndarray of shape (n_rows, n_landmarks)
            k(x, Z); overwritten.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        if len(k) == 1:
            return blas.dtrmv(self.whitening, k[0], trans=1, overwrite_x=1)[None]
        # To BLAS a C-ordered matrix is its transpose: the factor stands on the left.
        return np.asarray(blas.dtrmm(1.0, self.whitening, k.T, trans_a=1, overwrite_b=1).T)

    def missing_variance(self, x: FloatArray, phi: FloatArray) -> FloatArray:
        """Prior variance of f that the landmarks miss: k(x, x) − ‖Φ(x)‖², (n_rows,).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        ndarray of shape (n_rows,)
            Variances.
        """
        return np.maximum(self.hyperparameters.diagonal(x) - np.einsum("ij,ij->i", phi, phi), 0.0)

    def check(self) -> None:
        """Raise unless all numbers are in their ranges."""
        require_array(self.landmarks, "landmarks", "n_landmarks", "n_features_in", largest=LARGEST)
        require_type(self.sums_of_kernel, "sums_of_kernel", bool)


def cholesky_with_jitter(covariance: FloatArray, scale: float) -> FloatArray | None:
    """Return the lower factor, its upper triangle undefined, after adding the smallest of 1e-10 … 1e-3 times `scale`.

    To the diagonal, so that there is a factor; None if none of them suffices.
    """
    for jitter in 10.0 ** np.arange(-10, -2):
        factor, info = lapack.dpotrf(covariance + jitter * scale * np.eye(len(covariance)), lower=1)
        if info == 0:
            return np.asarray(factor)
    return None


def random_fourier_features(
    hyperparameters: KernelHyperparameters, n_frequencies: int, rng: np.random.Generator
) -> FourierFeatures:
    """Draw random Fourier features: frequencies from the spectral density of the kernel.

    Frequencies are Student-t vectors, with 2ν degrees of freedom for the Matérn part and one for the exponential part;
    each part gets a share in proportion to its amplitude, at least a tenth.
    """
    p = hyperparameters
    d = len(p.length_scales)
    share = p.ard_amplitude / (p.ard_amplitude + p.isotropic_amplitude)
    n_ard = round(n_frequencies * min(max(share, 0.1), 0.9))
    counts = (n_ard, n_frequencies - n_ard)
    parts = []
    length_scales = (p.length_scales, np.full(d, p.isotropic_length_scale))
    for count, freedom, length_scale in zip(counts, (2 * p.smoothness, 1), length_scales, strict=True):
        radius = np.sqrt(freedom / rng.chisquare(freedom, count))
        parts.append((rng.standard_normal((count, d)) / length_scale * radius[:, None]).T)
    amplitudes = [np.full(c, np.sqrt(a / max(c, 1))) for c, a in zip(counts, p.amplitudes[:2], strict=True)]
    linear = np.where(np.arange(d) < p.n_linear, np.sqrt(p.amplitudes[2]), 0.0)
    return FourierFeatures(np.hstack(parts), np.concatenate(amplitudes), linear[: p.n_linear], np.sqrt(p.constant))


@dataclass(frozen=True)
class TransformerFeatures:
    """The output of a fitted scikit-learn transformer.

    Parameters
    ----------
    transformer : object
        Fitted, with a method ``transform(X)``.
    n_features_in : int
        Number of inputs.
    n_weights : int
        Number of columns of its output.
    """

    kind: ClassVar[str] = "transformer"
    transformer: Any
    n_features_in: int
    n_weights: int

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return the transformer's output as a dense array.

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.
        dtype : dtype, default=np.float64
            Type of the result.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        out = self.transformer.transform(x)
        out = out.toarray() if hasattr(out, "toarray") else np.asarray(out)
        return np.ascontiguousarray(as_float_array(out, "transformed X", (x.shape[0], self.n_weights)), dtype=dtype)

    def check(self) -> None:
        """Raise, because files cannot contain transformers."""
        raise TypeError("features must be built in, got a transformer")


FixedFeatures = PrecomputedFeatures | LinearFeatures | PolynomialFeatures | FourierFeatures | NystroemFeatures
FeatureMap = FixedFeatures | TransformerFeatures
