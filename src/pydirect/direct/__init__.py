"""Discrete weights: mean field, mixtures and sequential posteriors of linear-Gaussian models (DIRECT)."""

from pydirect.direct.mean_field import (
    MeanFieldPosterior as MeanFieldPosterior,
    MeanFieldRegression as MeanFieldRegression,
    fit_mean_field as fit_mean_field,
)
from pydirect.direct.mixture import fit_mixture as fit_mixture
from pydirect.direct.mixture_posterior import MixturePosterior as MixturePosterior, pairwise_entropy as pairwise_entropy
from pydirect.direct.sequential import CoarseLevelsWarning as CoarseLevelsWarning, fit_sequential as fit_sequential
from pydirect.direct.sequential_posterior import SequentialPosterior as SequentialPosterior
