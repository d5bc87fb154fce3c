"""Kullback-Leibler divergences of posteriors from priors: in closed form where possible, by Monte Carlo elsewhere."""

from pydirect.monte_carlo.densities import (
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
    ScaleMixtureDensity,
    UserDensity,
    WaldDensity,
    WeibullDensity,
)
from pydirect.monte_carlo.divergence import InadmissiblePairError, MonteCarloDivergence
from pydirect.monte_carlo.posteriors import PosteriorFamily, has_moment

__all__ = [
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
    "ScaleMixtureDensity",
    "UserDensity",
    "WaldDensity",
    "WeibullDensity",
    "has_moment",
]
