"""What estimators share when they predict; for regressors distributions, intervals, samples, scores, calibration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_number, as_sample_weight, as_target
from pydirect.predictive import PredictiveDistribution

# Rows of Φ held at a time while predicting.
PREDICT_BYTES = 32 * 2**20


class LatentFunctions(BaseEstimator):
    """Base of estimators that predict moments of latent functions f*, block by block.

    A subclass provides ``_n_columns`` (width of a row while predicting), ``_n_outputs`` (number of functions) and
    ``_latent(rows, with_variance)`` (mean and variance of f*, (n_rows, n_outputs) each).
    """

    def _n_columns(self) -> int:
        raise NotImplementedError

    def _n_outputs(self) -> int:
        raise NotImplementedError

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        raise NotImplementedError

    def _noise(self, output: int) -> tuple[FloatArray, FloatArray]:
        raise NotImplementedError

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        size = max(16, PREDICT_BYTES // (8 * max(self._n_columns(), 1)))
        for begin in range(0, len(x), size):
            yield slice(begin, min(begin + size, len(x)))

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        return np.ascontiguousarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of f*, (n_rows, n_outputs) each; block by block."""
        mean = np.empty((len(x), self._n_outputs()))
        variance = np.empty_like(mean) if with_variance else None
        with single_blas_thread():  # the same bits for any number of threads
            for rows in self._blocks(x):
                mean[rows], block_variance = self._latent(x[rows], with_variance)
                if variance is not None:
                    variance[rows] = block_variance
        return mean, variance


class ProbabilisticRegressor(MultiOutputMixin, RegressorMixin, LatentFunctions):
    """Base of regressors whose predictions are Gaussian mixtures.

    A subclass provides, beside what `LatentFunctions` asks for in standardised units, ``_noise(output)`` (noise
    variances and their weights, standardised) and the fitted ``y_mean_``, ``y_scale_``, ``calibration_scale_``,
    ``_one_dimensional``.
    """

    y_mean_: FloatArray
    y_scale_: FloatArray
    calibration_scale_: float
    _one_dimensional: bool

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _n_outputs(self) -> int:
        return len(self.y_mean_)

    def _check_targets(self, y: ArrayLike, n_rows: int) -> FloatArray:
        targets = as_target(y, "y", n_rows)
        if targets.shape[1] != len(self.y_mean_):
            raise ValueError(f"y must have {len(self.y_mean_)} outputs, as in fit, got {targets.shape[1]}")
        return targets

    def _shape(self, values: FloatArray) -> FloatArray:
        """Drop the axis of outputs when the targets had none."""
        return values[:, 0] if self._one_dimensional else values

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        return_std : bool
            Also return the standard deviation of the target, noise included. Nothing is computed for it otherwise.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        std : ndarray of the same shape
        """
        x = self._check_rows(X)
        if not return_std:
            mean, _ = self._latent_moments(x, with_variance=False)
            return self._shape(self.y_mean_ + self.y_scale_ * mean)
        mean, variance = self._moments(x)
        return self._shape(self.y_mean_ + self.y_scale_ * mean), self._shape(self.y_scale_ * np.sqrt(variance))

    def _moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of y*, standardised and calibrated."""
        mean, variance = self._latent_moments(x, with_variance=True)
        assert variance is not None
        noise = np.array([np.dot(*self._noise(k)) for k in range(mean.shape[1])])
        return mean, self.calibration_scale_**2 * (variance + noise)

    def predict_parts(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the mean with what is uncertain about f (epistemic) and about the noise (aleatoric) apart.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        mean, epistemic_std, aleatoric_std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        """
        mean, variance = self._latent_moments(self._check_rows(X), with_variance=True)
        assert variance is not None
        noise = np.array([np.dot(*self._noise(k)) for k in range(mean.shape[1])])
        scale = self.calibration_scale_ * self.y_scale_
        parts = (self.y_mean_ + self.y_scale_ * mean, scale * np.sqrt(variance), scale * np.sqrt(noise) + 0 * mean)
        return tuple(self._shape(p) for p in parts)  # type: ignore[return-value]

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution | list[PredictiveDistribution]:
        """Predict the full distribution of the target: a Gaussian mixture over the noise grid for every row.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        PredictiveDistribution, or a list of them, one an output
            In the target's units.
        """
        mean, variance = self._latent_moments(self._check_rows(X), with_variance=True)
        assert variance is not None
        distributions = []
        for k in range(mean.shape[1]):
            weights, noise = self._noise(k)
            used = weights > 1e-12
            spread = self.calibration_scale_**2 * (variance[:, k, None] + noise[used])
            standardised = PredictiveDistribution(weights[used] / weights[used].sum(), mean[:, k, None], spread)
            distributions.append(standardised.affine(float(self.y_scale_[k]), float(self.y_mean_[k])))
        return distributions[0] if self._one_dimensional else distributions

    def _each_output(self, X: ArrayLike) -> list[PredictiveDistribution]:
        distributions = self.predict_distribution(X)
        return distributions if isinstance(distributions, list) else [distributions]

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that hold the target with probability `level`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        level : float in (0, 1)

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        as_number(level, "level", above=0.0, below=1.0)
        lower, upper = zip(*(d.interval(level) for d in self._each_output(X)), strict=True)
        return self._shape(np.stack(lower, axis=1)), self._shape(np.stack(upper, axis=1))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        quantiles : array_like of shape (n_quantiles,), in (0, 1)

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles) or (n_rows, n_outputs, n_quantiles)
        """
        values = np.stack([d.quantile(np.atleast_1d(quantiles)) for d in self._each_output(X)], axis=1)
        return self._shape(values)

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of observed targets, (n_rows,) or (n_rows, n_outputs), in nats."""
        distributions = self._each_output(X)
        targets = self._check_targets(y, distributions[0].n_rows)
        densities = [d.log_density(targets[:, k]) for k, d in enumerate(distributions)]
        return self._shape(np.stack(densities, axis=1))

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Rescale all predictive standard deviations by one number learned on held-out data.

        The number is the root mean square of the standardised residuals, the maximiser of the Gaussian likelihood in
        the scale: 1 for a calibrated model, above 1 for one that is too sure. It replaces an earlier one.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows that the model was not fitted on.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        sample_weight : array_like of shape (n_rows,), optional

        Returns
        -------
        self
        """
        x = self._check_rows(X)
        targets = self._check_targets(y, len(x))
        weight = as_sample_weight(sample_weight, len(x))
        self.calibration_scale_ = 1.0
        mean, variance = self._moments(x)
        z2 = ((targets - self.y_mean_) / self.y_scale_ - mean) ** 2 / variance
        scale = float(np.sqrt(np.average(z2, axis=0, weights=weight).mean()))
        self.calibration_scale_ = scale if scale > 1e-6 else 1.0  # residuals of rounding say nothing of a scale
        return self

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: np.random.Generator | int | None = 0,
        *,
        noise: bool = True,
    ) -> FloatArray:
        """Draw functions from the posterior at the rows of X, with noise added unless `noise` is False.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        n_samples : int
        random_state : numpy.random.Generator, int or None
        noise : bool

        Returns
        -------
        ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
        """
        x = self._check_rows(X)
        n_samples = as_count(n_samples, "n_samples")
        rng = np.random.default_rng(random_state)
        values = np.empty((len(x), len(self.y_mean_), n_samples))
        with single_blas_thread():
            draw = self._sampler(n_samples, rng)
            for rows in self._blocks(x):
                values[rows] = draw(x[rows])
        if self.calibration_scale_ != 1.0:
            mean = self._latent_moments(x, with_variance=False)[0][:, :, None]
            values = mean + self.calibration_scale_ * (values - mean)
        for k in range(values.shape[1]):
            if noise:
                weights, variances = self._noise(k)
                sd = self.calibration_scale_ * np.sqrt(rng.choice(variances, n_samples, p=weights / weights.sum()))
                values[:, k] += sd * rng.standard_normal((len(x), n_samples))
        return self._shape(self.y_mean_[:, None] + self.y_scale_[:, None] * values)

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        """Return a function from rows to draws of f*, standardised, (n_rows, n_outputs, n_samples)."""
        raise NotImplementedError
