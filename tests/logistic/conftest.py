"""Rows with labels and probabilities of levels, for every test of the room."""

import numpy as np
import pytest
from scipy.special import expit

from pydirect.logistic import LabelledRows


@pytest.fixture(scope="session")
def make_rows():
    """Return a function that draws rows with labels and whole weights."""

    def make(n=12, b=4, seed=0, scale=1.0, offset=0.3):
        rng = np.random.default_rng(seed)
        phi = scale * rng.standard_normal((n, b))
        t = np.where(rng.random(n) < expit(phi @ rng.standard_normal(b)), 1.0, -1.0)
        return LabelledRows.from_arrays(phi, t, rng.integers(1, 4, n), offset=offset, n_threads=1)

    return make


@pytest.fixture(scope="session")
def random_q():
    """Return a function that draws probabilities of m levels for b weights."""

    def draw(b, m, seed=0):
        return np.random.default_rng(seed).dirichlet(np.full(m, 0.7), size=b)

    return draw
