"""Stochastic gradients of the ELBO beside the exact one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..common import fraction_of_limit, make_problem, make_statistics, multiplying, seconds

ESTIMATORS = ("reinforce", "concrete")
N_SAMPLES = 100


class StochasticGradient:
    """One estimate from 100 samples on 500 weights and 15 levels, from A and c.

    Limit: the samples' product with A, 2 t b² flops; `track_multiple_of_exact` is the time over that of the exact
    gradient, one product with a vector.
    """

    params = (ESTIMATORS,)
    param_names = ("estimator",)
    number, repeat, warmup_time = 1, (5, 20, 5.0), 0.1

    def setup(self, estimator: str) -> None:
        self.bounds = make_bounds()
        self.rng = np.random.default_rng(0)

    def one(self, name: str) -> Any:
        bound = self.bounds[name]
        return bound.gradient(bound.start, self.rng)

    def time_gradient(self, estimator: str) -> None:
        self.one(estimator)

    def track_multiple_of_exact(self, estimator: str) -> float:
        turns = [(seconds(lambda: self.one(estimator)), seconds(lambda: self.one("exact"))) for _ in range(9)]
        stochastic, exact = np.median(turns, axis=0)
        return float(stochastic / exact)

    track_multiple_of_exact.unit = "times"

    def track_gradient_fraction_of_limit(self, estimator: str) -> float:
        flops = 2.0 * N_SAMPLES * 500**2
        return fraction_of_limit(lambda: self.one(estimator), (multiplying(np.float64), flops))

    track_gradient_fraction_of_limit.unit = "fraction"

    def track_relative_noise(self, estimator: str) -> float:
        """Root of the summed variance of the gradient's entries over the exact gradient's length, at the prior."""
        bound = self.bounds[estimator]
        variance = bound.gradient_variance(bound.start, self.rng, 20)
        return float(np.sqrt(variance.sum()) / np.linalg.norm(bound.exact_gradient(bound.start)))

    track_relative_noise.unit = "fraction"


@cache
def make_bounds() -> dict[str, Any]:
    """The bound of the small problem as each estimator sees it."""
    from pydirect.baselines import Concrete, Reinforce, StochasticELBO
    from pydirect.baselines.stochastic import Exact
    from pydirect.direct.mean_field import MeanFieldRegression

    problem = make_problem("small")
    model = MeanFieldRegression.of(make_statistics("small"), problem.levels, problem.log_prior, problem.noise_levels)
    estimators = {"exact": Exact(), "reinforce": Reinforce(N_SAMPLES), "concrete": Concrete(N_SAMPLES)}
    return {name: StochasticELBO(model, estimator) for name, estimator in estimators.items()}
