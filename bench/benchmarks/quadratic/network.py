"""Engines for networks with quadratic activations, each beside its limit: flops.

The limit counts what `network_cost` counts, the matrix products and some per unit and row for the stages between them,
at the rate of BLAS's symmetric rank-k update in double precision. Wide networks are products almost alone; in narrow
ones the tiles of a product are not full and the stages weigh as much.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import fraction_of_limit, multiplying, require

# Name: engine, inputs, hidden layers, bias, rows.
NETWORKS = {
    "tensor 8-20": ("tensor", 8, [20], False, 1_000),
    "tensor 26-3000": ("tensor", 26, [3_000], False, 1_000),
    "datum 8-20": ("datum", 8, [20], False, 1_000),
    "datum 385-400": ("datum", 385, [400], False, 1_000),
    "datum 4-3-3": ("datum", 4, [3, 3], False, 1_000),
    "datum 3-8-8 bias": ("datum", 3, [8, 8], True, 200),
    "datum 90-140-140": ("datum", 90, [140, 140], False, 1_000),
}


def _unit(function: Any) -> Any:
    function.unit = "1"
    return function


def make_table(n_inputs: int, hidden: list[int], bias: bool) -> np.ndarray:
    """Moments of weights that are one of two levels each, equally likely: central moments of odd order are zero."""
    rng = np.random.default_rng(0)
    widths = [n_inputs, *hidden, 1]
    parts = []
    for layer in range(len(widths) - 1):
        size = widths[layer + 1] * (widths[layer] + bias)
        scale = 1 / np.sqrt(widths[layer] + bias)
        parts.append(scale * rng.standard_normal(size))
        for r in range(2, (2 << (len(hidden) - layer)) + 1):
            parts.append(np.full(size, (0.3 * scale) ** r if r % 2 == 0 else 0.0))
    return np.concatenate(parts)


class Evaluate:
    """Expected squared error and its gradient in all moments of the weights."""

    params = tuple(NETWORKS)
    param_names = ("network",)

    def setup(self, network: str) -> None:
        core = require("NetworkEngine", "network_cost")
        kind, n_inputs, hidden, bias, n_rows = NETWORKS[network]
        rng = np.random.default_rng(1)
        x, y = rng.uniform(-1, 1, (n_rows, n_inputs)), rng.standard_normal(n_rows)
        self.table = make_table(n_inputs, hidden, bias)
        self.gradient = np.zeros_like(self.table)
        self.engine = core.NetworkEngine(kind, n_inputs, hidden, bias, x, y, None)
        self.flops = core.network_cost(kind, n_inputs, hidden, bias, n_rows)[0]
        self.engine.evaluate(self.table, self.gradient, 1)

    def time_evaluate(self, network: str) -> None:
        self.engine.evaluate(self.table, self.gradient, 1)

    def time_value(self, network: str) -> None:
        self.engine.evaluate(self.table, None, 1)

    @_unit
    def track_evaluate_fraction_of_limit(self, network: str) -> float:
        return fraction_of_limit(lambda: self.time_evaluate(network), (multiplying("float64", 400, 400), self.flops))


class Sweep:
    """One pass of coordinate ascent over the weights of one hidden layer, 8-20 with 1000 rows and 16 levels.

    Limit: about sixty flops a hidden weight and row.
    """

    n_rows, n_inputs, n_units = 1_000, 8, 20

    def setup(self) -> None:
        core = require("NetworkEngine")
        rng = np.random.default_rng(1)
        x, y = rng.uniform(-1, 1, (self.n_rows, self.n_inputs)), rng.standard_normal(self.n_rows)
        self.engine = core.NetworkEngine("datum", self.n_inputs, [self.n_units], False, x, y, None)
        self.levels = np.linspace(-1, 1, 16)[None, :]
        self.log_prior = np.full_like(self.levels, -np.log(16))
        self.q = rng.dirichlet(np.ones(16), size=self.n_units * (self.n_inputs + 1))

    def time_sweep(self) -> None:
        self.engine.sweep(self.levels, self.log_prior, 1.0, self.q)

    @_unit
    def track_sweep_fraction_of_limit(self) -> float:
        flops = 60.0 * self.n_rows * self.n_inputs * self.n_units
        return fraction_of_limit(self.time_sweep, (multiplying("float64", 400, 400), flops))
