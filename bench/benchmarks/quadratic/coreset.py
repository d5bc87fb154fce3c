"""Exact coresets of quadratic networks: the cost of building one, and what is left of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import seconds

# Rows, inputs and hidden layers. "road" has the shape of the largest data set of Evans & Nair (2018), section 5.2.
SHAPES = {"road": (434_874, 3, 2), "wide": (20_000, 8, 1)}


def _make_data(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    n, d, depth = SHAPES[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * rng.standard_normal(n), depth


class Coreset:
    """From all rows to no more than there are moments."""

    params = tuple(SHAPES)
    param_names = ("data",)
    timeout = 300

    def setup(self, data: str) -> None:
        from pydirect.quadratic import NetworkCoreset

        self.build = NetworkCoreset.from_data
        self.x, self.y, self.depth = _make_data(data)

    def time_build(self, data: str) -> None:
        self.build(self.x, self.y, self.depth)

    def peakmem_build(self, data: str) -> None:
        self.build(self.x, self.y, self.depth)

    def track_rows_for_one_row_kept(self, data: str) -> float:
        return len(self.x) / len(self.build(self.x, self.y, self.depth).x)

    def track_build_over_one_reading_by_a_network(self, data: str) -> float:
        """Time over that of evaluating a network of width eight at every row."""
        rng = np.random.default_rng(1)
        layers = [rng.standard_normal((self.x.shape[1], 8)), *(rng.standard_normal((8, 8)) for _ in range(self.depth))]

        def evaluate() -> Any:
            a = self.x
            for weights in layers:
                a = (a @ weights) ** 2
            return a.sum()

        times = [(seconds(lambda: self.build(self.x, self.y, self.depth)), seconds(evaluate)) for _ in range(3)]
        build, reading = np.median(times, axis=0)
        return float(build / reading)
