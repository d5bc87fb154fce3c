"""A mixture posterior of four weights, small enough to enumerate."""

import numpy as np
import pytest
from mixtures import random_mixture

from pydirect.direct import mixture_posterior, pairwise_entropy
from pydirect.distributions.noise import NoisePosterior
from pydirect.optimize.outcome import Outcome


@pytest.fixture(scope="module")
def fitted():
    alpha, q = random_mixture(r=3, b=4, m=3, seed=4)
    levels = np.array([-1.0, 0.0, 1.5])[None]
    noise = NoisePosterior(np.array([0.5, 1.0]), np.array([0.3, 0.7]))
    return mixture_posterior.MixturePosterior(
        levels, q, alpha, noise, np.zeros((1, 1, 3)), *pairwise_entropy(alpha, q), Outcome()
    )
