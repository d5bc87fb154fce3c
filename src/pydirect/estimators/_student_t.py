"""Fits with Student-t noise: outliers weigh less, in the mean and in the search of hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.estimators._fitting import Training
from pydirect.estimators._noise_model import STUDENT_T, NoiseModel
from pydirect.estimators._row_moments import RowMoments
from pydirect.estimators._varying_noise import Fitted, NoiseFit, squares_of
from pydirect.features.evidence import TrainingRows
from pydirect.features.inputs import weighted_location_scale
from pydirect.linear.empirical_bayes import InitialHyperparameters
from pydirect.noise.student_t import SMALLEST_SCALE, WeightedRidge, mean_precision, precision_bound, robust_scale
from pydirect.noise.varying_noise import TAILS, LogNoise
from pydirect.statistics.gaussian import collect_statistics

MAX_PASSES = 15
# Change of any row's precision, in units of the scale's, at which passes end.
TOLERANCE = 0.02
# Rows of smaller precision are outliers, which the search of hyperparameters does without.
SMALLEST_PRECISION = 0.3


def fit_student_t(
    model: Any, training: Training, fitted: Sequence[Fitted], moments: RowMoments
) -> tuple[list[Fitted], NoiseModel]:
    """Return the posteriors of all outputs and their noise; features are learned again without outliers.

    `fitted`: with Gaussian noise. `moments`: of its functions, at the rows.
    """
    return StudentTFit(model, training, fitted, moments).fit()


class StudentTFit(NoiseFit):
    """The rows of a fit, and their squared errors, means and scale s² of every output."""

    def fit(self) -> tuple[list[Fitted], NoiseModel]:
        """Alternate precisions and means, learn features again, and alternate once more."""
        compared = [self.flat(mean) for mean in self.constant]
        variances = [mean.fitted[1] ** 2 for mean in self.constant]
        everything = np.arange(len(self.x))
        left_out = [self.constant_left_out(k, everything) for k in range(len(compared))]
        self.squares = np.stack([squares_of(loo) for loo in left_out], axis=1)
        self.scales, self.means = robust_scale(self.squares), np.empty_like(self.y)
        self._alternate(variances)
        fits = self._precisions() > SMALLEST_PRECISION
        if self.model._learns_kernel() and fits.any():
            self._learn_features(fits)
            variances = [self.model._initial_hyperparameters(k).prior_variance or v for k, v in enumerate(variances)]
            self._alternate(variances)
        for k, (candidates, variance) in enumerate(zip(compared, variances, strict=True)):
            precision = self._precisions()[:, k]
            average = float(np.average(precision, weights=self.counts))
            noise = float(self.scales[k]) / average
            start = InitialHyperparameters(noise, variance, noise)
            mean, _ = self.weighted(k, precision / average, start)
            bound = precision_bound(self.squares[:, k], self.scales[k]) - 0.5 * np.log(average)
            mean = replace(mean, log_weights=float(self.counts @ bound))
            scale = LogNoise.constant(float(self.scales[k]), len(self.compared))
            candidates[STUDENT_T] = self.best(mean, scale, TAILS)
        return self.result([STUDENT_T] * len(compared), compared, None)

    def _precisions(self) -> FloatArray:
        return mean_precision(self.squares, self.scales)

    def _alternate(self, variances: Sequence[float]) -> None:
        """Pass between precisions of rows and means given prior variances until the precisions rest."""
        basis = self.model.features_
        inputs = basis.inputs(self.x)
        for k, variance in enumerate(variances):
            for _ in range(MAX_PASSES):
                precision = mean_precision(self.squares[:, k], self.scales[k])
                weight, y = self.counts * precision, self.y[:, k]
                statistics = collect_statistics(basis.map, inputs, y[:, None], weight, n_threads=self.n_threads)
                ridge = WeightedRidge(statistics.target(0), float(self.scales[k]), variance)
                mean, spread = self.moments(basis, ridge, 1)
                self.means[:, k] = mean[:, 0]
                self.squares[:, k] = (y - mean[:, 0]) ** 2 + spread[:, 0]
                self.scales[k] = max(np.average(precision * self.squares[:, k], weights=self.counts), SMALLEST_SCALE)
                if np.abs(mean_precision(self.squares[:, k], self.scales[k]) - precision).max() < TOLERANCE:
                    break

    def _learn_features(self, fits: NDArray[np.bool_]) -> None:
        """Fit the feature map to the rows that are no outliers; `fits`, (n_rows, n_outputs), says in which outputs.

        Means stand for outliers of rows that others of their outputs keep: of many outputs hardly a row has none.
        """
        kept = fits.any(axis=1)
        y, weight = np.where(fits, self.y, self.means)[kept], self.counts[kept]
        location, scale = weighted_location_scale(y, weight)
        scale = np.where(scale > 0, scale, 1.0)
        rows = TrainingRows(self.x[kept], (y - location) / scale, weight)
        basis = self.model._fit_features(rows, self.rng, self.n_threads, scale * self.model.y_scale_)
        self.model.features_ = basis
        self.model.mean_missing_variance_ = self.mean_missing_variance(basis)
