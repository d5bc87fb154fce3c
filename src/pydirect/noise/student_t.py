"""Regression with Student-t noise by EM: rows weighted by how well they fit (Lange, Little & Taylor 1989).

A Student-t variable is Gaussian of precision u/s² with u a Gamma(ν/2, ν/2) variable of its own. Given the weights of
Φ, E u_i has a closed form (E step); given E u_i, the weights are those of a ridge regression with rows of weight E u_i
(M step). This is coordinate ascent of a bound on the evidence over q(w) Π q(u_i).
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln
from scipy.stats import t as student_t

from pydirect._validation import FloatArray

DEGREES = 3.0
SMALLEST_SCALE = 1e-10
REACH = 20.0


# Median of the squares of Student-t variables.
MEDIAN_SQUARE = float(student_t.ppf(0.75, DEGREES) ** 2)


def robust_scale(squares: FloatArray) -> FloatArray:
    """Return the scale s² of each column of squared residuals from their median, to start from; positive."""
    return np.asarray(np.maximum(np.median(squares, axis=0) / MEDIAN_SQUARE, SMALLEST_SCALE))


def within_reach(targets: FloatArray) -> FloatArray:
    """Return targets, (n_rows, n_outputs), none farther from the median than `REACH` median absolute deviations.

    The posterior hardly hears rows that far out, but means, deviations and the first fit, with Gaussian noise, do.
    """
    middle = np.median(targets, axis=0)
    reach = REACH * np.median(np.abs(targets - middle), axis=0)
    return np.where(reach > 0, np.clip(targets, middle - reach, middle + reach), targets)


def mean_precision(squares: FloatArray, scale: FloatArray | float, degrees: float = DEGREES) -> FloatArray:
    """Return E u of each row from its expected squared error and the scale s²."""
    return (degrees + 1) / (degrees + squares / scale)


def precision_bound(squares: FloatArray, scale: FloatArray | float, degrees: float = DEGREES) -> FloatArray:
    """Return ``½ E log u − KL(q(u) ‖ p(u))`` of each row, at the q of `mean_precision`."""
    shape, rate = 0.5 * (degrees + 1), 0.5 * (degrees + squares / scale)
    prior = 0.5 * degrees
    divergence = (
        (shape - prior) * digamma(shape)
        - gammaln(shape)
        + gammaln(prior)
        + prior * np.log(rate / prior)
        + shape * (prior / rate - 1)
    )
    return np.asarray(0.5 * (digamma(shape) - np.log(rate)) - divergence)
