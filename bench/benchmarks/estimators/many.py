"""Many models at once: ratios to single fits times their number, all on one thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import N_INPUTS, make_data, require_public, times_limit

N_MODELS, N_WEIGHTS = 32, 1_000
N_GROUPS, GROUP_ROWS, N_ALONE = 500, 200, 5


def regressor(posterior: str = "gaussian", noise: Any = "constant") -> Any:
    """A model without search, local process or noise of rows."""
    from pydirect import DirectRegressor, Nystroem

    options: dict[str, Any] = {"posterior": posterior, "noise": noise, "local": False, "n_threads": 1}
    return DirectRegressor(Nystroem(length_scale=3.0), N_WEIGHTS, **options)


class FitMany:
    """32 targets of one table, or 32 noise variances of one target, by `fit_many`."""

    params = (("gaussian", "sequential"), ("targets", "noises"))
    param_names = ("posterior", "of")
    timeout = 900
    number, repeat, warmup_time = 1, (2, 3, 30.0), 0

    def setup(self, posterior: str, of: str) -> None:
        self.x, y = make_data(4_000)
        directions = np.random.default_rng(1).standard_normal((N_INPUTS, N_MODELS))
        self.targets = [y[:, 0] + own for own in (self.x @ directions).T] if of == "targets" else [y[:, 0]] * N_MODELS
        self.noises = ["constant"] * N_MODELS if of == "targets" else np.geomspace(0.05, 0.5, N_MODELS).tolist()

    def time_together(self, posterior: str, of: str) -> None:
        require_public("fit_many")([regressor(posterior, noise) for noise in self.noises], self.x, self.targets)

    def track_times_faster(self, posterior: str, of: str) -> float:
        """Than single fits one after the other."""

        def alone() -> None:
            regressor(posterior, self.noises[N_MODELS // 2]).fit(self.x, self.targets[N_MODELS // 2])

        return N_MODELS / times_limit(lambda: self.time_together(posterior, of), alone)

    track_times_faster.unit = "times"


class FitGroups:
    """500 groups of 200 rows."""

    timeout = 900
    number, repeat, warmup_time = 1, (2, 3, 30.0), 0

    def setup(self) -> None:
        require_public("fit_groups")
        self.x, y = make_data(N_GROUPS * GROUP_ROWS)
        self.groups = np.repeat(np.arange(N_GROUPS), GROUP_ROWS)
        self.y = y[:, 0] + np.random.default_rng(1).standard_normal(N_GROUPS)[self.groups]

    def time_together(self) -> None:
        from pydirect import DirectRegressor

        require_public("fit_groups")(DirectRegressor(n_threads=1), self.x, self.y, self.groups)

    def track_times_faster(self) -> float:
        """Than a loop over default models, extrapolated from a few groups."""
        from pydirect import DirectRegressor

        def alone() -> None:
            for k in range(N_ALONE):
                own = self.groups == k
                DirectRegressor(n_threads=1).fit(self.x[own], self.y[own])

        return N_GROUPS / N_ALONE / times_limit(self.time_together, alone, repeats=1)

    track_times_faster.unit = "times"
