"""Levels, priors, categorical distributions and the noise variance."""

from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import evenly_spaced_levels, power_of_two_levels
from pydirect.distributions.mixture_priors import MixturePrior
from pydirect.distributions.noise import NoiseGrid, NoiseGridWarning, NoisePosterior
from pydirect.distributions.priors import (
    GaussianPrior,
    LaplacePrior,
    Prior,
    SpikeAndSlabPrior,
    StudentTPrior,
    TablePrior,
)

__all__ = [
    "FactorizedCategorical",
    "GaussianPrior",
    "LaplacePrior",
    "MixturePrior",
    "NoiseGrid",
    "NoiseGridWarning",
    "NoisePosterior",
    "Prior",
    "SpikeAndSlabPrior",
    "StudentTPrior",
    "TablePrior",
    "evenly_spaced_levels",
    "power_of_two_levels",
]
