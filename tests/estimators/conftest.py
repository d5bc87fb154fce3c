"""Fixtures of several models of estimators."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((240, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.2 * rng.standard_normal(240)
