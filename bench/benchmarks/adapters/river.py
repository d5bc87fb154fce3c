"""Rows as river gives them: predicted with their deviation, then learned."""

from __future__ import annotations

import numpy as np

N_ROWS, N_FIRST = 200, 600


class Rows:
    """Dictionaries of ten numbers, one after another, with forgetting."""

    params = (100, 500)
    param_names = ("n_basis_functions",)

    def setup(self, n_basis_functions: int) -> None:
        from pydirect import DirectStreamRegressor
        from pydirect.adapters import RiverRegressor

        rng = np.random.default_rng(0)
        x = rng.uniform(size=(N_FIRST + N_ROWS, 10))
        self.y = (np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(len(x))).tolist()
        self.rows = [dict(enumerate(row)) for row in x.tolist()]
        stream = DirectStreamRegressor(n_basis_functions=n_basis_functions, half_life=500, n_first_rows=500)
        self.model = RiverRegressor(stream)
        for row, y in zip(self.rows[:N_FIRST], self.y[:N_FIRST], strict=True):
            self.model.learn_one(row, y)

    def time_predict(self, n_basis_functions: int) -> None:
        for row in self.rows[N_FIRST:]:
            self.model.predict_one(row, with_dist=True)

    def time_predict_and_learn(self, n_basis_functions: int) -> None:
        for row, y in zip(self.rows[N_FIRST:], self.y[N_FIRST:], strict=True):
            self.model.predict_one(row, with_dist=True)
            self.model.learn_one(row, y)
