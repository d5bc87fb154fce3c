"""Moments of ReLU units: nanoseconds a pair, and how near the limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import fraction_of_limit, multiplying, require, seconds

# Flops a pair, counted in the formulas: what every pair needs, a quadrature node, the series and each power of it.
COMMON_FLOPS, NODE_FLOPS, SERIES_FLOPS, POWER_FLOPS = 30, 48, 125, 14
PAPER_FLOPS, ADJOINT_FLOPS = 110, 190

# Kernel, range of |r|, flops of the integral. Packs of eight pairs share what their extremes need, so the range of
# "mixed" pays for nodes and series.
REGIMES: dict[str, tuple[str, float, float, int]] = {
    "to 0.3": ("exact", 0.0, 0.3, COMMON_FLOPS + 6 * NODE_FLOPS),
    "to 0.5": ("exact", 0.3, 0.5, COMMON_FLOPS + 8 * NODE_FLOPS),
    "to 0.7": ("exact", 0.5, 0.7, COMMON_FLOPS + SERIES_FLOPS + 22 * POWER_FLOPS),
    "to 0.9": ("exact", 0.7, 0.9, COMMON_FLOPS + SERIES_FLOPS + 14 * POWER_FLOPS),
    "to 1": ("exact", 0.9, 1.0, COMMON_FLOPS + SERIES_FLOPS + 8 * POWER_FLOPS),
    "mixed": ("exact", 0.0, 1.0, COMMON_FLOPS + 8 * NODE_FLOPS + SERIES_FLOPS + 22 * POWER_FLOPS),
    "fast to 0.9": ("fast", 0.0, 0.9, COMMON_FLOPS + 6 * NODE_FLOPS),
    "paper": ("paper", 0.0, 0.9, PAPER_FLOPS),
}


class ActivationPairs:
    """Covariance of 128 ReLU units for eight data, forward, and forward and backward.

    Limit: the flops of the formulas at the rate of dsyrk, which counts two where the kernels may do one.
    """

    params = tuple(REGIMES)
    param_names = ("correlations",)
    n, d = 8, 128

    def setup(self, regime: str) -> None:
        self.core = require("activation_covariance", "activation_covariance_adjoint")
        self.kernel, low, high, self.flops = REGIMES[regime]
        rng = np.random.default_rng(0)
        self.mean = rng.standard_normal((self.n, self.d))
        correlation = np.triu(rng.uniform(low, high, (self.d, self.d)) * rng.choice([-1, 1], (self.d, self.d)), 1)
        self.S = np.tile(correlation + correlation.T + np.eye(self.d), (self.n, 1, 1))
        self.C, self.S_bar = np.zeros_like(self.S), np.zeros_like(self.S)
        self.mean_bar = np.zeros_like(self.mean)
        self.time_covariance(regime)

    def time_covariance(self, regime: str) -> None:
        self.core.activation_covariance("relu", self.kernel, self.mean, self.S, self.C, 1)

    def time_adjoint(self, regime: str) -> None:
        self.core.activation_covariance_adjoint(
            "relu", self.kernel, self.mean, self.S, self.C, self.mean_bar, self.S_bar, 1
        )

    def _pairs(self) -> int:
        return self.n * self.d * (self.d - 1) // 2

    def track_nanoseconds_per_pair(self, regime: str) -> float:
        return 1e9 * min(seconds(lambda: self.time_covariance(regime)) for _ in range(15)) / self._pairs()

    def track_adjoint_nanoseconds_per_pair(self, regime: str) -> float:
        return 1e9 * min(seconds(lambda: self.time_adjoint(regime)) for _ in range(15)) / self._pairs()

    def track_fraction_of_limit(self, regime: str) -> float:
        needed = float(self._pairs() * self.flops)
        return fraction_of_limit(lambda: self.time_covariance(regime), (multiplying("float64"), needed))

    def track_adjoint_fraction_of_limit(self, regime: str) -> float:
        needed = float(self._pairs() * ADJOINT_FLOPS)
        return fraction_of_limit(lambda: self.time_adjoint(regime), (multiplying("float64"), needed))


def _with_unit(unit: str, *functions: Any) -> None:
    for function in functions:
        function.unit = unit


_with_unit("ns", ActivationPairs.track_nanoseconds_per_pair, ActivationPairs.track_adjoint_nanoseconds_per_pair)
_with_unit("1", ActivationPairs.track_fraction_of_limit, ActivationPairs.track_adjoint_fraction_of_limit)
