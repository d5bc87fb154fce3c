"""Levels, priors, categorical distributions and the noise variance."""

from pydirect.distributions.categorical import (
    FactorizedCategorical as FactorizedCategorical,
    evenly_spaced_levels as evenly_spaced_levels,
)
from pydirect.distributions.noise import (
    NoiseGrid as NoiseGrid,
    NoiseGridWarning as NoiseGridWarning,
    NoisePosterior as NoisePosterior,
)
from pydirect.distributions.priors import (
    GaussianPrior as GaussianPrior,
    LaplacePrior as LaplacePrior,
    MixturePrior as MixturePrior,
    Prior as Prior,
    SpikeAndSlabPrior as SpikeAndSlabPrior,
    StudentTPrior as StudentTPrior,
    TablePrior as TablePrior,
)
