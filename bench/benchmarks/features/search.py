"""The search of kernel hyperparameters, and one evaluation of the marginal likelihood that it climbs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import Yardstick, fraction_of_limit, make_data


class Search:
    """From columns and their normal scores to hyperparameters.

    Limit: n³ flops an evaluation; `track_evaluations` is how many there are, on up to 512 and 1000 rows.
    """

    params = (200, 1_000, 36_000)
    param_names = ("n_rows",)
    timeout = 300
    number, repeat, warmup_time = 1, (3, 5, 10.0), 0

    def setup(self, n_rows: int) -> None:
        from pydirect.features.inputs import InputMap

        x, y = make_data(n_rows)
        self.inputs = InputMap.fit(x, None, rank=True)
        self.x, self.y = self.inputs.transform(x), (y - y.mean()) / y.std()

    def time_search(self, n_rows: int) -> None:
        self._search()

    def track_evaluations(self, n_rows: int) -> int:
        return self._search().n_evaluations

    def track_noise_variance(self, n_rows: int) -> float:
        return self._search().noise_variance

    def _search(self) -> Any:
        from pydirect.features.search import KernelRows, search_kernel

        rows = KernelRows(self.x, self.y, np.ones(len(self.x)), self.inputs.n_standardised)
        return search_kernel(rows, np.random.default_rng(0))[0]


class MarginalLikelihood:
    """Value and gradient. Limit: factorisation and inverse, n³ flops."""

    params = ((256, 512, 1_000), (8, 30, 100))
    param_names = ("n_rows", "n_columns")

    def setup(self, n_rows: int, n_columns: int) -> None:
        from pydirect.features.marginal_likelihood import MarginalLikelihood

        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((n_rows, 2 * n_columns)), rng.standard_normal((n_rows, 1))
        self.likelihood = MarginalLikelihood(x, y, np.ones(n_rows), n_columns)

    def time_evaluation(self, n_rows: int, n_columns: int) -> None:
        self.likelihood(self.likelihood.start)

    def track_fraction_of_limit(self, n_rows: int, n_columns: int) -> float:
        product = np.ones((n_rows, n_rows))
        limit = Yardstick(lambda: product @ product[::-1], 2.0 * n_rows**3)
        return fraction_of_limit(lambda: self.likelihood(self.likelihood.start), (limit, float(n_rows) ** 3))
