"""Rounds of contextual bandits, each a decision and a reward; choices of rows to be labelled."""

from __future__ import annotations

import numpy as np


class Rounds:
    """A hundred rounds of ten arms, after a thousand rewards."""

    params = ((20, 100), (1, 100))
    param_names = ("n_inputs", "batch")
    number, repeat = 1, 7

    def setup(self, n_inputs: int, batch: int) -> None:
        from pydirect.decisions import LinearBandit

        rng = np.random.default_rng(0)
        self.contexts, self.rewards = rng.normal(size=(1100, n_inputs)), rng.normal(size=1100)
        self.bandit = LinearBandit(range(10))
        self.bandit.learn(self.contexts[100:], np.arange(1000) % 10, self.rewards[100:])

    def time_rounds(self, n_inputs: int, batch: int) -> None:
        for begin in range(0, 100, batch):
            rows = slice(begin, begin + batch)
            arms = self.bandit.decide(self.contexts[rows])
            self.bandit.learn(self.contexts[rows], arms, self.rewards[rows])


class Selection:
    """A batch of ten among 10,000 candidates, with 1000 basis functions."""

    number, repeat, warmup_time = 1, 3, 0

    def setup(self) -> None:
        from pydirect import DirectRegressor, Nystroem

        rng = np.random.default_rng(0)
        x = rng.normal(size=(2000, 8))
        model = DirectRegressor(Nystroem(length_scale=3.0), 1000, noise=0.01, n_threads=1)
        self.model = model.fit(x, np.sin(x[:, 0]))
        self.candidates = rng.normal(size=(10_000, 8))

    def time_select(self) -> None:
        from pydirect.decisions import select_batch

        select_batch(self.model, self.candidates, n=10)
