"""Dense algebra of one result beside OpenBLAS: rank-k updates, Cholesky factorisations, triangular solves."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from ..common import multiplying, require, seconds

REPEATS = 9


class Dense:
    """Rates of n × n matrices over those of LAPACK and BLAS, in turns on one thread; of two threads over those of one.

    Goals: .85 on one thread at 2000 and .75 at 500; on two threads 1.8.
    """

    params = ([500, 2000], ["rank_k", "cholesky", "solve"])
    param_names = ("n", "kind")

    def setup(self, n: int, kind: str) -> None:
        self.core = require("add_product")
        rng = np.random.default_rng(0)
        self.rows = rng.standard_normal((2 * n, n))
        self.gram = np.asarray(np.matmul(self.rows.T, self.rows))
        self.right, self.out = rng.standard_normal((n, n)), np.zeros((n, n))
        self.factor = self.gram.copy()
        self.core.factorise(self.factor, 1)
        multiplying(np.float64).run()

    def time_ours(self, n: int, kind: str) -> None:
        self.ours(kind, 1)

    def ours(self, kind: str, n_threads: int) -> None:
        """Run it in memory that is there, whose contents are copied first, as LAPACK's are."""
        if kind == "rank_k":
            return self.core.add_product(self.rows.T, self.rows, None, self.out, True, 1.0, n_threads)
        self.out[:] = self.gram if kind == "cholesky" else self.right
        if kind == "cholesky":
            self.core.factorise(self.out, n_threads)
        else:
            self.core.solve_lower(self.factor.T, self.out, n_threads)

    def openblas(self, kind: str) -> Any:
        """Run what LAPACK and BLAS have, on the one thread that benchmarks give them."""
        if kind == "rank_k":
            return blas.dsyrk(1.0, self.rows.T, beta=1.0, c=self.out.T, lower=1, overwrite_c=1)
        self.out[:] = self.gram if kind == "cholesky" else self.right
        if kind == "cholesky":
            return lapack.dpotrf(self.out.T, lower=1, overwrite_a=1, clean=0)
        return blas.dtrsm(1.0, self.factor.T, self.out.T, side=1, lower=1, trans_a=1, overwrite_b=1)

    def track_rate_beside_openblas(self, n: int, kind: str) -> float:
        calls = (lambda: self.openblas(kind), lambda: self.ours(kind, 1))
        return _median_ratio(*calls)

    def track_gain_of_two_threads(self, n: int, kind: str) -> float:
        return _median_ratio(lambda: self.ours(kind, 1), lambda: self.ours(kind, 2))

    track_rate_beside_openblas.unit = track_gain_of_two_threads.unit = "1"  # type: ignore[attr-defined]


def _median_ratio(numerator: Any, denominator: Any) -> float:
    times = np.array([[seconds(numerator), seconds(denominator)] for _ in range(REPEATS)])
    return float(np.median(times[:, 0] / times[:, 1]))
