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
    PolynomialSurrogate,
    RayleighDensity,
    ScaleMixtureDensity,
    UserDensity,
    WaldDensity,
    WeibullDensity,
    polynomial_surrogate,
)
from pydirect.monte_carlo.divergence import InadmissiblePairError, MonteCarloDivergence
from pydirect.monte_carlo.last_layer import LinearOutput, SquaredErrors, expected_logistic_likelihood
from pydirect.monte_carlo.posteriors import CustomFamily, PosteriorFamily, has_moment

__all__ = [
    "CustomFamily",
    "ExponentialDensity",
    "GammaDensity",
    "GeneralizedErrorDensity",
    "HuberDensity",
    "InadmissiblePairError",
    "InverseGammaDensity",
    "LaplaceDensity",
    "LinearOutput",
    "LogNormalDensity",
    "LogisticDensity",
    "MonteCarloDivergence",
    "NormalDensity",
    "ParetoDensity",
    "PolynomialDensity",
    "PolynomialSurrogate",
    "PosteriorFamily",
    "RayleighDensity",
    "ScaleMixtureDensity",
    "SquaredErrors",
    "UserDensity",
    "WaldDensity",
    "WeibullDensity",
    "expected_logistic_likelihood",
    "has_moment",
    "polynomial_surrogate",
]
