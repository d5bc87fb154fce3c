"""Expected squared errors, from statistics or from samples of rows, for gradients by draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_count, as_float_array, as_instance, as_number, as_output
from pydirect.distributions.noise import NoisePosterior, as_noise_levels
from pydirect.statistics.gaussian import GaussianStatistics

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
    """``yᵀy − 2wᵀc + wᵀAw``: O(b²) a draw whatever the number of rows, all draws in one product with A."""

    a: FloatArray
    c: FloatArray
    yty: float

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors; (n_draws,)."""
        return self._errors(weights, weights @ self.a)

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and gradients ``2 (Aw − c)``."""
        product = weights @ self.a
        return self._errors(weights, product), 2.0 * (product - self.c)

    def _errors(self, weights: FloatArray, product: FloatArray) -> FloatArray:
        return self.yty + np.einsum("tj,tj->t", weights, product) - 2.0 * (weights @ self.c)


@dataclass(frozen=True)
class ErrorsFromRows:
    """``n/m Σ_i (y_i − φ_iᵀw)²`` over m rows drawn afresh at every call: O(mb) a draw; only these rows are read.

    Parameters
    ----------
    phi : ndarray of shape (n_rows, n_weights)
    y : ndarray of shape (n_rows,)
    batch_size : int
        m; as many as there are rows: all of them, in order.
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


# What is inferred: the exact parts of both bounds


@dataclass(frozen=True)
class GaussianRegression:
    """The same regression with continuous weights: Gaussian prior, factorised Gaussian posterior (REPARAM's model).

    Parameters
    ----------
    statistics : GaussianStatistics
    prior_variance : float
        Of every weight.
    noise_levels : array_like of shape (n_noise_levels,)
        Noise variances, positive and ascending; one level fixes the noise.
    log_noise_prior : array_like of shape (n_noise_levels,), optional
        Log masses; uniform by default.
    output : int
        Which target of the statistics.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.
    """

    statistics: GaussianStatistics
    prior_variance: float
    noise_levels: FloatArray
    log_noise_prior: FloatArray | None = None
    output: int = 0

    def __post_init__(self) -> None:
        as_instance(self.statistics, "statistics", GaussianStatistics)
        noise = as_noise_levels(self.noise_levels)
        log_prior = np.full(noise.size, -np.log(noise.size)) if self.log_noise_prior is None else self.log_noise_prior
        object.__setattr__(self, "noise_levels", noise)
        object.__setattr__(self, "log_noise_prior", as_float_array(log_prior, "log_noise_prior", noise.shape))
        as_number(self.prior_variance, "prior_variance", above=0.0)
        as_output(self.output, self.statistics.n_outputs)


@dataclass
class GaussianPosterior:
    """A fitted factorised Gaussian posterior of the weights, and the noise.

    Attributes
    ----------
    mean, std : ndarray of shape (n_weights,)
    noise : NoisePosterior
    elbo : float
        Lower bound of log p(y) in nats, −(n/2) log 2π included.
    elbo_trace : ndarray
        Highest value so far, check by check.
    n_iter : int
    converged : bool
    interrupted : bool
    """

    mean: FloatArray
    std: FloatArray
    noise: NoisePosterior
    elbo: float
    elbo_trace: FloatArray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 0
    converged: bool = True
    interrupted: bool = False

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ; (n_rows,) each."""
        return phi @ self.mean, np.square(phi) @ np.square(self.std)


def errors_of(
    statistics: GaussianStatistics, output: int, rows: tuple[ArrayLike, ArrayLike] | None, batch_size: int | None
) -> SquaredErrors:
    """Return the expected squared errors of statistics or rows."""
    if rows is None:
        if batch_size is not None:
            raise ValueError("batch_size must be None without rows: statistics are of all of them")
        return ErrorsFromStatistics(statistics.A, statistics.c[:, output].copy(), float(statistics.yty[output]))
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise TypeError(f"rows must be a tuple (phi, y), got {type(rows).__name__}")
    phi = as_float_array(rows[0], "phi", ("n_rows", statistics.n_weights))
    y = as_float_array(rows[1], "y", (len(phi),))
    if len(phi) != statistics.n_samples:
        raise ValueError(f"rows must be those of the statistics, {statistics.n_samples:g}, got {len(phi)}")
    if not np.isclose(y @ y, statistics.yty[output], rtol=1e-6):
        raise ValueError(f"rows must be those of the statistics, with yty={statistics.yty[output]:g}, got {y @ y:g}")
    size = len(phi) if batch_size is None else as_count(batch_size, "batch_size")
    if size > len(phi):
        raise ValueError(f"batch_size must be at most the number of rows, {len(phi)}, got {size}")
    return ErrorsFromRows(phi, y, size)
