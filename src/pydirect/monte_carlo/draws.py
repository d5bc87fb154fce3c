"""Draws ξ of the weights of one tensor, functions of a seed, and the means of their powers and logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pydirect import _core
from pydirect._validation import FloatArray, as_count
from pydirect.monte_carlo.posteriors import CustomFamily, Posterior

# Draws that Python code sees are made in blocks of this size.
BLOCK_SIZE = 2**18
# Laws whose means of powers can be drawn without drawing ξ, and those powers.
DIRECT_POWERS = {"normal": (1.0, 2.0), "exponential": (1.0,), "gamma": (1.0,), "wald": (1.0,), "rayleigh": (2.0,)}


@dataclass(frozen=True)
class WeightDraws:
    """Draws ξ of the weights of one tensor: a function of the seed and the epoch, not of the number of threads.

    - `n_samples`: draws per weight.
    - `epoch`: number of times that they were drawn anew.
    - `shared`: whether all weights have the same draws.
    """

    posterior: Posterior
    n_samples: int
    n_weights: int
    seed: int
    epoch: int
    shared: bool = False

    @property
    def compiled(self) -> _core.BaseDraws:
        """All draws, as the compiled module takes them."""
        return self._compiled()

    def values(self, n_threads: int) -> FloatArray:
        """Return all draws, (n_samples, n_weights), or (n_samples, 1) when shared."""
        if isinstance(self.posterior, CustomFamily):
            return np.concatenate(list(self.blocks(n_threads)))
        return self.compiled.draws(n_threads)

    def blocks(self, n_threads: int) -> Iterator[FloatArray]:
        """Yield the draws, some rows at a time."""
        generator = np.random.default_rng([self.seed, self.epoch])
        n_columns = 1 if self.shared else self.n_weights
        size = max(2, BLOCK_SIZE // n_columns // 2 * 2)
        for begin in range(0, self.n_samples, size):
            n_rows = min(size, self.n_samples - begin)
            if isinstance(self.posterior, CustomFamily):
                yield self.posterior.draws(generator, (n_rows, n_columns))
            else:
                yield self._compiled(n_draws=n_rows, first_draw=begin).draws(n_threads)

    def means(self, powers: list[float], n_logs: int, n_threads: int) -> FloatArray:
        """Means of ξ^r for every power r, of log ξ and of log² ξ; (n_means, n_weights), or (n_means, 1) when shared."""
        if not isinstance(self.posterior, CustomFamily):
            return np.asarray(self.compiled.mean_powers(powers, n_logs, n_threads))
        total: Any = 0.0
        for xi in self.blocks(n_threads):
            logs = [np.log(xi) ** (k + 1) for k in range(n_logs)]
            total = total + np.stack([f.sum(axis=0) for f in [*(xi**r for r in powers), *logs]])
        return np.asarray(total / self.n_samples)

    def means_from_their_law(self, n_means: int, n_threads: int) -> FloatArray:
        """Draw the means of the first `DIRECT_POWERS` from their own law, (n_means, n_weights)."""
        law, n = self.posterior.law, self.n_samples
        if law == "normal":
            return np.asarray(self.compiled.mean_powers_of_normals(n_threads))[:n_means]
        # The mean of n Wald variables of mean one is another one, with n times their shape.
        if law == "wald":
            return np.asarray(self._compiled("wald", n * self._shape, 1).draws(n_threads))
        # ξ is a gamma variable, or √(2 E) with an exponential E.
        total = np.asarray(self._compiled("gamma", n * self._shape, 1).draws(n_threads))
        return total * ((1 + (law == "rayleigh")) / n)

    @property
    def _shape(self) -> float:
        return getattr(self.posterior, "shape", None) or 1.0

    def _compiled(
        self, law: str | None = None, shape: float | None = None, n_draws: int | None = None, first_draw: int = 0
    ) -> _core.BaseDraws:
        layout = "shared" if self.shared else "independent"
        return _core.BaseDraws(
            "radial" if self.posterior.name == "radial" else layout,
            self.posterior.law if law is None else law,
            self._shape if shape is None else shape,
            self.seed,
            self.epoch,
            first_draw,
            self.n_samples if n_draws is None else n_draws,
            self.n_weights,
        )


def as_seed(value: Any) -> int:
    """Return a seed below 2⁶⁴, as the generator's key is."""
    if as_count(value, "seed", 0) >= 2**64:
        raise ValueError(f"seed must be below 2**64, got {value}")
    return int(value)


def as_index(value: Any, name: str) -> int:
    """Return a positive count below 2³², as counters of draws are."""
    if as_count(value, name) >= 2**32:
        raise ValueError(f"{name} must be below 2**32, got {value}")
    return int(value)
