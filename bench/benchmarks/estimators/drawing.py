"""Functions drawn from the posterior: the draws themselves, and their values and gradients."""

from __future__ import annotations

from typing import Any

from ..common import make_data
from .predicting import fitted


class Functions:
    """A thousand functions of 2000 weights, at few rows and at many; gradients of ten."""

    timeout = 600
    number, repeat, warmup_time = 1, (3, 7, 20.0), 0

    def setup(self) -> None:
        self.model, self.x = fitted(), make_data(4_000)[0][:1000]
        if not hasattr(self.model, "sample_functions"):
            raise NotImplementedError("this version draws no functions")
        self.functions = self.model.sample_functions(1000)
        self.few = self.functions[:10]
        self.values_at(1000), self.few(self.x)  # what is formed once

    def values_at(self, n_rows: int) -> Any:
        return self.functions(self.x[:n_rows])

    def time_draw(self) -> None:
        self.model.sample_functions(1000)

    def time_values_at_ten_rows(self) -> None:
        self.values_at(10)

    def time_values_at_a_thousand_rows(self) -> None:
        self.values_at(1000)

    def time_ten_of_them_at_a_thousand_rows(self) -> None:
        self.few(self.x)

    def time_gradients_of_ten_at_ten_rows(self) -> None:
        self.few.gradient(self.x[:10])
