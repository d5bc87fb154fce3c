"""Predictions of models of packed integers: of one row and of 10,000 rows."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..common import make_data


@cache
def quantized() -> Any:
    """Sixteen samples of a sequential posterior of 500 Fourier features."""
    from pydirect import DirectRegressor

    x, y = make_data(4_000)
    return DirectRegressor(n_basis_functions=500, posterior="sequential", n_threads=1).fit(x, y[:, 0]).quantize()


class Predict:
    """Means and deviations; limit: the basis functions alone."""

    params = (1, 10_000)
    param_names = ("n_rows",)
    timeout = 600

    def setup(self, n_rows: int) -> None:
        self.model, self.x = quantized(), make_data(10_000)[0][:n_rows]
        self.model.predict(self.x[:1], return_std=True)

    def time_mean(self, n_rows: int) -> None:
        self.model.predict(self.x)

    def time_mean_and_deviation(self, n_rows: int) -> None:
        self.model.predict(self.x, return_std=True)
