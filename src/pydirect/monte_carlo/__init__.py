"""Divergences of posteriors from priors by Monte Carlo where it cannot be avoided, and without it where it can."""

from pydirect.monte_carlo.divergence import InadmissiblePairError, MonteCarloDivergence
from pydirect.monte_carlo.families import CustomFamily, PosteriorFamily, has_moment
from pydirect.monte_carlo.priors import (
    ExponentialDensity,
    GammaDensity,
    GeneralizedErrorDensity,
    HuberDensity,
    InverseGammaDensity,
    LaplaceDensity,
    LogisticDensity,
    LogNormalDensity,
    NormalDensity,
    ParetoDensity,
    PolynomialDensity,
    RayleighDensity,
    UserDensity,
    WaldDensity,
    WeibullDensity,
)

__all__ = [
    "CustomFamily",
    "ExponentialDensity",
    "GammaDensity",
    "GeneralizedErrorDensity",
    "HuberDensity",
    "InadmissiblePairError",
    "InverseGammaDensity",
    "LaplaceDensity",
    "LogNormalDensity",
    "LogisticDensity",
    "MonteCarloDivergence",
    "NormalDensity",
    "ParetoDensity",
    "PolynomialDensity",
    "PosteriorFamily",
    "RayleighDensity",
    "UserDensity",
    "WaldDensity",
    "WeibullDensity",
    "has_moment",
]
