"""What basis functions leave of a kernel's process, the residual: draws at rows, covariances, and random functions.

Beyond the reach of the linear part the residual is a linear function of the inputs cut off there; between landmarks, a
process of covariance ``k(x, x') − Φ(x)ᵀΦ(x')``. `draw_residual` draws its values at given rows, jointly: up to
`EXACT_ROWS` through a Cholesky factor of this matrix; further ones given these, and independently of each other in the
little that is then left.

`ResidualFeatures` writes the same process as a sum of features with standard Gaussian weights, so that a draw is a
function, the same whatever rows it is asked at, and has derivatives. A random Fourier process g of the kernel, less
what the landmarks know of it (Wilson et al. 2020, "Efficiently sampling functions from Gaussian process posteriors",
equation 12),

    r(x) = ψ(x) − (L⁻¹ψ(Z))ᵀ Φ(x),

has the right covariance on average over frequencies. It is scaled to the exact variance at every x, so that only
correlations between landmarks are subject to the choice of frequencies. The residual varies fast: frequencies in the
tail of the spectral density are drawn more often than they occur, and weigh less.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from pydirect._dense import half_rows, product, solve_lower, squared_norms, subtract_product
from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.derivatives import Direction, diagonal_derivative, rates_of_inputs
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import FeatureMap, FourierFeatures, cholesky_with_jitter, random_fourier_features
from pydirect.tables.table import equal_rows

EXACT_ROWS = 2000
BLOCK_ROWS = 1000  # at a time, of further ones
N_FREQUENCIES = 500
TAIL = 3  # as of `random_fourier_features`
SMALLEST_SHARE = 0.3  # of the frequencies, for each part of the kernel that has an amplitude


def draw_residual(
    basis: Basis, inputs: FloatArray, mean_residual: float, n_draws: int, rng: np.random.Generator, n_threads: int = 1
) -> FloatArray | None:
    """Draw what the basis functions leave, in units of its prior; equal rows have equal values, (n_rows, n_draws)."""
    kernel = basis.kernel
    if kernel is None:
        return None
    first, where = equal_rows(inputs)
    rows = inputs[first]
    beyond = kernel.beyond(rows)
    drawn = beyond @ rng.standard_normal((beyond.shape[1], n_draws))
    if basis.map.residual_kernel is not None:
        drawn += _between_landmarks(basis.map, rows, mean_residual, n_draws, rng, n_threads)
    return np.asarray(drawn[where])


def _kept_share(variance: FloatArray, mean_residual: float) -> FloatArray:
    """Return the factors that lower a variance by what the noise accounts for, as deviations, (n_rows,)."""
    left = np.maximum(variance - mean_residual, 0.0)
    return np.sqrt(left / np.maximum(variance, np.finfo(float).tiny))


def _between_landmarks(
    features: FeatureMap,
    inputs: FloatArray,
    mean_residual: float,
    n_draws: int,
    rng: np.random.Generator,
    n_threads: int,
) -> FloatArray:
    kernel, first = features.residual_kernel, inputs[:EXACT_ROWS]
    assert kernel is not None
    phi_first = features.transform(first, n_threads=n_threads)

    def left(rows: FloatArray, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return variances of the residual at rows, and covariances with those at the first ones."""
        covariance = kernel.covariance(rows, first, n_threads)
        subtract_product(phi, phi_first.T, covariance, n_threads)
        return features.residual_variance(rows, phi), covariance

    variance, covariance = left(first, phi_first)
    np.fill_diagonal(covariance, variance)
    # Rounding of k(x, x') − Φ(x)ᵀΦ(x') stays below the smallest jitter, relative to the kernel's own variance.
    factor = cholesky_with_jitter(covariance, kernel.typical_variance(first))
    if factor is None:
        raise ValueError("X must be within reach of the training rows: its covariance is lost to rounding")
    normal = rng.standard_normal((len(first), n_draws))
    drawn = [_kept_share(variance, mean_residual)[:, None] * product(factor, normal, n_threads)]
    for begin in range(EXACT_ROWS, len(inputs), BLOCK_ROWS):
        rows = inputs[begin : begin + BLOCK_ROWS]
        variance, covariance = left(rows, features.transform(rows, n_threads=n_threads))
        given = half_rows(factor, covariance, n_threads)
        rest = np.sqrt(np.maximum(variance - squared_norms(given), 0.0))[:, None]
        values = product(given, normal, n_threads) + rest * rng.standard_normal((len(rows), n_draws))
        drawn.append(_kept_share(variance, mean_residual)[:, None] * values)
    return np.concatenate(drawn)


def residual_covariances(
    basis: Basis, inputs: FloatArray, phi: FloatArray, mean_residual: float, rows: slice = slice(None)
) -> FloatArray:
    """Return covariances of what the basis functions leave between all rows and some, in units of its prior.

    Of the process that `draw_residual` draws from; zeros if there is no kernel. (n_rows, n_some)
    """
    kernel, others = basis.kernel, np.arange(len(inputs))[rows]
    if kernel is None:
        return np.zeros((len(inputs), len(others)))
    beyond = kernel.beyond(inputs)
    found = beyond @ beyond[rows].T
    if basis.map.residual_kernel is not None:
        variance = basis.map.residual_variance(inputs, phi)
        kept = _kept_share(variance, mean_residual)
        between = kernel.covariance(inputs, inputs[rows]) - phi @ phi[rows].T
        between[others, np.arange(len(others))] = variance[rows]
        # Rounding must not make a covariance larger than the variances allow.
        limit = np.sqrt(np.outer(variance, variance[rows]))
        found += np.outer(kept, kept[rows]) * np.clip(between, -limit, limit)
    return np.asarray(found)


class ResidualFeatures:
    """Features of what a basis leaves: with independent standard Gaussian weights they have its prior covariance.

    - `mean_residual`: As of `Basis.missing_variance`: what the noise accounts for already.
    """

    def __init__(self, basis: Basis, mean_residual: float, rng: np.random.Generator) -> None:
        assert basis.hyperparameters is not None
        self.basis, self.kernel, self.mean_residual = basis, basis.hyperparameters, mean_residual
        self._waves: FourierFeatures | None = None  # ψ
        if basis.map.residual_kernel is not None:
            options: dict[str, Any] = {"tail": TAIL, "least_share": SMALLEST_SHARE}
            self._waves = random_fourier_features(self.kernel, N_FREQUENCIES, rng, **options)

    @property
    def n_weights(self) -> int:
        """Number of features."""
        return self.kernel.n_linear + (0 if self._waves is None else self._waves.n_weights)

    @cached_property
    def _known(self) -> FloatArray:
        """L⁻¹ψ(Z), (n_landmarks, n_features)."""
        assert self._waves is not None
        return solve_lower(self.basis.factor, self._waves.transform(self.basis.map.landmarks))

    def transform(self, inputs: FloatArray, phi: FloatArray) -> FloatArray:
        """Return the features, (n_rows, n_weights), at inputs of the map, whose basis functions are `phi`."""
        beyond = self.kernel.beyond(inputs)
        if self._waves is None:
            return beyond
        unit, _ = _unit(self._waves.transform(inputs) - product(phi, self._known))
        return np.hstack([beyond, self._scale(inputs, phi)[:, None] * unit])

    def along(self, inputs: FloatArray, phi: FloatArray, direction: Direction, rates: FloatArray) -> FloatArray:
        """Return the features' derivatives along a direction, in which the basis functions have these `rates`."""
        moved = rates_of_inputs(inputs.shape, direction)[:, : self.kernel.n_linear]
        beyond = np.sqrt(self.kernel.amplitudes[2]) * np.where(self.kernel.cut_off_inputs(inputs) != 0.0, moved, 0.0)
        if self._waves is None:
            return beyond
        scale = self._scale(inputs, phi)
        change = _between_along(self.kernel, inputs, phi, direction, rates)
        change = np.divide(change, 2 * scale, out=np.zeros_like(scale), where=scale > 0)
        unit, length = _unit(self._waves.transform(inputs) - product(phi, self._known))
        turn = (self._waves.gradient(inputs)(direction) - product(rates, self._known)) / length
        turn -= unit * np.einsum("ij,ij->i", unit, turn)[:, None]
        return np.hstack([beyond, change[:, None] * unit + scale[:, None] * turn])

    def _scale(self, inputs: FloatArray, phi: FloatArray) -> FloatArray:
        """Return the deviation of what landmarks leave, less what the noise accounts for, (n_rows,)."""
        return np.sqrt(np.maximum(self.basis.map.residual_variance(inputs, phi) - self.mean_residual, 0.0))


def residual_variance_along(
    basis: Basis, inputs: FloatArray, phi: FloatArray, mean_residual: float, direction: Direction, rates: FloatArray
) -> FloatArray:
    """Return the derivative of `Basis.missing_variance` along a direction, (n_rows,).

    `rates`, (n_rows, n_weights): derivatives of `phi`.
    """
    kernel = basis.hyperparameters
    if kernel is None:
        return np.zeros(len(inputs))
    beyond = kernel.cut_off_inputs(inputs)
    moved = rates_of_inputs(inputs.shape, direction)[:, : kernel.n_linear]
    found = 2 * kernel.amplitudes[2] * np.einsum("ij,ij->i", beyond, moved)
    if basis.map.residual_kernel is not None:
        counts = basis.map.residual_variance(inputs, phi) > mean_residual
        found += np.where(counts, _between_along(kernel, inputs, phi, direction, rates), 0.0)
    return np.asarray(found)


def _between_along(
    kernel: KernelHyperparameters, inputs: FloatArray, phi: FloatArray, direction: Direction, rates: FloatArray
) -> FloatArray:
    """Return the derivative of k(x, x) − ‖Φ(x)‖² along a direction, (n_rows,)."""
    return np.asarray(diagonal_derivative(kernel, inputs, direction) - 2 * np.einsum("ij,ij->i", phi, rates))


def _unit(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows of length one, and their lengths, (n_rows, 1), at least the smallest that can be divided by."""
    length = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    return rows / length, length
