"""Draws of what basis functions miss of a kernel's process, jointly over rows.

Beyond the reach of the linear part that is a linear function of the inputs cut off there; between landmarks, a process
of covariance ``k(x, x') − Φ(x)ᵀΦ(x')``. Up to `EXACT_ROWS` rows are drawn through a Cholesky factor of this matrix;
further ones are drawn given these, and independently of each other in the little that is then left.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.maps import NystroemFeatures, cholesky_with_jitter
from pydirect.features.repeated import equal_rows

EXACT_ROWS = 2000
BLOCK_ROWS = 1000  # at a time, of further ones


def draw_missing(
    basis: Basis, inputs: FloatArray, mean_missing: float, n_draws: int, rng: np.random.Generator, n_threads: int = 1
) -> FloatArray | None:
    """Draw what the basis functions miss, in units of its prior; equal rows have equal values.

    Parameters
    ----------
    basis : Basis
    inputs : ndarray of shape (n_rows, n_inputs)
        Of the map.
    mean_missing : float
        As of `Basis.missing_variance`: what the noise accounts for already.
    n_draws : int
    rng : numpy.random.Generator
    n_threads : int

    Returns
    -------
    ndarray of shape (n_rows, n_draws) or None
        None if there is no kernel.
    """
    kernel = basis.hyperparameters
    if kernel is None:
        return None
    first, where = equal_rows(inputs)
    rows = inputs[first]
    beyond = kernel.cut_off_inputs(rows)
    drawn = beyond @ (np.sqrt(kernel.amplitudes[2]) * rng.standard_normal((kernel.n_linear, n_draws)))
    if isinstance(basis.map, NystroemFeatures):
        drawn += _between_landmarks(basis.map, rows, mean_missing, n_draws, rng, n_threads)
    return np.asarray(drawn[where])


def _kept_share(variance: FloatArray, mean_missing: float) -> FloatArray:
    """Return the factors that lower a variance by what the noise accounts for, as deviations, (n_rows,)."""
    left = np.maximum(variance - mean_missing, 0.0)
    return np.sqrt(left / np.maximum(variance, np.finfo(float).tiny))


def _between_landmarks(
    features: NystroemFeatures,
    inputs: FloatArray,
    mean_missing: float,
    n_draws: int,
    rng: np.random.Generator,
    n_threads: int,
) -> FloatArray:
    kernel, first = features.hyperparameters, inputs[:EXACT_ROWS]
    phi_first = features.transform(first, n_threads=n_threads)
    variance = features.missing_variance(first, phi_first)
    covariance = kernel.covariance(first, first, n_threads) - phi_first @ phi_first.T
    np.fill_diagonal(covariance, variance)
    # Rounding of k(x, x') − Φ(x)ᵀΦ(x') stays below the smallest jitter, relative to the kernel's own variance.
    factor = cholesky_with_jitter(covariance, kernel.ard_amplitude + kernel.isotropic_amplitude + kernel.constant)
    if factor is None:
        raise ValueError(
            "X must be within reach of the training rows, or the covariance of its rows is lost to rounding"
        )
    factor = np.tril(factor)
    normal = rng.standard_normal((len(first), n_draws))
    drawn = np.empty((len(inputs), n_draws))
    drawn[:EXACT_ROWS] = _kept_share(variance, mean_missing)[:, None] * (factor @ normal)
    for begin in range(EXACT_ROWS, len(inputs), BLOCK_ROWS):
        rows = inputs[begin : begin + BLOCK_ROWS]
        phi = features.transform(rows, n_threads=n_threads)
        variance = features.missing_variance(rows, phi)
        covariance = kernel.covariance(rows, first, n_threads) - phi @ phi_first.T
        given = solve_triangular(factor, covariance.T, lower=True, check_finite=False).T
        left = np.sqrt(np.maximum(variance - np.einsum("ij,ij->i", given, given), 0.0))
        values = given @ normal + left[:, None] * rng.standard_normal((len(rows), n_draws))
        drawn[begin : begin + BLOCK_ROWS] = _kept_share(variance, mean_missing)[:, None] * values
    return drawn


def missing_covariances(basis: Basis, inputs: FloatArray, phi: FloatArray, row: int, mean_missing: float) -> FloatArray:
    """Return covariances of what the basis functions miss between all rows and one of them, in units of its prior.

    Of the process that `draw_missing` draws from; zeros if there is no kernel.

    Parameters
    ----------
    basis : Basis
    inputs : ndarray of shape (n_rows, n_inputs)
        Of the map.
    phi : ndarray of shape (n_rows, n_weights)
    row : int
    mean_missing : float
        As of `Basis.missing_variance`.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    kernel = basis.hyperparameters
    if kernel is None:
        return np.zeros(len(inputs))
    beyond = kernel.cut_off_inputs(inputs)
    found = kernel.amplitudes[2] * (beyond @ beyond[row])
    if isinstance(basis.map, NystroemFeatures):
        variance = basis.map.missing_variance(inputs, phi)
        kept = _kept_share(variance, mean_missing)
        between = kernel.covariance(inputs, inputs[row : row + 1])[:, 0] - phi @ phi[row]
        between[row] = variance[row]
        # Rounding must not make a covariance larger than the variances allow.
        limit = np.sqrt(variance * variance[row])
        found += kept * kept[row] * np.clip(between, -limit, limit)
    return np.asarray(found)
