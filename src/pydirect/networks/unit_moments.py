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
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_float_array
from pydirect.networks.base import ACTIVATIONS

KERNELS = ("exact", "paper", "fast")
# Tolerance for rounding: of correlations above one, and of differences between the two triangles.
_ROUNDING = 1e-8


class UnitMoments(NamedTuple):
    """Moments of units, each of shape (n, d)."""

    mean: FloatArray  # E h
    second: FloatArray  # E h²
    variance: FloatArray  # Var h, without the cancellation of E h² − (E h)²


def _refuse(wrong: NDArray[np.bool_], message: str, values: FloatArray) -> None:
    """Raise where entries are wrong, with the first of them."""
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0].tolist())
        raise ValueError(f"{message}, got {values[at]} at index {at}")


def _as_variance(value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    variance = as_float_array(value, "variance", shape)
    _refuse(variance < 0, "variance must be at least 0", variance)
    return variance


def _as_covariance(value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    covariance = as_float_array(value, "covariance", shape)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    _refuse(variance < 0, "covariance must have a diagonal of at least 0", variance)
    deviation = np.sqrt(variance)
    largest = deviation[:, :, None] * deviation[:, None, :]
    beyond = np.abs(covariance) > (1 + _ROUNDING) * largest
    _refuse(beyond, "covariance must have no correlation beyond 1", covariance)
    difference = covariance - covariance.swapaxes(1, 2)
    _refuse(np.abs(difference) > _ROUNDING * largest, "covariance must be symmetric", covariance)
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
