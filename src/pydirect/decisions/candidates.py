"""`Candidates`: the joint distribution of f at rows that may be measured, given one measurement after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_instance, as_number
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.missing_process import missing_covariances
from pydirect.linear.decorrelated import DecorrelatedPosterior


class Candidates:
    """Gaussian values f at rows, with exact rank-one changes when one of them is measured.

    A measurement y_j = f_j + noise changes means and covariances to

        μ' = μ + c (y_j − μ_j) / (c_j + σ²),   C' = C − c cᵀ / (c_j + σ²),   c = C e_j,

    of which only the diagonal and the columns that are asked for are ever formed.

    Parameters
    ----------
    mean : ndarray of shape (n_rows,)
        Means of f.
    variance : ndarray of shape (n_rows,)
        Of f, without the noise.
    column : callable
        From the number of a row to its covariances with all rows, (n_rows,), before any measurement.
    noise_variance : float or ndarray of shape (n_rows,)
        Of measurements.
    """

    def __init__(
        self,
        mean: FloatArray,
        variance: FloatArray,
        column: Callable[[int], FloatArray],
        noise_variance: float | FloatArray,
    ) -> None:
        self.mean, self.variance = mean.copy(), variance.copy()
        self.noise_variance = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), mean.shape)
        self._column = column
        self._steps: list[FloatArray] = []

    @classmethod
    def of(cls, model: DirectRegressor, X: ArrayLike) -> Self:
        """Take the posterior of f at rows of X, in units of y, with the model's noise.

        Parameters
        ----------
        model : DirectRegressor
            Fitted in the decorrelated basis, to one target that was not transformed. A local process is left out.
        X : array_like of shape (n_rows, n_features_in)
            Memory is for two numbers per row and basis function.

        Raises
        ------
        TypeError, ValueError
            If the model is of another kind.
        """
        as_instance(model, "model", DirectRegressor)
        check_is_fitted(model)
        posterior = model.posteriors_[0]
        if not isinstance(posterior, DecorrelatedPosterior):
            raise TypeError(f"model must have basis='decorrelated', got basis={model.basis!r}")
        if len(model.posteriors_) > 1:
            raise ValueError(f"model must be of one target, got {len(model.posteriors_)}")
        if model._transform() is not None:
            raise ValueError(f"model must have no transformed target, got {model.target_transform_}")
        x, basis, unit = model._check_rows(X), model.features_, float(model.y_scale_[0] * model.calibration_scale_)
        with single_blas_thread():
            inputs, phi = model._features_of(x)
            rows = phi @ posterior.covariance_root()
            mean = model.y_mean_[0] + model.y_scale_[0] * (phi @ model.coefficients_[:, 0])
            variance = np.einsum("ij,ij->i", rows, rows)
            missing = basis.missing_variance(inputs, phi, model.mean_missing_variance_)
        scale = (unit * float(model.prior_scale_[0])) ** 2
        weights, levels = model._noise_of(x)[0]

        mean_missing = model.mean_missing_variance_  # the model may be fitted again

        def column(j: int) -> FloatArray:
            with single_blas_thread():
                return scale * (rows @ rows[j] + missing_covariances(basis, inputs, phi, j, mean_missing))

        total = variance if missing is None else variance + missing
        return cls(mean, scale * total, column, unit**2 * (levels @ weights))

    @property
    def std(self) -> FloatArray:
        """Deviations of f, (n_rows,)."""
        return np.sqrt(self.variance)

    def covariances(self, row: int) -> FloatArray:
        """Return covariances of f between all rows and one, given the measurements so far, (n_rows,).

        Parameters
        ----------
        row : int
            Number of the row.

        Returns
        -------
        ndarray of shape (n_rows,)
            Covariances.
        """
        found = self._column(row)
        for step in self._steps:
            found = found - step * step[row]
        found[row] = self.variance[row]
        return found

    def measure(self, row: int, y: float | None = None) -> Self:
        """Condition on a measurement at a row, in place.

        `y`: what was measured; by default what is expected, so that only variances and covariances change.

        Parameters
        ----------
        row : int
            Number of the row.
        y : float, optional
            What was measured; by default what is expected.

        Returns
        -------
        Self
            The candidates themselves.
        """
        if as_count(row, "row", 0) >= len(self.mean):
            raise ValueError(f"row must be below the number of rows, {len(self.mean)}, got {row}")
        total = self.variance[row] + self.noise_variance[row]
        if total <= 0:
            return self  # known already
        column = self.covariances(row)
        if y is not None:
            self.mean += column * ((as_number(y, "y") - self.mean[row]) / total)
        step = column / np.sqrt(total)
        self._steps.append(step)
        self.variance = np.maximum(self.variance - step**2, 0.0)
        return self


def greedy_batch(
    candidates: Candidates, n: int, score: Callable[[FloatArray, FloatArray], FloatArray]
) -> NDArray[np.intp]:
    """Choose a batch of `n` rows: each of the best score, given measurements of those before it as they are expected.

    Means stay while the deviations near chosen rows shrink, so that the next choice goes elsewhere (Desautels, Krause &
    Burdick 2014, "Parallelizing exploration-exploitation tradeoffs", for upper confidence bounds; the "kriging
    believer" of Ginsbourger, Le Riche & Carraro 2010 for expected improvement).

    Parameters
    ----------
    candidates : Candidates
        Holds the measurements afterwards.
    n : int
        Number of rows to choose.
    score : callable
        From means and deviations of f, (n_rows,) each, to what is to be largest, such as
        ``lambda mean, std: log_expected_improvement(mean, std, best)``.

    Returns
    -------
    ndarray of int, shape (n,)
        Different rows, in the order of choice.
    """
    if as_count(n, "n") > len(candidates.mean):
        raise ValueError(f"n must be at most the number of candidates, {len(candidates.mean)}, got {n}")
    chosen = np.empty(n, dtype=np.intp)
    free = np.ones(len(candidates.mean), dtype=bool)
    for k in range(n):
        scores = np.asarray(score(candidates.mean, candidates.std), dtype=np.float64)
        best = np.argmax(np.where(free, scores, -np.inf))
        if not free[best]:  # nothing promises anything
            best = np.argmax(free)
        chosen[k], free[best] = best, False
        candidates.measure(int(best))
    return chosen
