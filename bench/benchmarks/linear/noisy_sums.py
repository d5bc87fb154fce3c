"""Models of differentially private sums: the release, and the posterior that knows its noise."""

from __future__ import annotations

import numpy as np


class PrivateSums:
    """50,000 rows of 3 inputs on 200 Fourier features: a release, and a fit to it."""

    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 30.0), 0

    def setup(self) -> None:
        from pydirect import DirectRegressor, Fourier

        rng = np.random.default_rng(0)
        self.x = rng.uniform(-1, 1, (50_000, 3))
        self.y = np.sin(3 * self.x[:, 0]) + self.x[:, 1] + 0.3 * rng.standard_normal(len(self.x))
        self.model = DirectRegressor(Fourier(length_scale=0.7), 200, n_threads=1)
        self.model.fit_features([[-1.0] * 3, [1.0] * 3])
        self.sums = self.release()

    def release(self) -> object:
        from pydirect.statistics import PrivacyBudget

        budget = PrivacyBudget(1.0, 1e-6)
        return self.model.private_statistics(self.x, self.y, y_bounds=(-3, 3), budget=budget, random_state=0)

    def time_release(self) -> None:
        self.release()

    def time_fit(self) -> None:
        self.model.fit_statistics(self.sums)
