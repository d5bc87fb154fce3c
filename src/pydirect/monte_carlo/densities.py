"""Prior densities of weights by name, each as the terms of its log-density; or a function of your own, draw by draw."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pydirect import _core
from pydirect._validation import FloatArray, as_choice, as_float_array, as_number
from pydirect.monte_carlo.posteriors import SUPPORTS

HIGHEST_DEGREE = 16
LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
# Parameters that may be negative.
SIGNED = ("mean", "location", "centre", "log_scale_mean", "log_scale_deviation")


@dataclass(frozen=True)
class Density:
    """Log-density of one weight: `constant` plus the terms of one kind."""

    kind: str  # {"polynomial", "powers", "logistic"}
    support: str = "real"  # {"real", "positive", "above one"}
    constant: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    # Coefficients of 1, w − centre, (w − centre)², …, as many between any two knots.
    pieces: tuple[tuple[float, ...], ...] = ((0.0,),)
    knots: tuple[float, ...] = ()  # ascending, relative to the centre
    powers: tuple[tuple[float, float], ...] = ()  # (r, factor) of Σ factor w^r, positive integers r first
    log_factor: float = 0.0  # a, b and m of a log w + b (log w − m)²
    log_square_factor: float = 0.0
    log_centre: float = 0.0
    of_log: Density | None = None  # density of log w, where it is simpler
    name: str = ""

    @property
    def n_logs(self) -> int:
        """Number of means of logs that the terms need: none, that of log ξ, or those of log ξ and log² ξ."""
        return 2 if self.log_square_factor else int(self.log_factor != 0.0)

    @property
    def sums(self) -> tuple[float | str, ...]:
        """Powers r of which mean ξ^r is needed, then ``"log"`` and ``"log_square"`` where their means are."""
        if self.kind == "polynomial":
            return tuple(float(k) for k in range(1, self.degree + 1))
        return (*(r for r, _ in self.powers), *("log", "log_square")[: self.n_logs])

    @property
    def degree(self) -> int:
        """Highest power of a polynomial."""
        return len(self.pieces[0]) - 1

    @property
    def tail_powers(self) -> tuple[float, ...]:
        """Powers of abs(w) whose means must exist for the mean of the log-density to exist."""
        if self.kind == "powers":
            return tuple(r for r, _ in self.powers)
        tails = ((0.0, 1.0),) if self.kind == "logistic" else (self.pieces[0], self.pieces[-1])
        return tuple(float(k) for k in range(1, len(tails[0])) if any(tail[k] for tail in tails))

    def tails_fall(self, left: bool) -> bool:
        """Whether a polynomial tends to −∞ as w → ∞ and, if `left`, as w → −∞."""
        right, reflected = self.pieces[-1], tuple((-1) ** k * c for k, c in enumerate(self.pieces[0]))
        ends = [np.trim_zeros(end, "b") for end in ((right, reflected) if left else (right,))]
        return all(len(end) > 1 and end[-1] < 0.0 for end in ends)

    def compiled(self) -> _core.LogDensity:
        """Return the terms as the compiled module takes them, without `constant`."""
        exponents, factors = [r for r, _ in self.powers], [factor for _, factor in self.powers]
        shape = self.kind, self.centre, self.scale, math.log(self.scale), [list(piece) for piece in self.pieces]
        logs = self.n_logs, self.log_factor, self.log_square_factor, self.log_centre
        terms = (*shape, list(self.knots), exponents, factors, *logs)
        return _core.LogDensity(*terms)

    def as_powers(self) -> Density | None:
        """Return the same density on w > 0 as a sum of powers of w, or None where it is not one."""
        if self.kind == "powers":
            return self
        if self.kind != "polynomial" or any(knot + self.centre > 0.0 for knot in self.knots):
            return None
        c = np.polynomial.Polynomial(self.pieces[-1])(np.polynomial.Polynomial([-self.centre, 1.0])).coef
        used = tuple((float(r), float(f)) for r, f in enumerate(c) if r > 0 and f != 0.0)
        return Density("powers", self.support, self.constant + float(c[0]), powers=used, name=self.name)

    def as_polynomial(self) -> Density | None:
        """Return the same density as a polynomial in w, or None where it is not one."""
        if self.kind == "polynomial":
            return self
        if self.kind != "powers" or self.n_logs or any(r != int(r) or r < 1 for r, _ in self.powers):
            return None
        factors = {int(r): factor for r, factor in self.powers}
        piece = tuple(factors.get(r, 0.0) for r in range(max(factors) + 1))
        return Density("polynomial", self.support, self.constant, pieces=(piece,), name=self.name)


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

    name = "a prior of your own"

    def log_density_and_slope(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the validated log-density and its derivative."""
        seen = w.view()
        seen.flags.writeable = False
        log_p = as_float_array(self.log_density(seen), "log_density(w)", w.shape)
        return log_p, as_float_array(self.slope(seen), "slope(w)", w.shape)


def _quadratic(mean: float, constant: float, precision: float) -> Density:
    return Density("polynomial", "real", constant - LOG_ROOT_2PI, mean, pieces=((0.0, 0.0, -0.5 * precision),))


def _powers(constant: float, *powers: tuple[float, float], log_factor: float = 0.0, **terms: Any) -> Density:
    return Density("powers", "positive", constant, powers=powers, log_factor=log_factor, **terms)


def _normal(mean: float = 0.0, scale: float = 1.0) -> Density:
    return _quadratic(mean, -math.log(scale), scale**-2)


def _scale_mixture(mean: float = 0.0, log_scale_mean: float = 0.0, log_scale_deviation: float = 0.0) -> Density:
    """Mean log-density of N(mean, s²) over an auxiliary scale s, log s ~ N(log_scale_mean, log_scale_deviation²).

    The conditional form of a horseshoe: s = τ λ, and of log-normal τ and λ the means and variances of the logs add up.
    The log-density of a horseshoe itself, the scales integrated out, cannot be computed from finitely many sums.
    """
    as_number(log_scale_deviation, "log_scale_deviation", at_least=0.0)
    return _quadratic(mean, -log_scale_mean, math.exp(-2 * log_scale_mean + 2 * log_scale_deviation**2))


def _lognormal(mean: float = 0.0, scale: float = 1.0) -> Density:
    of_log, square = _normal(mean, scale), -0.5 / scale**2
    return _powers(of_log.constant, log_factor=-1.0, log_square_factor=square, log_centre=mean, of_log=of_log)


def _wald(mean: float = 1.0, shape: float = 1.0) -> Density:
    """Inverse Gaussian density."""
    as_number(mean, "mean", above=0.0)
    constant = 0.5 * math.log(shape) - LOG_ROOT_2PI + shape / mean
    return _powers(constant, (1.0, -shape / (2 * mean * mean)), (-1.0, -shape / 2), log_factor=-1.5)


def _pareto(exponent: float = 1.0) -> Density:
    """On w > 1: exponent · w^(−exponent − 1)."""
    constant = math.log(exponent)
    of_log = Density("polynomial", "positive", constant, pieces=((0.0, -exponent),), name="pareto")
    return Density("powers", "above one", constant, log_factor=-exponent - 1, of_log=of_log)


def _generalized_error(location: float = 0.0, scale: float = 1.0, exponent: float = 2.0) -> Density:
    """Density ∝ exp(−|(w − location)/scale|^exponent), an integer up to 16, or any for w > 0 and a location of 0."""
    factor = -(scale**-exponent)
    constant = math.log(exponent) - math.log(2 * scale) - math.lgamma(1 / exponent)
    if exponent == int(exponent) and exponent <= HIGHEST_DEGREE:
        right, left = ((*[0.0] * int(exponent), sign * factor) for sign in (1.0, (-1.0) ** int(exponent)))
        pieces, knots = ((right,), ()) if exponent % 2 == 0 else ((left, right), (0.0,))
        return Density("polynomial", "real", constant, location, pieces=pieces, knots=knots)
    if location != 0.0:
        raise ValueError(f"exponent must be an integer up to {HIGHEST_DEGREE} unless location is 0, got {exponent}")
    return _powers(constant, (exponent, factor))


def _huber(location: float = 0.0, scale: float = 1.0, threshold: float = 1.345) -> Density:
    """Normal within `threshold` scales of the location, exponential tails beyond."""
    s, k = scale, threshold
    mass = math.sqrt(2 * math.pi) * math.erf(k / math.sqrt(2)) + 2 / k * math.exp(-k * k / 2)
    left, right = ((k * k / 2, sign * k / s, 0.0) for sign in (1.0, -1.0))
    pieces = (left, (0.0, 0.0, -0.5 / s**2), right)
    return Density("polynomial", "real", -math.log(s * mass), location, pieces=pieces, knots=(-k * s, k * s))


def _polynomial(pieces: Sequence[Sequence[float]], centre: float = 0.0, knots: Sequence[float] = ()) -> Density:
    """Log-density that is a (piecewise) polynomial in w − centre and tends to −∞; it need not be normalised.

    Coefficients of 1, w − centre, …, one row more than there are knots. These ascend, relative to the centre; the
    log-density should be continuous there.
    """
    rows = [as_float_array(piece, f"pieces[{i}]", ("degree + 1",)).tolist() for i, piece in enumerate(pieces)]
    ends = as_float_array(knots, "knots", ("n_knots",)).tolist() if len(knots) else []
    length = max(map(len, rows), default=0)
    if not 1 < length <= HIGHEST_DEGREE + 1:
        raise ValueError(f"pieces must be of a degree from 1 to {HIGHEST_DEGREE}, got {length - 1}")
    if len(rows) != len(ends) + 1:
        raise ValueError(f"pieces must be one more than the {len(ends)} knots, got {len(rows)}")
    if sorted(set(ends)) != ends:
        raise ValueError(f"knots must ascend, got {ends}")
    padded = tuple((*row, *[0.0] * (length - len(row))) for row in rows)
    return Density("polynomial", "real", 0.0, centre, pieces=padded, knots=tuple(ends))


# Densities by name, as functions of their parameters. Gamma is Erlang for an integer shape, χ² of 2 · shape degrees of
# freedom at rate ½; of an inverse gamma w, 1/w is gamma. The mean logarithm of the logistic density cannot be computed
# from finitely many sums.
PRIORS: dict[str, Callable[..., Density]] = {
    "normal": _normal,
    "scale_mixture": _scale_mixture,
    "lognormal": _lognormal,
    "exponential": lambda rate=1.0: _powers(math.log(rate), (1.0, -rate)),
    "gamma": lambda shape, rate=1.0: _powers(
        shape * math.log(rate) - math.lgamma(shape), (1.0, -rate), log_factor=shape - 1
    ),
    "inverse_gamma": lambda shape, scale=1.0: _powers(
        shape * math.log(scale) - math.lgamma(shape), (-1.0, -scale), log_factor=-shape - 1
    ),
    "rayleigh": lambda scale=1.0: _powers(-2 * math.log(scale), (2.0, -0.5 / scale**2), log_factor=1.0),
    "weibull": lambda shape, scale=1.0: _powers(
        math.log(shape) - shape * math.log(scale), (shape, -(scale**-shape)), log_factor=shape - 1
    ),
    "wald": _wald,
    "pareto": _pareto,
    "logistic": lambda location=0.0, scale=1.0: Density("logistic", "real", 0.0, location, scale),
    "laplace": lambda location=0.0, diversity=1.0: _generalized_error(location, diversity, 1.0),
    "generalized_error": _generalized_error,
    "huber": _huber,
    "polynomial": _polynomial,
}


def as_prior(value: Any) -> Density | UserDensity:
    """Return a density, given as one, by name, or as ``(name, parameter, ...)``."""
    if isinstance(value, Density | UserDensity):
        return value
    name, *given = value if isinstance(value, tuple) and value else (value,)
    if not isinstance(name, str):
        raise TypeError(f"prior must be a density, a name or a tuple (name, parameter, ...), got {value!r}")
    law = PRIORS[as_choice(name, "prior", tuple(PRIORS))]
    parameters = inspect.signature(law).parameters
    names, n_needed = tuple(parameters), sum(p.default is inspect.Parameter.empty for p in parameters.values())
    if not n_needed <= len(given) <= len(names):
        raise ValueError(f"prior must be given as ({', '.join((repr(name), *names))}), got {value}")
    for parameter, number in zip(names, given, strict=False):
        if parameter not in ("pieces", "knots"):
            as_number(number, parameter, above=-math.inf if parameter in SIGNED else 0.0)
    try:
        return replace(law(*given), name=name)
    except OverflowError:
        raise ValueError(f"prior must have parameters whose powers do not overflow, got {value}") from None
