"""Linear output layer u = h·w, w = μ + σ ξ, whose likelihood needs only the first two moments of the draws.

Source: Nazarovs et al. 2021, section 4.2, with the signs and the expansion of the logistic likelihood corrected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_float_array
from pydirect.monte_carlo.posteriors import NetworkDraws, PosteriorFamily, as_index, as_posterior, as_scales, as_seed

# Trapezoidal rule over a normal variable: end, largest step, largest number of nodes.
QUADRATURE_END, QUADRATURE_STEP, QUADRATURE_NODES = 9.0, 0.5, 512


@dataclass(frozen=True)
class SquaredErrors:
    """E (y − h·w)² of every row, and the gradients of their sum over the rows."""

    values: FloatArray  # (n_samples,)
    location_gradient: FloatArray  # (n_units,)
    scale_gradient: FloatArray  # (n_units,)
    unit_gradient: FloatArray  # (n_samples, n_units): with respect to h, for the layers below


class LinearOutput:
    """Expected squared errors of a linear output layer whose weights have a location-scale posterior."""

    def __init__(
        self,
        posterior: str | PosteriorFamily,
        n_units: int,
        mode: str = "exact",
        n_samples: int = 1000,
        *,
        seed: int = 0,
        n_threads: int | None = None,
    ) -> None:
        family = as_posterior(posterior)
        if not isinstance(family, PosteriorFamily) or not family.has_location or family.exponential:
            raise ValueError(f"posterior must be a location-scale family with a sampler here, got {family.name!r}")
        self.posterior = family
        self.n_units = as_index(n_units, "n_units")
        self.mode = as_choice(mode, "mode", ("exact", "independent"))
        self.n_samples = as_index(n_samples, "n_samples")
        self.seed = as_seed(seed)
        self.n_threads = n_threads
        self._epoch = 0
        self._draw()

    def __repr__(self) -> str:
        return f"LinearOutput({self.posterior}, {self.n_units}, {self.mode!r}, n_samples={self.n_samples})"

    def draws(self) -> FloatArray:
        """Return the current draws ξ, (n_samples, n_units); in mode ``"independent"`` only."""
        if self.mode == "exact":
            raise ValueError("mode must be 'independent' for draws, got 'exact'")
        return self._draws.values(resolve_n_threads(self.n_threads))

    def resample(self) -> LinearOutput:
        """Make new draws."""
        self._epoch += 1
        self._draw()
        return self

    def squared_errors(self, h: ArrayLike, y: ArrayLike, location: ArrayLike, scale: ArrayLike) -> SquaredErrors:
        """Mean of (y − h·w)² over the draws, without a loop over them, for h (n_samples, n_units) and y (n_samples,).

        (y − h·(μ + σ∘t))² + (h∘σ)ᵀ (T − t tᵀ) (h∘σ) with t = mean ξ and T = mean ξ ξᵀ.
        """
        h = as_float_array(h, "h", ("n_samples", self.n_units))
        y = as_float_array(y, "y", (len(h),))
        location = as_float_array(location, "location", (self.n_units,))
        scale = as_scales(scale, (self.n_units,))
        mean = location + scale * self._mean
        residual = y - h @ mean
        scaled = h * scale
        spread = scaled @ self._covariance if self._covariance.ndim == 2 else scaled * self._covariance
        by_mean, by_scaled = -2 * h.T @ residual, 2 * spread
        return SquaredErrors(
            residual**2 + np.einsum("ij,ij->i", spread, scaled),
            by_mean,
            by_mean * self._mean + np.einsum("ij,ij->j", by_scaled, h),
            -2 * residual[:, None] * mean + by_scaled * scale,
        )

    @property
    def _draws(self) -> NetworkDraws:
        return NetworkDraws(self.posterior, self.n_samples, self.n_units, self.seed, self._epoch)

    def _draw(self) -> None:
        self._mean: FloatArray
        self._covariance: FloatArray  # T − t tᵀ, or its diagonal where that is all
        if self.mode == "exact":
            self._mean = np.zeros(self.n_units)
            self._covariance = np.full(self.n_units, self.posterior.moment(2, self.n_units))
            return
        self._mean, products = self._draws.compiled.mean_products(resolve_n_threads(self.n_threads))
        self._covariance = products - np.outer(self._mean, self._mean)


def expected_logistic_likelihood(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, method: str = "quadrature"
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E log p(y | u), (n_samples,), of labels 0 or 1 under u ~ N(mean, variance), and its slopes in mean and variance.

    log p = −log(1 + exp(−u)) − (1 − y) u. ``"quadrature"``: the trapezoidal rule, good to 1e-12 for variances up to 200
    and to 1e-9 up to 1000; ``"expansion"``: −log 2 + u/2 − u²/8 + u⁴/192 − (1 − y) u, for ``|u| < 1`` alone.
    """
    mean = as_float_array(mean, "mean", ("n_samples",))
    variance = as_float_array(variance, "variance", mean.shape)
    y = as_float_array(y, "y", mean.shape)
    if (variance < 0.0).any():
        raise ValueError(f"variance must not be negative, got {variance.min()}")
    if not np.isin(y, (0.0, 1.0)).all():
        raise ValueError(f"y must hold zeros and ones, got {y[~np.isin(y, (0.0, 1.0))][0]}")
    if as_choice(method, "method", ("quadrature", "expansion")) == "expansion":
        square, fourth = mean**2 + variance, mean**4 + 6 * mean**2 * variance + 3 * variance**2
        value = -np.log(2.0) + (y - 0.5) * mean - square / 8 + fourth / 192
        mean_slope = (y - 0.5) - mean / 4 + (mean**3 + 3 * mean * variance) / 48
        return value, mean_slope, -1 / 8 + (mean**2 + variance) / 32
    # The integrand's poles, at u = ± iπ, make an error of exp(−2π²/(σ step)).
    step = min(QUADRATURE_STEP, 2 * np.pi**2 / (30 * max(np.sqrt(variance.max()), 1e-3)))
    node = np.linspace(
        -QUADRATURE_END, QUADRATURE_END, min(QUADRATURE_NODES, int(np.ceil(2 * QUADRATURE_END / step)) + 1)
    )
    weight = np.exp(-0.5 * node**2)
    weight /= weight.sum()
    u = mean[:, None] + np.sqrt(variance)[:, None] * node
    p = np.exp(log_expit(u))
    value = log_expit(u) @ weight - (1 - y) * mean
    # E f'' / 2 (Bonnet and Price), f'' = −p (1 − p).
    return value, (1 - p) @ weight - (1 - y), -0.5 * (p * (1 - p)) @ weight
