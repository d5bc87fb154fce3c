"""Rows of a stream: predicted and learned one after another, in blocks, and alone."""

from __future__ import annotations

import numpy as np

N_ROWS = 2048


class Stream:
    """Fourier features, with what lets rows go."""

    params = ("all", "half_life", "window")
    param_names = ("kept",)

    def setup(self, kept: str) -> None:
        from pydirect import DirectStreamRegressor, Fourier

        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((3 * N_ROWS, 8))
        self.y = np.sin(self.x[:, 0]) + self.x[:, 1] * self.x[:, 2] + 0.1 * rng.standard_normal(len(self.x))
        options: dict = {"all": {}, "half_life": {"half_life": 20_000.0}, "window": {"window": 2 * N_ROWS}}[kept]
        self.model = DirectStreamRegressor(
            Fourier(length_scale=1.0), n_basis_functions=500, n_first_rows=500, **options
        )
        self.model.fit(self.x[: 2 * N_ROWS], self.y[: 2 * N_ROWS]).predict(self.x[:1])

    def time_predict_then_learn(self, kept: str) -> None:
        self.model.predict_then_learn(self.x[2 * N_ROWS :], self.y[2 * N_ROWS :])

    def time_learn_in_blocks(self, kept: str) -> None:
        self.model.partial_fit(self.x[2 * N_ROWS :], self.y[2 * N_ROWS :])

    def time_single_rows(self, kept: str) -> None:
        for i in range(100):
            self.model.predict_then_learn(self.x[i : i + 1], self.y[i : i + 1])
