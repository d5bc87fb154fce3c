"""What the papers compare with: stochastic gradients and fully factorised Gaussian weights."""

from pydirect.baselines.stochastic import (
    Concrete,
    Exact,
    GaussianRegression,
    Reinforce,
    Reparameterization,
    StochasticELBO,
    StochasticFit,
    fit_stochastic,
)

__all__ = [
    "Concrete",
    "Exact",
    "GaussianRegression",
    "Reinforce",
    "Reparameterization",
    "StochasticELBO",
    "StochasticFit",
    "fit_stochastic",
]
