"""Sums over rows of Nyström features, whitened kernel functions at landmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import multiplying, times_limit

N_ROWS, N_COLUMNS, N_LANDMARKS = 20_000, 8, 2_000


class Statistics:
    """A, c and yᵀy of 20,000 rows of 8 inputs at 2000 landmarks.

    Limit: the bare rank-k update, n b (b + 1) flops; the kernel functions cost half of it, whitening of every row as
    much again.
    """

    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 30.0), 0

    def setup(self) -> None:
        from pydirect import DirectRegressor, Nystroem

        rng = np.random.default_rng(0)
        x = rng.standard_normal((N_ROWS, N_COLUMNS))
        self.y = np.sin(x).sum(axis=1, keepdims=True) + 0.3 * rng.standard_normal((N_ROWS, 1))
        model = DirectRegressor(features=Nystroem(length_scale=3.0), n_basis_functions=N_LANDMARKS, n_threads=1)
        self.features = model.fit_features(x, self.y[:, 0]).features_
        self.x = self.features.inputs(x)

    def collect(self) -> Any:
        from pydirect import collect_statistics

        return collect_statistics(self.features.map, self.x, self.y, n_threads=1).A

    def time_statistics(self) -> None:
        self.collect()

    def peakmem_statistics(self) -> None:
        self.collect()

    def track_in_rank_k_updates(self) -> float:
        update = multiplying("float64", N_ROWS // 10, N_LANDMARKS)
        return times_limit(self.collect, lambda: [update.run() for _ in range(10)])

    track_in_rank_k_updates.unit = "updates"
