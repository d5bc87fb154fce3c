"""Moments of a linear layer with independent Gaussian weights and random inputs, and their adjoint, in NumPy.

`pydirect.networks.deterministic` fuses these and `pydirect.networks.unit_moments` into one compiled call; here they are
plain NumPy, for models that are assembled by hand.

References
----------
Wu, Nowozin, Meeds, Turner, Hernández-Lobato, Gaunt: Deterministic variational inference for robust Bayesian neural
networks, ICLR 2019; eqs. 3, 14 and 15.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_float_array, as_float_array_unbounded, as_instance
from pydirect.networks.base import LayerParameters
from pydirect.networks.unit_moments import UnitMoments


def linear_moments(
    units: UnitMoments, layer: LayerParameters, covariance: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of h W + b.

    `units`: moments of h, each of shape (n, n_in). For a deterministic h they are h, h² and zeros. `layer`: means and
    log standard deviations of W and b, as from `DeterministicNetwork.unpack`; −inf: known weights. `covariance`, (n,
    n_in, n_in): of h, the variances of `units` on its diagonal; by default units are independent. Returns `mean`, (n,
    n_out); `covariance`, (n, n_out, n_out). Raises ValueError, TypeError when shapes differ, a value is not finite, or
    an argument is not of the right type.
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

    `units`, `layer`, `covariance`: as given to `linear_moments`. `mean_bar`, (n, n_out). `output_bar`, (n, n_out,
    n_out): dL = Σ output_bar · dS over all entries, both triangles. Only its symmetric part matters. Returns
    `units_bar`: in the moments of h. With a covariance that of the variance is zero: it is on the diagonal of the last
    result; `layer_bar`: in the layer's parameters, summed over rows; `covariance_bar`, (n, n_in, n_in).
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
