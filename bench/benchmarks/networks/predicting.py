"""Predictions of Bayesian networks of one hidden layer: of one row and of 10,000 rows."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from ..common import make_data


@cache
def networks() -> dict[str, Any]:
    """Networks that are hardly trained: their predictions cost the same."""
    from pydirect import DVIRegressor, QuadraticBNNRegressor

    x, y = make_data(500)
    models = {
        "quadratic": QuadraticBNNRegressor(hidden_layer_sizes=(20,), max_iter=2, n_threads=1),
        "relu": DVIRegressor(hidden_layer_sizes=(50,), n_threads=1),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: model.fit(x, y[:, 0]) for name, model in models.items()}


class Predict:
    """Means and deviations."""

    params = (("quadratic", "relu"), (1, 10_000))
    param_names = ("network", "n_rows")
    timeout = 600

    def setup(self, network: str, n_rows: int) -> None:
        self.model, self.x = networks()[network], make_data(10_000)[0][:n_rows]

    def time_mean(self, network: str, n_rows: int) -> None:
        self.model.predict(self.x)

    def time_mean_and_deviation(self, network: str, n_rows: int) -> None:
        self.model.predict(self.x, return_std=True)
