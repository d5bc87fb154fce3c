"""What the papers compare with: stochastic gradients and fully factorised Gaussian weights."""

from pydirect.baselines.stochastic import (
    Concrete as Concrete,
    Exact as Exact,
    GaussianRegression as GaussianRegression,
    Reinforce as Reinforce,
    Reparameterization as Reparameterization,
    StochasticELBO as StochasticELBO,
    StochasticFit as StochasticFit,
    fit_stochastic as fit_stochastic,
)
