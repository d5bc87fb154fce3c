"""Many models of the same statistics at once, beside one model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import (
    SIZES,
    fraction_of_limit,
    make_problem,
    make_statistics,
    multiplying,
    require,
    require_public,
    seconds,
)

N_MODELS = 32


class ManyNoiseLevels:
    """Posteriors at 32 fixed noise variances on b weights and 15 levels, from A and c.

    `track_models_in_the_time_of_one` is how many single fits take as long as all together.
    """

    params = tuple(SIZES)
    param_names = ("size",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str) -> None:
        require_public("fit_mean_fields")
        make_statistics(size)

    def time_fit(self, size: str) -> None:
        fit_together(size, noise_variances())

    def track_models_in_the_time_of_one(self, size: str) -> float:
        one = require_public("fit_mean_field")
        problem, statistics = make_problem(size), make_statistics(size)

        def alone() -> None:
            for s in noise_variances():
                one(statistics, problem.levels, problem.log_prior, [s], n_threads=1)

        turns = [(seconds(lambda: fit_together(size, noise_variances())), seconds(alone)) for _ in range(3)]
        together, apart = np.median(turns, axis=0)
        return float(N_MODELS * together / apart)

    track_models_in_the_time_of_one.unit = "fits"


class LaneProduct:
    """A times 32 vectors in single precision; limit: the flops, at the rate of BLAS."""

    params = tuple(SIZES)
    param_names = ("size",)

    def setup(self, size: str) -> None:
        core = require("multiply_lanes")
        b = SIZES[size][1]
        self.a, self.x = np.ones((b, b), np.float32), np.ones((b, N_MODELS), np.float32)
        self.multiply = core.multiply_lanes

    def time_product(self, size: str) -> None:
        self.multiply(self.a, self.x, 1)

    def track_fraction_of_limit(self, size: str) -> float:
        flops = 2.0 * self.a.size * N_MODELS
        return fraction_of_limit(lambda: self.multiply(self.a, self.x, 1), (multiplying(np.float32), flops))


def noise_variances() -> Any:
    """Noise variances from well below the data's own to well above."""
    return np.geomspace(0.03, 3.0, N_MODELS)


def fit_together(size: str, variances: Any) -> Any:
    """Posteriors of `make_problem` at given noise variances."""
    problem, statistics = make_problem(size), make_statistics(size)
    model = require_public("MeanFieldRegression").of
    models = [model(statistics, problem.levels, problem.log_prior, [s]) for s in variances]
    return require_public("fit_mean_fields")(models, n_threads=1)
