"""Both bounds on the logistic likelihood: one evaluation against its limit, and a whole fit."""

from __future__ import annotations

import numpy as np

from ..common import Yardstick, fraction_of_limit, multiplying

N_LEVELS = 15


def make_rows(n_rows: int, n_weights: int) -> object:
    """Gaussian features with labels of a linear logit."""
    from pydirect.logistic import LabelledRows

    rng = np.random.default_rng(0)
    phi = rng.standard_normal((n_rows, n_weights)) / np.sqrt(n_weights)
    t = np.where(3 * phi @ rng.standard_normal(n_weights) + rng.logistic(size=n_rows) > 0, 1.0, -1.0)
    return LabelledRows.from_arrays(phi, t, n_threads=1)


def adding_and_multiplying(n: int = 4_096) -> Yardstick:
    """Multiply and add inside the first-level cache, two flops per element, not fused, as in the kernels."""
    x, out = np.ones(n), np.ones(n)

    def run() -> None:
        for _ in range(50):
            np.multiply(x, x, out=out)
            np.add(x, out, out=out)

    return Yardstick(run, 50.0 * n)


class Exponential:
    """Terms of n rows, b weights and 15 levels.

    Limit: n b m̄ multiplications and additions; `track_multiple_value` is the time relative to that of as many flops in
    NumPy, inside the first-level cache.
    """

    params = (((2_000, 500), (2_000, 2_000)),)
    param_names = ("size",)
    number, repeat, warmup_time = 1, (3, 10, 10.0), 0

    def setup(self, size: tuple[int, int]) -> None:
        from pydirect import evenly_spaced_levels

        self.rows = make_rows(*size)
        self.levels = np.broadcast_to(evenly_spaced_levels(N_LEVELS), (size[1], N_LEVELS))
        self.q = np.random.default_rng(1).dirichlet(np.ones(N_LEVELS), size=size[1])
        self.amount = float(size[0] * size[1] * N_LEVELS)

    def time_value(self, size: tuple[int, int]) -> None:
        from pydirect.logistic.exponential import exponential_log_terms

        exponential_log_terms(self.rows, self.levels, self.q)

    def track_multiple_value(self, size: tuple[int, int]) -> float:
        return 1 / fraction_of_limit(lambda: self.time_value(size), (adding_and_multiplying(), self.amount))

    track_multiple_value.unit = "limits"


class Jaakkola:
    """One step of ξ and the prior variance with continuous weights.

    Limit: one Φᵀdiag(·)Φ, n b (b + 1) flops at the rate of the BLAS's symmetric rank-k update; the moments of z need
    two more, the factorisation and inversion of a b × b matrix ⅔ b³ flops.
    """

    params = (((4_000, 500), (20_000, 500)),)
    param_names = ("size",)
    number, repeat, warmup_time = 1, (3, 10, 10.0), 0

    def setup(self, size: tuple[int, int]) -> None:
        self.rows = make_rows(*size)
        from pydirect.logistic.ascent import LikelihoodMoments, State
        from pydirect.logistic.gaussian import VariancePrior, gaussian_solve

        n_rows, n_weights = size
        zero = np.zeros((n_weights, 1))
        found = self.rows.evaluate(LikelihoodMoments(zero, np.zeros((n_rows, 1)), np.ones(n_rows)))
        self.solve, self.state = gaussian_solve(VariancePrior(1.0, 1.0)), State.after(found, zero, 0.0)

    def time_step(self, size: tuple[int, int]) -> None:
        self.rows.evaluate(self.solve(self.state).latent)

    def track_multiple(self, size: tuple[int, int]) -> float:
        flops = size[0] * size[1] * (size[1] + 1.0)
        return 1 / fraction_of_limit(lambda: self.time_step(size), (multiplying("float64", *size), flops), repeats=5)

    track_multiple.unit = "products"

    def time_fit(self, size: tuple[int, int]) -> None:
        from pydirect.logistic import fit_logistic_decorrelated

        fit_logistic_decorrelated(self.rows)

    def track_steps(self, size: tuple[int, int]) -> int:
        from pydirect.logistic import fit_logistic_decorrelated

        return fit_logistic_decorrelated(self.rows).posterior.n_iter

    track_steps.unit = "steps"
