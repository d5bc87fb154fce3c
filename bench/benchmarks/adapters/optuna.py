"""Suggestions of the sampler for Optuna after few and many trials."""

from __future__ import annotations

import numpy as np


class Suggestions:
    """The next suggestion in six numbers, with a model that knows all trials before the last."""

    params = (30, 300, 3000)
    param_names = ("trials",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 10, 20.0), 0

    def setup(self, n_trials: int) -> None:
        import optuna

        from pydirect.adapters import DirectSampler

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.distributions = {f"x{j}": optuna.distributions.FloatDistribution(0, 1) for j in range(6)}
        rows = np.random.default_rng(0).random((n_trials, 6))
        self.study = optuna.create_study(sampler=DirectSampler(seed=0))
        for row in rows:
            params = {name: float(u) for name, u in zip(self.distributions, row, strict=True)}
            value = float(np.square(row - 0.3).sum())
            trial = optuna.trial.create_trial(params=params, distributions=self.distributions, value=value)
            self.study.add_trial(trial)
        self.time_ask_and_tell(n_trials)

    def time_ask_and_tell(self, n_trials: int) -> None:
        trial = self.study.ask(self.distributions)
        self.study.tell(trial, sum((u - 0.3) ** 2 for u in trial.params.values()))
