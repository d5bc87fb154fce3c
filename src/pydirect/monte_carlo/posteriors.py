"""Posterior families: w = μ + σ ξ, w = θ ξ or the exponential of one, with the base law of the draws ξ.

Source: Nazarovs, Mehta, Lokhande and Singh, "Graph Reparameterizations for Enabling 1000+ Monte Carlo Iterations in
Bayesian Deep Neural Networks", UAI 2021, Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import digamma, exp1, gammaln, hyperu, kve, ndtr, polygamma, zeta

from pydirect._validation import FloatArray, as_choice, as_count, as_flag, as_float_array, as_number

# Supports, each within the one before it.
SUPPORTS = ("real", "positive", "above one")
LOCATION_SCALE = ("normal", "laplace", "logistic", "radial", "horseshoe", "lognormal")
SCALING = ("exponential", "gamma", "weibull", "rayleigh", "inverse_gamma", "wald", "log_gamma")
FAMILIES = (*LOCATION_SCALE, *SCALING)
WITH_SHAPE = ("gamma", "weibull", "inverse_gamma", "wald", "log_gamma")
Sampler = Callable[[np.random.Generator, tuple[int, int]], FloatArray]


@dataclass(frozen=True)
class PosteriorFamily:
    """One of `FAMILIES`.

    Location-scale families have parameters (μ, σ), scaling families θ alone; a shape is given, not learned.

    Parameters
    ----------
    name : str
        Name of the family.
    shape : float, optional
        Of the gamma, Weibull, inverse gamma, Wald (a mean of one) and log-gamma laws, and of no others.
    """

    name: str
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
        """Lower and upper bound on the powers r for which ``E |ξ|^r`` exists, both exclusive.

        Returns
        -------
        (float, float)
            Lower and upper bound.
        """
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
        """E ξ^r of one of `n_weights` weights: r ≥ 0 an integer on the real line, any real number otherwise.

        Parameters
        ----------
        r : float
            Power.
        n_weights : int
            Number of weights.

        Returns
        -------
        float
            The moment.

        Raises
        ------
        ValueError
            When the moment does not exist, or is no floating-point number.
        """
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
        """E log ξ and E log² ξ of positive base laws.

        Returns
        -------
        (float, float)
            The two.
        """
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
        """Entropy of the draws ξ of all weights, in nats.

        Parameters
        ----------
        n_weights : int
            Number of weights.

        Returns
        -------
        float
            In nats.
        """
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


@dataclass(frozen=True)
class CustomFamily:
    """Custom posterior family: a sampler of ξ, and the moments of its law that are known.

    Parameters
    ----------
    sampler : callable
        ``sampler(generator, (n_draws, n_weights))`` returns independent draws of that shape.
    has_location : bool
        Whether w = μ + σ ξ, or w = θ ξ with positive ξ.
    moment_range : (float, float), default=(-1.0, math.inf)
        ``E |ξ|^r`` exists for r between these two, exclusive.
    moments : mapping of float to float, optional
        E ξ^r for the powers r that mode ``"exact"`` needs.
    logs : tuple of float, default=()
        E log ξ and E log² ξ, likewise.
    entropy : float, default=0.0
        Of one draw; a constant of the divergence, taken as zero when not given.
    """

    sampler: Sampler
    has_location: bool
    moment_range: tuple[float, float] = (-1.0, math.inf)
    moments: Mapping[float, float] = field(default_factory=dict)
    logs: tuple[float, ...] = ()
    entropy: float = 0.0

    name = law = "custom"
    exponential = False

    def __post_init__(self) -> None:
        if not callable(self.sampler):
            raise TypeError(f"sampler must be callable, got {self.sampler!r}")
        as_flag(self.has_location, "has_location")
        low, high = self.moment_range
        if not low <= 0.0 <= high:
            raise ValueError(f"moment_range must hold a power of zero, got {self.moment_range}")
        for power, moment in self.moments.items():
            as_number(moment, f"moments[{power:g}]")
        for number in self.logs:
            as_number(number, "logs")
        as_number(self.entropy, "entropy")

    def draws(self, generator: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        """Return validated draws of the sampler.

        Parameters
        ----------
        generator : Generator
            Source of the random numbers.
        shape : (int, int)
            Numbers of draws and of weights.

        Returns
        -------
        ndarray of the given shape
            Draws.

        Raises
        ------
        ValueError, TypeError
            When it is no array of finite numbers of this shape, or not positive where there is no location.
        """
        xi = as_float_array(self.sampler(generator, shape), "the sampler's draws", shape)
        if not self.has_location and not (xi > 0.0).all():
            raise ValueError(f"the sampler's draws must be positive without a location, got {xi.min()}")
        return xi

    @property
    def support(self) -> str:
        """Support of the weights, one of `SUPPORTS`."""
        return "real" if self.has_location else "positive"

    def moment_bounds(self) -> tuple[float, float]:
        """Lower and upper bound on the powers r for which ``E |ξ|^r`` exists, both exclusive.

        Returns
        -------
        (float, float)
            Lower and upper bound.
        """
        return self.moment_range

    def moment(self, r: float, n_weights: int) -> float:
        """E ξ^r, if it was given.

        Parameters
        ----------
        r : float
            Power.
        n_weights : int
            Number of weights.

        Returns
        -------
        float
            The moment.

        Raises
        ------
        ValueError
            When it was not.
        """
        if r not in self.moments:
            raise ValueError(f"moments must have an entry for the power {r:g} in mode 'exact'")
        return float(self.moments[r])

    def log_moments(self) -> tuple[float, ...]:
        """E log ξ and E log² ξ, if they were given.

        Returns
        -------
        tuple of float
            The two, or nothing.

        Raises
        ------
        ValueError
            When they were not.
        """
        if len(self.logs) != 2:
            raise ValueError(f"logs must be given, two of them, in mode 'exact', got {self.logs}")
        return tuple(self.logs)

    def base_entropy(self, n_weights: int) -> float:
        """Entropy of the draws of all weights, or zero.

        Parameters
        ----------
        n_weights : int
            Number of weights.

        Returns
        -------
        float
            In nats.
        """
        return n_weights * self.entropy


Posterior = PosteriorFamily | CustomFamily


def as_posterior(value: Any) -> Posterior:
    """Return a family, given as one, by name, or as ``(name, shape)``."""
    if isinstance(value, str):
        return PosteriorFamily(value)
    if isinstance(value, tuple) and len(value) == 2:
        return PosteriorFamily(*value)
    if not isinstance(value, PosteriorFamily | CustomFamily):
        raise TypeError(f"posterior must be a family, a name or a tuple (name, shape), got {value!r}")
    return value


def as_scales(value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return positive scales of weights."""
    scale = as_float_array(value, "scale", shape)
    if not (scale > 0.0).all():
        raise ValueError(f"scale must be positive, got {scale.min()}")
    return scale


def has_moment(family: Posterior, r: float) -> bool:
    """Whether ``E |ξ|^r`` is finite.

    Parameters
    ----------
    family : PosteriorFamily or CustomFamily
        Law of ξ.
    r : float
        Power.

    Returns
    -------
    bool
        Whether it is.

    Examples
    --------
    >>> has_moment(PosteriorFamily("inverse_gamma", 2.0), 2), has_moment(PosteriorFamily("rayleigh"), -1)
    (False, True)
    """
    low, high = family.moment_bounds()
    return r == 0 or low < r < high


def partial_normal_moments(c: FloatArray, degree: int) -> FloatArray:
    """E[ξ^j; ξ ≤ c] of a standard normal ξ for j = 0 … degree.

    `c`: infinities are allowed. Returns an array (degree + 1, ...).
    """
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
