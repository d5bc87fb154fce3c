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

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_float_array

KERNELS = ("exact", "paper", "fast")
# Tolerance for rounding: of correlations above one, and of differences between the two triangles.
_ROUNDING = 1e-8


class UnitMoments(NamedTuple):
    """Moments of units, each of shape (n, d)."""

    mean: FloatArray
    """E h"""
    second: FloatArray
    """E h²"""
    variance: FloatArray
    """Var h, without the cancellation of E h² − (E h)²"""


def relu_moments(mean: ArrayLike, variance: ArrayLike, *, n_threads: int | None = None) -> UnitMoments:
    """Moments of max(a, 0), each accurate to a few units in the last place.

    `mean`, `variance`, (n, d): of a; variances may be zero. Raises ValueError when shapes differ, a value is not finite
    or a variance is negative.

    Examples
    --------
    >>> relu_moments([[0.0]], [[1.0]]).mean.round(6)
    array([[0.398942]])
    """
    return _moments("relu", mean, variance, n_threads)


def heaviside_moments(mean: ArrayLike, variance: ArrayLike, *, n_threads: int | None = None) -> UnitMoments:
    """Moments of [a > 0]; parameters as in `relu_moments`. At mean and variance zero, those of a fair coin."""
    return _moments("heaviside", mean, variance, n_threads)


def relu_moments_vjp(
    mean: ArrayLike,
    variance: ArrayLike,
    mean_bar: ArrayLike,
    second_bar: ArrayLike,
    variance_bar: ArrayLike,
    *,
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return a loss's derivatives in mean and variance of a, from those in the three moments.

    `mean`, `variance`, (n, d): as given to `relu_moments`. `mean_bar`, `second_bar`, `variance_bar`, (n, d):
    derivatives of the loss in the fields of `UnitMoments`. Returns derivatives in mean and in variance. In a variance
    of zero they are those from above with what grows like 1/√variance left out, (n, d). Raises ValueError when shapes
    differ, a value is not finite or a variance is negative.
    """
    return _moments_vjp("relu", mean, variance, mean_bar, second_bar, variance_bar, n_threads)


def heaviside_moments_vjp(
    mean: ArrayLike,
    variance: ArrayLike,
    mean_bar: ArrayLike,
    second_bar: ArrayLike,
    variance_bar: ArrayLike,
    *,
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Like `relu_moments_vjp`, for `heaviside_moments`."""
    return _moments_vjp("heaviside", mean, variance, mean_bar, second_bar, variance_bar, n_threads)


def relu_covariance(
    mean: ArrayLike, covariance: ArrayLike, *, kernel: str = "exact", n_threads: int | None = None
) -> FloatArray:
    """Covariance of max(a, 0).

    `mean`, (n, d): of a, for n data. `covariance`, (n, d, d): of a; diagonals may hold zeros. `kernel` ({'exact',
    'paper', 'fast'}): how pairs are evaluated. The diagonal is always exact. Returns an array (n, d, d). Raises
    ValueError when shapes differ, a value is not finite, a variance is negative, a correlation is beyond one, a
    covariance is not symmetric, or the kernel is unknown.

    Examples
    --------
    Two copies of one unit:

    >>> relu_covariance([[0.0, 0.0]], [[[1.0, 1.0], [1.0, 1.0]]]).round(6)
    array([[[0.340845, 0.340845],
            [0.340845, 0.340845]]])
    """
    return _covariance("relu", mean, covariance, kernel, n_threads)


def heaviside_covariance(
    mean: ArrayLike, covariance: ArrayLike, *, kernel: str = "exact", n_threads: int | None = None
) -> FloatArray:
    """Covariance of [a > 0]; parameters as in `relu_covariance`."""
    return _covariance("heaviside", mean, covariance, kernel, n_threads)


def relu_covariance_vjp(
    mean: ArrayLike,
    covariance: ArrayLike,
    output_bar: ArrayLike,
    *,
    kernel: str = "exact",
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return a loss's derivatives in mean and covariance of a, from those in the covariance of max(a, 0).

    `mean`, (n, d). `covariance`, (n, d, d): as given to `relu_covariance`. `output_bar`, (n, d, d): dL = Σ output_bar ·
    dC over all entries, both triangles. Only its symmetric part matters. `kernel` ({'exact', 'paper', 'fast'}): 'exact'
    and 'fast' are two evaluations of one function. Returns `mean_bar`, (n, d); `covariance_bar`, (n, d, d): symmetric,
    with dL = Σ covariance_bar · dS over all entries. Raises ValueError as `relu_covariance`.

    For ReLU, `kernel='exact'` has derivatives in an off-diagonal covariance between 0 and 1, P(a_j > 0, a_l > 0). Those
    of 'paper' and of Heaviside units grow like 1/√(1 − r²) with the correlation r of the pair, and are cut at
    |r| = 1 − 10⁻⁶ and at rounding.
    """
    return _covariance_vjp("relu", mean, covariance, output_bar, kernel, n_threads)


def heaviside_covariance_vjp(
    mean: ArrayLike,
    covariance: ArrayLike,
    output_bar: ArrayLike,
    *,
    kernel: str = "exact",
    n_threads: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Like `relu_covariance_vjp`, for `heaviside_covariance`."""
    return _covariance_vjp("heaviside", mean, covariance, output_bar, kernel, n_threads)


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


def _moments(activation: str, mean: ArrayLike, variance: ArrayLike, n_threads: int | None) -> UnitMoments:
    mean = as_float_array(mean, "mean", ("n", "d"))
    variance = _as_variance(variance, mean.shape)
    size = mean.size
    hm, second, hv = np.empty(size), np.empty(size), np.empty(size)
    threads = resolve_n_threads(n_threads)
    _core.activation_moments(activation, mean.reshape(size), variance.reshape(size), hm, second, hv, threads)
    return UnitMoments(hm.reshape(mean.shape), second.reshape(mean.shape), hv.reshape(mean.shape))


def _moments_vjp(
    activation: str,
    mean: ArrayLike,
    variance: ArrayLike,
    mean_bar: ArrayLike,
    second_bar: ArrayLike,
    variance_bar: ArrayLike,
    n_threads: int | None,
) -> tuple[FloatArray, FloatArray]:
    mean = as_float_array(mean, "mean", ("n", "d"))
    size = mean.size
    slope_mean, slope_variance = np.zeros(size), np.zeros(size)
    _core.activation_moments_adjoint(
        activation,
        mean.reshape(size),
        _as_variance(variance, mean.shape).reshape(size),
        as_float_array(mean_bar, "mean_bar", mean.shape).reshape(size),
        as_float_array(second_bar, "second_bar", mean.shape).reshape(size),
        as_float_array(variance_bar, "variance_bar", mean.shape).reshape(size),
        slope_mean,
        slope_variance,
        resolve_n_threads(n_threads),
    )
    return slope_mean.reshape(mean.shape), slope_variance.reshape(mean.shape)


def _covariance(
    activation: str, mean: ArrayLike, covariance: ArrayLike, kernel: str, n_threads: int | None
) -> FloatArray:
    mean = as_float_array(mean, "mean", ("n", "d"))
    covariance = _as_covariance(covariance, (*mean.shape, mean.shape[1]))
    as_choice(kernel, "kernel", KERNELS)
    out = np.empty_like(covariance)
    _core.activation_covariance(activation, kernel, mean, covariance, out, resolve_n_threads(n_threads))
    return out


def _covariance_vjp(
    activation: str, mean: ArrayLike, covariance: ArrayLike, output_bar: ArrayLike, kernel: str, n_threads: int | None
) -> tuple[FloatArray, FloatArray]:
    mean = as_float_array(mean, "mean", ("n", "d"))
    covariance = _as_covariance(covariance, (*mean.shape, mean.shape[1]))
    output_bar = as_float_array(output_bar, "output_bar", covariance.shape)
    as_choice(kernel, "kernel", KERNELS)
    mean_bar, covariance_bar = np.zeros_like(mean), np.zeros_like(covariance)
    symmetric_bar = (output_bar + output_bar.swapaxes(1, 2)) / 2
    _core.activation_covariance_adjoint(
        activation, kernel, mean, covariance, symmetric_bar, mean_bar, covariance_bar, resolve_n_threads(n_threads)
    )
    return mean_bar, covariance_bar
