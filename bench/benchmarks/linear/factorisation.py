"""Factorisations of precision matrices beside LAPACK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from ..common import SIZES, Yardstick, fraction_of_limit, require

KINDS = ("plain", "pivoted", "inverse_diagonal")


class Factorisation:
    """Cholesky factor in a given order and in that of the smallest pivots, diagonal of the inverse: b³/3 flops each.

    Limit: LAPACK's Cholesky (`dpotrf`) of the same matrix.
    """

    params = (tuple(SIZES), KINDS)
    param_names = ("size", "kind")

    def setup(self, size: str, kind: str) -> None:
        core = require("cholesky", "inverse_diagonal")
        b = SIZES[size][1]
        x = np.random.default_rng(0).standard_normal((b, 2 * b))
        self.matrix = np.asfortranarray(x @ x.T)
        ridge, scale = np.ones(b), np.ones(b)

        def cholesky(pivot: bool) -> Any:
            return core.cholesky(self.matrix.T, ridge, scale, pivot, 1.0, 1)

        factor = cholesky(False)[0]
        self.run: Callable[[], Any] = {
            "plain": lambda: cholesky(False),
            "pivoted": lambda: cholesky(True),
            "inverse_diagonal": lambda: core.inverse_diagonal(factor, 1),
        }[kind]

    def time_run(self, size: str, kind: str) -> None:
        self.run()

    def track_fraction_of_limit(self, size: str, kind: str) -> float:
        return fraction_of_limit(self.run, (Yardstick(lambda: lapack.dpotrf(self.matrix), 1.0), 1.0))
