"""Prior densities of weights, each as the terms of its log-density; or a function of your own, draw by draw."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln

from pydirect._validation import FloatArray, as_choice, as_float_array, as_number
from pydirect.monte_carlo.posteriors import SUPPORTS
from pydirect.monte_carlo.terms import HIGHEST_DEGREE, Terms


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
    """N(mean, scale²).

    Parameters
    ----------
    mean : float, default=0.0
        Mean.
    scale : float, default=1.0
        Standard deviation.
    """

    mean: float = 0.0
    scale: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        constant = -math.log(self.scale) - 0.5 * math.log(2 * math.pi)
        return Terms("polynomial", "real", constant, self.mean, pieces=((0.0, 0.0, -0.5 / self.scale**2),))


@dataclass(frozen=True)
class ScaleMixtureDensity(Density):
    """Mean log-density of N(mean, s²) over an auxiliary scale s, log s ~ N(log_scale_mean, log_scale_deviation²).

    The conditional form of a horseshoe: s = τ λ, and of log-normal τ and λ the means and variances of the logs add up.
    The log-density of a horseshoe itself, the scales integrated out, cannot be computed from finitely many sums.

    Parameters
    ----------
    mean : float, default=0.0
        Mean.
    log_scale_mean : float, default=0.0
        Mean of log s.
    log_scale_deviation : float, default=0.0
        Standard deviation of log s.
    """

    mean: float = 0.0
    log_scale_mean: float = 0.0
    log_scale_deviation: float = 0.0

    signed = ("mean", "log_scale_mean", "log_scale_deviation")

    def __post_init__(self) -> None:
        super().__post_init__()
        as_number(self.log_scale_deviation, "log_scale_deviation", at_least=0.0)

    def terms(self) -> Terms:
        """Return the log-density's terms: E s⁻² = exp(−2 E log s + 2 Var log s).

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        precision = math.exp(-2 * self.log_scale_mean + 2 * self.log_scale_deviation**2)
        constant = -self.log_scale_mean - 0.5 * math.log(2 * math.pi)
        return Terms("polynomial", "real", constant, self.mean, pieces=((0.0, 0.0, -0.5 * precision),))


@dataclass(frozen=True)
class LogNormalDensity(Density):
    """Log-normal: w = exp v, v ~ N(mean, scale²).

    Parameters
    ----------
    mean : float, default=0.0
        Mean of log w.
    scale : float, default=1.0
        Standard deviation of log w.
    """

    mean: float = 0.0
    scale: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        constant = -math.log(self.scale) - 0.5 * math.log(2 * math.pi)
        square = -0.5 / self.scale**2
        return Terms("powers", "positive", constant, log_factor=-1.0, log_square_factor=square, log_centre=self.mean)

    def log_space_terms(self) -> Terms:
        """Return the terms of the density of v = log w.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        return NormalDensity(self.mean, self.scale).terms()


@dataclass(frozen=True)
class ExponentialDensity(Density):
    """Exponential of the given rate.

    Parameters
    ----------
    rate : float, default=1.0
        Rate, greater than zero.
    """

    rate: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        return Terms("powers", "positive", math.log(self.rate), exponents=(1.0,), factors=(-self.rate,))


@dataclass(frozen=True)
class GammaDensity(Density):
    """Gamma of the given shape and rate: Erlang for an integer shape, χ² of 2 · shape degrees of freedom at rate ½.

    Parameters
    ----------
    shape : float
        Shape, greater than zero.
    rate : float, default=1.0
        Rate, greater than zero.
    """

    shape: float
    rate: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        constant = self.shape * math.log(self.rate) - float(gammaln(self.shape))
        return Terms("powers", "positive", constant, exponents=(1.0,), factors=(-self.rate,), log_factor=self.shape - 1)


@dataclass(frozen=True)
class InverseGammaDensity(Density):
    """1/w is Gamma of the given shape and of rate `scale`.

    Parameters
    ----------
    shape : float
        Shape, greater than zero.
    scale : float, default=1.0
        Scale, greater than zero.
    """

    shape: float
    scale: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        constant = self.shape * math.log(self.scale) - float(gammaln(self.shape))
        log_factor = -self.shape - 1
        return Terms("powers", "positive", constant, exponents=(-1.0,), factors=(-self.scale,), log_factor=log_factor)


@dataclass(frozen=True)
class RayleighDensity(Density):
    """Rayleigh of the given scale.

    Parameters
    ----------
    scale : float, default=1.0
        Scale, greater than zero.
    """

    scale: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        constant, factor = -2 * math.log(self.scale), -0.5 / self.scale**2
        return Terms("powers", "positive", constant, exponents=(2.0,), factors=(factor,), log_factor=1.0)


@dataclass(frozen=True)
class WeibullDensity(Density):
    """Weibull of the given shape and scale.

    Parameters
    ----------
    shape : float
        Shape, greater than zero.
    scale : float, default=1.0
        Scale, greater than zero.
    """

    shape: float
    scale: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        k = self.shape
        constant = math.log(k) - k * math.log(self.scale)
        return Terms("powers", "positive", constant, exponents=(k,), factors=(-(self.scale**-k),), log_factor=k - 1)


@dataclass(frozen=True)
class WaldDensity(Density):
    """Inverse Gaussian of the given mean and shape.

    Parameters
    ----------
    mean : float, default=1.0
        Mean.
    shape : float, default=1.0
        Shape, greater than zero.
    """

    signed = ()

    mean: float = 1.0
    shape: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        m, k = self.mean, self.shape
        constant = 0.5 * math.log(k / (2 * math.pi)) + k / m
        factors = (-k / (2 * m * m), -k / 2)
        return Terms("powers", "positive", constant, exponents=(1.0, -1.0), factors=factors, log_factor=-1.5)


@dataclass(frozen=True)
class ParetoDensity(Density):
    """Pareto on w > 1: exponent · w^(−exponent − 1).

    Parameters
    ----------
    exponent : float, default=1.0
        Exponent, greater than zero.
    """

    exponent: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        return Terms("powers", "above one", math.log(self.exponent), log_factor=-self.exponent - 1)

    def log_space_terms(self) -> Terms:
        """Return the terms of the density of v = log w.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        return Terms("polynomial", "positive", math.log(self.exponent), pieces=((0.0, -self.exponent),))


@dataclass(frozen=True)
class LogisticDensity(Density):
    """Logistic of the given location and scale; its mean cannot be computed from finitely many sums.

    Parameters
    ----------
    location : float, default=0.0
        Location.
    scale : float, default=1.0
        Scale, greater than zero.
    """

    location: float = 0.0
    scale: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        return Terms("logistic", "real", 0.0, self.location, self.scale)


@dataclass(frozen=True)
class GeneralizedErrorDensity(Density):
    """Density proportional to exp(−|(w − location)/scale|^exponent).

    The exponent is an integer up to 16, or any positive number for positive weights and a location of zero.

    Parameters
    ----------
    location : float, default=0.0
        Location.
    scale : float, default=1.0
        Scale, greater than zero.
    exponent : float, default=2.0
        Exponent, greater than zero.
    """

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
        """Return the log-density's terms: a polynomial or two, or a power of w > 0 alone.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        c, factor = self.exponent, -(self.scale**-self.exponent)
        constant = math.log(c) - math.log(2 * self.scale) - float(gammaln(1 / c))
        if self._has_polynomials:
            right, left = ((*[0.0] * int(c), sign * factor) for sign in (1.0, (-1.0) ** int(c)))
            pieces, knots = ((right,), ()) if c % 2 == 0 else ((left, right), (0.0,))
            return Terms("polynomial", "real", constant, self.location, pieces=pieces, knots=knots)
        return Terms("powers", "positive", constant, exponents=(c,), factors=(factor,))


@dataclass(frozen=True)
class LaplaceDensity(Density):
    """Density proportional to exp(−|w − location|/diversity).

    Parameters
    ----------
    location : float, default=0.0
        Location.
    diversity : float, default=1.0
        Diversity: mean distance from the location.
    """

    location: float = 0.0
    diversity: float = 1.0

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        return GeneralizedErrorDensity(self.location, self.diversity, 1.0).terms()


@dataclass(frozen=True)
class HuberDensity(Density):
    """Normal within `threshold` scales of the location, exponential tails beyond.

    Parameters
    ----------
    location : float, default=0.0
        Location.
    scale : float, default=1.0
        Scale, greater than zero.
    threshold : float, default=1.345
        Number of scales from the location to where the tails begin.
    """

    location: float = 0.0
    scale: float = 1.0
    threshold: float = 1.345

    def terms(self) -> Terms:
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        s, k = self.scale, self.threshold
        mass = math.sqrt(2 * math.pi) * math.erf(k / math.sqrt(2)) + 2 / k * math.exp(-k * k / 2)
        left, right = ((k * k / 2, sign * k / s, 0.0) for sign in (1.0, -1.0))
        pieces = (left, (0.0, 0.0, -0.5 / s**2), right)
        return Terms("polynomial", "real", -math.log(s * mass), self.location, pieces=pieces, knots=(-k * s, k * s))


@dataclass(frozen=True)
class PolynomialDensity(Density):
    """Log-density that is a (piecewise) polynomial in w − centre; it need not be normalised.

    It must tend to −∞ on both sides, or on the right for positive weights.

    Parameters
    ----------
    pieces : sequence of sequences of float
        Coefficients of 1, w − centre, (w − centre)², …; one row more than there are knots.
    centre : float, default=0.0
        Centre of the polynomial.
    knots : sequence of float, default=()
        Ascending, relative to the centre; the log-density should be continuous there.
    """

    pieces: Sequence[Sequence[float]]
    centre: float = 0.0
    knots: Sequence[float] = ()

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
        """Return the log-density's terms.

        Returns
        -------
        Terms
            Kind and coefficients of the terms.
        """
        pieces, knots = tuple(map(tuple, self.pieces)), tuple(self.knots)
        return Terms("polynomial", "real", 0.0, self.centre, pieces=pieces, knots=knots)


@dataclass(frozen=True)
class UserDensity:
    """Log-density of your own, evaluated draw by draw.

    Parameters
    ----------
    log_density, slope : callable
        log p(w) and its derivative, element-wise on arrays, which are not to be written to.
    support : {"real", "positive", "above one"}, default="real"
        Where the density is positive.
    tail_powers : sequence of float, default=(1.0,)
        The log-density's mean exists where those of ``|w|`` to these powers do: ``(2.0,)`` for Gaussian tails,
        ``(-1.0, 1.0)`` for an inverse Gaussian density, whose logarithm holds 1/w.
    """

    log_density: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]
    support: str = "real"
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
        """Return the validated log-density and its derivative.

        Parameters
        ----------
        w : ndarray
            Weights.

        Returns
        -------
        (ndarray, ndarray)
            Of the shape of w each.

        Raises
        ------
        ValueError, TypeError
            When they are not finite numbers of the shape of `w`.
        """
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
