import numpy as np
import pytest

from pydirect.linear.fit import fit_gaussian
from pydirect.linear.functions import weight_draws
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate

N_DRAWS = 4000


def posterior_of(dropped=False):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((30, 6)) * [1, 1, 1, 1, 1, 1e-5 if dropped else 1]
    y = phi @ rng.standard_normal(6) + 0.5 * rng.standard_normal(30)
    return fit_gaussian(decorrelate(GaussianStatistics.from_arrays(phi, y)).target(0), 0.25)


@pytest.mark.parametrize("dropped", [False, True])
def test_moments_are_the_posteriors(dropped):
    posterior = posterior_of(dropped)
    assert (posterior.vectors.shape == (6, 5)) is dropped
    phi = np.random.default_rng(1).standard_normal((5, 6))
    _, variance = posterior.latent_moments(phi)
    values = phi @ weight_draws(posterior, N_DRAWS, np.random.default_rng(2))
    assert (np.abs(values.mean(axis=1)) < 4 * np.sqrt(variance / N_DRAWS)).all()
    spread = np.sqrt(((values**2) ** 2).mean(axis=1) - variance**2)
    assert (np.abs((values**2).mean(axis=1) - variance) < 4 * spread / np.sqrt(N_DRAWS)).all()
