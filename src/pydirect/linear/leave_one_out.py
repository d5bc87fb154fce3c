"""Exact leave-one-out predictions of regression with continuous Gaussian weights.

With the noise variance, the prior variance and the basis functions held, the prediction of row i without that row
follows from the posterior of all rows: the posterior variance of f there, in units of its noise variance, is the row's
leverage h, and the residual without the row is e/(1 − h) (Rasmussen & Williams 2006, section 5.4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect.statistics.rotated import RotatedStatistics
from pydirect.statistics.rotation import Rotation

# A row that determines its own prediction has a leverage of one; what is left of it then is rounding.
SMALLEST_REMAINDER = 1e-14
# Of more outputs one product with eigenvectors is less work than a triangular one for each.
MOST_FACTORED = 2


@dataclass(frozen=True)
class RidgePosterior:
    """The Gaussian posterior of continuous weights under a Gaussian prior, in eigenvectors of A.

    Attributes
    ----------
    rotation : Rotation
        To orthonormal directions, (n_weights, n_directions); others stay at their prior.
    coefficients : ndarray of shape (n_weights, n_outputs)
        Posterior means.
    variances : ndarray of shape (n_directions, n_outputs)
        1 / (λτ + 1/t).
    prior_variance : ndarray of shape (n_outputs,)
        Prior variance t of the weights of every output.
    """

    rotation: Rotation
    coefficients: FloatArray
    variances: FloatArray
    prior_variance: FloatArray

    __repr__ = short_repr

    @classmethod
    def of(cls, rotated: RotatedStatistics, precision: FloatArray, prior_variance: FloatArray) -> Self:
        """Return the posterior at noise precisions τ = 1/σ² and prior variances t, (n_outputs,) each.

        Parameters
        ----------
        rotated : RotatedStatistics
            Sums over the rows, in the decorrelated basis.
        precision : ndarray of shape (n_outputs,)
            Noise precisions τ.
        prior_variance : ndarray of shape (n_outputs,)
            Prior variances t.
        """
        variances = 1 / (rotated.eigenvalues[:, None] * precision + 1 / prior_variance)
        coefficients = rotated.rotation.times(variances * precision * rotated.c)
        return cls(rotated.rotation, coefficients, variances, prior_variance)

    @property
    def vectors(self) -> FloatArray:
        """Orthonormal columns V, (n_weights, n_directions)."""
        return self.rotation.matrix

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f at rows of Φ, (n_rows, n_outputs) each.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows, n_outputs) each.
        """
        turned = phi @ self.vectors
        variance = np.square(turned) @ self.variances
        if turned.shape[1] < phi.shape[1]:
            outside = np.einsum("ij,ij->i", phi, phi) - np.einsum("ij,ij->i", turned, turned)
            variance += np.maximum(outside, 0.0)[:, None] * self.prior_variance
        return phi @ self.coefficients, variance

    def outputs(self, chosen: slice) -> Self:
        """Return the posterior of consecutive outputs.

        Parameters
        ----------
        chosen : slice
            Outputs to keep.

        Returns
        -------
        Self
            The posterior.
        """
        names = ("coefficients", "variances", "prior_variance")
        return replace(self, **{name: getattr(self, name)[..., chosen] for name in names})

    def covariances(self, phi: FloatArray) -> FloatArray:
        """Covariances of f at rows of Φ with all weights, (n_rows, n_weights), of a posterior of one output.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Covariances.
        """
        turned, variance, free = phi @ self.vectors, self.variances[:, 0], self.prior_variance[0]
        if self.vectors.shape[1] == self.vectors.shape[0]:
            return (turned * variance) @ self.vectors.T
        return (turned * (variance - free)) @ self.vectors.T + free * phi

    def sketch(self, rng: np.random.Generator, n_signs: int = 128) -> FloatArray:
        """Return S, (n_outputs, n_weights, n_signs), with E‖Sᵀφ‖² the variance of f, to a relative √(2/n_signs).

        S is a square root of the covariance times random signs (Hutchinson's estimator); projections onto it cost a
        fraction of `moments` where there are many weights.

        Parameters
        ----------
        rng : Generator
            Source of the random numbers.
        n_signs : int, default=128
            Number of vectors of random signs.

        Returns
        -------
        ndarray of shape (n_outputs, n_weights, n_signs)
            S.
        """
        signs = self._signs(rng, n_signs)
        turned = self.rotation.transposed_times(signs)
        roots = np.sqrt(self.variances) - np.sqrt(self.prior_variance)  # of what differs from the prior
        parts = zip(self.prior_variance, roots.T, strict=True)
        return np.stack([np.sqrt(t) * signs + self.rotation.times(root[:, None] * turned) for t, root in parts])

    def _signs(self, rng: np.random.Generator, n_signs: int) -> FloatArray:
        return rng.choice([-1.0, 1.0], (self.rotation.shape[0], n_signs)) / np.sqrt(n_signs)


@dataclass(frozen=True)
class FactoredRidge(RidgePosterior):
    """The same posterior with Cholesky factors of its precisions, for moments at many rows.

    A triangular product per row and output: half the work of a product with eigenvectors, which need not be formed.

    Attributes
    ----------
    rotation : Rotation
        To orthonormal directions, (n_weights, n_directions); others stay at their prior.
    coefficients : ndarray of shape (n_weights, n_outputs)
        Posterior means.
    variances : ndarray of shape (n_directions, n_outputs)
        1 / (λτ + 1/t).
    prior_variance : ndarray of shape (n_outputs,)
        Prior variance t of the weights of every output.
    factors : tuple of ndarray of shape (n_weights, n_weights)
        L with LLᵀ = τA + I/t, of every output.
    """

    factors: tuple[FloatArray, ...]

    __repr__ = short_repr

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f at rows of Φ, (n_rows, n_outputs) each.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows, n_outputs) each.
        """
        variance = np.empty((len(phi), len(self.factors)))
        for k, factor in enumerate(self.factors):
            variance[:, k] = variances_by_factor(factor, phi)
        return phi @ self.coefficients, variance

    def outputs(self, chosen: slice) -> Self:
        """Return the posterior of consecutive outputs.

        Parameters
        ----------
        chosen : slice
            Outputs to keep.

        Returns
        -------
        Self
            The posterior.
        """
        return replace(super().outputs(chosen), factors=self.factors[chosen])

    def sketch(self, rng: np.random.Generator, n_signs: int = 128) -> FloatArray:
        """Return what `RidgePosterior.sketch` does, of another square root of the covariance.

        Parameters
        ----------
        rng : Generator
            Source of the random numbers.
        n_signs : int, default=128
            Number of vectors of random signs.

        Returns
        -------
        ndarray of shape (n_outputs, n_weights, n_signs)
            S.
        """
        signs = self._signs(rng, n_signs)
        return np.stack([solve_triangular(f, signs, lower=True, trans="T", check_finite=False) for f in self.factors])


def ridge_of_rows(rotated: RotatedStatistics, precision: FloatArray, prior_variance: FloatArray) -> RidgePosterior:
    """Return the posterior of `RidgePosterior.of`, in the form that gives moments at the statistics' own rows sooner.

    Factors of few outputs, of a matrix of full rank; where rounding lets a factorisation fail, none.

    Parameters
    ----------
    rotated : RotatedStatistics
        Sums over the rows, in the decorrelated basis.
    precision : ndarray of shape (n_outputs,)
        Noise precisions τ.
    prior_variance : ndarray of shape (n_outputs,)
        Prior variances t.

    Returns
    -------
    RidgePosterior
        The posterior.
    """
    posterior = RidgePosterior.of(rotated, precision, prior_variance)
    n_weights, n_directions = rotated.rotation.shape
    if rotated.gram is None or n_directions < n_weights or len(prior_variance) > MOST_FACTORED:
        return posterior
    try:
        pairs = zip(precision, prior_variance, strict=True)
        factors = tuple(ridge_factor(rotated.gram * tau, 1 / t) for tau, t in pairs)
    except np.linalg.LinAlgError:
        return posterior
    own = {f.name: getattr(posterior, f.name) for f in fields(posterior)}
    return FactoredRidge(**own, factors=factors)


def ridge_factor(precision: FloatArray, prior_precision: float) -> FloatArray:
    """Return the lower Cholesky factor of a symmetric matrix plus a multiple of the identity, in its memory."""
    precision[np.diag_indices_from(precision)] += prior_precision
    with single_blas_thread():
        return np.asarray(cholesky(precision.T, lower=True, overwrite_a=True, check_finite=False))


def variances_by_factor(factor: FloatArray, phi: FloatArray) -> FloatArray:
    """Return ‖L⁻¹φ‖² of rows of Φ, the variances of f under a posterior of precision LLᵀ; (n_rows,)."""
    half = solve_triangular(factor, phi.T, lower=True, check_finite=False)
    return np.asarray(np.einsum("ij,ij->j", half, half))


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of rows by the model without them; arrays of shape (n_rows, n_outputs) unless said otherwise.

    Attributes
    ----------
    residuals : ndarray
        y − mean.
    means : ndarray
    variances : ndarray
        Of y: of f, of what the basis functions miss, and of the noise.
    latent_variances : ndarray
        Of f alone.
    leverages : ndarray
        h, between 0 and 1.
    n_effective : ndarray of shape (n_outputs,)
        Effective number of weights that the data determine, Σh, if every row is left out with all its copies.
    """

    residuals: FloatArray
    means: FloatArray
    variances: FloatArray
    latent_variances: FloatArray
    leverages: FloatArray
    n_effective: FloatArray

    @property
    def studentised(self) -> FloatArray:
        """Residuals in standard deviations of their predictions."""
        return self.residuals / np.sqrt(self.variances)

    @property
    def log_density(self) -> FloatArray:
        """Gaussian log density of y without the row, in nats."""
        return -0.5 * (np.log(2 * np.pi * self.variances) + np.square(self.studentised))

    def rows(self, index: NDArray[np.intp]) -> LeaveOneOut:
        """Return the predictions of some rows, or of merged rows for every one of their copies.

        Parameters
        ----------
        index : ndarray of int
            Numbers of rows; repetitions are allowed.

        Returns
        -------
        LeaveOneOut
            The predictions.
        """
        names = ("residuals", "means", "variances", "latent_variances", "leverages")
        return replace(self, **{name: getattr(self, name)[index] for name in names})


def leave_one_out(
    targets: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    precision: FloatArray,
    noise: FloatArray | None = None,
    missing: FloatArray | None = None,
) -> LeaveOneOut:
    """Predict every row by the model without it.

    Copies of a row are to be merged first, with their precisions added up
    (`pydirect.features.repeated.merge_repeated`): leaving out one of them says nothing, as the others are still there.

    Parameters
    ----------
    targets : ndarray of shape (n_rows, n_outputs)
        What the rows are to predict.
    mean, variance : ndarray of shape (n_rows, n_outputs)
        Moments of f given all rows, as of `RidgePosterior.moments`.
    precision : ndarray of shape (n_outputs,) or (n_rows, n_outputs)
        ω/σ², with which what is left out of each row entered the posterior: one measurement, or all copies together;
        0 for a row that did not enter.
    noise : ndarray of shape (n_outputs,) or (n_rows, n_outputs), optional
        Variance of the noise of one new observation; 1/`precision` by default.
    missing : ndarray of shape (n_rows, n_outputs), optional
        Variance of f that the basis functions miss, which no row can reduce.

    Returns
    -------
    LeaveOneOut
        Predictions of every row.
    """
    leverage = np.clip(precision * variance, 0.0, 1.0)
    remainder = np.maximum(1 - leverage, SMALLEST_REMAINDER)
    residuals = (targets - mean) / remainder
    latent = variance / remainder
    total = latent + (1 / precision if noise is None else noise)
    if missing is not None:
        total = total + missing
    return LeaveOneOut(residuals, targets - residuals, total, latent, leverage, leverage.sum(axis=0))
