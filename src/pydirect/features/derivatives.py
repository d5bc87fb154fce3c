"""Derivatives of basis functions with respect to columns of X: one direction of the inputs at a time.

A column moves its standardised input and its normal score, if it has one; basis functions follow by the chain rule.
Rates are zero where inputs are clipped, and at a knot of normal scores those of the segment above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import LINEAR_REACH, PAIRS, SQUARED_EXPONENTIAL, KernelHyperparameters, linear_inputs

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


def rates_of_inputs(shape: tuple[int, int], direction: Direction) -> FloatArray:
    """Return how fast every input moves, (n_rows, n_inputs): most of them not at all."""
    out = np.zeros(shape)
    for k, rate in direction:
        out[:, k] = rate
    return out


def linear_rates(inputs: FloatArray, n_linear: int, direction: Direction) -> FloatArray:
    """Rates of the inputs of the linear part, (n_rows, n_linear)."""
    rates = rates_of_inputs((len(inputs), inputs.shape[1]), direction)[:, :n_linear]
    return np.where(np.abs(inputs[:, :n_linear]) <= LINEAR_REACH, rates, 0.0)


def diagonal_derivative(kernel: KernelHyperparameters, inputs: FloatArray, direction: Direction) -> FloatArray:
    """Return the derivative of the prior variance k(x, x) along a direction, (n_rows,)."""
    rates = linear_rates(inputs, kernel.n_linear, direction)
    return np.asarray(2 * kernel.amplitudes[2] * np.einsum("ij,ij->i", linear_inputs(inputs, kernel.n_linear), rates))


def kernel_gradient(kernel: KernelHyperparameters, inputs: FloatArray, landmarks: FloatArray) -> Along:
    """Differentiate k(x, Z): radial parts, with ∂k/∂x_p = −pull (x_p − z_p)/ℓ_p², the linear one, and that of axes.

    At x_p = z_p, where a product has a kink, it counts for nothing: the mean of the slopes on both sides.
    """
    ard, isotropic, slope = kernel.ard_amplitude, kernel.isotropic_amplitude, kernel.amplitudes[2]
    scales = kernel.length_scales
    pull = ard * radial_pull(cdist(inputs / scales, landmarks / scales), kernel.smoothness)
    isotropic_pull = isotropic * radial_pull(cdist(inputs, landmarks) / kernel.isotropic_length_scale, 0.5)
    isotropic_pull /= kernel.isotropic_length_scale**2
    rates, along_axis = kernel.axis_rates, _axis_derivative(kernel, inputs, landmarks)
    n_linear, linear = kernel.n_linear, slope * linear_inputs(landmarks, kernel.n_linear).T

    def along(direction: Direction) -> FloatArray:
        out = linear_rates(inputs, n_linear, direction) @ linear
        for p, rate in direction:
            apart = inputs[:, p, None] - landmarks[:, p]
            out -= (pull / scales[p] ** 2 + isotropic_pull) * apart * rate[:, None]
            if along_axis is not None and rates[p] > 0:
                out -= rates[p] * along_axis(rates[p] * np.abs(apart)) * np.sign(apart) * rate[:, None]
        return np.asarray(out)

    return along


def _axis_derivative(
    kernel: KernelHyperparameters, inputs: FloatArray, landmarks: FloatArray
) -> Callable[[FloatArray], FloatArray] | None:
    """Return the function from t along an axis to −∂k/∂t of the part of axes, (n_rows, n_landmarks); None for none."""
    if kernel.product_amplitude == 0:
        return None
    rates = kernel.axis_rates
    if kernel.product_order != PAIRS:
        product = kernel.product_amplitude * np.exp(-cdist(inputs * rates, landmarks * rates, "cityblock"))
        return lambda t: product
    seen = np.flatnonzero(rates)
    total = sum(matern_52(rates[j] * np.abs(inputs[:, j, None] - landmarks[:, j])) for j in seen)
    share = 2 * kernel.product_amplitude / (len(seen) * (len(seen) - 1))
    return lambda t: np.asarray(share * (total - matern_52(t)) * t * (1 + t) * np.exp(-t) / 3)


def matern_52(t: FloatArray) -> FloatArray:
    """Matérn function of smoothness 5/2 of t = √5 r."""
    return np.asarray((1 + t + t * t / 3) * np.exp(-t))


def radial_pull(r: FloatArray, smoothness: float) -> FloatArray:
    """−M'(r)/r of a radial function of unit length-scale; of smoothness 1/2, which has a kink there, zero at r = 0."""
    if smoothness == SQUARED_EXPONENTIAL:
        return np.exp(-0.5 * r * r)
    order = 2 * smoothness
    s = np.sqrt(order) * r
    decay = np.exp(-s)
    if smoothness == 0.5:
        return np.divide(decay, s, out=np.zeros_like(s), where=s > 0)
    return order * (decay if smoothness == 1.5 else decay * (1 + s) / 3)


def moving_columns(kept: NDArray[np.intp], groups: NDArray[np.intp], origins: NDArray[np.intp]) -> dict[int, int]:
    """Return the encoded column of numbers that each column of a table is, of those that are not constant."""
    first = np.unique(origins, return_index=True)[1]  # indicators of missing numbers follow all others
    return {int(origins[j]): int(j) for j in np.intersect1d(first, kept) if groups[j] < 0}
