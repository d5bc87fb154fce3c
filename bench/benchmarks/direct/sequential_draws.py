"""Draws of the sequential posterior beside a Cholesky factorisation of the same size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import N_LEVELS, SIZES, require, seconds

DTYPES = {"double": np.float64, "single": np.float32}


class SequentialDraws:
    """Stratified draws of b weights on 15 levels.

    `track_in_cholesky_factorisations` is the time of LAPACK's double-precision factorisation that they take: b² S flops
    and the exponentials of 15 b S numbers beside b³/3 flops.
    """

    params = (tuple(SIZES), (1, 2, 8, 32, 256), tuple(DTYPES))
    param_names = ("size", "n_draws", "precision")

    def setup(self, size: str, n_draws: int, precision: str) -> None:
        self.sample = require("sequential_draws").sequential_draws
        rng = np.random.default_rng(0)
        b = SIZES[size][1]
        factor = np.triu(rng.standard_normal((b, b)) / np.sqrt(b), 1) + 2.0 * np.eye(b)
        self.matrix = np.asfortranarray(factor.T @ factor)
        levels = np.linspace(-7.0, 7.0, N_LEVELS)[None]
        self.arguments: tuple[Any, ...] = (
            factor.astype(DTYPES[precision]),
            rng.standard_normal(b),
            levels,
            np.zeros_like(levels),
            rng.permutation(b),
        )

    def draw(self, n_draws: int) -> Any:
        return self.sample(*self.arguments, n_draws, 0, "stratified", 1)

    def time_draws(self, size: str, n_draws: int, precision: str) -> None:
        self.draw(n_draws)

    def track_in_cholesky_factorisations(self, size: str, n_draws: int, precision: str) -> float:
        from scipy.linalg.lapack import dpotrf

        dpotrf(self.matrix)
        turns = [(seconds(lambda: self.draw(n_draws)), seconds(lambda: dpotrf(self.matrix))) for _ in range(9)]
        drawing, factorising = np.median(turns, axis=0)
        return float(drawing / factorising)

    track_in_cholesky_factorisations.unit = "dpotrf"
