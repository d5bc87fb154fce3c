"""Kullback-Leibler divergences of posteriors from priors: in closed form where possible, by Monte Carlo elsewhere."""

from pydirect.monte_carlo.densities import UserDensity
from pydirect.monte_carlo.divergence import InadmissiblePairError, MonteCarloDivergence
from pydirect.monte_carlo.posteriors import PosteriorFamily, has_moment

__all__ = ["InadmissiblePairError", "MonteCarloDivergence", "PosteriorFamily", "UserDensity", "has_moment"]
