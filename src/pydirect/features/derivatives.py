"""Derivatives of basis functions with respect to columns of X: one direction of the inputs at a time.

A column moves its standardised input and, where there is one, its normal score, each at a rate of its own; basis
functions follow by the chain rule. Rates are those of the functions as they are computed: zero where inputs are
clipped and beyond the first and last knot of normal scores, and at a knot those of the segment above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import LINEAR_REACH, KernelHyperparameters, linear_inputs
from pydirect.features.maps import (
    FeatureMap,
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
)

# Inputs of the map that move, by number, and how fast at each row, (n_rows,).
Direction = Sequence[tuple[int, FloatArray]]
Along = Callable[[Direction], FloatArray]


def direction_of(input_map: InputMap, x: FloatArray, column: int) -> list[tuple[int, FloatArray]]:
    """Return how the inputs move when a column of x, (n_rows, n_features_in), does; nothing for a constant column."""
    found = [(int(k), np.full(len(x), 1.0 / input_map.scale[column])) for k in np.flatnonzero(input_map.kept == column)]
    for k in np.flatnonzero(input_map.scored == column):
        slopes = _slopes(input_map.knots[k], input_map.scores[k], x[:, column])
        found.append((input_map.n_standardised + int(k), slopes))
    return found


def _slopes(knots: FloatArray, scores: FloatArray, x: FloatArray) -> FloatArray:
    """Slopes of the function that interpolates the scores, (n_rows,)."""
    n = int(np.searchsorted(knots, knots[-1])) + 1  # the rest is padding
    rates = np.concatenate([[0.0], np.diff(scores[:n]) / np.diff(knots[:n]), [0.0]])
    return np.asarray(rates[np.searchsorted(knots[:n], x, side="right")])


def derivatives(features: FeatureMap, inputs: FloatArray) -> Along:
    """Return the function from a direction to derivatives along it, (n_rows, n_weights), at inputs of the map.

    Of k(x, Z) if there are landmarks Z, else of Φ; see `Basis.functions`.

    Raises
    ------
    TypeError
        For scikit-learn transformers, whose derivatives nobody knows.
    """
    if isinstance(features, NystroemFeatures):
        return _of_kernel(features.hyperparameters, inputs, features.landmarks)
    if isinstance(features, FourierFeatures):
        return _of_fourier(features, inputs)
    if isinstance(features, PolynomialFeatures):
        return lambda direction: _of_polynomials(features, inputs, direction)
    if isinstance(features, LinearFeatures | PrecomputedFeatures):
        return lambda direction: rates_of_inputs((len(inputs), features.n_weights), direction)
    raise TypeError("features must be built in to have gradients, got a transformer")


def rates_of_inputs(shape: tuple[int, int], direction: Direction) -> FloatArray:
    """Return how fast every input moves, (n_rows, n_inputs): most of them not at all."""
    out = np.zeros(shape)
    for k, rate in direction:
        out[:, k] = rate
    return out


def _linear_rates(inputs: FloatArray, n_linear: int, direction: Direction) -> FloatArray:
    """Rates of the inputs of the linear part, (n_rows, n_linear)."""
    rates = rates_of_inputs((len(inputs), inputs.shape[1]), direction)[:, :n_linear]
    return np.where(np.abs(inputs[:, :n_linear]) <= LINEAR_REACH, rates, 0.0)


def diagonal_derivative(kernel: KernelHyperparameters, inputs: FloatArray, direction: Direction) -> FloatArray:
    """Return the derivative of the prior variance k(x, x) along a direction, (n_rows,)."""
    rates = _linear_rates(inputs, kernel.n_linear, direction)
    return np.asarray(2 * kernel.amplitudes[2] * np.einsum("ij,ij->i", linear_inputs(inputs, kernel.n_linear), rates))


def _of_kernel(kernel: KernelHyperparameters, inputs: FloatArray, landmarks: FloatArray) -> Along:
    """Differentiate k(x, Z): radial parts, with ∂k/∂x_p = −pull (x_p − z_p)/ℓ_p², and the linear one."""
    ard, isotropic, slope, _ = kernel.amplitudes
    scales = kernel.length_scales
    order = 2 * kernel.smoothness
    distance = np.sqrt(order) * cdist(inputs / scales, landmarks / scales)
    pull = ard * order * matern_pull(distance, kernel.smoothness)
    isotropic_pull = isotropic * matern_pull(cdist(inputs, landmarks) / kernel.isotropic_length_scale, 0.5)
    isotropic_pull /= kernel.isotropic_length_scale**2
    n_linear, linear = kernel.n_linear, slope * linear_inputs(landmarks, kernel.n_linear).T

    def along(direction: Direction) -> FloatArray:
        out = _linear_rates(inputs, n_linear, direction) @ linear
        for p, rate in direction:
            out -= (pull / scales[p] ** 2 + isotropic_pull) * (inputs[:, p, None] - landmarks[:, p]) * rate[:, None]
        return np.asarray(out)

    return along


def matern_pull(s: FloatArray, smoothness: float) -> FloatArray:
    """−M'(s)/s of the Matérn function; of smoothness 1/2, which has a kink there, zero at s = 0."""
    decay = np.exp(-s)
    if smoothness == 0.5:
        return np.divide(decay, s, out=np.zeros_like(s), where=s > 0)
    return decay if smoothness == 1.5 else decay * (1 + s) / 3


def _of_fourier(features: FourierFeatures, inputs: FloatArray) -> Along:
    n, width = features.n_frequencies, features.n_weights
    phi = features.transform(inputs)
    cosine, sine = phi[:, :n], phi[:, n : 2 * n]

    def along(direction: Direction) -> FloatArray:
        turning = sum(np.outer(rate, features.frequencies[p]) for p, rate in direction)
        out = np.zeros((len(inputs), width))
        np.multiply(sine, -turning, out=out[:, :n])
        np.multiply(cosine, turning, out=out[:, n : 2 * n])
        if features.linear_scale is not None:
            n_linear = len(features.linear_scale)
            out[:, 2 * n : 2 * n + n_linear] = features.linear_scale * _linear_rates(inputs, n_linear, direction)
        return out

    return along


def _of_polynomials(features: PolynomialFeatures, inputs: FloatArray, direction: Direction) -> FloatArray:
    """Differentiate monomials by the product rule: each is a shorter one times one more input."""
    phi, rates = features.transform(inputs), rates_of_inputs(inputs.shape, direction)
    column = {m: k for k, m in enumerate(features.monomials)}
    out = np.zeros_like(phi)
    for m, k in column.items():
        if m:
            shorter = column[m[:-1]]
            out[:, k] = out[:, shorter] * inputs[:, m[-1]] + phi[:, shorter] * rates[:, m[-1]]
    return out


def moving_columns(kept: NDArray[np.intp], groups: NDArray[np.intp], origins: NDArray[np.intp]) -> dict[int, int]:
    """Return the encoded column of numbers that each column of a table is, of those that are not constant.

    Parameters
    ----------
    kept : ndarray of int
        Encoded columns that are not constant.
    groups, origins : ndarray of int, shape (n_encoded,)
        Of `pydirect.features.Columns`.
    """
    first = np.unique(origins, return_index=True)[1]  # indicators of missing numbers follow all others
    return {int(origins[j]): int(j) for j in np.intersect1d(first, kept) if groups[j] < 0}
