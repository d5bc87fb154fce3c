"""Prior densities of weights, each as the terms of its log-density; or a function of your own, draw by draw."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln

from pydirect import _core
from pydirect._validation import FloatArray, as_choice, as_float_array, as_number
from pydirect.monte_carlo.posteriors import SUPPORTS

HIGHEST_DEGREE = 16


@dataclass(frozen=True)
class Terms:
    """Log-density of one weight: `constant` plus the terms of one kind."""

    kind: str  # {"polynomial", "powers", "logistic"}
    support: str = "real"  # {"real", "positive", "above one"}
    constant: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    # Coefficients of 1, w − centre, (w − centre)², …, one tuple between any two knots.
    pieces: tuple[tuple[float, ...], ...] = ((0.0,),)
    knots: tuple[float, ...] = ()  # ascending, relative to the centre
    exponents: tuple[float, ...] = ()  # Σ factor w^exponent
    factors: tuple[float, ...] = ()  # Σ factor w^exponent
    log_factor: float = 0.0  # a, b and m of a log w + b (log w − m)²
    log_square_factor: float = 0.0  # a, b and m of a log w + b (log w − m)²
    log_centre: float = 0.0  # a, b and m of a log w + b (log w − m)²

    @property
    def n_logs(self) -> int:
        """Number of means of logs that the terms need: none, that of log ξ, or those of log ξ and log² ξ."""
        return 2 if self.log_square_factor else int(self.log_factor != 0.0)

    @property
    def sums(self) -> tuple[float | str, ...]:
        """Powers r of which mean ξ^r is needed, then ``"log"`` and ``"log_square"`` where their means are."""
        if self.kind == "polynomial":
            return tuple(float(k) for k in range(1, self.degree + 1))
        return (*self.exponents, *("log", "log_square")[: self.n_logs])

    @property
    def degree(self) -> int:
        """Highest power of a polynomial."""
        return max(len(piece) for piece in self.pieces) - 1

    @property
    def tail_powers(self) -> tuple[float, ...]:
        """Powers of abs(w) whose means must exist for the mean of the log-density to exist."""
        if self.kind == "powers":
            return self.exponents
        if self.kind == "logistic":
            return (1.0,)
        tails = (self.pieces[0], self.pieces[-1])
        return tuple(float(k) for k in range(1, self.degree + 1) if any(k < len(t) and t[k] for t in tails))

    def tails_fall(self, left: bool) -> bool:
        """Whether a polynomial tends to −∞ as w → ∞ and, if `left`, as w → −∞."""
        ends = [(self.pieces[-1], 1.0), (self.pieces[0], -1.0)][: 1 + left]
        leading = [(max((k for k, c in enumerate(p) if c != 0.0), default=0), p, sign) for p, sign in ends]
        return all(k > 0 and p[k] * sign**k < 0.0 for k, p, sign in leading)

    def compiled(self) -> _core.LogDensity:
        """Return the terms as the compiled module takes them, without `constant`."""
        degree = self.degree
        return _core.LogDensity(
            self.kind,
            self.centre,
            self.scale,
            math.log(self.scale),
            [[*piece, *[0.0] * (degree + 1 - len(piece))] for piece in self.pieces],
            list(self.knots),
            list(self.exponents),
            list(self.factors),
            self.n_logs,
            self.log_factor,
            self.log_square_factor,
            self.log_centre,
        )

    def log_density_and_slope(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-density without its constant, and its derivative, element-wise."""
        if self.kind == "logistic":
            x = (w - self.centre) / self.scale
            return -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))) - math.log(self.scale), -np.tanh(x / 2) / self.scale
        if self.kind == "polynomial":
            x = w - self.centre
            piece = sum((x > knot for knot in self.knots), start=np.zeros(x.shape, dtype=np.intp))
            polynomials = [np.polynomial.Polynomial(p) for p in self.pieces]
            values = [np.choose(piece, [f(x) for f in fs]) for fs in (polynomials, [p.deriv() for p in polynomials])]
            return values[0], values[1]
        log_w = np.log(w)
        shifted, square = log_w - self.log_centre, self.log_square_factor
        value, slope = self.log_factor * log_w + square * shifted**2, self.log_factor + 2 * square * shifted
        for r, factor in zip(self.exponents, self.factors, strict=True):
            value = value + factor * w**r
            slope = slope + r * factor * w**r
        return value, slope / w

    def as_powers(self) -> Terms | None:
        """Return the same density on w > 0 as a sum of powers of w, or None where it is not one."""
        if self.kind == "powers":
            return self
        if self.kind != "polynomial" or any(knot + self.centre > 0.0 for knot in self.knots):
            return None
        polynomial = np.polynomial.Polynomial(self.pieces[-1])(np.polynomial.Polynomial([-self.centre, 1.0])).coef
        used = [(float(r), float(f)) for r, f in enumerate(polynomial) if r > 0 and f != 0.0]
        return Terms(
            "powers",
            support=self.support,
            constant=self.constant + float(polynomial[0]),
            exponents=tuple(r for r, _ in used),
            factors=tuple(f for _, f in used),
        )

    def as_polynomial(self) -> Terms | None:
        """Return the same density as a polynomial in w, or None where it is not one."""
        if self.kind == "polynomial":
            return self
        if self.kind != "powers" or self.n_logs or any(r != int(r) or r < 1 for r in self.exponents):
            return None
        coefficients = np.zeros(int(max(self.exponents)) + 1)
        coefficients[[int(r) for r in self.exponents]] = self.factors
        return Terms("polynomial", self.support, self.constant, pieces=(tuple(coefficients.tolist()),))

    def with_integers_first(self) -> Terms:
        """Return the same powers in the order of the kernels: positive integers first."""
        pairs = sorted(zip(self.exponents, self.factors, strict=True), key=lambda p: (p[0] < 0 or p[0] % 1 > 0, p[0]))
        return replace(self, exponents=tuple(r for r, _ in pairs), factors=tuple(f for _, f in pairs))


@dataclass(frozen=True)
class Density(ABC):
    """Base of prior densities: dataclasses whose fields are finite numbers, positive but for those in `signed`."""

    signed: ClassVar[tuple[str, ...]] = ("mean", "location")

    def __post_init__(self) -> None:
        for each in fields(self):
            low = -math.inf if each.name in self.signed else 0.0
            as_number(getattr(self, each.name), each.name, above=low)

    @abstractmethod
    def terms(self) -> Terms:
        """Return the log-density's terms."""

    def log_space_terms(self) -> Terms | None:
        """Return the terms of the density of v = log w, if it has simple ones."""
        return None


@dataclass(frozen=True)
class NormalDensity(Density):
    """N(mean, scale²)."""

    mean: float = 0.0
    scale: float = 1.0  # standard deviation

    def terms(self) -> Terms:
        constant = -math.log(self.scale) - 0.5 * math.log(2 * math.pi)
        return Terms("polynomial", "real", constant, self.mean, pieces=((0.0, 0.0, -0.5 / self.scale**2),))


@dataclass(frozen=True)
class ScaleMixtureDensity(Density):
    """Mean log-density of N(mean, s²) over an auxiliary scale s, log s ~ N(log_scale_mean, log_scale_deviation²).

    The conditional form of a horseshoe: s = τ λ, and of log-normal τ and λ the means and variances of the logs add up.
    The log-density of a horseshoe itself, the scales integrated out, cannot be computed from finitely many sums.
    """

    mean: float = 0.0
    log_scale_mean: float = 0.0  # mean of log s
    log_scale_deviation: float = 0.0  # standard deviation of log s

    signed = ("mean", "log_scale_mean", "log_scale_deviation")

    def __post_init__(self) -> None:
        super().__post_init__()
        as_number(self.log_scale_deviation, "log_scale_deviation", at_least=0.0)

    def terms(self) -> Terms:
        """Return the log-density's terms: E s⁻² = exp(−2 E log s + 2 Var log s)."""
        precision = math.exp(-2 * self.log_scale_mean + 2 * self.log_scale_deviation**2)
        constant = -self.log_scale_mean - 0.5 * math.log(2 * math.pi)
        return Terms("polynomial", "real", constant, self.mean, pieces=((0.0, 0.0, -0.5 * precision),))


@dataclass(frozen=True)
class LogNormalDensity(Density):
    """Log-normal: w = exp v, v ~ N(mean, scale²)."""

    mean: float = 0.0  # mean of log w
    scale: float = 1.0  # standard deviation of log w

    def terms(self) -> Terms:
        constant = -math.log(self.scale) - 0.5 * math.log(2 * math.pi)
        square = -0.5 / self.scale**2
        return Terms("powers", "positive", constant, log_factor=-1.0, log_square_factor=square, log_centre=self.mean)

    def log_space_terms(self) -> Terms:
        return NormalDensity(self.mean, self.scale).terms()


@dataclass(frozen=True)
class ExponentialDensity(Density):
    """Exponential of the given rate."""

    rate: float = 1.0

    def terms(self) -> Terms:
        return Terms("powers", "positive", math.log(self.rate), exponents=(1.0,), factors=(-self.rate,))


@dataclass(frozen=True)
class GammaDensity(Density):
    """Gamma of the given shape and rate: Erlang for an integer shape, χ² of 2 · shape degrees of freedom at rate ½."""

    shape: float
    rate: float = 1.0

    def terms(self) -> Terms:
        constant = self.shape * math.log(self.rate) - float(gammaln(self.shape))
        return Terms("powers", "positive", constant, exponents=(1.0,), factors=(-self.rate,), log_factor=self.shape - 1)


@dataclass(frozen=True)
class InverseGammaDensity(Density):
    """1/w is Gamma of the given shape and of rate `scale`."""

    shape: float
    scale: float = 1.0

    def terms(self) -> Terms:
        constant = self.shape * math.log(self.scale) - float(gammaln(self.shape))
        log_factor = -self.shape - 1
        return Terms("powers", "positive", constant, exponents=(-1.0,), factors=(-self.scale,), log_factor=log_factor)


@dataclass(frozen=True)
class RayleighDensity(Density):
    """Rayleigh of the given scale."""

    scale: float = 1.0

    def terms(self) -> Terms:
        constant, factor = -2 * math.log(self.scale), -0.5 / self.scale**2
        return Terms("powers", "positive", constant, exponents=(2.0,), factors=(factor,), log_factor=1.0)


@dataclass(frozen=True)
class WeibullDensity(Density):
    """Weibull of the given shape and scale."""

    shape: float
    scale: float = 1.0

    def terms(self) -> Terms:
        k = self.shape
        constant = math.log(k) - k * math.log(self.scale)
        return Terms("powers", "positive", constant, exponents=(k,), factors=(-(self.scale**-k),), log_factor=k - 1)


@dataclass(frozen=True)
class WaldDensity(Density):
    """Inverse Gaussian of the given mean and shape."""

    signed = ()

    mean: float = 1.0
    shape: float = 1.0

    def terms(self) -> Terms:
        m, k = self.mean, self.shape
        constant = 0.5 * math.log(k / (2 * math.pi)) + k / m
        factors = (-k / (2 * m * m), -k / 2)
        return Terms("powers", "positive", constant, exponents=(1.0, -1.0), factors=factors, log_factor=-1.5)


@dataclass(frozen=True)
class ParetoDensity(Density):
    """Pareto on w > 1: exponent · w^(−exponent − 1)."""

    exponent: float = 1.0

    def terms(self) -> Terms:
        return Terms("powers", "above one", math.log(self.exponent), log_factor=-self.exponent - 1)

    def log_space_terms(self) -> Terms:
        return Terms("polynomial", "positive", math.log(self.exponent), pieces=((0.0, -self.exponent),))


@dataclass(frozen=True)
class LogisticDensity(Density):
    """Logistic of the given location and scale; its mean cannot be computed from finitely many sums."""

    location: float = 0.0
    scale: float = 1.0

    def terms(self) -> Terms:
        return Terms("logistic", "real", 0.0, self.location, self.scale)


@dataclass(frozen=True)
class GeneralizedErrorDensity(Density):
    """Density ∝ exp(−|(w − location)/scale|^exponent), an integer up to 16, or any for w > 0 and a location of 0."""

    location: float = 0.0
    scale: float = 1.0
    exponent: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.location != 0.0 and not self._has_polynomials:
            raise ValueError(
                f"exponent must be an integer up to {HIGHEST_DEGREE} for a location other than zero, "
                f"got {self.exponent}"
            )

    @property
    def _has_polynomials(self) -> bool:
        return self.exponent == int(self.exponent) and self.exponent <= HIGHEST_DEGREE

    def terms(self) -> Terms:
        """Return the log-density's terms: a polynomial or two, or a power of w > 0 alone."""
        c, factor = self.exponent, -(self.scale**-self.exponent)
        constant = math.log(c) - math.log(2 * self.scale) - float(gammaln(1 / c))
        if self._has_polynomials:
            right, left = ((*[0.0] * int(c), sign * factor) for sign in (1.0, (-1.0) ** int(c)))
            pieces, knots = ((right,), ()) if c % 2 == 0 else ((left, right), (0.0,))
            return Terms("polynomial", "real", constant, self.location, pieces=pieces, knots=knots)
        return Terms("powers", "positive", constant, exponents=(c,), factors=(factor,))


@dataclass(frozen=True)
class LaplaceDensity(Density):
    """Density proportional to exp(−|w − location|/diversity)."""

    location: float = 0.0
    diversity: float = 1.0  # diversity: mean distance from the location

    def terms(self) -> Terms:
        return GeneralizedErrorDensity(self.location, self.diversity, 1.0).terms()


@dataclass(frozen=True)
class HuberDensity(Density):
    """Normal within `threshold` scales of the location, exponential tails beyond."""

    location: float = 0.0
    scale: float = 1.0
    threshold: float = 1.345  # number of scales from the location to where the tails begin

    def terms(self) -> Terms:
        s, k = self.scale, self.threshold
        mass = math.sqrt(2 * math.pi) * math.erf(k / math.sqrt(2)) + 2 / k * math.exp(-k * k / 2)
        left, right = ((k * k / 2, sign * k / s, 0.0) for sign in (1.0, -1.0))
        pieces = (left, (0.0, 0.0, -0.5 / s**2), right)
        return Terms("polynomial", "real", -math.log(s * mass), self.location, pieces=pieces, knots=(-k * s, k * s))


@dataclass(frozen=True)
class PolynomialDensity(Density):
    """Log-density that is a (piecewise) polynomial in w − centre and tends to −∞; it need not be normalised."""

    # Coefficients of 1, w − centre, (w − centre)², …; one row more than there are knots.
    pieces: Sequence[Sequence[float]]
    centre: float = 0.0  # centre of the polynomial
    knots: Sequence[float] = ()  # ascending, relative to the centre; the log-density should be continuous there

    def __post_init__(self) -> None:
        as_number(self.centre, "centre")
        pieces = [as_float_array(piece, f"pieces[{i}]", ("degree + 1",)) for i, piece in enumerate(self.pieces)]
        knots = as_float_array(self.knots, "knots", ("n_knots",)) if len(self.knots) else np.empty(0)
        object.__setattr__(self, "pieces", tuple(tuple(piece.tolist()) for piece in pieces))
        object.__setattr__(self, "knots", tuple(knots.tolist()))
        degree = max((len(piece) for piece in self.pieces), default=0) - 1
        if not 1 <= degree <= HIGHEST_DEGREE:
            raise ValueError(f"pieces must be of a degree from 1 to {HIGHEST_DEGREE}, got {degree}")
        if len(self.pieces) != len(self.knots) + 1:
            raise ValueError(f"pieces must be one more than the {len(self.knots)} knots, got {len(self.pieces)}")
        if not all(a < b for a, b in zip(self.knots, self.knots[1:], strict=False)):
            raise ValueError(f"knots must ascend, got {self.knots}")

    def terms(self) -> Terms:
        pieces, knots = tuple(map(tuple, self.pieces)), tuple(self.knots)
        return Terms("polynomial", "real", 0.0, self.centre, pieces=pieces, knots=knots)


@dataclass(frozen=True)
class UserDensity:
    """Log-density of your own, evaluated draw by draw."""

    # Log p(w) and its derivative, element-wise on arrays, which are not to be written to.
    log_density: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]
    support: str = "real"  # where the density is positive
    # The log-density's mean exists where those of ``|w|`` to these powers do: ``(2.0,)`` for Gaussian tails, ``(-1.0,
    # 1.0)`` for an inverse Gaussian density, whose logarithm holds 1/w.
    tail_powers: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        for name in ("log_density", "slope"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, got {getattr(self, name)!r}")
        as_choice(self.support, "support", SUPPORTS)
        given = np.asarray(self.tail_powers)
        powers = given if given.shape == (0,) else as_float_array(given, "tail_powers", ("n_powers",))
        object.__setattr__(self, "tail_powers", tuple(powers.tolist()))

    def log_density_and_slope(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the validated log-density and its derivative."""
        seen = w.view()
        seen.flags.writeable = False
        log_p = as_float_array(self.log_density(seen), "log_density(w)", w.shape)
        return log_p, as_float_array(self.slope(seen), "slope(w)", w.shape)


PRIORS: dict[str, type[Density]] = {
    "normal": NormalDensity,
    "scale_mixture": ScaleMixtureDensity,
    "lognormal": LogNormalDensity,
    "exponential": ExponentialDensity,
    "gamma": GammaDensity,
    "inverse_gamma": InverseGammaDensity,
    "rayleigh": RayleighDensity,
    "weibull": WeibullDensity,
    "wald": WaldDensity,
    "pareto": ParetoDensity,
    "logistic": LogisticDensity,
    "laplace": LaplaceDensity,
    "generalized_error": GeneralizedErrorDensity,
    "huber": HuberDensity,
}


def as_prior(value: Any) -> Density | UserDensity:
    """Return a density, given as one, by name, or as ``(name, parameter, ...)``."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        density = PRIORS[as_choice(value[0], "prior", tuple(PRIORS))]
        names = tuple(each.name for each in fields(density))
        if len(value) - 1 > len(names):
            raise ValueError(f"prior must be given as ({', '.join((repr(value[0]), *names))}), got {value}")
        return density(*value[1:])
    if not isinstance(value, Density | UserDensity):
        raise TypeError(f"prior must be a density, a name or a tuple (name, parameter, ...), got {value!r}")
    return value
