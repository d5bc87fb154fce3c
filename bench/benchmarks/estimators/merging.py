"""Models of sites merged into one."""

from __future__ import annotations

import copy

import numpy as np


class Merging:
    """Twenty models of 500 Fourier features."""

    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 30.0), 0

    def setup(self) -> None:
        from pydirect import DirectRegressor, Fourier

        rng = np.random.default_rng(0)
        x = rng.uniform(-1, 1, (4000, 3))
        y = np.sin(3 * x[:, 0]) + x[:, 1]
        shared = DirectRegressor(Fourier(length_scale=0.7), 500, n_threads=1).fit_features([[-1.0] * 3, [1.0] * 3])
        site = shared.partial_fit(x, y)
        self.sites = [copy.copy(site) for _ in range(20)]

    def time_merge_models(self) -> None:
        from pydirect import merge_models

        merge_models(self.sites)
