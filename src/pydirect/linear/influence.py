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

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect.linear.leave_one_out import SMALLEST_REMAINDER, ridge_factor, variances_by_factor
from pydirect.statistics.gaussian import TargetStatistics


@dataclass(frozen=True)
class InfluencePosterior:
    """The posterior of the weights of one output, by the factor of its precision.

    Attributes
    ----------
    mean : ndarray of shape (n_weights,)
        m
    factor : ndarray of shape (n_weights, n_weights)
        L with LLᵀ = S⁻¹.
    noise_variance : float
        σ²

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import InfluencePosterior
    >>> phi, y = np.ones((3, 1)), np.array([1.0, 2.0, 6.0])
    >>> posterior = InfluencePosterior.of(GaussianStatistics.from_arrays(phi, y).target(0), 1.0, 1e9)
    >>> mean, variance = posterior.of_each(np.ones((1, 1)), phi, y - phi @ posterior.mean)
    >>> mean.round(6).tolist(), variance.round(6).tolist()  # 3 − (2 + 6)/2, …; 1/3 − 1/2
    ([[-1.0, -0.5, 1.5]], [[-0.166667, -0.166667, -0.166667]])
    """

    mean: FloatArray
    factor: FloatArray
    noise_variance: float

    __repr__ = short_repr

    @classmethod
    def of(cls, statistics: TargetStatistics, noise_variance: float, prior_variance: float) -> Self:
        """Return the posterior of the rows that the statistics are sums over.

        Parameters
        ----------
        statistics : TargetStatistics
            Sums over the rows.
        noise_variance : float
            Variance of the noise.
        prior_variance : float
            Prior variance of the weights.
        """
        factor = ridge_factor(statistics.A / noise_variance, 1 / prior_variance)
        with single_blas_thread():
            mean = cho_solve((factor, True), statistics.c / noise_variance, check_finite=False)
        return cls(mean, factor, noise_variance)

    def half(self, phi: FloatArray) -> FloatArray:
        """Return L⁻¹Φᵀ, (n_weights, n_rows): products of its columns are covariances of f.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        ndarray of shape (n_weights, n_rows)
            The product.
        """
        with single_blas_thread():
            return np.asarray(solve_triangular(self.factor, phi.T, lower=True, check_finite=False))

    def variances(self, phi: FloatArray) -> FloatArray:
        """Variances of f at rows of Φ, (n_rows,).

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        ndarray of shape (n_rows,)
            Variances.
        """
        with single_blas_thread():
            return variances_by_factor(self.factor, phi)

    def images(self, phi: FloatArray) -> FloatArray:
        """Return SΦᵀ, (n_weights, n_rows).

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        ndarray of shape (n_weights, n_rows)
            The product.
        """
        with single_blas_thread():
            return np.asarray(cho_solve((self.factor, True), phi.T, check_finite=False))

    def of_each(
        self,
        at: FloatArray,
        phi: FloatArray,
        errors: FloatArray,
        weight: FloatArray | None = None,
        variances: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return what each of some rows did to mean and variance of f: with all rows, less without this one.

        With the covariance k of f between a place and the row, and the row's leverage h = pv, these are
        p k e/(1 − h) and −p k²/(1 − h).

        Parameters
        ----------
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
        """
        precision = (1.0 if weight is None else weight) / self.noise_variance
        own = self.variances(phi) if variances is None else variances
        share = precision / np.maximum(1 - precision * own, SMALLEST_REMAINDER)
        with single_blas_thread():
            covariance = (phi @ self.images(at)).T
        return covariance * (share * errors), -share * np.square(covariance)

    def of_group(self, at: FloatArray, group: TargetStatistics) -> tuple[FloatArray, FloatArray]:
        """Return what rows did to mean and variance of f together: with all rows, less without these.

        Parameters
        ----------
        at : ndarray of shape (n_places, n_weights)
            Φ where f is predicted.
        group : TargetStatistics
            Sums over the group: its A = ΦᵀΩΦ, and c = ΦᵀΩe of errors e = y − Φm in place of targets.

        Returns
        -------
        mean, variance : ndarray of shape (n_places,)
            Changes of mean and variance.

        Raises
        ------
        ValueError
            If the rows cannot be among those of the posterior.
        """
        whole = self.factor @ self.factor.T
        try:
            rest = np.linalg.cholesky(whole - group.A / self.noise_variance)
        except np.linalg.LinAlgError:
            raise ValueError("rows must be among those that the model was fitted to, got others") from None
        with single_blas_thread():
            before, after = self.half(at), solve_triangular(rest, at.T, lower=True, check_finite=False)
            pull = solve_triangular(rest, group.c / self.noise_variance, lower=True, check_finite=False)
        return after.T @ pull, np.einsum("ij,ij->j", before, before) - np.einsum("ij,ij->j", after, after)

    def of_few(
        self, at: FloatArray, phi: FloatArray, errors: FloatArray, weight: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return what `of_group` does, of fewer rows than weights: by a factor of I − P^½ΦSΦᵀP^½.

        Arguments as of `of_each`; mean and variance of shape (n_places,).

        Parameters
        ----------
        at : ndarray of shape (n_places, n_weights)
            Rows of Φ at the places of predictions.
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        errors : ndarray of shape (n_rows,)
            Targets less the predictive means at the rows.
        weight : ndarray of shape (n_rows,), optional
            How many times each row counts; by default once.

        Returns
        -------
        (ndarray, ndarray)
            Changes of mean and variance, (n_places,) each.
        """
        root = np.sqrt((np.ones(len(phi)) if weight is None else weight) / self.noise_variance)
        half = self.half(phi) * root
        with single_blas_thread():
            try:
                rest = np.linalg.cholesky(np.eye(len(phi)) - half.T @ half)
            except np.linalg.LinAlgError:
                raise ValueError("rows must be among those that the model was fitted to, got others") from None
            shares = solve_triangular(rest, half.T @ self.half(at), lower=True, check_finite=False)
            pull = solve_triangular(rest, root * errors, lower=True, check_finite=False)
            return shares.T @ pull, -np.einsum("ij,ij->j", shares, shares)


def cooks_distance(errors: FloatArray, leverages: FloatArray, precision: FloatArray) -> FloatArray:
    """Return how far each row moved all weights: (m − m')ᵀS⁻¹(m − m') = p e² h/(1 − h)², over Σh.

    With a flat prior this is Cook's distance at the noise variance of the model.

    Parameters
    ----------
    errors : ndarray of shape (n_rows,)
        y − Φm
    leverages : ndarray of shape (n_rows,)
        h
    precision : ndarray of shape (n_rows,)
        p = ω/σ²

    Returns
    -------
    ndarray of shape (n_rows,)
        Distances.
    """
    shift = precision * np.square(errors) * leverages / np.square(np.maximum(1 - leverages, SMALLEST_REMAINDER))
    return np.asarray(shift / leverages.sum())
