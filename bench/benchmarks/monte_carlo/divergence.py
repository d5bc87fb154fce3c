"""Divergences by Monte Carlo: nanoseconds per draw and weight."""

from __future__ import annotations

import numpy as np

from ..common import seconds


class Divergence:
    """Normal weights, normal prior; sampled modes draw a hundred numbers per weight."""

    params = ("exact", "direct", "independent", "naive")
    param_names = ("mode",)
    n_weights, n_samples = 20_000, 100

    def setup(self, mode: str) -> None:
        try:
            from pydirect.monte_carlo.divergence import MonteCarloDivergence
        except ImportError as error:
            raise NotImplementedError from error
        self.kl = MonteCarloDivergence("normal", ("normal", 0.0, 1.0), mode, self.n_samples, self.n_weights)
        self.parameters = np.full((2, self.n_weights), 0.5)
        self.time_step(mode)

    def time_step(self, mode: str) -> None:
        self.kl.resample().value_and_grad(self.parameters)

    def track_nanoseconds_per_weight(self, mode: str) -> float:
        return 1e9 * min(seconds(lambda: self.time_step(mode)) for _ in range(7)) / self.n_weights


class Sums:
    """Draws of the other laws, reduced to two sums of powers or logs: a draw's own cost."""

    params = ("normal", "laplace", "logistic", "radial", "exponential", "gamma", "wald")
    param_names = ("law",)
    n_weights, n_samples = 2_000, 100

    def setup(self, law: str) -> None:
        try:
            from pydirect.monte_carlo.divergence import MonteCarloDivergence
        except ImportError as error:
            raise NotImplementedError from error
        posterior = (law, 2.5) if law in ("gamma", "wald") else law
        self.kl = MonteCarloDivergence(posterior, ("normal", 0.3, 1.0), "independent", self.n_samples, self.n_weights)
        self.time_draws(law)

    def time_draws(self, law: str) -> None:
        self.kl.resample()

    def track_nanoseconds_per_draw(self, law: str) -> float:
        return 1e9 * min(seconds(lambda: self.time_draws(law)) for _ in range(7)) / (self.n_weights * self.n_samples)


Divergence.track_nanoseconds_per_weight.unit = "ns"  # type: ignore[attr-defined]
Sums.track_nanoseconds_per_draw.unit = "ns"  # type: ignore[attr-defined]
