"""Search for small regressors: samples of the weights of a few basis functions, by evidence."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.evidence import search_hyperparameters
from pydirect.features.inputs import weighted_location_scale
from pydirect.features.maps import FourierFeatures
from pydirect.features.repeated import RowCounts, distinct_rows
from pydirect.features.sparse_spectrum import SMALLEST_NOISE
from pydirect.linear.evidence import maximise_evidence
from pydirect.linear.referee import Referee
from pydirect.quantized.budget.costs import Form
from pydirect.quantized.budget.draws import Problem, accurate_samples
from pydirect.quantized.budget.settings import SearchSettings
from pydirect.quantized.budget.task import WEIGHT_BETWEEN, Task, mapped_inputs, points_between
from pydirect.quantized.fitted import Outputs
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.statistics.rotated import RotatedTarget, decorrelate

# Rows of the kernel's posterior mean.
MOST_KERNEL_ROWS = 1500
# Of the target's standard deviation: its square must stay finite.
LARGEST_SCALE = 1e150


class TargetTask(Task):
    """Search for a small regressor."""

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray | None,
        settings: SearchSettings,
        feature_names: tuple[str, ...],
    ) -> TargetTask:
        """Standardise the data and learn the kernel."""
        one_dimensional = y.ndim == 1
        x, y, merged = distinct_rows(x, y.reshape(len(x), -1), weight)
        weight = None if (merged == 1).all() else merged
        mean, scale = weighted_location_scale(y, weight)
        scale = np.where(scale == 0, 1.0, scale)
        if not ((1 / LARGEST_SCALE < scale) & (scale < LARGEST_SCALE)).all():
            raise ValueError(f"y must vary by less than {LARGEST_SCALE:g} and more than its inverse, got {scale}")
        standardised = np.ascontiguousarray((y - mean) / scale)
        input_map, inputs = mapped_inputs(x, weight)
        counts = RowCounts.of(inputs, standardised, merged).where_learned(merged)
        hyperparameters, _ = search_hyperparameters(
            inputs,
            standardised,
            counts,
            input_map.n_standardised,
            settings.rng,
            max_rows=settings.max_hyperparameter_rows,
            n_threads=settings.n_threads,
            referee=Referee(inputs, standardised, counts, settings.rng, settings.n_threads),
        )
        return cls(
            input_map=input_map,
            inputs=inputs,
            y=standardised,
            weight=weight,
            outputs=Outputs(
                scale=scale,
                offset=mean,
                noise=np.zeros(len(scale)),
                calibration=1.0,
                one_dimensional=one_dimensional,
                n_features_in=x.shape[1],
                feature_names=feature_names,
            ),
            hyperparameters=hyperparameters,
            rng=settings.rng,
            n_threads=settings.n_threads,
        )

    def examples(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return rows, and points between them where the kernel's posterior mean stands for targets.

        A few hundred basis functions that were chosen for the rows are kept to the kernel's function between them.
        """
        x, y, weight = self.subset(most)
        points, mean = self._between
        between = np.full(len(points), WEIGHT_BETWEEN * weight.mean())
        return np.vstack([x, points]), np.vstack([y, mean]), np.concatenate([weight, between])

    @cached_property
    def _between(self) -> tuple[FloatArray, FloatArray]:
        rng = np.random.default_rng(0)  # the same points for all proposals
        x, y, weight = self.rows(np.sort(rng.permutation(len(self.y))[:MOST_KERNEL_ROWS]))
        points = points_between(x, 2 * len(x), rng)
        return points, self.kernel_mean(points, x, y, weight)

    def loss(self, model: QuantizedPredictor) -> float:
        """Mean negative log density, standardised, over all rows and outputs, after calibration."""
        error, variance = self._errors(model)
        variance = self.calibration(model) ** 2 * variance
        return self._mean(np.log(2 * np.pi * variance) + error**2 / variance) / 2

    def calibration(self, model: QuantizedPredictor) -> float:
        """Root mean square of standardised errors, but at least one."""
        error, variance = self._errors(model)
        return max(float(np.sqrt(self._mean(error**2 / variance))), 1.0)

    def _errors(self, model: QuantizedPredictor) -> tuple[FloatArray, FloatArray]:
        """Return errors of the mean and predicted variances, standardised, (n_rows, n_outputs) each."""
        functions = self.sample_functions(model) / self.outputs.scale[:, None]
        return self.y - functions.mean(axis=2), functions.var(axis=2) + model.noise / self.outputs.scale**2

    def _mean(self, values: FloatArray) -> float:
        weight = self.rows(np.arange(len(self.y)))[2]
        return float(weight @ values.mean(axis=1) / weight.sum())

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedPredictor:
        """Draw samples at the noise and prior variance of largest evidence."""
        statistics = self.statistics(features)
        rotated = decorrelate(statistics)
        problems = [
            Problem(statistics.target(k), *self._evident(rotated.target(k))) for k in range(statistics.n_outputs)
        ]
        samples = accurate_samples(problems, form.n_samples, form.grid, features.pairs, self.rng, self.n_threads)
        outputs = replace(self.outputs, noise=samples.noise * self.outputs.scale**2)
        return self.assembled(features, samples, outputs, form)

    def _evident(self, rotated: RotatedTarget) -> tuple[float, float]:
        """Return the noise variance and the prior variance of largest evidence."""
        # The evidence is optimistic about columns chosen for what they explain; the kernel's noise is not.
        least = max(self.hyperparameters.noise_variance, SMALLEST_NOISE)
        noise, variance = maximise_evidence(rotated, least)
        if noise < least:
            noise, variance = maximise_evidence(rotated, least, variance, fit_noise=False)
        return noise, variance
