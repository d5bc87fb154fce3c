"""Moments of h = f(a) for Gaussian pre-activations a, f the ReLU or the Heaviside function, and their adjoints.

Moments of single units have closed forms. Covariances of pairs come from a one-dimensional quadrature or series
(``'exact'``, to 1e-11), the same with fewer nodes (``'fast'``, 2e-7), or the approximation of Wu et al. (``'paper'``),
which need not be positive semidefinite. A unit of variance zero is deterministic, and variances up to 1e-289 count as
zero in covariances and derivatives.

References
----------
Wu, Nowozin, Meeds, Turner, Hernández-Lobato, Gaunt: Deterministic variational inference for robust Bayesian neural
networks, ICLR 2019; table 1 and eq. 6, with the misprints of the table corrected.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_float_array, as_float_array_unbounded, as_instance
from pydirect.networks.base import ACTIVATIONS, LayerParameters

KERNELS = ("exact", "paper", "fast")
# Tolerance for rounding: of correlations above one, and of differences between the two triangles.
_ROUNDING = 1e-8


class UnitMoments(NamedTuple):
    """Moments of units, each of shape (n, d)."""

    mean: FloatArray  # E h
    second: FloatArray  # E h²
    variance: FloatArray  # Var h, without the cancellation of E h² − (E h)²


def _as_variance(value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    variance = as_float_array(value, "variance", shape)
    if (variance < 0).any():
        at = tuple(np.argwhere(variance < 0)[0].tolist())
        raise ValueError(f"variance must be at least 0, got {variance[at]} at index {at}")
    return variance


def _as_covariance(value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    covariance = as_float_array(value, "covariance", shape)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    if (variance < 0).any():
        n, j = np.argwhere(variance < 0)[0].tolist()
        raise ValueError(f"covariance must have a diagonal of at least 0, got {variance[n, j]} at index {(n, j, j)}")
    deviation = np.sqrt(variance)
    largest = deviation[:, :, None] * deviation[:, None, :]
    beyond = np.argwhere(np.abs(covariance) > (1 + _ROUNDING) * largest)
    if beyond.size:
        at, bound = tuple(beyond[0].tolist()), largest[tuple(beyond[0])]
        raise ValueError(
            f"covariance must have no correlation beyond 1, got {covariance[at]} at index {at} for deviations whose "
            f"product is {bound}"
        )
    uneven = np.argwhere(np.abs(covariance - covariance.swapaxes(1, 2)) > _ROUNDING * largest)
    if uneven.size:
        n, j, k = uneven[0].tolist()
        there, back = covariance[n, j, k], covariance[n, k, j]
        raise ValueError(f"covariance must be symmetric, got {there} at index {(n, j, k)} and {back} at {(n, k, j)}")
    return covariance


def _moments(activation: str, mean: ArrayLike, variance: ArrayLike, *, n_threads: int | None = None) -> UnitMoments:
    """Moments of f(a), each accurate to a few units in the last place; `mean`, `variance`, (n, d): of a."""
    mean = as_float_array(mean, "mean", ("n", "d"))
    variance = _as_variance(variance, mean.shape)
    out = UnitMoments(*(np.empty(mean.shape) for _ in range(3)))
    m, v, h, hh, hv = (a.reshape(mean.size) for a in (mean, variance, *out))
    _core.activation_moments(activation, m, v, h, hh, hv, resolve_n_threads(n_threads))
    return out


def _moments_vjp(
    activation: str,
    mean: ArrayLike,
    variance: ArrayLike,
    mean_bar: ArrayLike,
    second_bar: ArrayLike,
    variance_bar: ArrayLike,
    *,
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return a loss's derivatives in mean and variance of a, (n, d) each, from those in the fields of `UnitMoments`.

    In a variance of zero they are those from above with what grows like 1/√variance left out.
    """
    mean = as_float_array(mean, "mean", ("n", "d"))
    bars = {"mean_bar": mean_bar, "second_bar": second_bar, "variance_bar": variance_bar}
    given = [as_float_array(bar, name, mean.shape) for name, bar in bars.items()]
    out = np.zeros(mean.shape), np.zeros(mean.shape)
    arrays = (mean, _as_variance(variance, mean.shape), *given, *out)
    m, v, h, hh, hv, by_m, by_v = (a.reshape(mean.size) for a in arrays)
    _core.activation_moments_adjoint(activation, m, v, h, hh, hv, by_m, by_v, resolve_n_threads(n_threads))
    return out


def _covariance(
    activation: str, mean: ArrayLike, covariance: ArrayLike, *, kernel: str = "exact", n_threads: int | None = None
) -> FloatArray:
    """Covariance of f(a), (n, d, d), from mean (n, d) and covariance (n, d, d) of a; the diagonal is always exact."""
    mean = as_float_array(mean, "mean", ("n", "d"))
    covariance = _as_covariance(covariance, (*mean.shape, mean.shape[1]))
    as_choice(kernel, "kernel", KERNELS)
    out = np.empty_like(covariance)
    _core.activation_covariance(activation, kernel, mean, covariance, out, resolve_n_threads(n_threads))
    return out


def _covariance_vjp(
    activation: str,
    mean: ArrayLike,
    covariance: ArrayLike,
    output_bar: ArrayLike,
    *,
    kernel: str = "exact",
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return a loss's derivatives in mean (n, d) and covariance (n, d, d) of a, from those in the covariance of f(a).

    dL = Σ output_bar · dC over both triangles. Derivatives of 'paper' and of Heaviside units grow like 1/√(1 − r²) with
    the correlation r of a pair, and are cut at |r| = 1 − 10⁻⁶.
    """
    mean = as_float_array(mean, "mean", ("n", "d"))
    covariance = _as_covariance(covariance, (*mean.shape, mean.shape[1]))
    output_bar = as_float_array(output_bar, "output_bar", covariance.shape)
    as_choice(kernel, "kernel", KERNELS)
    out = np.zeros_like(mean), np.zeros_like(covariance)
    symmetric_bar = (output_bar + output_bar.swapaxes(1, 2)) / 2
    threads = resolve_n_threads(n_threads)
    _core.activation_covariance_adjoint(activation, kernel, mean, covariance, symmetric_bar, *out, threads)
    return out


# h = max(a, 0), and h = [a > 0], a fair coin at mean and variance zero
relu_moments, heaviside_moments = (partial(_moments, f) for f in ACTIVATIONS)
relu_moments_vjp, heaviside_moments_vjp = (partial(_moments_vjp, f) for f in ACTIVATIONS)
relu_covariance, heaviside_covariance = (partial(_covariance, f) for f in ACTIVATIONS)
relu_covariance_vjp, heaviside_covariance_vjp = (partial(_covariance_vjp, f) for f in ACTIVATIONS)


def linear_moments(
    units: UnitMoments, layer: LayerParameters, covariance: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Mean (n, n_out) and covariance (n, n_out, n_out) of h W + b, for moments of h and, by default, independent units.

    Log standard deviations of −inf are known weights; a deterministic h has the moments h, h² and zeros.
    """
    units = _as_units(units)
    layer = _as_layer(layer, units.mean.shape[1])
    m = layer.weight_mean
    covariance_mean = _covariance_times_mean(units, layer, covariance)
    variance = units.second @ np.exp(2 * layer.weight_log_std) + np.exp(2 * layer.bias_log_std)
    out = m.T @ covariance_mean
    np.einsum("nii->ni", out)[...] += variance
    return units.mean @ m + layer.bias_mean, out


def linear_moments_vjp(
    units: UnitMoments,
    layer: LayerParameters,
    mean_bar: ArrayLike,
    output_bar: ArrayLike,
    covariance: ArrayLike | None = None,
) -> tuple[UnitMoments, LayerParameters, FloatArray | None]:
    """Return a loss's derivatives in the arguments of `linear_moments`, from those in its results.

    dL = Σ output_bar · dS over both triangles. With a covariance, the derivative in the variance of h is zero: it is on
    the diagonal of that in the covariance.
    """
    units = _as_units(units)
    layer = _as_layer(layer, units.mean.shape[1])
    m, variance = layer.weight_mean, np.exp(2 * layer.weight_log_std)
    n, n_out = len(units.mean), m.shape[1]
    mean_bar = as_float_array(mean_bar, "mean_bar", (n, n_out))
    output_bar = as_float_array(output_bar, "output_bar", (n, n_out, n_out))
    output_bar = (output_bar + output_bar.swapaxes(1, 2)) / 2
    variance_bar = np.einsum("nii->ni", output_bar)
    covariance_mean = _covariance_times_mean(units, layer, covariance)
    mean_times_bar = m @ output_bar
    layer_bar = LayerParameters(
        units.mean.T @ mean_bar + 2 * np.einsum("nij,njk->ik", covariance_mean, output_bar),
        mean_bar.sum(axis=0),
        2 * variance * (units.second.T @ variance_bar),
        2 * np.exp(2 * layer.bias_log_std) * variance_bar.sum(axis=0),
    )
    independent = covariance is None
    units_bar = UnitMoments(
        mean_bar @ m.T,
        variance_bar @ variance.T,
        np.einsum("nij,ij->ni", mean_times_bar, m) if independent else np.zeros_like(units.mean),
    )
    return units_bar, layer_bar, None if independent else mean_times_bar @ m.T


def _covariance_times_mean(units: UnitMoments, layer: LayerParameters, covariance: ArrayLike | None) -> FloatArray:
    """C M of every row, (n, n_in, n_out)."""
    if covariance is None:
        return units.variance[:, :, None] * layer.weight_mean
    n, n_in = units.mean.shape
    return as_float_array(covariance, "covariance", (n, n_in, n_in)) @ layer.weight_mean


def _as_units(units: UnitMoments) -> UnitMoments:
    as_instance(units, "units", UnitMoments)
    mean = as_float_array(units.mean, "units.mean", ("n", "n_in"))
    second, variance = (as_float_array(getattr(units, f), f"units.{f}", mean.shape) for f in ("second", "variance"))
    return UnitMoments(mean, second, variance)


def _as_layer(layer: LayerParameters, n_in: int) -> LayerParameters:
    as_instance(layer, "layer", LayerParameters)
    mean = as_float_array(layer.weight_mean, "layer.weight_mean", (n_in, "n_out"))
    return LayerParameters(
        mean,
        as_float_array(layer.bias_mean, "layer.bias_mean", mean.shape[1:]),
        _as_log_std(layer.weight_log_std, "layer.weight_log_std", mean.shape),
        _as_log_std(layer.bias_log_std, "layer.bias_log_std", mean.shape[1:]),
    )


def _as_log_std(value: ArrayLike, name: str, shape: tuple[int, ...]) -> FloatArray:
    """Return log standard deviations, which may be −inf."""
    log_std = as_float_array_unbounded(value, name, shape)
    if not (log_std < np.inf).all():
        raise ValueError(f"{name} must hold numbers below infinity, got {log_std[~(log_std < np.inf)][0]}")
    return log_std
