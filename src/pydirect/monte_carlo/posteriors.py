"""Posterior families: w = μ + σ ξ, w = θ ξ or the exponential of one, with the base law of the draws ξ.

Source: Nazarovs, Mehta, Lokhande and Singh, "Graph Reparameterizations for Enabling 1000+ Monte Carlo Iterations in
Bayesian Deep Neural Networks", UAI 2021, Table 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.special import digamma, exp1, gammaln, hyperu, kve, ndtr, polygamma, zeta

from pydirect._validation import FloatArray, as_choice, as_count, as_number

# Supports, each within the one before it.
SUPPORTS = ("real", "positive", "above one")
LOCATION_SCALE = ("normal", "laplace", "logistic", "radial", "horseshoe", "lognormal")
WITH_SHAPE = ("gamma", "weibull", "inverse_gamma", "wald", "log_gamma")
SCALING = ("exponential", "rayleigh", *WITH_SHAPE)
FAMILIES = (*LOCATION_SCALE, *SCALING)


@dataclass(frozen=True)
class PosteriorFamily:
    """One of `FAMILIES`, with parameters (μ, σ) for location-scale ones, else θ; a shape is given, not learned."""

    name: str  # name of the family
    # Of the gamma, Weibull, inverse gamma, Wald (a mean of one) and log-gamma laws, and of no others.
    shape: float | None = None

    def __post_init__(self) -> None:
        as_choice(self.name, "posterior", FAMILIES)
        if (self.name in WITH_SHAPE) != (self.shape is not None):
            with_shape = f"with a shape, as ({self.name!r}, shape)"
            how = with_shape if self.shape is None else f"without a shape, got {self.shape}"
            raise ValueError(f"posterior {self.name!r} must be given {how}")
        if self.shape is not None:
            as_number(self.shape, "shape", above=0.0)

    @property
    def law(self) -> str:
        """Law of the draws ξ."""
        return {"radial": "normal", "lognormal": "normal", "log_gamma": "gamma"}.get(self.name, self.name)

    @property
    def has_location(self) -> bool:
        """Whether μ is a parameter beside the scale."""
        return self.name in LOCATION_SCALE

    @property
    def exponential(self) -> bool:
        """Whether weights are exponentials of μ + σ ξ or θ ξ."""
        return self.name in ("lognormal", "log_gamma")

    @property
    def support(self) -> str:
        """Support of the weights, one of `SUPPORTS`."""
        other = "real" if self.has_location else "positive"
        return {"log_gamma": "above one", "lognormal": "positive"}.get(self.name, other)

    @property
    def _k(self) -> float:
        """Shape of the law, that of the Weibull laws of exponents of an exponential variable among them."""
        return {"rayleigh": 2.0}.get(self.law, self.shape or 1.0)

    def moment_bounds(self) -> tuple[float, float]:
        """Lower and upper bound on the powers r for which ``E |ξ|^r`` exists, both exclusive."""
        if self.law in ("inverse_gamma", "wald"):
            return -math.inf, self._k if self.law == "inverse_gamma" else math.inf
        return -self._k, 1.0 if self.name == "horseshoe" else math.inf

    def moment(self, r: float, n_weights: int) -> float:
        """E ξ^r of one of `n_weights` weights: r ≥ 0 an integer on the real line, any real number otherwise."""
        if not has_moment(self, r):
            raise ValueError(f"E |xi|^{r:g} of the {self.name} posterior is infinite")
        try:
            return 1.0 if r == 0 else float(self._moment(r, n_weights))
        except OverflowError:
            raise ValueError(f"E |xi|^{r:g} of the {self.name} posterior overflows") from None

    def _moment(self, r: float, n_weights: int) -> float:
        k = self._k
        if self.law in ("gamma", "inverse_gamma"):
            return math.exp(gammaln(k + (r if self.law == "gamma" else -r)) - gammaln(k))
        if self.law in ("weibull", "exponential", "rayleigh"):
            return math.gamma(1 + r / k) * (2 ** (r / 2) if self.law == "rayleigh" else 1.0)
        if self.law == "wald":
            return math.sqrt(2 * k / math.pi) * float(kve(r - 0.5, k))
        if as_count(int(r) if r == int(r) else r, "r") % 2:
            return 0.0
        if self.law == "laplace":
            return math.factorial(int(r))
        if self.law == "logistic":
            return 2 * (1 - 2.0 ** (1 - r)) * float(zeta(r)) * math.factorial(int(r))
        odd = range(1, int(r), 2)
        # E u_1^r of a direction of D dimensions is (r − 1)!! / (D (D + 2) … (D + r − 2)).
        return math.prod(odd) * (math.prod(j / (n_weights + j - 1) for j in odd) if self.name == "radial" else 1.0)

    def log_moments(self) -> tuple[float, float]:
        """E log ξ and E log² ξ of positive base laws."""
        k = self._k
        if self.law == "wald":
            return -float(hyperu(1, 1, 2 * k) if k > 300 else np.exp(2 * k) * exp1(2 * k)), _wald_log_square(k)
        if self.law in ("gamma", "inverse_gamma"):
            mean, variance = float(digamma(k)) * (1 if self.law == "gamma" else -1), float(polygamma(1, k))
        else:  # powers of an exponential
            mean, variance = -np.euler_gamma / k, math.pi**2 / (6 * k**2)
            mean += math.log(2) / 2 if self.law == "rayleigh" else 0.0
        return mean, variance + mean**2

    def base_entropy(self, n_weights: int) -> float:
        """Entropy of the draws ξ of all weights, in nats."""
        if self.name == "radial":
            # A half-normal length, and a direction: log of the sphere's area times length^(D − 1).
            log_length = -(np.euler_gamma + math.log(2)) / 2
            log_area = math.log(2) + n_weights / 2 * math.log(math.pi) - float(gammaln(n_weights / 2))
            return 0.5 * math.log(math.pi * math.e / 2) + log_area + (n_weights - 1) * log_length
        return n_weights * float(self._entropy())

    def _entropy(self) -> float:
        k = self._k
        match self.law:
            case "normal":
                return 0.5 * math.log(2 * math.pi * math.e)
            case "laplace":
                return 1 + math.log(2)
            case "logistic":
                return 2.0
            case "horseshoe":
                return _horseshoe_entropy()
            case "rayleigh" | "weibull" | "exponential":
                scale = math.log(2) / 2 if self.law == "rayleigh" else 0.0
                return np.euler_gamma * (1 - 1 / k) - math.log(k) + 1 + scale
            case "wald":
                return 0.5 * math.log(2 * math.pi / k) + 1.5 * self.log_moments()[0] + 0.5
        sign = 1 if self.law == "gamma" else -1
        return k + float(gammaln(k)) + (sign - k) * float(digamma(k))


def as_posterior(value: Any) -> PosteriorFamily:
    """Return a family, given as one, by name, or as ``(name, shape)``."""
    if isinstance(value, str):
        return PosteriorFamily(value)
    if isinstance(value, tuple) and len(value) == 2:
        return PosteriorFamily(*value)
    if not isinstance(value, PosteriorFamily):
        raise TypeError(f"posterior must be a family, a name or a tuple (name, shape), got {value!r}")
    return value


def has_moment(family: PosteriorFamily, r: float) -> bool:
    """Whether ``E |ξ|^r`` is finite.

    Examples
    --------
    >>> from pydirect.monte_carlo import PosteriorFamily, has_moment
    >>> family = PosteriorFamily("inverse_gamma", shape=2.5)
    >>> has_moment(family, 2.0), has_moment(family, 3.0)
    (True, False)
    """
    low, high = family.moment_bounds()
    return r == 0 or low < r < high


def partial_normal_moments(c: FloatArray, degree: int) -> FloatArray:
    """E[ξ^j; ξ ≤ c] of a standard normal ξ for j = 0 … degree, (degree + 1, ...); c may be infinite."""
    finite = np.where(np.isfinite(c), c, 0.0)
    density = np.where(np.isfinite(c), np.exp(-0.5 * finite**2) / math.sqrt(2 * math.pi), 0.0)
    moments = [ndtr(c), -density]
    for j in range(2, degree + 1):  # by parts
        moments.append((j - 1) * moments[j - 2] - finite ** (j - 1) * density)
    return np.stack(moments[: degree + 1])


def _wald_log_square(k: float) -> float:
    """E log² ξ of the Wald law of mean one, over log ξ, where its density is √(k/2π) exp(−t/2 − k (cosh t − 1))."""
    if k > 1e4:  # t is nearly normal
        return 1 / k - 1 / (4 * k**2) + 1 / (6 * k**3)

    def integrand(t: float) -> float:
        return t * t * math.cosh(t / 2) * math.exp(-k * (math.cosh(t) - 1))

    end = math.acosh(1 + 750 / k)
    value, _ = quad(integrand, 0.0, end, epsabs=0.0, epsrel=1e-13, limit=500, points=[min(1 / math.sqrt(k), end / 2)])
    return float(2 * math.sqrt(k / (2 * math.pi)) * value)


def _horseshoe_entropy() -> float:
    """Entropy of a standard normal times a half-Cauchy: its density is exp(x²/2) E1(x²/2) / √(2π³)."""

    def integrand(t: float) -> float:  # over t = log |x|
        x = math.exp(t)
        density = float(hyperu(1, 1, x * x / 2)) / math.sqrt(2 * math.pi**3)
        return -2 * x * density * math.log(density) if density > 0.0 else 0.0

    return float(quad(integrand, -40.0, 40.0, epsabs=1e-13, limit=500)[0])


def as_seed(value: Any) -> int:
    """Return a seed below 2⁶⁴, as the generator's key is."""
    if as_count(value, "seed", 0) >= 2**64:
        raise ValueError(f"seed must be below 2**64, got {value}")
    return int(value)


def as_index(value: Any, name: str) -> int:
    """Return a positive count below 2³², as counters of draws are."""
    if as_count(value, name) >= 2**32:
        raise ValueError(f"{name} must be below 2**32, got {value}")
    return int(value)
