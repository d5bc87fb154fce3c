"""Expected squared errors, from statistics or from samples of rows, for gradients by draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_count, as_float_array
from pydirect.statistics.gaussian import TargetStatistics

# Squared errors of weight vectors: from statistics, or from rows


class SquaredErrors(Protocol):
    """``‖y − Φw‖²`` of many weight vectors at once, or unbiased estimates of it."""

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors of weights (n_draws, n_weights); (n_draws,)."""
        ...  # pragma: no cover

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and their gradients in the weights, (n_draws,) and (n_draws, n_weights)."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class ErrorsFromStatistics:
    """``yᵀy − 2wᵀc + wᵀAw``: O(b²) per draw whatever the number of rows, all draws in one product with A."""

    statistics: TargetStatistics

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors; (n_draws,)."""
        return np.asarray(self.statistics.squared_error(weights))

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and gradients ``2 (Aw − c)``."""
        return self.statistics.squared_error_and_gradient(weights)


@dataclass(frozen=True)
class ErrorsFromRows:
    """``n/m Σ_i (y_i − φ_iᵀw)²`` over m rows drawn afresh at every call: O(mb) per draw; only these rows are read.

    - `phi`, (n_rows, n_weights).
    - `y`, (n_rows,).
    - `batch_size`: m; if it is the number of rows, all of them are used, in order.
    """

    phi: FloatArray
    y: FloatArray
    batch_size: int

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors; (n_draws,). All draws see the same rows."""
        phi, y, scale = self._batch(rng)
        return scale * np.square(y - weights @ phi.T).sum(axis=1)

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and gradients ``−2 n/m Σ_i (y_i − φ_iᵀw) φ_i``."""
        phi, y, scale = self._batch(rng)
        residuals = y - weights @ phi.T
        return scale * np.einsum("ti,ti->t", residuals, residuals), -2.0 * scale * (residuals @ phi)

    def _batch(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, float]:
        n = len(self.y)
        if self.batch_size == n:
            return self.phi, self.y, 1.0
        chosen = rng.choice(n, self.batch_size, replace=False, shuffle=False)
        return self.phi[chosen], self.y[chosen], n / self.batch_size


def errors_of(
    statistics: TargetStatistics, rows: tuple[ArrayLike, ArrayLike] | None, batch_size: int | None
) -> SquaredErrors:
    """Return the expected squared errors of statistics or rows."""
    if rows is None:
        if batch_size is not None:
            raise ValueError("batch_size must be None without rows: statistics are of all of them")
        return ErrorsFromStatistics(statistics)
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise TypeError(f"rows must be a tuple (phi, y), got {type(rows).__name__}")
    phi = as_float_array(rows[0], "phi", ("n_rows", statistics.n_weights))
    y = as_float_array(rows[1], "y", (len(phi),))
    if len(phi) != statistics.n_samples:
        raise ValueError(f"rows must be those of the statistics, {statistics.n_samples:g}, got {len(phi)}")
    if not np.isclose(y @ y, statistics.yty, rtol=1e-6):
        raise ValueError(f"rows must be those of the statistics, with yty={statistics.yty:g}, got {y @ y:g}")
    size = len(phi) if batch_size is None else as_count(batch_size, "batch_size")
    if size > len(phi):
        raise ValueError(f"batch_size must be at most the number of rows, {len(phi)}, got {size}")
    return ErrorsFromRows(phi, y, size)
