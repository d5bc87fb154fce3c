"""Fixtures of several models of estimators."""

from collections import Counter

import numpy as np
import pytest

from pydirect.logistic.rows import LabelledRows


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((240, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.2 * rng.standard_normal(240)


@pytest.fixture
def interrupted_ascents(monkeypatch):
    """Interrupt every ascent of a classifier's bound at its third evaluation, when there is a posterior."""
    seen, original = Counter(), LabelledRows.evaluate

    def evaluate(self, latent, target_step=None):
        seen[id(self)] += target_step is None
        if seen[id(self)] == 3:
            raise KeyboardInterrupt
        return original(self, latent, target_step)

    monkeypatch.setattr(LabelledRows, "evaluate", evaluate)
