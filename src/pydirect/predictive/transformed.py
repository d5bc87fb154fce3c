"""Predictive distributions of targets whose logarithm or square root has a Gaussian mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, ndtr

from pydirect._validation import FloatArray, as_choice, as_number
from pydirect.predictive.gaussian_mixture import PredictiveDistribution

TRANSFORMS = ("identity", "log", "sqrt")


@dataclass(frozen=True)
class TargetTransform:
    """Transform of the targets, z = t(y + shift), one per output (Box and Cox 1964, eq. 2).

    Gaussian noise of z is relative noise of y for the logarithm; for the square root its variance is proportional to
    the mean.
    """

    names: tuple[str, ...]  # names of the transforms
    shifts: tuple[float, ...]  # what is added to the targets first; zero for the identity

    def __post_init__(self) -> None:
        names = tuple(as_choice(name, f"names[{k}]", TRANSFORMS) for k, name in enumerate(self.names))
        shifts = tuple(as_number(shift, f"shifts[{k}]") for k, shift in enumerate(self.shifts))
        if len(names) != len(shifts) or not names:
            raise ValueError(f"names and shifts must be one per output, got {len(names)} and {len(shifts)}")
        if any(shift != 0.0 for name, shift in zip(names, shifts, strict=True) if name == "identity"):
            raise ValueError(f"shifts must be zero for the identity, got {shifts}")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "shifts", shifts)

    def __str__(self) -> str:
        return ", ".join(map(_written, self.names, self.shifts))

    @property
    def is_identity(self) -> bool:
        """Whether no output is transformed."""
        return set(self.names) == {"identity"}

    def forward(self, y: ArrayLike) -> FloatArray:
        """Transform targets of shape (n_rows, n_outputs)."""
        y = self._checked(y)
        return self._by_column(forward, y)

    def inverse(self, z: ArrayLike) -> FloatArray:
        """Undo `forward`; z of shape (n_rows, n_outputs, ...)."""
        return self._by_column(inverse, np.asarray(z, dtype=np.float64))

    def log_derivative(self, y: ArrayLike) -> FloatArray:
        """Return log dz/dy, which a log density of z gains in units of y; shape (n_rows, n_outputs)."""
        return self._by_column(log_derivative, self._checked(y))

    def slope(self, y: ArrayLike) -> FloatArray:
        """Return dy/dz at targets y of shape (n_rows, n_outputs, ...): how fast `inverse` grows there."""
        return self._by_column(slope, np.asarray(y, dtype=np.float64))

    def _by_column(self, function: Callable[[str, float, FloatArray], FloatArray], values: FloatArray) -> FloatArray:
        columns = zip(self.names, self.shifts, np.moveaxis(values, 1, 0), strict=True)
        return np.ascontiguousarray(np.stack([function(*column) for column in columns], axis=1))

    def _checked(self, y: ArrayLike) -> FloatArray:
        """Return the targets, or raise unless all of them can be transformed."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim != 2 or y.shape[1] != len(self.names):
            raise ValueError(f"y must have shape (n_rows, {len(self.names)}), got {y.shape}")
        for k, (name, shift) in enumerate(zip(self.names, self.shifts, strict=True)):
            lowest = y[:, k].min(initial=np.inf)
            if name != "identity" and not lowest > -shift:
                where = f" in output {k}" if len(self.names) > 1 else ""
                raise ValueError(
                    f"y must be greater than {-shift + 0.0:g} for {_written(name, shift)}, got {lowest:g}{where}"
                )
        return y


def forward(name: str, shift: float, y: FloatArray) -> FloatArray:
    """Return t(y + shift); minus infinity below the smallest possible value."""
    if name == "identity":
        return y
    above = np.maximum(y + shift, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(above) if name == "log" else np.where(y + shift >= 0.0, np.sqrt(above), -np.inf)


def inverse(name: str, shift: float, z: FloatArray) -> FloatArray:
    """Return the y with t(y + shift) = z; for the square root the smallest possible one where z is negative."""
    if name == "identity":
        return z
    with np.errstate(over="ignore"):
        return (np.exp(z) if name == "log" else np.maximum(z, 0.0) ** 2) - shift


def log_derivative(name: str, shift: float, y: FloatArray) -> FloatArray:
    """Return log dz/dy for y above minus the shift."""
    if name == "identity":
        return np.zeros_like(y)
    return -np.log(y + shift) if name == "log" else -0.5 * np.log(y + shift) - np.log(2.0)


def slope(name: str, shift: float, y: FloatArray) -> FloatArray:
    """Return dy/dz; zero at the smallest possible value of y."""
    if name == "identity":
        return np.ones_like(y)
    above = np.maximum(y + shift, 0.0)
    return above if name == "log" else 2.0 * np.sqrt(above)


def _written(name: str, shift: float) -> str:
    sign = "+" if shift > 0 else "-"
    argument = f"y {sign} {abs(shift):g}" if shift else "y"
    return argument if name == "identity" else f"{name}({argument})"


# Where the mean of a lognormal component is larger than its exponential, scores use this: they stay finite.
_LARGEST_EXPONENT = 300.0
# In standard deviations: farther from zero than this, none of a Gaussian lies on the other side in double precision.
_FAR = 9.0
# Probabilities between which the integral of F(1 - F) is divided, and points of Gauss's rule in each part.
_PANELS = (1e-14, 1e-9, 1e-6, 1e-4, 2e-3, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1 - 2e-3, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9)
_N_NODES = 12


@dataclass(frozen=True, eq=False, repr=False)
class TransformedDistribution:
    """Distribution of y for each of n rows, where log(y + shift) or sqrt(y + shift) is a Gaussian mixture.

    It has the methods of `PredictiveDistribution`. Quantiles are those of the mixture mapped back; means are not: that
    of a lognormal is exp(m + v / 2).
    """

    base: PredictiveDistribution  # of the transformed target
    name: str  # the transform
    shift: float = 0.0  # what is added to y first

    def __post_init__(self) -> None:
        if not isinstance(self.base, PredictiveDistribution):
            raise TypeError(f"base must be a PredictiveDistribution, got {type(self.base).__name__}")
        as_choice(self.name, "name", ("log", "sqrt"))
        object.__setattr__(self, "shift", as_number(self.shift, "shift"))

    def affine(self, scale: float, shift: float = 0.0) -> TransformedDistribution:
        """Return the distribution of ``scale * y + shift``, such as a change of units."""
        scale, shift = as_number(scale, "scale", above=0.0), as_number(shift, "shift")
        base = self.base.affine(1.0, np.log(scale)) if self.name == "log" else self.base.affine(np.sqrt(scale))
        return TransformedDistribution(base, self.name, scale * self.shift - shift)

    def __repr__(self) -> str:
        return (
            f"TransformedDistribution(name={self.name!r}, shift={self.shift:g}, n_rows={self.n_rows}, "
            f"n_components={self.n_components})"
        )

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return self.base.n_rows

    @property
    def n_components(self) -> int:
        """Number of mixture components in use, K."""
        return self.base.n_components

    @cached_property
    def mean(self) -> FloatArray:
        """Mean of each row, shape (n,)."""
        return self._mixed(self._moments[0]) - self.shift

    @cached_property
    def variance(self) -> FloatArray:
        """Variance of each row, shape (n,): mean of the variances plus variance of the means."""
        means, variances = self._moments
        with np.errstate(over="ignore", invalid="ignore"):
            spread = variances + (means - self._mixed(means)[:, None]) ** 2
            return self._mixed(np.where(np.isnan(spread), np.inf, spread))

    @property
    def std(self) -> FloatArray:
        """Standard deviation of each row, shape (n,)."""
        return np.sqrt(self.variance)

    def log_density(self, y: ArrayLike) -> FloatArray:
        """Log density at y, in nats per unit of the target; see `PredictiveDistribution.log_density`."""
        y, z = self._points(y)
        possible = y > -self.shift
        inside = np.where(possible, y, 1.0 - self.shift)
        density = self.base.log_density(np.where(possible, z, 0.0)) + log_derivative(self.name, self.shift, inside)
        return np.where(possible, density, -np.inf)

    def density(self, y: ArrayLike) -> FloatArray:
        """Density at y, per unit of the target; `y` and result as for `log_density`."""
        return np.exp(self.log_density(y))

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Probability of a value no greater than y; `y` and result as for `log_density`."""
        return self.base.cdf(self._points(y)[1])

    def quantile(self, p: ArrayLike) -> FloatArray:
        """Quantiles; see `PredictiveDistribution.quantile`, (n_rows,) or (n_rows, n_quantiles)."""
        return inverse(self.name, self.shift, self.base.quantile(p))

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals, with equal probability below and above; see `PredictiveDistribution.interval`."""
        lower, upper = self.base.interval(level)
        return inverse(self.name, self.shift, lower), inverse(self.name, self.shift, upper)

    def sample(self, n_samples: int = 1, rng: np.random.Generator | int | None = None) -> FloatArray:
        """Independent draws from the distribution of each row, (n_samples, n_rows)."""
        return inverse(self.name, self.shift, self.base.sample(n_samples, rng))

    def crps(self, y: ArrayLike) -> FloatArray:
        """Continuous ranked probability score, in the units of the target; `y` and result as for `log_density`."""
        y, z = self._points(y)
        missed = np.maximum(-self.shift - y, 0.0)  # how far below the smallest possible value y is
        above, (weights, means, scales) = np.maximum(y + self.shift, 0.0), self._components(y.ndim)
        with np.errstate(invalid="ignore"):
            distance = np.clip((z[..., None] - means) / scales, -1e150, 1e150)
        below = ndtr(distance)  # probability of less than y, of each component
        if self.name == "log":
            lower = ndtr(distance - scales)
            expected = np.exp(np.minimum(means + 0.5 * scales**2, _LARGEST_EXPONENT))
            exchange = self._exchange if y.ndim == 1 else self._exchange[:, None, :]
            score = above * (2.0 * np.sum(weights * below, axis=-1) - 1.0)
            score = score + np.sum(weights * expected * (exchange - 2.0 * lower), axis=-1)
        else:
            root = np.sqrt(above)[..., None]
            square = means**2 + scales**2
            nearer = square * (below - ndtr(-means / scales)) + scales * (
                means * _phi(means / scales) - (means + root) * _phi(distance)
            )  # E[X; X < y] of the squares
            nearer = np.where(z[..., None] > 0.0, nearer, 0.0)
            whole = self._moments[0] if y.ndim == 1 else self._moments[0][:, None, :]
            spread = self._half_mean_difference if y.ndim == 1 else self._half_mean_difference[:, None]
            score = above * (2.0 * np.sum(weights * below, axis=-1) - 1.0)
            score = score + np.sum(weights * (whole - 2.0 * nearer), axis=-1) - spread
        return np.maximum(score, 0.0) + missed

    def _mixed(self, values: FloatArray) -> FloatArray:
        return cast(FloatArray, np.sum(self.base.weights * values, axis=-1))

    def _components(self, ndim: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weights, means and scales of the mixture, with an axis of points before the last if `ndim` is 2."""
        arrays = self.base.weights, self.base.means, self.base.scales
        return arrays if ndim == 1 else tuple(a[:, None, :] for a in arrays)  # type: ignore[return-value]

    def _points(self, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return `y`, with a row per row, and its transform."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 0:
            y = np.full(self.n_rows, y)
        return y, forward(self.name, self.shift, y)

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of y + shift in each component, (n, K) each."""
        m, v = self.base.means, self.base.variances
        with np.errstate(over="ignore", invalid="ignore"):
            if self.name == "log":
                mean = np.exp(m + 0.5 * v)
                return mean, mean**2 * np.expm1(v)
            return rectified_square_moments(m, self.base.scales)

    @cached_property
    def _exchange(self) -> FloatArray:
        """1 - Σ_l w_l erf(δ_kl / √2), with which E|X - X'| of two lognormal draws is 2 E[X] less its mean; (n, K)."""
        weights, means, scales = self.base.weights, self.base.means, self.base.scales
        total = np.zeros_like(scales)
        for other in range(self.n_components):
            delta = means - means[:, other, None] + scales**2
            total += weights[:, other, None] * erfc(delta / np.hypot(scales, scales[:, other, None]) / np.sqrt(2.0))
        return total

    @cached_property
    def _half_mean_difference(self) -> FloatArray:
        """E|X - X'| / 2 = ∫ F(1 - F) dx for two draws, by Gauss's rule between quantiles of the square root; (n,)."""
        edges = np.maximum(self.base.quantile(np.array([*_PANELS, 1 - 1e-14])), 0.0)
        nodes, weights = np.polynomial.legendre.leggauss(_N_NODES)
        total = np.zeros(self.n_rows)
        for lower, upper in zip(edges.T[:-1], edges.T[1:], strict=True):
            half = 0.5 * (upper - lower)[:, None]
            points = lower[:, None] + half * (nodes + 1.0)
            below = self.base.cdf(points)
            total += np.sum(weights * half * 2.0 * points * below * (1.0 - below), axis=1)
        return total


Distribution: TypeAlias = PredictiveDistribution | TransformedDistribution


def rectified_square_moments(means: FloatArray, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of max(u, 0)² for Gaussian u.

    With a = m / s they are polynomials of a times Φ(a) and φ(a); beyond a = 9 those of u² itself.
    """
    a = np.clip(means / scales, -40.0, _FAR)
    density, probability = _phi(a), ndtr(a)
    second = (a**2 + 1.0) * probability + a * density
    fourth = (a**4 + 6.0 * a**2 + 3.0) * probability + (a**3 + 5.0 * a) * density
    near, v = means < _FAR * scales, scales**2
    mean = np.where(near, v * np.maximum(second, 0.0), means**2 + v)
    variance = np.where(near, v**2 * np.maximum(fourth - second**2, 0.0), 4.0 * means**2 * v + 2.0 * v**2)
    return mean, variance


def _phi(x: FloatArray) -> FloatArray:
    """Return the standard Gaussian density."""
    with np.errstate(over="ignore"):
        return cast(FloatArray, np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi))
