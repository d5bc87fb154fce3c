"""A default classifier of the digits: its fit, and probabilities of one row and of 10,000 rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """1797 rows of 64 columns, ten classes, in an order of their own."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order], y[order]


@cache
def fitted() -> Any:
    """A default model of the first 1347 rows; kept for all benchmarks."""
    from pydirect import DirectClassifier

    x, y = digits()
    return DirectClassifier(n_threads=1).fit(x[:1347], y[:1347])


class Fit:
    """As it comes; limit: `LogisticRegression` on the standardised columns."""

    timeout = 900
    number, repeat, warmup_time = 1, (1, 3, 10.0), 0

    def setup(self) -> None:
        digits()

    def time_fit(self) -> None:
        fitted.__wrapped__()

    def time_logistic_regression(self) -> None:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        x, y = digits()
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x[:1347], y[:1347])

    def track_log_loss(self) -> float:
        """Of the other 450 rows."""
        from sklearn.metrics import log_loss

        x, y = digits()
        return float(log_loss(y[1347:], fitted().predict_proba(x[1347:])))

    track_log_loss.unit = "nats"


class Predict:
    """Probabilities; limit: the basis functions alone."""

    params = (1, 10_000)
    param_names = ("n_rows",)
    timeout = 900
    number, repeat, warmup_time = 1, (3, 10, 10.0), 0

    def setup(self, n_rows: int) -> None:
        self.model, self.x = fitted(), np.resize(digits()[0], (n_rows, 64))
        self.model.predict_proba(self.x[:1])

    def time_predict_proba(self, n_rows: int) -> None:
        self.model.predict_proba(self.x)

    def time_basis_functions(self, n_rows: int) -> None:
        self.model.features_.transform(self.x)
