"""What basis functions miss of a kernel's process, as functions of the inputs.

`draw_missing` draws values at given rows, jointly and exactly. Here the same process is a sum of features with standard
Gaussian weights, so that a draw is a function, the same whatever rows it is asked at, and has derivatives. A random
Fourier process g of the kernel, less what the landmarks know of it (Wilson et al. 2020, "Efficiently sampling functions
from Gaussian process posteriors", equation 12),

    r(x) = ψ(x) − (L⁻¹ψ(Z))ᵀ Φ(x),

has the right covariance on average over frequencies. It is scaled to the exact variance at every x, so that only
correlations between landmarks are subject to the choice of frequencies. What landmarks leave varies fast: frequencies
in the tail of the spectral density are drawn more often than they occur, and weigh less.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.linalg import blas
from scipy.special import gammaincinv

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.derivatives import Direction, derivatives, diagonal_derivative, rates_of_inputs
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import FourierFeatures, NystroemFeatures

N_FREQUENCIES = 500
TAIL = 3  # v**TAIL of the spectral density lies beyond the radius of a frequency, for uniform v
LARGEST_RADIUS = 100.0  # in units of an inverse length-scale; slopes of draws are finite
SMALLEST_SHARE = 0.3  # of the frequencies, for each part of the kernel that has an amplitude
FEW = 4  # features per row, from which rows are few


class MissingFeatures:
    """Features of what a basis misses: with independent standard Gaussian weights they have its prior covariance.

    Parameters
    ----------
    basis : Basis
        With a kernel.
    mean_missing : float
        As of `Basis.missing_variance`: what the noise accounts for already.
    rng : numpy.random.Generator
        Of the frequencies.
    """

    def __init__(self, basis: Basis, mean_missing: float, rng: np.random.Generator) -> None:
        assert basis.hyperparameters is not None
        self.basis, self.kernel, self.mean_missing = basis, basis.hyperparameters, mean_missing
        self._process: _Process | None = None
        if isinstance(basis.map, NystroemFeatures):
            self._process = _Process(basis.map, rng)

    @property
    def n_weights(self) -> int:
        """Number of features."""
        return self.kernel.n_linear + (0 if self._process is None else self._process.features.n_weights)

    def transform(self, inputs: FloatArray, phi: FloatArray) -> FloatArray:
        """Return the features, (n_rows, n_weights), at inputs of the map, whose basis functions are `phi`."""
        beyond = np.sqrt(self.kernel.amplitudes[2]) * self.kernel.cut_off_inputs(inputs)
        if self._process is None:
            return beyond
        scale = self._scale(inputs, phi)
        return np.hstack([beyond, scale[:, None] * _unit(self._process.left(inputs, phi))[0]])

    def along(self, inputs: FloatArray, phi: FloatArray, direction: Direction, rates: FloatArray) -> FloatArray:
        """Return the features' derivatives along a direction, in which the basis functions have these `rates`."""
        moved = rates_of_inputs(inputs.shape, direction)[:, : self.kernel.n_linear]
        beyond = np.sqrt(self.kernel.amplitudes[2]) * np.where(self.kernel.cut_off_inputs(inputs) != 0.0, moved, 0.0)
        if self._process is None:
            return beyond
        scale = self._scale(inputs, phi)
        change = _between_along(self.kernel, inputs, phi, direction, rates)
        change = np.divide(change, 2 * scale, out=np.zeros_like(scale), where=scale > 0)
        unit, length = _unit(self._process.left(inputs, phi))
        turn = self._process.left_along(inputs, direction, rates) / length
        turn -= unit * np.einsum("ij,ij->i", unit, turn)[:, None]
        return np.hstack([beyond, change[:, None] * unit + scale[:, None] * turn])

    def _scale(self, inputs: FloatArray, phi: FloatArray) -> FloatArray:
        """Return the deviation of what landmarks miss, less what the noise accounts for, (n_rows,)."""
        assert isinstance(self.basis.map, NystroemFeatures)
        return np.sqrt(np.maximum(self.basis.map.missing_variance(inputs, phi) - self.mean_missing, 0.0))


def _fourier_process(kernel: KernelHyperparameters, n_frequencies: int, rng: np.random.Generator) -> FourierFeatures:
    """Draw Fourier features whose products are the kernel on average, many of them of high frequencies.

    The radius √(f/χ²) of a Student-t vector with f degrees of freedom exceeds all but a share u of others where χ² is
    its u-quantile. With u = vᵃ, uniform v, the density of v is to that of u as 1 to a vᵃ⁻¹, which weighs squares.
    """
    d = len(kernel.length_scales)
    amplitudes = kernel.amplitudes[:2]
    share = amplitudes[0] / amplitudes.sum()
    if amplitudes.all():
        share = np.clip(share, SMALLEST_SHARE, 1 - SMALLEST_SHARE)
    n_ard = round(n_frequencies * float(share))
    counts, freedoms = (n_ard, n_frequencies - n_ard), (2 * kernel.smoothness, 1)
    scales = (kernel.length_scales, np.full(d, kernel.isotropic_length_scale))
    frequencies, sizes = [], []
    for count, freedom, scale, amplitude in zip(counts, freedoms, scales, amplitudes, strict=True):
        v = rng.random(count)
        chi2 = np.maximum(2 * gammaincinv(freedom / 2, v**TAIL), freedom / LARGEST_RADIUS**2)
        frequencies.append((rng.standard_normal((count, d)) / scale * np.sqrt(freedom / chi2)[:, None]).T)
        sizes.append(np.sqrt(amplitude / max(count, 1) * TAIL * v ** (TAIL - 1)))
    linear = np.full(kernel.n_linear, np.sqrt(kernel.amplitudes[2]))
    return FourierFeatures(np.hstack(frequencies), np.concatenate(sizes), linear, np.sqrt(kernel.constant))


class _Process:
    """A random Fourier process ψ of a kernel, and what landmarks leave of it."""

    def __init__(self, nystroem: NystroemFeatures, rng: np.random.Generator) -> None:
        self.nystroem = nystroem
        self.features = _fourier_process(nystroem.hyperparameters, N_FREQUENCIES, rng)

    @cached_property
    def at_landmarks(self) -> FloatArray:
        """ψ(Z), (n_landmarks, n_features)."""
        return np.asarray(self.features.transform(self.nystroem.landmarks))

    @cached_property
    def known(self) -> FloatArray:
        """L⁻¹ψ(Z), (n_landmarks, n_features)."""
        return np.asarray(blas.dtrmm(1.0, self.nystroem.whitening, self.at_landmarks, trans_a=1))

    def _known_at(self, phi: FloatArray) -> FloatArray:
        """Return what landmarks know of the process, for rows of Φ; few are whitened again, rather than ψ(Z)."""
        if FEW * len(phi) > self.features.n_weights:
            return np.asarray(phi @ self.known)
        return np.asarray(blas.dtrmm(1.0, self.nystroem.whitening, phi.T).T @ self.at_landmarks)

    def left(self, inputs: FloatArray, phi: FloatArray) -> FloatArray:
        """Return r(x), (n_rows, n_features)."""
        return np.asarray(self.features.transform(inputs) - self._known_at(phi))

    def left_along(self, inputs: FloatArray, direction: Direction, rates: FloatArray) -> FloatArray:
        """Return the derivative of r(x) along a direction in which basis functions have these `rates`."""
        return np.asarray(derivatives(self.features, inputs)(direction) - self._known_at(rates))


def missing_variance_along(
    basis: Basis, inputs: FloatArray, phi: FloatArray, mean_missing: float, direction: Direction, rates: FloatArray
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
    if isinstance(basis.map, NystroemFeatures):
        counts = basis.map.missing_variance(inputs, phi) > mean_missing
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
