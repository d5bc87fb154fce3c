"""The raw basis at hyperparameters of largest evidence."""

import numpy as np
import pytest

from pydirect.direct.empirical_bayes import RawPolicy
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.linear.fit import InitialHyperparameters
from pydirect.statistics.gaussian import GaussianStatistics


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_redundant_features_of_another_scale_fit_a_smooth_function(noise):
    """Few frequencies reach that of the target, so that weights must be larger than the kernel says."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (150, 1))
    truth = np.sin(3 * x[:, 0]) + x[:, 0] ** 2 / 2
    y = truth + noise * rng.standard_normal(150)
    angles = x @ rng.standard_normal((1, 40))
    phi = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.sqrt(1 / 40)
    levels = evenly_spaced_levels(15, 3.0)[None]
    policy = RawPolicy(levels, GaussianPrior().log_mass(levels))
    statistics = GaussianStatistics.from_arrays(phi, y).target(0)
    [(posterior, prior_sd)] = policy.fit([statistics], [InitialHyperparameters(1e-5, 1.0)])
    fitted = phi @ posterior.mean * prior_sd
    assert posterior.converged
    assert np.sqrt(np.mean((fitted - truth) ** 2)) < 0.2
