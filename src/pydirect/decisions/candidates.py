"""`Candidates`: the joint distribution of f at rows that may be measured, given one measurement after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import single_blas_thread, threads
from pydirect._validation import FloatArray, as_count, as_instance, as_number
from pydirect.decisions.acquisition import best_one_by_one
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.residual import residual_covariances
from pydirect.linear.posterior import GaussianPosterior


class Candidates:
    """Gaussian values f at rows, with exact rank-one changes when one of them is measured.

    A measurement y_j = f_j + noise changes means and covariances to

        μ' = μ + c (y_j − μ_j) / (c_j + σ²),   C' = C − c cᵀ / (c_j + σ²),   c = C e_j,

    of which only the diagonal and the columns that are asked for, by `column`, are ever formed.
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
        """Take the posterior of f at rows of X, in units of y, with the model's noise."""
        as_instance(model, "model", DirectRegressor)
        check_is_fitted(model)
        fitted = model.model_
        latent, units, posterior = fitted.latent, fitted.units, fitted.posteriors[0]
        if not isinstance(posterior, GaussianPosterior):
            raise TypeError(f"model must have posterior='gaussian', got {model.posterior!r}")
        if len(fitted.posteriors) > 1:
            raise ValueError(f"model must be of one target, got {len(fitted.posteriors)}")
        if units.active is not None:
            raise ValueError(f"model must have no transformed target, got {units.active}")
        x, basis, unit = model.encode_rows(X), latent.basis, float(units.scale[0] * units.calibration)
        with threads(model.n_threads), single_blas_thread():
            inputs, phi = latent.phi(x)
            rows = phi @ posterior.covariance_root()
            mean = units.location[0] + units.scale[0] * (phi @ latent.coefficients[:, 0])
            variance = np.einsum("ij,ij->i", rows, rows)
            residual = basis.missing_variance(inputs, phi, latent.residual_variance)
        scale = (unit * float(latent.prior_scale[0])) ** 2
        weights, levels = fitted.noise_of(x)[0]

        def column(j: int) -> FloatArray:
            with single_blas_thread():
                return scale * (rows @ rows[j] + residual_covariances(basis, inputs, phi, j, latent.residual_variance))

        total = variance if residual is None else variance + residual
        return cls(mean, scale * total, column, unit**2 * (levels @ weights))

    @property
    def std(self) -> FloatArray:
        """Deviations of f, (n_rows,)."""
        return np.sqrt(self.variance)

    def covariances(self, row: int) -> FloatArray:
        """Return covariances of f between all rows and one, given the measurements so far, (n_rows,)."""
        found = self._column(row)
        for step in self._steps:
            found = found - step * step[row]
        found[row] = self.variance[row]
        return found

    def measure(self, row: int, y: float | None = None) -> Self:
        """Condition on a measurement at a row, in place."""
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

    - `score`: From means and deviations of f, (n_rows,) each, to what is to be largest, such as ``lambda mean, std:
      log_expected_improvement(mean, std, best)``.
    """

    def scores(chosen: list[int]) -> FloatArray:
        for row in chosen[-1:]:
            candidates.measure(row)
        return np.asarray(score(candidates.mean, candidates.std), dtype=np.float64)

    found = best_one_by_one(n, len(candidates.mean), scores)
    candidates.measure(int(found[-1]))
    return found
