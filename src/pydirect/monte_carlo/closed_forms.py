"""Divergences without their constants, and their gradients, where plain NumPy computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import factorial

import numpy as np

from pydirect._validation import FloatArray
from pydirect.monte_carlo.posteriors import partial_normal_moments
from pydirect.monte_carlo.terms import Terms

Value = tuple[float, FloatArray | None, FloatArray]


def draw_by_draw(
    log_density_and_slope: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    blocks: Iterable[FloatArray],
    n_samples: int,
    location: FloatArray | None,
    scale: FloatArray,
    exponentiated: bool,
) -> Value:
    """Average of −log p(w) over draws of w = μ + σ ξ (or θ ξ), or of its exponential; less log σ.

    `log_density_and_slope`: log p and its derivative, element-wise. `blocks`, (n_draws, n_weights) or (n_draws, 1):
    draws ξ, `n_samples` in all. `location`, (n_weights,). `scale`, (n_weights,). `exponentiated`: whether w is the
    exponential.
    """
    value, slope, product = 0.0, np.zeros_like(scale), np.zeros_like(scale)
    for xi in blocks:
        v = scale * xi if location is None else location + scale * xi
        w = np.exp(v) if exponentiated else v
        log_p, slopes = log_density_and_slope(w)
        if exponentiated:  # the density of v = log w
            log_p, slopes = log_p + v, slopes * w + 1
        value += float(log_p.sum())
        slope += slopes.sum(axis=0)
        product += (slopes * xi).sum(axis=0)
    location_slope = None if location is None else -slope / n_samples
    return float(-np.log(scale).sum() - value / n_samples), location_slope, -1 / scale - product / n_samples


def of_normal_weights(terms: Terms, location: FloatArray, scale: FloatArray) -> Value:
    """Of normal weights, a piecewise polynomial: Σ_pieces Σ_j σ^j p⁽ʲ⁾(A)/j! E[ξ^j; ξ in the piece], and the rest."""
    A, n = location - terms.centre, terms.degree + 1
    borders = np.array([-np.inf, *terms.knots, np.inf])[:, None]
    below = partial_normal_moments((borders - A) / scale, terms.degree)
    powers = scale ** np.arange(n)[:, None]
    value, location_slope, scale_slope = 0.0, np.zeros_like(scale), -1 / scale
    for piece, coefficients in enumerate(terms.pieces):
        means = below[:, piece + 1] - below[:, piece]
        p = np.polynomial.Polynomial(coefficients)
        q = [p.deriv(j)(A) / factorial(j) if j else p(A) for j in range(n)]
        for j in range(n):
            value += float((powers[j] * means[j] * q[j]).sum())
            if j:
                location_slope -= j * powers[j - 1] * means[j - 1] * q[j]
                scale_slope -= j * powers[j - 1] * means[j] * q[j]
    return float(-np.log(scale).sum() - value), location_slope, scale_slope


def of_lognormal_weights(terms: Terms, location: FloatArray, scale: FloatArray) -> Value:
    """Of log-normal weights and powers: E w^r = exp(r μ + r² σ²/2), E log w = μ."""
    shifted = location - terms.log_centre
    a, b = terms.log_factor, terms.log_square_factor
    # log w's own density has one log w more.
    value = (1 + a) * location + b * (shifted**2 + scale**2)
    location_slope = -(1 + a) - 2 * b * shifted
    scale_slope = -1 / scale - 2 * b * scale
    for r, factor in zip(terms.exponents, terms.factors, strict=True):
        term = factor * np.exp(r * location + 0.5 * (r * scale) ** 2)
        value += term
        location_slope -= r * term
        scale_slope -= r * r * scale * term
    return float(-np.log(scale).sum() - value.sum()), location_slope, scale_slope
