"""Polynomial approximation of a log-density whose mean needs every draw, with its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import as_count, as_float_array, as_number
from pydirect.monte_carlo.densities import Density, PolynomialDensity, UserDensity, as_prior
from pydirect.monte_carlo.posteriors import as_scales
from pydirect.monte_carlo.terms import HIGHEST_DEGREE

# A leading coefficient below this fraction of the largest one counts as zero.
ROUNDING = 1e-14


@dataclass(frozen=True)
class PolynomialSurrogate:
    """Polynomial approximation of a log-density on an interval.

    Attributes
    ----------
    density : PolynomialDensity
        To use as a prior.
    interval : (float, float)
    max_error : float
        Largest difference of the log-densities within the interval, on a fine grid.
    """

    density: PolynomialDensity
    interval: tuple[float, float]
    max_error: float


def polynomial_surrogate(
    prior: Density | UserDensity | str | tuple[Any, ...],
    location: ArrayLike,
    scale: ArrayLike,
    *,
    degree: int = 10,
    width: float = 6.0,
) -> PolynomialSurrogate:
    """Interpolate a log-density at the Chebyshev nodes of an interval that contains μ ± width σ of all weights.

    Unlike a Taylor series, which diverges outside a small disc, the interpolant is accurate on the whole interval. It
    is not accurate for draws outside: take a wide interval, and a new one when the weights have moved. Outside, it
    tends to −∞: degrees with a positive leading coefficient are skipped.

    Parameters
    ----------
    prior : density, str or tuple
        Log-density to approximate.
    location : array_like of shape (n_weights,)
        Locations μ of the weights.
    scale : array_like of shape (n_weights,)
        Scales σ of the weights.
    degree : int, default=10
        Highest degree, even, at most 16.
    width : float, default=6.0
        Half-width of the interval in scales.

    Returns
    -------
    PolynomialSurrogate
        The interpolant.

    Raises
    ------
    ValueError, TypeError
        When an argument is out of range, or no degree gives a log-density whose tails fall.

    Examples
    --------
    >>> from pydirect.monte_carlo.densities import LogisticDensity
    >>> polynomial_surrogate(LogisticDensity(), [0.0], [0.3]).max_error < 1e-5
    True
    """
    if as_count(degree, "degree", 2) % 2 or degree > HIGHEST_DEGREE:
        raise ValueError(f"degree must be even and at most {HIGHEST_DEGREE}, got {degree}")
    density = as_prior(prior)
    mu = as_float_array(location, "location", ("n_weights",))
    reach = as_number(width, "width", above=0.0) * as_scales(scale, mu.shape)
    low, high = float((mu - reach).min()), float((mu + reach).max())
    centre, half = (low + high) / 2, (high - low) / 2

    def log_density(w: np.ndarray) -> np.ndarray:
        if isinstance(density, UserDensity):
            return density.log_density_and_slope(w)[0]
        terms = density.terms()
        return terms.constant + terms.log_density_and_slope(w)[0]

    for even in range(degree, 0, -2):
        series = np.polynomial.Chebyshev.interpolate(lambda t: log_density(centre + half * t), even)
        if series.coef[-1] < -ROUNDING * np.abs(series.coef).max():
            break
    else:
        raise ValueError(f"prior must fall on both sides within the reach of the weights, got {prior}")
    grid = np.cos(np.linspace(0.0, np.pi, 20 * degree + 1))
    error = float(np.abs(series(grid) - log_density(centre + half * grid)).max())
    coefficients = np.asarray(series.convert(kind=np.polynomial.Polynomial).coef, dtype=np.float64)
    coefficients /= half ** np.arange(even + 1)
    return PolynomialSurrogate(PolynomialDensity([coefficients.tolist()], centre), (low, high), error)
