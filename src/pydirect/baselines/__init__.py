"""What the papers compare with: stochastic gradients and fully factorised Gaussian weights."""

from pydirect.baselines.stochastic import (
    CategoricalWeights,
    Concrete,
    Exact,
    GaussianRegression,
    GaussianWeights,
    Reinforce,
    Reparameterization,
    StochasticELBO,
    StochasticFit,
    fit_stochastic,
)

__all__ = [
    "CategoricalWeights",
    "Concrete",
    "Exact",
    "GaussianRegression",
    "GaussianWeights",
    "Reinforce",
    "Reparameterization",
    "StochasticELBO",
    "StochasticFit",
    "fit_stochastic",
]
