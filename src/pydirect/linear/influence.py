"""What rows did to predictions of regression with continuous Gaussian weights: exact, without a refit.

With precisions p = ω/σ² of rows Φ, the posterior of all rows is N(m, S), S⁻¹ = ΦᵀPΦ + I/t. Rows G that are taken out
leave S' = (S⁻¹ − Φ_GᵀP_GΦ_G)⁻¹ and, with their errors e = y_G − Φ_G m, m' = m − S'Φ_GᵀP_G e. Noise variance, prior
variance and basis functions are held.

References
----------
Cook & Weisberg (1982), Residuals and Influence in Regression, sections 2.2 and 3.1 to 3.6. Belsley, Kuh & Welsch
(1980), Regression Diagnostics, chapter 2.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.linear.leave_one_out import SMALLEST_REMAINDER
from pydirect.linear.posterior import FactoredPosterior
from pydirect.statistics.gaussian import TargetStatistics


def influence_of_each(
    posterior: FactoredPosterior,
    at: FloatArray,
    phi: FloatArray,
    errors: FloatArray,
    weight: FloatArray | None = None,
    variances: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return what each of some rows did to mean and variance of f: with all rows, less without this one.

    With the covariance k of f between a place and the row, and the row's leverage h = pv, these are p k e/(1 − h) and
    −p k²/(1 − h).

    Parameters
    ----------
    posterior : FactoredPosterior
        Of one output, given all rows.
    at : ndarray of shape (n_places, n_weights)
        Φ where f is predicted.
    phi : ndarray of shape (n_rows, n_weights)
        Rows of Φ.
    errors : ndarray of shape (n_rows,)
        y − Φm
    weight : ndarray of shape (n_rows,), optional
        ω of the rows.
    variances : ndarray of shape (n_rows,), optional
        Of f at the rows, where they are known.

    Returns
    -------
    mean, variance : ndarray of shape (n_places, n_rows)
        Changes of mean and variance.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import FactoredPosterior, influence_of_each
    >>> phi, y = np.ones((3, 1)), np.array([1.0, 2.0, 6.0])
    >>> posterior = FactoredPosterior.of(GaussianStatistics.from_arrays(phi, y).target(0), 1.0, 1e9)
    >>> mean, variance = influence_of_each(posterior, np.ones((1, 1)), phi, y - phi @ posterior.coefficients)
    >>> mean.round(6).tolist(), variance.round(6).tolist()  # 3 − (2 + 6)/2, …; 1/3 − 1/2
    ([[-1.0, -0.5, 1.5]], [[-0.166667, -0.166667, -0.166667]])
    """
    precision = (1.0 if weight is None else weight) / posterior.noise_variance
    own = posterior.moments(phi)[1] if variances is None else variances
    share = precision / np.maximum(1 - precision * own, SMALLEST_REMAINDER)
    covariance = posterior.covariances(at, phi)
    return covariance * (share * errors), -share * np.square(covariance)


def influence_of_group(
    posterior: FactoredPosterior, at: FloatArray, group: TargetStatistics
) -> tuple[FloatArray, FloatArray]:
    """Return what rows did to mean and variance of f together, (n_places,) each: with all rows, less without these.

    `at`, (n_places, n_weights). `group`: sums over the rows: A = ΦᵀΩΦ, and c = ΦᵀΩe of errors e = y − Φm in place of
    targets. Raises ValueError if the rows cannot be among those of the posterior.
    """
    whole = posterior.factor @ posterior.factor.T
    try:
        rest = np.linalg.cholesky(whole - group.A / posterior.noise_variance)
    except np.linalg.LinAlgError:
        raise ValueError("rows must be among those that the model was fitted to, got others") from None
    with single_blas_thread():
        before, after = posterior.half(at), solve_triangular(rest, at.T, lower=True, check_finite=False)
        pull = solve_triangular(rest, group.c / posterior.noise_variance, lower=True, check_finite=False)
    return after.T @ pull, np.einsum("ij,ij->j", before, before) - np.einsum("ij,ij->j", after, after)


def influence_of_few(
    posterior: FactoredPosterior,
    at: FloatArray,
    phi: FloatArray,
    errors: FloatArray,
    weight: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return what `influence_of_group` does, of fewer rows than weights: by a factor of I − P^½ΦSΦᵀP^½.

    Arguments as of `influence_of_each`.
    """
    root = np.sqrt((np.ones(len(phi)) if weight is None else weight) / posterior.noise_variance)
    half = posterior.half(phi) * root
    with single_blas_thread():
        try:
            rest = np.linalg.cholesky(np.eye(len(phi)) - half.T @ half)
        except np.linalg.LinAlgError:
            raise ValueError("rows must be among those that the model was fitted to, got others") from None
        shares = solve_triangular(rest, half.T @ posterior.half(at), lower=True, check_finite=False)
        pull = solve_triangular(rest, root * errors, lower=True, check_finite=False)
        return shares.T @ pull, -np.einsum("ij,ij->j", shares, shares)


def cooks_distance(errors: FloatArray, leverages: FloatArray, precision: FloatArray) -> FloatArray:
    """Return how far each row moved all weights: (m − m')ᵀS⁻¹(m − m') = p e² h/(1 − h)², over Σh; (n_rows,) each.

    With a flat prior this is Cook's distance at the noise variance of the model.
    """
    shift = precision * np.square(errors) * leverages / np.square(np.maximum(1 - leverages, SMALLEST_REMAINDER))
    return np.asarray(shift / leverages.sum())
