"""Distributions of targets that were modelled on another scale: Gaussian mixtures of z mapped back, in units of y."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from pydirect._validation import FloatArray, RandomState, as_instance, as_number
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.scales import TargetScale

# In standard deviations: farther from its mean, a Gaussian has no part in double precision.
_FAR = 9.0
# Points of Gauss's rule over a Gaussian, and over each part between two probabilities.
_N_NODES, _N_PANEL_NODES = 64, 12
_PANELS = (1e-14, 1e-9, 1e-6, 1e-4, 2e-3, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1 - 2e-3, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9)
# Components times nodes that are integrated at a time.
_BLOCK = 2**19
_rule = cache(np.polynomial.legendre.leggauss)


@dataclass(frozen=True)
class TargetTransform:
    """Scales of the targets, one per output."""

    scales: tuple[TargetScale, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(self.scales))
        if not self.scales or not all(isinstance(scale, TargetScale) for scale in self.scales):
            raise ValueError(f"scales must be one TargetScale per output, got {self.scales!r}")

    def __str__(self) -> str:
        return ", ".join(map(str, self.scales))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scales."""
        return tuple(scale.name for scale in self.scales)

    @property
    def is_identity(self) -> bool:
        """Whether no output is transformed."""
        return set(self.names) == {"identity"}

    def forward(self, y: ArrayLike) -> FloatArray:
        """Transform targets of shape (n_rows, n_outputs)."""
        return self._by_column("forward", self._checked(y))

    def inverse(self, z: ArrayLike) -> FloatArray:
        """Undo `forward`; z of shape (n_rows, n_outputs, ...)."""
        return self._by_column("inverse", np.asarray(z, dtype=np.float64))

    def log_derivative(self, y: ArrayLike) -> FloatArray:
        """Return log dz/dy, which a log density of z gains in units of y; shape (n_rows, n_outputs)."""
        return self._by_column("log_derivative", self._checked(y))

    def slope(self, y: ArrayLike) -> FloatArray:
        """Return dy/dz at targets y of shape (n_rows, n_outputs, ...): how fast `inverse` grows there."""
        return self._by_column("slope", np.asarray(y, dtype=np.float64))

    def allows(self, y: FloatArray) -> bool:
        """Whether all targets can be transformed, (n_rows, n_outputs)."""
        return all(scale.allows(column) for scale, column in zip(self.scales, y.T, strict=True))

    def _by_column(self, method: str, values: FloatArray) -> FloatArray:
        columns = zip(self.scales, np.moveaxis(values, 1, 0), strict=True)
        return np.ascontiguousarray(np.stack([getattr(scale, method)(column) for scale, column in columns], axis=1))

    def _checked(self, y: ArrayLike) -> FloatArray:
        """Return the targets, or raise unless all of them can be transformed."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim != 2 or y.shape[1] != len(self.scales):
            raise ValueError(f"y must have shape (n_rows, {len(self.scales)}), got {y.shape}")
        for k, (scale, column) in enumerate(zip(self.scales, y.T, strict=True)):
            if not scale.allows(column):
                low = not (column > scale.lowest).all()
                bound, got = (scale.lowest, column.min()) if low else (scale.highest, column.max())
                where = f" in output {k}" if len(self.scales) > 1 else ""
                raise ValueError(
                    f"y must be {'greater' if low else 'less'} than {bound + 0.0:g} for {scale}, got {got:g}{where}"
                )
        return y


@dataclass(frozen=True, eq=False, repr=False)
class TransformedDistribution:
    """Distribution of y for each of n rows, where a Gaussian mixture is that of z = g(y).

    It has the methods of `PredictiveDistribution`. Densities and probabilities are those of the mixture mapped back.
    Means, deviations, quantiles, draws and the CRPS are those of ``clip(y, low, high)``: on a logarithmic scale a mean
    without bounds may be absurd, or not exist.

    Parameters
    ----------
    base : PredictiveDistribution
        Of z.
    scale : TargetScale
        From y to z.
    low : float, default=-inf
        Lowest value that is believed.
    high : float, default=inf
        Highest value that is believed.
    spread : float, default=inf
        Standard deviation of z above which `mean` is that of z with deviations scaled down to this, as a wide
        distribution may have an absurd mean: inf for the mean, 0 for about the median.
    factor : float, default=1.0
        By which `mean` is then farther from `low`, where means are too low or high on average.
    """

    base: PredictiveDistribution
    scale: TargetScale
    low: float = -np.inf
    high: float = np.inf
    spread: float = np.inf
    factor: float = 1.0

    def __post_init__(self) -> None:
        as_instance(self.base, "base", PredictiveDistribution)
        as_instance(self.scale, "scale", TargetScale)
        for name, least in (("low", -np.inf), ("high", -np.inf), ("spread", 0.0), ("factor", 0.0)):
            if (value := getattr(self, name)) not in (least, np.inf):
                as_number(value, name, at_least=least)
        if self.factor != 1.0 and not (np.isfinite(self.factor) and np.isfinite(self.low)):
            raise ValueError(f"factor must be finite, as low, or 1, got {self.factor} with low={self.low}")
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.scale}, n_rows={self.n_rows}, n_components={self.n_components})"

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
        """Mean of each row, shape (n,); see `spread` and `factor`."""
        if self.factor != 1.0:
            mean = replace(self, factor=1.0).mean
            return np.minimum(self.low + self.factor * (mean - self.low), self.high)
        middle, std = self.base.mean[:, None], self.base.std[:, None]
        if (std <= self.spread).all():
            return self._moments[0]
        share = np.minimum(1.0, self.spread / np.maximum(std, np.finfo(np.float64).tiny))
        means, variances = middle + share * (self.base.means - middle), share**2 * self.base.variances
        base = PredictiveDistribution(self.base.weights, means, variances)
        return replace(self, base=base, spread=np.inf)._moments[0]

    @property
    def variance(self) -> FloatArray:
        """Variance of each row, shape (n,)."""
        return self._moments[1]

    @property
    def std(self) -> FloatArray:
        """Standard deviation of each row, shape (n,)."""
        return np.sqrt(self.variance)

    def log_density(self, y: ArrayLike) -> FloatArray:
        """Log density at y, in nats per unit of the target; see `PredictiveDistribution.log_density`."""
        y = self._points(y)
        possible = (y > self.scale.lowest) & (y < self.scale.highest)
        inside = np.where(possible, y, self.scale.inverse(self.base.mean).reshape(-1, *[1] * (y.ndim - 1)))
        density = self.base.log_density(self.scale.forward(inside)) + self.scale.log_derivative(inside)
        return np.where(possible, density, -np.inf)

    def density(self, y: ArrayLike) -> FloatArray:
        """Density at y, per unit of the target; `y` and result as for `log_density`."""
        return np.exp(self.log_density(y))

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Probability of a value no greater than y; `y` and result as for `log_density`."""
        return self.base.cdf(self.scale.forward(self._points(y)))

    def quantile(self, p: ArrayLike) -> FloatArray:
        """Quantiles; see `PredictiveDistribution.quantile`, (n_rows,) or (n_rows, n_quantiles)."""
        return self._restored(self.base.quantile(p))

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals, with equal probability below and above; see `PredictiveDistribution.interval`."""
        lower, upper = self.base.interval(level)
        return self._restored(lower), self._restored(upper)

    def sample(self, n_samples: int = 1, rng: RandomState = None) -> FloatArray:
        """Independent draws from the distribution of each row, (n_samples, n_rows)."""
        return self._restored(self.base.sample(n_samples, rng))

    def crps(self, y: ArrayLike) -> FloatArray:
        """Continuous ranked probability score, in the units of the target; `y` and result as for `log_density`.

        ∫ (F(x) − 1{x ≥ y})² dx by Gauss's rule, on either side of y between quantiles.
        """
        y = self._points(y)
        if y.ndim == 2:
            return np.stack([self.crps(column) for column in y.T], axis=1)
        edges = np.clip(self.base.quantile(np.array([*_PANELS, 1 - 1e-14])), *self._ends)
        ends = self.scale.inverse(edges[:, [0, -1]])
        total = np.maximum(ends[:, 0] - y, 0.0) + np.maximum(y - ends[:, 1], 0.0)
        here = np.clip(self.scale.forward(y), edges[:, 0], edges[:, -1])[:, None]
        below, above = np.minimum(edges, here), np.maximum(edges, here)
        return total + self._squared(below, 0.0) + self._squared(above, 1.0)

    def _squared(self, edges: FloatArray, step: float) -> FloatArray:
        """∫ (F(x) − step)² dx over all panels between edges of z, (n_rows, n_edges)."""
        nodes, weights = _rule(_N_PANEL_NODES)
        total = np.zeros(self.n_rows)
        for lower, upper in zip(edges.T[:-1], edges.T[1:], strict=True):
            if (upper > lower).any():
                half = 0.5 * (upper - lower)[:, None]
                z = lower[:, None] + half * (nodes + 1.0)
                slope = self.scale.slope(self.scale.inverse(z))
                total += np.sum(weights * half * slope * (self.base.cdf(z) - step) ** 2, axis=1)
        return total

    def _points(self, y: ArrayLike) -> FloatArray:
        y = np.asarray(y, dtype=np.float64)
        if np.isnan(y).any():
            raise ValueError("y must not contain NaN, got at least one")
        return np.full(self.n_rows, y) if y.ndim == 0 else y

    def _restored(self, z: FloatArray) -> FloatArray:
        return np.clip(self.scale.inverse(z), self.low, self.high)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """What `low` and `high` are on the scale."""
        low, high = (float(self.scale.forward(end)) for end in (self.low, self.high))
        return max(low, 0.0) if self.scale.name in ("sqrt", "cbrt") else low, high

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of every row: of each component by Gauss's rule between the ends, where y has kinks."""
        mean, variance = np.empty((2, self.n_rows))
        size = max(1, _BLOCK // (_N_NODES * self.n_components))
        nodes, weights = _rule(_N_NODES)
        low, high = self._ends
        for begin in range(0, self.n_rows, size):
            rows = slice(begin, begin + size)
            m, s, share = self.base.means[rows], self.base.scales[rows], self.base.weights[rows]
            a, b = (np.clip((end - m) / s, -_FAR, _FAR) for end in (low, high))
            half = 0.5 * (b - a)[..., None]
            u = a[..., None] + half * (nodes + 1.0)
            mass = weights * half * np.exp(-0.5 * u**2) / np.sqrt(2.0 * np.pi)
            y = self._restored(m[..., None] + s[..., None] * u)
            # The ends have the probability beyond them.
            below, above = ndtr(a), ndtr(-b)
            bottom, top = (self._restored(np.where(tail > 0, m + s * end, m)) for tail, end in ((below, a), (above, b)))
            middle = below * bottom + above * top + np.sum(mass * y, axis=-1)
            middle /= below + above + mass.sum(axis=-1)
            squares = np.sum(mass * (y - middle[..., None]) ** 2, axis=-1)
            squares += below * (bottom - middle) ** 2 + above * (top - middle) ** 2
            mean[rows] = np.sum(share * middle, axis=-1)
            variance[rows] = np.sum(share * (squares + (middle - mean[rows, None]) ** 2), axis=-1)
        return mean, variance


Distribution: TypeAlias = PredictiveDistribution | TransformedDistribution


@dataclass(frozen=True)
class TargetUnits:
    """The way from what is modelled back to y: scales, ends of what is believed of y, `spread` and `factor` of means.

    Arrays have the shape (n_outputs,).
    """

    transform: TargetTransform
    lowest: FloatArray
    highest: FloatArray
    spread: FloatArray | None = None
    factor: FloatArray | None = None

    def __post_init__(self) -> None:
        of_outputs = self.lowest, self.highest, self.spread, self.factor
        if {len(own) for own in of_outputs if own is not None} != {self.n_outputs}:
            raise ValueError("lowest, highest, spread and factor must be of the outputs")

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return len(self.transform.scales)

    def distribution(self, k: int, base: PredictiveDistribution) -> Distribution:
        """Distribution of y of an output whose transformed values have another."""
        if self.transform.names[k] == "identity":
            return base
        of_mean = (float(own[k]) for own in (self.spread, self.factor) if own is not None)
        return TransformedDistribution(base, self.transform.scales[k], self.lowest[k], self.highest[k], *of_mean)
