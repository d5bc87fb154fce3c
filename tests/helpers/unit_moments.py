"""Moments of h = f(a), f the ReLU or the Heaviside function, of Gaussian a, and their adjoints, in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pydirect import _core


class Moments(NamedTuple):
    mean: np.ndarray
    second: np.ndarray
    variance: np.ndarray


def _arrays(*values):
    return [np.ascontiguousarray(value, dtype=np.float64) for value in values]


def moments(activation, mean, variance, n_threads=1):
    """E h, E h² and Var h, (n, d) each."""
    mean, variance = _arrays(mean, variance)
    out = [np.empty(mean.size) for _ in range(3)]
    _core.activation_moments(activation, mean.ravel(), variance.ravel(), *out, n_threads)
    return Moments(*(own.reshape(mean.shape) for own in out))


def moments_vjp(activation, mean, variance, mean_bar, second_bar, variance_bar, n_threads=1):
    """Derivatives of a loss in mean and variance of a, (n, d) each, from those in E h, E h² and Var h."""
    given = [own.ravel() for own in _arrays(mean, variance, mean_bar, second_bar, variance_bar)]
    out = [np.zeros(given[0].size) for _ in range(2)]
    _core.activation_moments_adjoint(activation, *given, *out, n_threads)
    return tuple(own.reshape(np.shape(mean)) for own in out)


def covariance(activation, mean, covariance, kernel="exact", n_threads=1):
    """Covariance of h, (n, d, d)."""
    mean, covariance = _arrays(mean, covariance)
    out = np.empty_like(covariance)
    _core.activation_covariance(activation, kernel, mean, covariance, out, n_threads)
    return out


def covariance_vjp(activation, mean, covariance, output_bar, kernel="exact", n_threads=1):
    """Derivatives of a loss in mean and covariance of a from those in the covariance of h, over both triangles."""
    mean, covariance, output_bar = _arrays(mean, covariance, output_bar)
    out = np.zeros_like(mean), np.zeros_like(covariance)
    symmetric = (output_bar + output_bar.swapaxes(1, 2)) / 2
    _core.activation_covariance_adjoint(activation, kernel, mean, covariance, symmetric, *out, n_threads)
    return out
