"""Rows with labels and probabilities of levels, for every test of the room."""

import numpy as np
import pytest
from scipy.special import expit

from pydirect.logistic import LabelledRows, ascent


@pytest.fixture(scope="session")
def make_rows():
    """Return a function that draws rows with labels and whole weights; one function for two classes."""

    def make(n=12, b=4, seed=0, scale=1.0, offset=0.3, n_functions=1, likelihood="softmax"):
        rng = np.random.default_rng(seed)
        phi = scale * rng.standard_normal((n, b))
        if n_functions == 1:
            t = np.where(rng.random(n) < expit(phi @ rng.standard_normal(b)), 1.0, -1.0)
        else:  # the class of the largest logit with Gumbel noise has the probabilities of a softmax
            y = np.argmax(phi @ rng.standard_normal((b, n_functions)) + rng.gumbel(size=(n, n_functions)), axis=1)
            t = 2.0 * np.eye(n_functions)[y] - 1.0
        offsets = offset * np.linspace(1.0, -1.0, n_functions)
        weight = rng.integers(1, 4, n)
        return LabelledRows.from_arrays(phi, t, weight, offset=offsets, likelihood=likelihood, n_threads=1)

    return make


@pytest.fixture(scope="session")
def random_q():
    """Return a function that draws probabilities of m levels for b weights."""

    def draw(b, m, seed=0):
        return np.random.default_rng(seed).dirichlet(np.full(m, 0.7), size=b)

    return draw


@pytest.fixture
def to_the_end(monkeypatch):
    """Iterate until hardly anything is gained."""
    monkeypatch.setattr(ascent, "RISE", 1e-6)
    monkeypatch.setattr(ascent, "RELATIVE_RISE", 1e-9)
    monkeypatch.setattr(ascent, "RELATIVE_RISE_OF_BEST", 1e-9)
