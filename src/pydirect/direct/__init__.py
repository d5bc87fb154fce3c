"""Discrete weights: mean field, mixtures and sequential posteriors of linear-Gaussian models (DIRECT)."""

from pydirect.direct.mean_field import MeanFieldPosterior, MeanFieldRegression, fit_mean_field
from pydirect.direct.mixture import fit_mixture
from pydirect.direct.mixture_posterior import MixturePosterior, pairwise_entropy
from pydirect.direct.sequential import CoarseLevelsWarning, fit_sequential
from pydirect.direct.sequential_posterior import SequentialPosterior

__all__ = [
    "CoarseLevelsWarning",
    "MeanFieldPosterior",
    "MeanFieldRegression",
    "MixturePosterior",
    "SequentialPosterior",
    "fit_mean_field",
    "fit_mixture",
    "fit_sequential",
    "pairwise_entropy",
]
