"""Levels, priors, categorical distributions and the noise variance."""

from pydirect.distributions.categorical import FactorizedCategorical, evenly_spaced_levels
from pydirect.distributions.noise import NoiseGrid, NoiseGridWarning, NoisePosterior
from pydirect.distributions.priors import (
    GaussianPrior,
    LaplacePrior,
    MixturePrior,
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
]
