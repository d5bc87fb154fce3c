"""Kullback-Leibler divergences of posteriors from priors: in closed form where possible, by Monte Carlo elsewhere."""

from pydirect.monte_carlo.densities import UserDensity as UserDensity
from pydirect.monte_carlo.divergence import (
    InadmissiblePairError as InadmissiblePairError,
    MonteCarloDivergence as MonteCarloDivergence,
)
from pydirect.monte_carlo.posteriors import PosteriorFamily as PosteriorFamily, has_moment as has_moment
