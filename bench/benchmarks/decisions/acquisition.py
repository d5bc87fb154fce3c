"""Acquisition functions of many candidates, and batches of ten of them."""

from __future__ import annotations

import numpy as np

N_CANDIDATES, N_FUNCTIONS = 10_000, 256


class Candidates:
    """Ten thousand candidates: moments, draws of 256 functions, and a factor of 500 columns of their covariances."""

    timeout = 600

    def setup(self) -> None:
        from pydirect import decisions

        if not hasattr(decisions, "Candidates"):
            raise NotImplementedError("this version chooses no batches")
        rng = np.random.default_rng(0)
        self.mean, self.factor = rng.standard_normal(N_CANDIDATES), rng.standard_normal((N_CANDIDATES, 500)) / 20
        self.variance = np.einsum("ij,ij->i", self.factor, self.factor)
        self.values = rng.standard_normal((N_CANDIDATES, N_FUNCTIONS))
        self.front = np.sort(rng.random((30, 2)), axis=0) * [1, -1]
        self.pairs = rng.standard_normal((1000, 2, 64))

    def time_log_expected_improvement(self) -> None:
        from pydirect.decisions import log_expected_improvement

        log_expected_improvement(self.mean, np.sqrt(self.variance), 2.0)

    def time_batch_of_draws(self) -> None:
        from pydirect.decisions import batch_of_draws

        batch_of_draws(self.values, 2.0, 10)

    def time_greedy_batch(self) -> None:
        from pydirect.decisions import Candidates, greedy_batch

        joint = Candidates(self.mean, self.variance, lambda j: self.factor @ self.factor[j], 0.1)
        greedy_batch(joint, 10, lambda mean, std: mean + 2 * std)

    def time_hypervolume_improvement(self) -> None:
        from pydirect.decisions import hypervolume_improvement

        hypervolume_improvement(self.pairs, self.front, [-3.0, -3.0])
