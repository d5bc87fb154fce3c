"""Effects of rows on predictions, from a posterior."""

from __future__ import annotations

import numpy as np

from ..common import SIZES, make_statistics


class RowEffects:
    """What each of 2000 rows, and 100 of them together, did at 10 places."""

    params = tuple(SIZES)
    param_names = ("size",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str) -> None:
        from pydirect.linear import FactoredPosterior

        statistics = make_statistics(size)
        self.posterior = FactoredPosterior.of(statistics.target(0), 0.1, 1.0)
        rng = np.random.default_rng(0)
        scale = 0.1 / np.sqrt(statistics.n_weights)  # of leverages far below one
        self.phi = scale * rng.standard_normal((2000, statistics.n_weights))
        self.at, self.errors = rng.standard_normal((10, statistics.n_weights)), rng.standard_normal(2000)

    def time_each(self, size: str) -> None:
        from pydirect.linear import influence_of_each

        influence_of_each(self.posterior, self.at, self.phi, self.errors)

    def time_group(self, size: str) -> None:
        from pydirect.linear import influence_of_few

        influence_of_few(self.posterior, self.at, self.phi[:100], self.errors[:100])
