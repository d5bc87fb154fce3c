"""Feature maps: from standardised inputs to basis functions Φ; immutable, because statistics are sums over Φ.

Code outside asks the map and not for its class: `FeatureMap` holds the answers of maps whose basis functions are all
there is, `NystroemFeatures` those of one that approximates a kernel and leaves a residual.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import gammaincinv

from pydirect import _core
from pydirect._dense import cholesky, half_rows, inverse_lower, solve_upper, squared_norms
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, as_float_array, short_repr
from pydirect.features.derivatives import Along, Direction, kernel_gradient, linear_rates, rates_of_inputs
from pydirect.features.inputs import LARGEST
from pydirect.features.kernel import PAIRS, SQUARED_EXPONENTIAL, Kernel, KernelHyperparameters, linear_inputs
from pydirect.features.own_kernel import OwnKernel
from pydirect.persistence.schema import As, AtLeast, Limits, Shape, Size

Block = NDArray[Any]
# Sums are of kernel functions where this bounds what rounding adds to them, as a fraction of the noise variance:
# predictions then move by less than a thousandth of their deviation, as the bound is seldom reached.
LARGEST_ROUNDING = 4e-3
# Largest frequency in units of an inverse length-scale: slopes of draws are finite.
FARTHEST = 100.0
PRECISIONS = (np.float64, np.float32)
# Rows that sums are expected to be over where nobody knows.
MANY_ROWS = 1e6


class FeatureMap(ABC):
    """From inputs of the map to basis functions Φ, and what is known about them.

    Sums and products may be of `functions` F, cheaper than Φ = F W: `whiten` turns rows of F into rows of Φ.
    """

    kind: ClassVar[str]
    parallel: ClassVar[bool] = True  # whether several threads may use it at once
    sums_of_kernel: bool = False

    if TYPE_CHECKING:  # fields of some maps, properties of others

        @property
        def n_features_in(self) -> int: ...
        @property
        def n_weights(self) -> int: ...

        # Z, and L of Φ = k(x, Z) L⁻ᵀ, where there is a residual kernel
        @property
        def landmarks(self) -> FloatArray: ...
        @property
        def factor(self) -> FloatArray: ...
        @property
        def whitening(self) -> FloatArray: ...
        @property
        def panels(self) -> Any: ...

    @property
    def largest_input(self) -> float:
        """Magnitude to which inputs are clipped, so that nothing overflows."""
        return LARGEST

    @property
    def residual_kernel(self) -> Kernel | None:
        """Kernel k of which Φ leaves the residual k(x, x') − Φ(x)ᵀΦ(x'); None if Φ is all there is."""
        return None

    @abstractmethod
    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ (n_rows, n_weights) at inputs (n_rows, n_features_in); the same bits for any number of threads."""

    def functions(self, x: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return F (n_rows, n_weights) in float64."""
        return np.asarray(self.transform(x, np.float64, n_threads))

    def whiten(self, functions: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return Φ from rows of F, in their memory."""
        return functions

    def weights_of_functions(self, matrix: FloatArray) -> FloatArray:
        """Return B (n_weights, n_columns) with F B = Φ `matrix`."""
        return matrix

    def gradient(self, x: FloatArray) -> Along:
        """Return the function from a direction to the derivatives of F along it, (n_rows, n_weights)."""
        raise TypeError(f"features must be built in to have gradients, got a {self.kind}")

    def residual_variance(self, x: FloatArray, phi: FloatArray) -> FloatArray:
        """Return k(x, x) − ‖Φ(x)‖² (n_rows,): the prior variance of f that the basis functions leave out."""
        return np.zeros(len(x))

    def summands(self, x: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return what sums over rows are of where `sums_of_kernel`: F (n_rows, n_weights)."""
        return self.functions(x, n_threads)

    def for_sums(self, n_rows: float, noise_variance: float | None = None) -> Self:
        """Return the same map, whose sums over rows are of F if that is accurate enough, else of Φ."""
        return self

    def prepare(self) -> None:  # noqa: B027
        """Compute what is computed once, before several threads need it."""

    def check(self) -> None:  # noqa: B027
        """Raise unless all numbers are in their ranges."""


class _Inputs(FeatureMap):
    """Basis functions that are the inputs, then constants."""

    @property
    def constants(self) -> tuple[float, ...]:
        """Values of the functions that are constant."""
        return ()

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.n_features_in + len(self.constants)

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        out = np.empty((len(x), self.n_weights), dtype=dtype)
        out[:, : self.n_features_in] = x
        out[:, self.n_features_in :] = self.constants
        return out

    def gradient(self, x: FloatArray) -> Along:
        return lambda direction: rates_of_inputs((len(x), self.n_weights), direction)


@dataclass(frozen=True)
class PrecomputedFeatures(_Inputs):
    """Precomputed features: the inputs are the basis functions.

    - `n_features_in`: Number of inputs.
    """

    kind: ClassVar[str] = "precomputed"
    n_features_in: Annotated[int, Size("n_inputs")]


@dataclass(frozen=True)
class LinearFeatures(_Inputs):
    """Linear features: the inputs and a constant, whose weight is the intercept.

    `intercept_scale`: the prior standard deviation of the intercept relative to that of a weight.
    """

    kind: ClassVar[str] = "linear"
    n_features_in: Annotated[int, Size("n_inputs")]
    intercept_scale: float = 1.0

    @property
    def constants(self) -> tuple[float, ...]:
        return (self.intercept_scale,)


@dataclass(frozen=True)
class PolynomialFeatures(FeatureMap):
    """Polynomial features: all monomials of the inputs up to a degree, including the constant.

    - `n_features_in`: Number of inputs.
    - `degree`: Largest degree of a monomial.
    """

    kind: ClassVar[str] = "polynomial"
    n_features_in: Annotated[int, Size("n_inputs")]
    degree: Annotated[int, AtLeast(1)] = 2

    def __post_init__(self) -> None:
        as_count(self.degree, "degree")
        if self.n_weights > 20_000:
            raise ValueError(f"degree must give at most 20000 monomials, got {self.n_weights} for degree {self.degree}")

    @property
    def n_weights(self) -> int:
        """Number of monomials, C(d + degree, degree)."""
        return math.comb(self.n_features_in + self.degree, self.degree)

    @cached_property
    def monomials(self) -> list[tuple[int, ...]]:
        """Indices of the inputs multiplied in each feature, shorter products first; the empty one is the constant."""
        inputs = range(self.n_features_in)
        return [m for k in range(self.degree + 1) for m in combinations_with_replacement(inputs, k)]

    @cached_property
    def _factors(self) -> list[tuple[int, int]]:
        """Every monomial after the constant as a shorter one, by number, times one more input."""
        number = {m: k for k, m in enumerate(self.monomials)}
        return [(number[m[:-1]], m[-1]) for m in self.monomials[1:]]

    @property
    def largest_input(self) -> float:
        """Largest magnitude of inputs for which no power overflows."""
        return float(LARGEST ** (1 / self.degree))

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        out = np.ones((self.n_weights, len(x)), dtype=dtype)
        for k, (shorter, j) in enumerate(self._factors, 1):
            np.multiply(out[shorter], x[:, j], out=out[k], casting="same_kind")
        return np.ascontiguousarray(out.T)

    def gradient(self, x: FloatArray) -> Along:
        phi = self.transform(x)

        def along(direction: Direction) -> FloatArray:
            rates, out = rates_of_inputs(x.shape, direction), np.zeros_like(phi)
            for k, (shorter, j) in enumerate(self._factors, 1):  # the product rule
                out[:, k] = out[:, shorter] * x[:, j] + phi[:, shorter] * rates[:, j]
            return np.asarray(out)

        return along


@dataclass(frozen=True)
class FourierFeatures(FeatureMap):
    """Random Fourier features Φ(x) = [a ⊙ cos(xW) | a ⊙ sin(xW) | x ⊙ linear_scale | constant].

    A standard Gaussian prior on the weights is a process with the kernel Σ a² cos(W·(x − x′)) plus a linear one
    (Rahimi & Recht 2007; Evans & Nair 2018, section 5.2 and appendix E). `frequencies` W (n_features_in, n_frequencies)
    are in radians per unit of x; the leading inputs of the linear part are clipped to ±5.
    """

    kind: ClassVar[str] = "fourier"
    frequencies: Annotated[FloatArray, Shape("n_inputs", "n_frequencies")]
    amplitudes: Annotated[FloatArray, Shape("n_frequencies")]
    linear_scale: Annotated[FloatArray, Shape("n_linear*")] | None = None
    constant: float | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        shape = as_float_array(self.frequencies, "frequencies", ("n_features_in", "n_frequencies")).shape
        as_float_array(self.amplitudes, "amplitudes", (shape[1],))
        if self.linear_scale is not None and len(self.linear_scale) > shape[0]:
            raise ValueError(f"linear_scale must have at most {shape[0]} entries, got {len(self.linear_scale)}")

    @property
    def slopes(self) -> FloatArray:
        """Scales of the linear part, (n_linear,)."""
        return np.empty(0) if self.linear_scale is None else self.linear_scale

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
        return 2 * self.n_frequencies + len(self.slopes) + (self.constant is not None)

    @property
    def pairs(self) -> NDArray[np.intp]:
        """Number of a group for every weight, (n_weights,): the two functions of a frequency are one group."""
        first = np.arange(self.n_frequencies)
        return np.concatenate([first, first, np.arange(len(first), self.n_weights - len(first))])

    @cached_property
    def _tables(self) -> dict[np.dtype[Any], tuple[Block, Block]]:
        """Frequencies in turns per unit of x, and amplitudes, padded to the kernels' width, by precision."""
        padding = (0, -self.n_frequencies % 16)
        tables = np.pad(self.frequencies / (2 * np.pi), ((0, 0), padding)), np.pad(self.amplitudes, padding)
        turns, sizes = ([table.astype(t, order="C") for t in PRECISIONS] for table in tables)
        return dict(zip(map(np.dtype, PRECISIONS), zip(turns, sizes, strict=True), strict=True))

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        dtype = np.dtype(dtype)
        out = np.empty((x.shape[0], self.n_weights), dtype=dtype)
        x = np.ascontiguousarray(x)
        turns, amplitudes = self._tables[dtype]
        _core.fourier_features(x, turns, amplitudes, self.n_frequencies, out, n_threads)
        n, n_linear = 2 * self.n_frequencies, len(self.slopes)
        out[:, n : n + n_linear] = linear_inputs(x, n_linear) * self.slopes
        if self.constant is not None:
            out[:, -1] = self.constant
        return out

    def gradient(self, x: FloatArray) -> Along:
        n = self.n_frequencies
        phi = self.transform(x)
        cosine, sine = phi[:, :n], phi[:, n : 2 * n]

        def along(direction: Direction) -> FloatArray:
            turning = sum(np.outer(rate, self.frequencies[p]) for p, rate in direction)
            out = np.zeros((len(x), self.n_weights))
            np.multiply(sine, -turning, out=out[:, :n])
            np.multiply(cosine, turning, out=out[:, n : 2 * n])
            n_linear = len(self.slopes)
            out[:, 2 * n : 2 * n + n_linear] = self.slopes * linear_rates(x, n_linear, direction)
            return out

        return along


@dataclass(frozen=True)
class NystroemFeatures(FeatureMap):
    """Nyström features, whitened kernel functions at landmarks Z: Φ(x) = k(x, Z) L⁻ᵀ with LLᵀ = k(Z, Z).

    A standard Gaussian prior on the weights is the Gaussian process projected onto the landmarks: exact there, and
    everywhere if all training rows are landmarks (Williams & Seeger 2001). With `sums_of_kernel`, sums over rows are of
    k(x, Z), whitened once in the end; rounding is then magnified by the condition of k(Z, Z), see `rounding`.
    """

    kind: ClassVar[str] = "nystroem"
    landmarks: Annotated[FloatArray, Shape("n_landmarks", "n_inputs"), Limits(LARGEST)]
    hyperparameters: Annotated[Kernel, As(KernelHyperparameters | OwnKernel)]
    sums_of_kernel: bool = False

    __repr__ = short_repr

    @classmethod
    def at(cls, landmarks: FloatArray, hyperparameters: Kernel, n_rows: float = MANY_ROWS) -> NystroemFeatures:
        """Build from landmarks, and raise unless their covariance can be factorised.

        `n_rows` that sums will be over, at the noise variance of the hyperparameters, decide what the sums are of.
        """
        features = cls(landmarks, hyperparameters)
        features.prepare()
        return features.for_sums(n_rows)

    def for_sums(self, n_rows: float, noise_variance: float | None = None) -> Self:
        noise = self.hyperparameters.noise_variance if noise_variance is None else noise_variance
        chosen = replace(self, sums_of_kernel=self.rounding(n_rows) <= LARGEST_ROUNDING * noise)
        chosen.__dict__.update({k: v for k, v in vars(self).items() if k in ("_factorised", "panels", "whitening")})
        return chosen

    def rounding(self, n_rows: float) -> float:
        """Bound of what rounding of Σkkᵀ over a number of rows adds to an eigenvalue of ΦᵀΦ.

        Errors of ε Σk² are magnified by ‖L⁻¹‖² at most, whose bound ‖L⁻¹‖₁ ‖L⁻¹‖∞ and a factor of four also cover that
        errors of many entries add up.
        """
        size, mean_square = np.abs(self.whitening), self._factorised[1]
        magnified = size.sum(axis=0).max() * size.sum(axis=1).max()
        return float(4 * np.finfo(float).eps * n_rows * mean_square * magnified)

    @cached_property
    def whitening(self) -> FloatArray:
        """L⁻ᵀ, upper triangular, (n_landmarks, n_landmarks); files do without it, as it follows from the landmarks.

        The smallest multiple of the identity for which the factorisation succeeds is added to k(Z, Z), which repeated
        rows make singular.
        """
        return inverse_lower(self._factorised[0], resolve_n_threads()).T

    @property
    def factor(self) -> FloatArray:
        """L, lower triangular, (n_landmarks, n_landmarks)."""
        return self._factorised[0]

    @cached_property
    def _factorised(self) -> tuple[FloatArray, float]:
        """L, and the mean square of k(Z, Z)."""
        k = self.functions(self.landmarks, resolve_n_threads())
        factor = cholesky_with_jitter(k, float(k.diagonal().mean()))
        if factor is None:
            raise ValueError("landmarks must have a covariance with a factor: hyperparameters are beyond their range")
        return factor, float(np.mean(np.square(k)))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # what is computed once is left out

    def prepare(self) -> None:
        self._factorised, self.panels  # noqa: B018

    @cached_property
    def panels(self) -> Any:
        """The landmarks, as compiled code takes them."""
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
        covariance = self.hyperparameters.covariance(x, self.panels, n_threads)
        return np.ascontiguousarray(self.whiten(covariance, n_threads), dtype=dtype)

    def functions(self, x: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return k(x, Z), (n_rows, n_landmarks)."""
        return self.hyperparameters.covariance(x, self.panels, n_threads)

    def whiten(self, functions: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return Φ = k L⁻ᵀ, in the memory of k."""
        return half_rows(self._factorised[0], functions, n_threads)

    def weights_of_functions(self, matrix: FloatArray) -> FloatArray:
        """Return L⁻ᵀ `matrix`: sums of k(x, Z) need no whitening."""
        return solve_upper(self._factorised[0].T, matrix)

    def gradient(self, x: FloatArray) -> Along:
        if not isinstance(self.hyperparameters, KernelHyperparameters):
            raise TypeError("features must be of the package's own kernel to have gradients")
        return kernel_gradient(self.hyperparameters, x, self.landmarks)

    @property
    def residual_kernel(self) -> Kernel:
        return self.hyperparameters

    def residual_variance(self, x: FloatArray, phi: FloatArray) -> FloatArray:
        return np.maximum(self.hyperparameters.diagonal(x) - squared_norms(phi), 0.0)


def cholesky_with_jitter(covariance: FloatArray, scale: float) -> FloatArray | None:
    """Return the lower factor after adding the smallest of 1e-10 … 1e-3 times `scale`.

    To the diagonal, so that there is a factor; None if none of them suffices.
    """
    for jitter in 10.0 ** np.arange(-10, -2):
        factor, failed_at = cholesky(covariance + jitter * scale * np.eye(len(covariance)), resolve_n_threads())
        if not failed_at:
            return factor
    return None


@dataclass(frozen=True)
class ForestFeatures(FeatureMap):
    """Leaves of trees Φ(x) = [a · one-hot leaves of every tree | x ⊙ linear_scale].

    All nodes of a level ask the same question (oblivious trees): `columns` (n_trees, depth), the input of every level,
    and `thresholds` (n_trees, depth), above which the level's bit of the leaf is one, the first level's the highest.
    """

    kind: ClassVar[str] = "forest"
    columns: Annotated[NDArray[np.intp], Shape("n_trees*", "depth")]
    thresholds: Annotated[FloatArray, Shape("n_trees*", "depth")]
    amplitude: float
    linear_scale: Annotated[FloatArray, Shape("n_inputs")]

    __repr__ = short_repr

    def check(self) -> None:
        if not ((self.columns >= 0) & (self.columns < self.n_features_in)).all() or self.depth > 8:
            raise ValueError("columns must be those of the inputs, of at most eight levels")

    @property
    def n_features_in(self) -> int:
        """Number of inputs."""
        return len(self.linear_scale)

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.columns)

    @property
    def depth(self) -> int:
        """Number of levels of every tree."""
        return self.columns.shape[1]

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees."""
        return self.n_trees << self.depth

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.n_leaves + self.n_features_in

    @property
    def pairs(self) -> NDArray[np.intp]:
        """Number of a group for every weight, (n_weights,): the leaves of a tree are one group."""
        leaves = np.repeat(np.arange(self.n_trees), 1 << self.depth)
        return np.concatenate([leaves, self.n_trees + np.arange(self.n_features_in)])

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        out = np.zeros((len(x), self.n_weights), dtype=dtype)
        right = (x[:, self.columns.ravel()] > self.thresholds.ravel()).reshape(len(x), self.n_trees, self.depth)
        leaf = right @ (1 << np.arange(self.depth)[::-1]) + (np.arange(self.n_trees) << self.depth)
        np.put_along_axis(out, leaf, self.amplitude, axis=1)
        out[:, self.n_leaves :] = linear_inputs(x, self.n_features_in) * self.linear_scale
        return out

    def gradient(self, x: FloatArray) -> Along:
        def along(direction: Direction) -> FloatArray:
            out = np.zeros((len(x), self.n_weights))
            out[:, self.n_leaves :] = self.linear_scale * linear_rates(x, self.n_features_in, direction)
            return out

        return along


def random_fourier_features(
    kernel: KernelHyperparameters,
    n_frequencies: int,
    rng: np.random.Generator,
    *,
    signs: FloatArray | None = None,
    tail: int = 1,
    least_share: float = 0.1,
) -> FourierFeatures:
    """Draw random Fourier features: frequencies from the spectral density of the kernel.

    Frequencies are Student-t vectors, with 2ν degrees of freedom for the Matérn part, Gaussian ones for the squared
    exponential, and with one degree for the isotropic part; for those of axes see `axis_frequencies`. Each part that
    has an amplitude gets a share in proportion to it, at least `least_share`. Inputs are taken in the order of their
    length-scales, with `signs` ±1, (n_inputs,), so that neither the order nor the signs of columns matter.

    The radius √(f/χ²) of a Student-t vector with f degrees of freedom exceeds all but a share u of others where χ² is
    its u-quantile. With u = vᵃ, uniform v, a the `tail`, the density of v is to that of u as 1 to a vᵃ⁻¹, which weighs
    squares: the larger a, the more frequencies are high ones.
    """
    d, amplitudes = len(kernel.length_scales), kernel.amplitudes[:2]
    share = amplitudes[0] / amplitudes.sum()
    if amplitudes.all():
        share = np.clip(share, least_share, 1 - least_share)
    order, turned = np.argsort(kernel.length_scales, kind="stable"), np.ones(d) if signs is None else signs

    def student_t(count: int, freedom: float, scales: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        v, drawn = rng.random(count), np.empty((d, count))
        if freedom == SQUARED_EXPONENTIAL:
            drawn[order] = rng.standard_normal((d, count))
            return drawn * (turned / scales)[:, None], np.ones(count)
        radius = np.sqrt(freedom / np.maximum(2 * gammaincinv(freedom / 2, v**tail), freedom / FARTHEST**2))
        drawn[order] = rng.standard_normal((d, count)) * radius
        return drawn * (turned / scales)[:, None], tail * v ** (tail - 1)

    n_ard = round(n_frequencies * float(share))
    n_rough = n_frequencies - n_ard
    smooth = student_t(n_ard, 2 * kernel.smoothness, kernel.length_scales)
    if kernel.product_amplitude > 0:
        rough = axis_frequencies(kernel, n_rough, rng), np.ones(n_rough)
    else:
        rough = student_t(n_rough, 1, kernel.isotropic_length_scale)
    parts = zip(amplitudes, (smooth, rough), strict=True)
    sizes = np.concatenate([np.sqrt(a / max(len(weight), 1) * weight) for a, (_, weight) in parts])
    linear = np.full(kernel.n_linear, np.sqrt(kernel.amplitudes[2]))
    return FourierFeatures(np.hstack([smooth[0], rough[0]]), sizes, linear, np.sqrt(kernel.constant))


def axis_frequencies(kernel: KernelHyperparameters, count: int, rng: np.random.Generator) -> FloatArray:
    """Draw frequencies of the part of axes, (n_inputs, count).

    Of a product they are independent Cauchy variables, of pairs Student-t ones of 5 degrees of freedom along two axes.
    """
    rates = kernel.product_rates
    if kernel.product_order != PAIRS:
        return np.asarray(rates[:, None] * np.clip(rng.standard_cauchy((len(rates), count)), -FARTHEST, FARTHEST))
    seen, found = np.flatnonzero(rates), np.zeros((len(rates), count))
    first = rng.integers(len(seen), size=count)
    second = (first + rng.integers(1, len(seen), size=count)) % len(seen)
    for axis in (seen[first], seen[second]):
        found[axis, np.arange(count)] = rates[axis] * rng.standard_t(5, count)
    return found


@dataclass(frozen=True)
class TransformerFeatures(FeatureMap):
    """The output, `n_weights` columns, of a fitted scikit-learn transformer."""

    kind: ClassVar[str] = "transformer"
    parallel: ClassVar[bool] = False  # nobody knows whether it may be
    transformer: Any
    n_features_in: int
    n_weights: int

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return the transformer's output as a dense array."""
        out = self.transformer.transform(x)
        out = out.toarray() if hasattr(out, "toarray") else np.asarray(out)
        return np.ascontiguousarray(as_float_array(out, "transformed X", (x.shape[0], self.n_weights)), dtype=dtype)


# What a saved basis may hold.
_OfInputs = PrecomputedFeatures | LinearFeatures | PolynomialFeatures | TransformerFeatures
AnyMap = _OfInputs | FourierFeatures | NystroemFeatures | ForestFeatures
