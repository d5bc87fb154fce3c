"""Base of the regressors: predictive distributions, intervals, samples, scores, calibration."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_generator, as_number, as_sample_weight, as_target
from pydirect.estimators._base import LatentFunctions
from pydirect.features.columns import Columns
from pydirect.features.inputs import weighted_location_scale
from pydirect.features.repeated import distinct_rows
from pydirect.persistence.fields import Arrays, Header, Writer, require_array, require_number, require_positive
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.transformed import Distribution
from pydirect.quantized.fitted import Outputs

LARGEST_TARGET = 1e90
# Its square must stay finite.
LARGEST_CALIBRATION_SCALE = 1e150


class ProbabilisticRegressor(MultiOutputMixin, RegressorMixin, LatentFunctions):
    """Base of regressors whose predictions are Gaussian mixtures.

    Latent functions model the standardised targets. The ``fit`` of a subclass begins with `_start_fit`.
    """

    y_mean_: FloatArray
    y_scale_: FloatArray
    calibration_scale_: float

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _start_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, columns: Columns | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Validate the data, standardise the targets and discard the earlier fit: unfitted until `_set_results`.

        `columns`: encoder of X, by default fitted to it.

        Returns
        -------
        x : ndarray of shape (n_samples, n_encoded)
        targets, standardised : ndarray of shape (n_samples, n_outputs)
        weight : ndarray of shape (n_samples,) or None
        """
        x, given = self._validated(X, y, multi_output=True, y_numeric=True)
        weight = as_sample_weight(sample_weight, len(x))
        self._forget()
        self._one_dimensional = given.ndim == 1
        targets = np.asarray(given, dtype=np.float64).reshape(len(x), -1)
        standardised = self._standardise_targets(targets, weight)
        return self._fit_columns(x, standardised, weight, columns), targets, standardised, weight

    def _start_fit_to_distinct_rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the distinct rows, their standardised targets and their counts, for non-convex training.

        Without this, data that differ only by rounding could lead to different optima.
        """
        x, targets, _, weight = self._start_fit(X, y, sample_weight)
        x, targets, counts = distinct_rows(x, targets, weight)
        return x, self._standardise_targets(targets, counts), counts

    def _standardise_targets(self, targets: FloatArray, weight: FloatArray | None) -> FloatArray:
        """Learn the targets' location and scale; constant ones become exact zeros."""
        self._check_target_size(np.abs(targets).max())
        self.y_mean_, scale = weighted_location_scale(targets, weight)
        self.y_scale_ = np.where(scale > 0, scale, 1.0)
        self.calibration_scale_ = 1.0
        return np.where(scale > 0, (targets - self.y_mean_) / self.y_scale_, 0.0)

    @staticmethod
    def _check_target_size(size: float) -> None:
        if not size <= LARGEST_TARGET:
            raise ValueError(f"y must be at most {LARGEST_TARGET:g} in magnitude, got {size:g}")

    def _outputs(self) -> Outputs:
        return Outputs(
            scale=self.y_scale_,
            offset=self.y_mean_,
            noise=self._mean_noise_variance() * self.y_scale_**2,
            calibration=self.calibration_scale_,
            one_dimensional=self._one_dimensional,
            n_features_in=self._n_encoded(),
            feature_names=self._feature_names(),
        )

    def _to_fields(self, writer: Writer) -> Header:
        writer.arrays |= {"y_mean": self.y_mean_, "y_scale": self.y_scale_}
        return {**super()._to_fields(writer), "calibration_scale": self.calibration_scale_}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.y_mean_, self.y_scale_ = arrays["y_mean"], arrays["y_scale"]
        require_array(self.y_mean_, "y_mean", len(self.posteriors_))
        require_positive(self.y_scale_, "y_scale", len(self.posteriors_))
        limits = {"above": 0.0, "at_most": LARGEST_CALIBRATION_SCALE}
        self.calibration_scale_ = require_number(header["calibration_scale"], "calibration_scale", **limits)

    def _elbo_units(self) -> FloatArray:
        return self.n_samples_ * np.log(self.y_scale_)  # a density in y's own units

    def _set_results(self) -> None:
        super()._set_results()
        noise = self._mean_noise_variance() * self.y_scale_**2
        self.noise_variance_ = float(noise[0]) if self._one_dimensional else noise

    def _mean_noise_variance(self) -> FloatArray:
        """Return the expected noise variance of each output, standardised."""
        return np.array([p.noise.variance for p in self.posteriors_])

    def _noise_of(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Weights (r,) and values (n_rows, r) of the noise variance at rows, standardised, for every output."""
        noises = [p.noise for p in self.posteriors_]
        return [(noise.q, np.broadcast_to(noise.levels, (len(rows), len(noise.levels)))) for noise in noises]

    def _latent_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Components of the posterior of f*: weights (r,), means and variances (n_rows, r), for every output."""
        mean, variance = self._latent(rows, with_variance=True)
        assert variance is not None
        return [(np.ones(1), mean[:, k, None], variance[:, k, None]) for k in range(mean.shape[1])]

    def _target_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Components of the distribution of y*: weights (r,), means and variances (n_rows, r), for every output."""
        components = []
        latent = zip(self._latent_components(rows), self._noise_of(rows), strict=True)
        for (alpha, means, variances), (weights, noise) in latent:
            used = weights > 1e-12
            mixed = np.outer(alpha, weights[used] / weights[used].sum()).ravel()
            spread = (variances[:, :, None] + noise[:, None, used]).reshape(len(rows), -1)
            components.append((mixed, np.repeat(means, used.sum(), axis=1), spread))
        return components

    def _variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of y*, variance of f* and expected noise variance, standardised, (n_rows, n_outputs) each."""
        mean, variance = self._latent_moments(x, with_variance=True)
        assert variance is not None
        noise = np.empty_like(mean)
        for rows in self._blocks(x):
            for k, (weights, values) in enumerate(self._noise_of(x[rows])):
                noise[rows, k] = values @ weights
        return mean, variance, noise

    def _check_targets(self, y: ArrayLike, n_rows: int) -> FloatArray:
        targets = as_target(y, n_rows)
        if targets.shape[1] != len(self.y_mean_):
            raise ValueError(f"y must have {len(self.y_mean_)} outputs, as in fit, got {targets.shape[1]}")
        return targets

    def _to_units(self, values: FloatArray) -> FloatArray:
        """Map transformed targets, whose second axis is that of the outputs if there is one, back to y."""
        return values

    def _transformed(self, targets: FloatArray) -> FloatArray:
        """Return targets as the model sees them before they are standardised."""
        return targets

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Also return the standard deviation of the target, noise included; it is computed only on request.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        std : ndarray of the same shape
            In the target's units.
        """
        x = self._check_rows(X)
        if not return_std:
            mean, _ = self._latent_moments(x, with_variance=False)
            return self._shape(self.y_mean_ + self.y_scale_ * mean)
        mean, variance = self._moments(x)
        return self._shape(self.y_mean_ + self.y_scale_ * mean), self._shape(self.y_scale_ * np.sqrt(variance))

    def _moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of y*, standardised and calibrated."""
        mean, variance, noise = self._variance_parts(x)
        return mean, self.calibration_scale_**2 * (variance + noise)

    def predict_parts(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the mean and, separately, the epistemic (of f) and aleatoric (of the noise) standard deviations.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        mean, epistemic_std, aleatoric_std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        """
        mean, variance, noise = self._variance_parts(self._check_rows(X))
        scale = self.calibration_scale_ * self.y_scale_
        parts = (self.y_mean_ + self.y_scale_ * mean, scale * np.sqrt(variance), scale * np.sqrt(noise))
        return tuple(self._shape(p) for p in parts)  # type: ignore[return-value]

    def predict_distribution(self, X: ArrayLike) -> Distribution | list[Distribution]:
        """Predict the full distribution of the target: a Gaussian mixture over noise levels and posterior components.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        PredictiveDistribution or TransformedDistribution, or a list of them, one per output
            In the target's units. The second where the target was transformed.
        """
        distributions = self._distributions(self._check_rows(X))
        return distributions[0] if self._one_dimensional else distributions

    def _distributions(self, x: FloatArray) -> list[Distribution]:
        """Return the distributions of the outputs, in the target's units."""
        return [*self._mixtures(x)]

    def _mixtures(self, x: FloatArray) -> list[PredictiveDistribution]:
        """Return the distributions of the outputs, transformed if they were."""
        with single_blas_thread():
            blocks = [self._target_components(x[rows]) for rows in self._blocks(x)]
        distributions = []
        for k, (location, scale) in enumerate(zip(self.y_mean_, self.y_scale_, strict=True)):
            weights = blocks[0][k][0]
            means, variances = (np.concatenate([block[k][part] for block in blocks]) for part in (1, 2))
            middle, spread = (means @ weights)[:, None], self.calibration_scale_ * scale
            means = location + scale * middle + spread * (means - middle)
            distributions.append(PredictiveDistribution(weights, means, spread**2 * variances))
        return distributions

    def _each_output(self, X: ArrayLike) -> list[Distribution]:
        distributions = self.predict_distribution(X)
        return distributions if isinstance(distributions, list) else [distributions]

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that contain the target with probability `level`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Ends of the intervals.
        """
        as_number(level, "level", above=0.0, below=1.0)
        lower, upper = zip(*(d.interval(level) for d in self._each_output(X)), strict=True)
        return self._shape(np.stack(lower, axis=1)), self._shape(np.stack(upper, axis=1))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        quantiles : array_like of shape (n_quantiles,), in (0, 1), default=(0.05, 0.5, 0.95)
            Probabilities of values below the quantiles.

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles) or (n_rows, n_outputs, n_quantiles)
            In the target's units.
        """
        values = np.stack([d.quantile(np.atleast_1d(quantiles)) for d in self._each_output(X)], axis=1)
        return self._shape(values)

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of observed targets, (n_rows,) or (n_rows, n_outputs), in nats.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In nats.
        """
        distributions = self._each_output(X)
        targets = self._check_targets(y, distributions[0].n_rows)
        densities = [d.log_density(targets[:, k]) for k, d in enumerate(distributions)]
        return self._shape(np.stack(densities, axis=1))

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Rescale all predictive standard deviations by one factor learned on held-out data.

        The factor is the root mean square of the standardised residuals, which maximises the Gaussian likelihood over
        the scale: 1 for a calibrated model, above 1 for an overconfident one. It replaces that of an earlier call.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows that the model was not fitted on.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.

        Returns
        -------
        Self
            The model itself.
        """
        x = self._check_rows(X)
        targets = self._check_targets(y, len(x))
        weight = as_sample_weight(sample_weight, len(x))
        self.calibration_scale_ = 1.0
        mean, variance = self._moments(x)
        z2 = ((self._transformed(targets) - self.y_mean_) / self.y_scale_ - mean) ** 2 / variance
        scale = float(np.sqrt(np.average(z2, axis=0, weights=weight).mean()))
        self.calibration_scale_ = scale if scale > 1e-6 else 1.0  # rounding errors say nothing about the scale
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

        Where targets are transformed, functions without noise are those of the median.

        Returns an array (n_rows, n_samples) or (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.
        noise : bool, default=True
            Whether noise is added.

        Returns
        -------
        ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
            Draws.
        """
        x = self._check_rows(X)
        n_samples = as_count(n_samples, "n_samples")
        rng = as_generator(random_state)
        values = self._draws(x, n_samples, rng, noise)
        return self._to_units(self._shape(self.y_mean_[:, None] + self.y_scale_[:, None] * values))

    def _draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        """Draw functions, with noise or without, standardised and calibrated, (n_rows, n_outputs, n_samples)."""
        values = self._draw_latent(x, n_samples, rng)
        if self.calibration_scale_ != 1.0:
            mean = self._latent_moments(x, with_variance=False)[0][:, :, None]
            values = mean + self.calibration_scale_ * (values - mean)
        for k in range(values.shape[1]):
            if noise:
                sd = self.calibration_scale_ * np.sqrt(self._drawn_noise(x, k, n_samples, rng))
                values[:, k] += sd * rng.standard_normal((len(x), n_samples))
        return values

    def _drawn_noise(self, x: FloatArray, output: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw variances of the noise, (n_samples,) or (n_rows, n_samples), standardised."""
        noise = self.posteriors_[output].noise
        return rng.choice(noise.levels, n_samples, p=noise.q / noise.q.sum())
