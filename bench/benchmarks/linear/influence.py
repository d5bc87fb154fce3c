"""Effects of rows on predictions, and Shapley values of columns, from a posterior."""

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


class ShapleyOfProducts:
    """Closed forms of Fourier features of eight columns, for one row and one background row."""

    params = (200, 500)
    param_names = ("frequencies",)
    timeout = 600

    def setup(self, frequencies: int) -> None:
        from pydirect.features import FourierFeatures

        rng = np.random.default_rng(0)
        features = FourierFeatures(rng.standard_normal((8, frequencies)), np.ones(frequencies))
        self.products, self.x, self.z = features.products(), rng.standard_normal(8), np.zeros(8)
        self.covariance = np.eye(features.n_weights)

    def time_mean(self, frequencies: int) -> None:
        from pydirect.explain.shapley import shares_of_functions

        shares_of_functions(self.products, self.x, self.z, np.arange(8), 8)

    def time_variance(self, frequencies: int) -> None:
        from pydirect.explain.shapley import shares_of_variance

        shares_of_variance(self.products, self.covariance, self.x, self.z, np.arange(8), 8)
