"""Posterior families: w = μ + σ ξ, w = θ ξ or the exponential of one, with the base law of the draws ξ.

Source: Nazarovs, Mehta, Lokhande and Singh, "Graph Reparameterizations for Enabling 1000+ Monte Carlo Iterations in
Bayesian Deep Neural Networks", UAI 2021, Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.special import digamma, exp1, gammaln, hyperu, kve, ndtr, polygamma, zeta

from pydirect import _core
from pydirect._validation import FloatArray, as_choice, as_count, as_number

# Supports, each within the one before it.
SUPPORTS = ("real", "positive", "above one")
LOCATION_SCALE = ("normal", "laplace", "logistic", "radial", "horseshoe", "lognormal")
SCALING = ("exponential", "gamma", "weibull", "rayleigh", "inverse_gamma", "wald", "log_gamma")
FAMILIES = (*LOCATION_SCALE, *SCALING)
WITH_SHAPE = ("gamma", "weibull", "inverse_gamma", "wald", "log_gamma")


@dataclass(frozen=True)
class PosteriorFamily:
    """One of `FAMILIES`, with parameters (μ, σ) for location-scale ones, else θ; a shape is given, not learned."""

    name: str  # name of the family
    # Of the gamma, Weibull, inverse gamma, Wald (a mean of one) and log-gamma laws, and of no others.
    shape: float | None = None

    def __post_init__(self) -> None:
        as_choice(self.name, "posterior", FAMILIES)
        if self.name in WITH_SHAPE:
            if self.shape is None:
                raise ValueError(f"posterior {self.name!r} must be given with a shape, as ({self.name!r}, shape)")
            as_number(self.shape, "shape", above=0.0)
        elif self.shape is not None:
            raise ValueError(f"posterior {self.name!r} must be given without a shape, got {self.shape}")

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
        if self.name == "log_gamma":
            return "above one"
        return "positive" if self.name in SCALING or self.name == "lognormal" else "real"

    @property
    def _k(self) -> float:
        assert self.shape is not None
        return self.shape

    def moment_bounds(self) -> tuple[float, float]:
        """Lower and upper bound on the powers r for which ``E |ξ|^r`` exists, both exclusive."""
        if self.name == "horseshoe":
            return -1.0, 1.0
        if self.law == "inverse_gamma":
            return -math.inf, self._k
        if self.law == "wald":
            return -math.inf, math.inf
        low = {"gamma": self.shape, "weibull": self.shape, "rayleigh": 2.0}.get(self.law, 1.0)
        assert low is not None
        return -low, math.inf

    def moment(self, r: float, n_weights: int) -> float:
        """E ξ^r of one of `n_weights` weights: r ≥ 0 an integer on the real line, any real number otherwise."""
        if not has_moment(self, r):
            raise ValueError(f"E |xi|^{r:g} of the {self.name} posterior is infinite")
        try:
            return self._moment(r, n_weights)
        except OverflowError:
            raise ValueError(f"E |xi|^{r:g} of the {self.name} posterior overflows") from None

    def _moment(self, r: float, n_weights: int) -> float:
        if r == 0:
            return 1.0
        if self.law == "gamma":
            return math.exp(gammaln(self._k + r) - gammaln(self._k))
        if self.law == "inverse_gamma":
            return math.exp(gammaln(self._k - r) - gammaln(self._k))
        if self.law == "weibull":
            return math.gamma(1 + r / self._k)
        if self.law == "exponential":
            return math.gamma(1 + r)
        if self.law == "rayleigh":
            return float(2 ** (r / 2) * math.gamma(1 + r / 2))
        if self.law == "wald":
            return float(math.sqrt(2 * self._k / math.pi) * kve(r - 0.5, self._k))
        return self._symmetric_moment(as_count(int(r) if r == int(r) else r, "r"), n_weights)

    def _symmetric_moment(self, r: int, n_weights: int) -> float:
        if r % 2:
            return 0.0
        if self.law == "laplace":
            return float(math.factorial(r))
        if self.law == "logistic":
            return float(2 * (1 - 2.0 ** (1 - r)) * zeta(r) * math.factorial(r))
        normal = math.prod(range(1, r, 2))
        if self.name != "radial":
            return float(normal)
        # E u_1^r of a direction of D dimensions is (r − 1)!! / (D (D + 2) … (D + r − 2)).
        return float(normal) * math.prod(k / (n_weights + k - 1) for k in range(1, r, 2))

    def log_moments(self) -> tuple[float, float]:
        """E log ξ and E log² ξ of positive base laws."""
        if self.law == "wald":
            k = self._k
            return -float(hyperu(1, 1, 2 * k) if k > 300 else np.exp(2 * k) * exp1(2 * k)), _wald_log_square(k)
        k = {"exponential": 1.0, "rayleigh": 2.0}.get(self.law, self.shape or 0.0)
        if self.law in ("gamma", "inverse_gamma"):
            mean, variance = float(digamma(k)), float(polygamma(1, k))
            mean = mean if self.law == "gamma" else -mean
        else:  # powers of an exponential
            mean, variance = -np.euler_gamma / k, math.pi**2 / (6 * k**2)
            mean += math.log(2) / 2 if self.law == "rayleigh" else 0.0
        return mean, variance + mean**2

    def base_entropy(self, n_weights: int) -> float:
        """Entropy of the draws ξ of all weights, in nats."""
        k = self.shape or 1.0
        if self.name == "radial":
            # A half-normal length, and a direction: log of the sphere's area times length^(D − 1).
            log_length = -(np.euler_gamma + math.log(2)) / 2
            log_area = math.log(2) + n_weights / 2 * math.log(math.pi) - float(gammaln(n_weights / 2))
            return 0.5 * math.log(math.pi * math.e / 2) + log_area + (n_weights - 1) * log_length
        entropies: dict[str, Callable[[], float]] = {
            "normal": lambda: 0.5 * math.log(2 * math.pi * math.e),
            "laplace": lambda: 1 + math.log(2),
            "logistic": lambda: 2.0,
            "horseshoe": _horseshoe_entropy,
            "exponential": lambda: 1.0,
            "rayleigh": lambda: 1 - math.log(2) / 2 + np.euler_gamma / 2,
            "weibull": lambda: np.euler_gamma * (1 - 1 / k) - math.log(k) + 1,
            "gamma": lambda: k + gammaln(k) + (1 - k) * digamma(k),
            "inverse_gamma": lambda: k + gammaln(k) - (1 + k) * digamma(k),
            "wald": lambda: 0.5 * math.log(2 * math.pi / k) + 1.5 * self.log_moments()[0] + 0.5,
        }
        return n_weights * float(entropies[self.law]())


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
    """Whether ``E |ξ|^r`` is finite."""
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


# Draws that Python code sees are made in blocks of this size.
BLOCK_SIZE = 2**18
# Laws whose means of powers can be drawn without drawing ξ, and those powers.
DIRECT_POWERS = {"normal": (1.0, 2.0), "exponential": (1.0,), "gamma": (1.0,), "wald": (1.0,), "rayleigh": (2.0,)}


@dataclass(frozen=True)
class NetworkDraws:
    """Draws ξ of the weights of one tensor: a function of the seed and the epoch, not of the number of threads."""

    posterior: PosteriorFamily
    n_samples: int  # draws per weight
    n_weights: int
    seed: int
    epoch: int  # number of times that they were drawn anew
    shared: bool = False  # whether all weights have the same draws

    @property
    def compiled(self) -> _core.BaseDraws:
        """All draws, as the compiled module takes them."""
        return self._compiled()

    def values(self, n_threads: int) -> FloatArray:
        """Return all draws, (n_samples, n_weights), or (n_samples, 1) when shared."""
        return self.compiled.draws(n_threads)

    def blocks(self, n_threads: int) -> Iterator[FloatArray]:
        """Yield the draws, some rows at a time."""
        n_columns = 1 if self.shared else self.n_weights
        size = max(2, BLOCK_SIZE // n_columns // 2 * 2)
        for begin in range(0, self.n_samples, size):
            yield self._compiled(n_draws=min(size, self.n_samples - begin), first_draw=begin).draws(n_threads)

    def means(self, powers: list[float], n_logs: int, n_threads: int) -> FloatArray:
        """Means of ξ^r for every power r, of log ξ and of log² ξ; (n_means, n_weights), or (n_means, 1) when shared."""
        return np.asarray(self.compiled.mean_powers(powers, n_logs, n_threads))

    def means_from_their_law(self, n_means: int, n_threads: int) -> FloatArray:
        """Draw the means of the first `DIRECT_POWERS` from their own law, (n_means, n_weights)."""
        law, n = self.posterior.law, self.n_samples
        if law == "normal":
            return np.asarray(self.compiled.mean_powers_of_normals(n_threads))[:n_means]
        # The mean of n Wald variables of mean one is another one, with n times their shape.
        if law == "wald":
            return np.asarray(self._compiled("wald", n * self._shape, 1).draws(n_threads))
        # ξ is a gamma variable, or √(2 E) with an exponential E.
        total = np.asarray(self._compiled("gamma", n * self._shape, 1).draws(n_threads))
        return total * ((1 + (law == "rayleigh")) / n)

    @property
    def _shape(self) -> float:
        return self.posterior.shape or 1.0

    def _compiled(
        self, law: str | None = None, shape: float | None = None, n_draws: int | None = None, first_draw: int = 0
    ) -> _core.BaseDraws:
        layout = "shared" if self.shared else "independent"
        return _core.BaseDraws(
            "radial" if self.posterior.name == "radial" else layout,
            self.posterior.law if law is None else law,
            self._shape if shape is None else shape,
            self.seed,
            self.epoch,
            first_draw,
            self.n_samples if n_draws is None else n_draws,
            self.n_weights,
        )


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
