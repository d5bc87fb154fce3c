"""Counts: a default fit, predictive distributions, their intervals and probabilities."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def counts() -> tuple[np.ndarray, np.ndarray]:
    """2000 rows of 4 columns, overdispersed."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (2000, 4))
    mean = np.exp(0.5 + np.sin(2 * x[:, 0]) + 0.4 * x[:, 1] * x[:, 2])
    return x, rng.poisson(rng.gamma(2.0, mean / 2.0))


@cache
def fitted() -> Any:
    """A default model; kept for all benchmarks."""
    from pydirect import DirectCountRegressor

    return DirectCountRegressor(n_threads=1).fit(*counts())


class Fit:
    """As it comes; limit: `PoissonRegressor` on the same rows."""

    timeout = 900
    number, repeat, warmup_time = 1, (1, 3, 10.0), 0

    def setup(self) -> None:
        counts()

    def time_fit(self) -> None:
        fitted.__wrapped__()

    def time_poisson_regressor(self) -> None:
        from sklearn.linear_model import PoissonRegressor

        PoissonRegressor().fit(*counts())


class Predict:
    """10,000 rows; limit: means and variances of the log rate."""

    timeout = 900
    number, repeat, warmup_time = 1, (3, 10, 10.0), 0

    def setup(self) -> None:
        self.model, self.x = fitted(), np.resize(counts()[0], (10_000, 4))
        self.y = np.resize(counts()[1], 10_000)
        self.distribution = self.model.predict_distribution(self.x)

    def time_predict_distribution(self) -> None:
        self.model.predict_distribution(self.x)

    def time_interval(self) -> None:
        self.distribution.interval(0.9)

    def time_log_probability(self) -> None:
        self.distribution.log_probability(self.y)
