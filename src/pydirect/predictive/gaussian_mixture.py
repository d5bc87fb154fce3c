"""Predictive distributions: one univariate Gaussian mixture per row.

Given the noise variance and the posterior component, a prediction y* is Gaussian with mean phi^T s and variance
kappa_2(f*) + sigma_k^2. Mixed over the noise grid and the components it is a Gaussian mixture, and its quantiles,
intervals, log density and CRPS are those of the mixture, not of the Gaussian with the same two moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, gammaincinv, logsumexp, ndtr, ndtri

from pydirect._validation import FloatArray, RandomState, as_count, as_number

__all__ = ["PredictiveDistribution"]

_EPS = float(np.finfo(np.float64).eps)
_SMALLEST_SCALE = float(np.sqrt(np.finfo(np.float64).tiny))
_WEIGHT_SUM_TOLERANCE = 1e-6
_FARTHEST = 1e150
_BLOCK = 2**16  # components of the quantiles that are looked for at a time
# Degrees of freedom from which Student's t is taken as normal. The mixture of normals that stands for it below has
# variances at even steps of their logarithm between these shares of their mass, up to the largest.
_NORMAL_DEGREES, _SHARES, _LARGEST_VARIANCE = 100.0, (1e-11, 1 - 1e-6), 1e6


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveDistribution:
    """A univariate Gaussian mixture for each of n rows.

    Parameters
    ----------
    weights : array of shape (K,) or (n, K)
        Mixture weights, non-negative, each row summing to one. They are normalised exactly, and a component
        whose weight is zero in every row is dropped.
    means : array of shape (n, K), or any 2-D shape that broadcasts to it
        Component means, in the units of the target.
    variances : array of shape (n, K), or any 2-D shape that broadcasts to it
        Component variances, non-negative, in squared units of the target. The arrays are kept, not copied.

    Raises
    ------
    ValueError
        If a value is not finite, a weight or variance is negative, weights do not sum to one, or shapes do not fit.

    Notes
    -----
    A component of variance zero is a point mass and has no density. In densities, quantiles and scores the standard
    deviation of a component is at least the spacing of floating-point numbers at its mean: results stay finite and tend
    to those of the point mass. `mean`, `variance` and `std` use the given variances.

    Examples
    --------
    >>> from pydirect import PredictiveDistribution
    >>> rows = PredictiveDistribution.gaussian([0.0, 1.0], [1.0, 4.0])
    >>> rows.mean.tolist(), rows.std.tolist()
    ([0.0, 1.0], [1.0, 2.0])
    >>> rows.quantile(0.975).round(2).tolist()
    [1.96, 4.92]
    """

    weights: FloatArray
    means: FloatArray
    variances: FloatArray

    def __post_init__(self) -> None:
        weights = np.atleast_2d(finite_array("weights", self.weights))
        means, variances = finite_array("means", self.means), finite_array("variances", self.variances)
        for name, value in (("means", means), ("variances", variances)):
            if value.ndim != 2:
                raise ValueError(f"{name} must have two dimensions, got shape {value.shape}")
        for name, value in (("weights", weights), ("variances", variances)):
            if (value < 0.0).any():
                raise ValueError(f"{name} must be non-negative, got {value.min():g}")
        try:
            n, k = np.broadcast_shapes(weights.shape, means.shape, variances.shape)
        except ValueError:
            n, k = -1, -1
        if weights.shape[-1] != k or k == 0 or weights.ndim != 2:
            raise ValueError(
                "weights must have shape (K,) or (n, K) and means and variances must broadcast to (n, K), got "
                f"{np.shape(self.weights)}, {means.shape} and {variances.shape}"
            )
        total = weights.sum(axis=1, keepdims=True)
        if np.any(np.abs(total - 1.0) > _WEIGHT_SUM_TOLERANCE):
            worst = float(total.ravel()[np.argmax(np.abs(total - 1.0))])
            raise ValueError(f"weights must sum to one in each row, got a sum of {worst:g}")
        used = weights.any(axis=0) | (weights.shape[0] == 0)
        for name, value in (("weights", weights / total), ("means", means), ("variances", variances)):
            kept = value[:, used] if value.shape[1] == k and not used.all() else value
            object.__setattr__(self, name, np.broadcast_to(kept, (n, int(np.count_nonzero(used)))))

    @classmethod
    def gaussian(cls, mean: ArrayLike, variance: ArrayLike) -> PredictiveDistribution:
        """One Gaussian per row."""
        mean = np.asarray(mean, dtype=np.float64)
        variance = np.asarray(variance, dtype=np.float64)
        if mean.ndim != 1 or variance.shape not in ((), mean.shape):
            raise ValueError(f"mean must be a vector, variance one or a number, got {mean.shape} and {variance.shape}")
        return cls(np.ones(1), mean[:, None], np.broadcast_to(variance, mean.shape)[:, None])

    def affine(self, scale: float, shift: float = 0.0) -> PredictiveDistribution:
        """Return the distribution of ``scale * y + shift``, such as a change of units.

        The density is divided by ``abs(scale)``.
        """
        scale, shift = as_number(scale, "scale"), as_number(shift, "shift")
        if scale == 0.0:
            raise ValueError("scale must not be zero")
        return PredictiveDistribution(self.weights, scale * self.means + shift, scale**2 * self.variances)

    def __repr__(self) -> str:
        return f"PredictiveDistribution(n_rows={self.n_rows}, n_components={self.n_components})"

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return int(self.weights.shape[0])

    @property
    def n_components(self) -> int:
        """Number of mixture components in use, K."""
        return int(self.weights.shape[1])

    @cached_property
    def mean(self) -> FloatArray:
        """Mean of each row, shape (n,)."""
        return _mix(self.weights, self.means)

    @cached_property
    def variance(self) -> FloatArray:
        """Variance of each row, shape (n,): mean of the variances plus variance of the means."""
        return _mix(self.weights, self.variances + (self.means - self.mean[:, None]) ** 2)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of each row, shape (n,)."""
        return np.sqrt(self.variance)

    def log_density(self, y: ArrayLike) -> FloatArray:
        """Log density at y, in nats per unit of the target, (n,) or (n, m)."""
        y, weights, means, scales = self._aligned(y)
        with np.errstate(divide="ignore"):  # a weight of zero is a log weight of -inf
            log_weights = np.log(weights)
        z = _standardise(y - means, scales)
        parts = log_weights - 0.5 * z**2 - np.log(scales) - 0.5 * np.log(2.0 * np.pi)
        return cast(FloatArray, logsumexp(parts, axis=-1))

    def density(self, y: ArrayLike) -> FloatArray:
        """Density at y, per unit of the target; `y` and result as for `log_density`."""
        return np.exp(self.log_density(y))

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Probability of a value no greater than y; `y` and result as for `log_density`."""
        y, weights, means, scales = self._aligned(y)
        return np.minimum(_mix(weights, ndtr(_standardise(y - means, scales))), 1.0)

    def quantile(self, p: ArrayLike) -> FloatArray:
        """Quantiles: values below which a fraction p of the probability lies, (n,).

        Exact for one component. For more, safeguarded Newton steps run until the probability agrees to rounding, or the
        value to the rounding of the larger of itself and the row's smallest component.
        """
        p = np.asarray(p, dtype=np.float64)
        if p.ndim > 1 or p.size == 0 or not np.all((p > 0.0) & (p < 1.0)):
            raise ValueError(f"p must be a number or a vector of numbers strictly between 0 and 1, got {p}")
        points = np.atleast_1d(p)
        values = self._tail_quantiles(np.minimum(points, 1.0 - points), points > 0.5)
        return values[:, 0] if p.ndim == 0 else values

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals, with equal probability below and above, (n,)."""
        as_number(level, "level", above=0.0, below=1.0)
        bounds = self._tail_quantiles(np.full(2, 0.5 * (1.0 - level)), np.array([False, True]))
        return bounds[:, 0], bounds[:, 1]

    def crps(self, y: ArrayLike) -> FloatArray:
        """Continuous ranked probability score, E|X - y| - E|X - X'| / 2, in the units of the target; less is better.

        Closed form for Gaussian mixtures: Grimit, Gneiting, Berrocal and Johnson (2006), *The continuous ranked
        probability score for circular variables ...*, Q. J. R. Meteorol. Soc. 132. `y` and result as for `log_density`.
        """
        y, weights, means, scales = self._aligned(y)
        distance = _mix(weights, _mean_absolute(y - means, scales))
        spread = self._half_mean_difference if y.ndim == 2 else self._half_mean_difference[:, None]
        return np.maximum(distance - spread, 0.0)

    def sample(self, n_samples: int = 1, rng: RandomState = None) -> FloatArray:
        """Independent draws from the distribution of each row, (n_samples, n)."""
        rng, rows = np.random.default_rng(rng), np.arange(self.n_rows)
        cumulative = np.cumsum(self.weights, axis=1)
        # Scaled by the total, so that rounding cannot select a component beyond the last one with weight.
        u = rng.random((as_count(n_samples, "n_samples", 0), self.n_rows)) * cumulative[:, -1]
        component = np.zeros(u.shape, dtype=np.intp)
        for k in range(self.n_components - 1):
            component += u >= cumulative[:, k]
        return self.means[rows, component] + self.scales[rows, component] * rng.standard_normal(component.shape)

    @cached_property
    def scales(self) -> FloatArray:
        """Standard deviations of the components, at least the rounding of their means."""
        floor = np.maximum(np.spacing(np.abs(self.means)), _SMALLEST_SCALE)
        return np.maximum(np.sqrt(self.variances), floor)

    @cached_property
    def _half_mean_difference(self) -> FloatArray:
        """E|X - X'| / 2 for two independent draws, shape (n,)."""
        weights, means, scales = self.weights, self.means, self.scales
        total: FloatArray = _mix(weights, weights * scales) / np.sqrt(np.pi)
        for k in range(self.n_components - 1):  # pairs k < l, one row of the triangle at a time, in O(n K) memory
            rest = slice(k + 1, None)
            scale = np.hypot(scales[:, rest], scales[:, k, None])
            total += weights[:, k] * _mix(weights[:, rest], _mean_absolute(means[:, rest] - means[:, k, None], scale))
        return total

    def _aligned(self, y: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return `y`, weights, means and scales with axes (row, component) or (row, point, component)."""
        y = np.asarray(y, dtype=np.float64)
        if y.ndim == 0:
            y = np.broadcast_to(y, (self.n_rows,))
        if y.ndim > 2 or y.shape[0] != self.n_rows:
            raise ValueError(f"y must be a number or have shape ({self.n_rows},) or ({self.n_rows}, m), got {y.shape}")
        if np.isnan(y).any():
            raise ValueError("y must not contain NaN, got at least one")
        arrays = (self.weights, self.means, self.scales)
        weights, means, scales = arrays if y.ndim == 1 else (a[:, None, :] for a in arrays)
        return y[..., None], weights, means, scales

    def _tail_quantiles(self, tails: FloatArray, upper: NDArray[np.bool_]) -> FloatArray:
        """Return the values with probabilities `tails` <= 1/2, (m,), below or above them; (n, m)."""
        sign = np.where(upper, -1.0, 1.0)  # mirrored, so that a small tail keeps all its digits
        out = np.empty((self.n_rows, len(tails)))
        size = max(1, _BLOCK // (len(tails) * max(self.n_components, 1)))
        for begin in range(0, self.n_rows, size):
            rows = slice(begin, begin + size)
            shape = out[rows].shape
            weights, scales = (_repeated(a[rows], shape) for a in (self.weights, self.scales))
            means = (sign[:, None] * self.means[rows, None]).reshape(weights.shape)
            middle, std = ((s * a[rows, None]).ravel() for s, a in ((sign, self.mean), (np.ones_like(sign), self.std)))
            quantiles = _lower_quantiles(weights, means, scales, middle, std, np.broadcast_to(tails, shape).ravel())
            np.multiply(sign, quantiles.reshape(shape), out=out[rows])
        return out


def student_factors(degrees: float) -> tuple[FloatArray, FloatArray]:
    """Weights and variances of the normals whose mixture stands for Student's t of scale one."""
    if degrees >= _NORMAL_DEGREES:
        return np.ones(1), np.ones(1)
    low, high = np.log(np.maximum(gammaincinv(degrees / 2, _SHARES), degrees / 2 / _LARGEST_VARIANCE))
    step = min(0.8, 2 / np.sqrt(degrees))  # half more than the deviation where degrees are many
    log_half_precision = np.linspace(low, high, 1 + int(np.ceil((high - low) / step)))  # of a gamma variable
    weights = np.exp(degrees / 2 * log_half_precision - np.exp(log_half_precision))
    return weights / weights.sum(), degrees / 2 * np.exp(-log_half_precision)


def _mix(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Return the weighted sum over the components."""
    return cast(FloatArray, np.sum(weights * values, axis=-1))


def _standardise(distance: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the distance in standard deviations, clipped where its square would overflow."""
    with np.errstate(over="ignore"):
        return np.clip(distance / scale, -_FARTHEST, _FARTHEST)


def _mean_absolute(mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Return E|X| of a Gaussian."""
    z = _standardise(mean, scale)
    return cast(FloatArray, scale * np.sqrt(2.0 / np.pi) * np.exp(-0.5 * z**2) + mean * erf(z / np.sqrt(2.0)))


def _repeated(values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return the components of each row as often as there are points, (n_rows · n_points, K)."""
    return np.broadcast_to(values[:, None], (*shape, values.shape[1])).reshape(-1, values.shape[1])


def _lower_quantiles(
    weights: FloatArray, means: FloatArray, scales: FloatArray, mean: FloatArray, std: FloatArray, p: FloatArray
) -> FloatArray:
    """Quantiles for p <= 1/2, one for each row, (n,).

    Newton's method on probit(F(x)) = probit(p), linear in x for one Gaussian, inside a bracket that starts at the
    smallest and the largest of the components' quantiles.
    """
    target = ndtri(p)
    candidates = means + target[:, None] * scales
    low = np.min(candidates, axis=1, where=weights > 0.0, initial=np.inf)
    high = np.max(candidates, axis=1, where=weights > 0.0, initial=-np.inf)
    quantile: FloatArray = np.clip(mean + target * std, low, high)
    finest = np.min(scales, axis=1)
    # Rounding of (x - mean) / scale moves F by about p * target**2 * eps; nothing finer can be asked for.
    close = 4.0 * _EPS * (1.0 + target**2) * p

    rows, x, last, more = np.arange(len(quantile)), quantile, high - low, low < high
    while more.any():
        if not more.all():
            state = (rows, x, low, high, last, p, target, close, finest, weights, means, scales)
            rows, x, low, high, last, p, target, close, finest, weights, means, scales = (a[more] for a in state)
        z = _standardise(x[:, None] - means, scales)
        probability = _mix(weights, ndtr(z))
        low = np.where(probability < p, x, low)
        high = np.where(probability > p, x, high)
        with np.errstate(all="ignore"):  # infinite where F or its slope is beyond double precision
            probit = ndtri(probability)
            density = _mix(weights, np.exp(-0.5 * z**2) / scales)
            step = (probit - target) * np.exp(-0.5 * probit**2) / density
        trusted = (np.abs(step) <= 0.5 * last) & (x - step > low) & (x - step < high)
        proposal = np.where(trusted, x - step, 0.5 * low + 0.5 * high)
        last = np.abs(proposal - x)

        solved = np.abs(probability - p) <= close
        x = np.where(solved, x, proposal)
        settled = last <= 2.0 * np.spacing(np.maximum(np.abs(x), finest))
        quantile[rows] = x
        more = ~(solved | settled)
    return quantile


def finite_array(name: str, value: ArrayLike) -> FloatArray:
    """Return `value` in double precision, or raise if it holds NaN or infinity."""
    array = np.asarray(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array


def as_columns(name: str, value: ArrayLike) -> FloatArray:
    """Return a finite vector as one column, a finite matrix unchanged."""
    array = finite_array(name, value)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n,) or (n, k), got {array.shape}")
    return array[:, None] if array.ndim == 1 else array
