"""Search for small regressors: the exact posterior of continuous weights, cast into samples on a lattice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.evidence import distinct_rows, fit_hyperparameters
from pydirect.features.inputs import weighted_location_scale
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.budget.costs import Form
from pydirect.quantized.budget.posteriors import ExactPosterior, exact_posteriors
from pydirect.quantized.budget.settings import SearchSettings
from pydirect.quantized.budget.task import Task, mapped_inputs
from pydirect.quantized.fitted import Outputs
from pydirect.quantized.lattice import centred, rounded_on_best_scale
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.statistics.gaussian import TargetStatistics
from pydirect.statistics.rotated import RotatedTarget, decorrelate

# Prior variances tried, each a fraction of the one before, while the lattice loses more than the noise.
NARROWER_PRIORS = 5
NARROWING = 10.0
# Of the target's standard deviation: its square must stay finite.
LARGEST_SCALE = 1e150


@dataclass(frozen=True)
class _Cast:
    """Codes of one output's samples, their unit, the noise variance, and the mean squared error of the mean."""

    codes: NDArray[np.uint8]
    unit: float
    noise: float
    error: float


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
        hyperparameters = fit_hyperparameters(
            inputs,
            standardised,
            merged,
            input_map.n_standardised,
            settings.rng,
            max_rows=settings.max_hyperparameter_rows,
            n_threads=settings.n_threads,
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

    def loss(self, model: QuantizedPredictor) -> float:
        """Mean squared error, standardised, over all rows and outputs."""
        errors = self.y - self.sample_functions(model).mean(axis=2) / self.outputs.scale
        weight = self.rows(np.arange(len(self.y)))[2]
        return float(weight @ (errors**2).mean(axis=1) / weight.sum())

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedPredictor:
        """Cast the exact posteriors into samples on a lattice."""
        statistics = self.statistics(features)
        rotated = decorrelate(statistics)
        posteriors = exact_posteriors(rotated, self.hyperparameters)
        cast = [self._cast_one(statistics.target(k), rotated.target(k), p, form) for k, p in enumerate(posteriors)]
        noise = np.array([c.noise for c in cast]) * self.outputs.scale**2
        codes, unit = np.vstack([c.codes for c in cast]), np.array([c.unit for c in cast])
        return self.assembled(features, codes, unit, replace(self.outputs, noise=noise), form)

    def _cast_one(self, statistics: TargetStatistics, rotated: RotatedTarget, p: ExactPosterior, form: Form) -> _Cast:
        """Cast the posterior of one output, under a narrower prior if cancelling weights exceed the lattice."""
        a, n = statistics.A, statistics.n_samples
        found: list[_Cast] = []
        for _ in range(NARROWER_PRIORS):
            scale = np.sqrt(p.variance)
            mean = scale * p.fit.coefficients
            targets = centred(scale * p.fit.sample_weights(form.n_samples, self.rng), mean)
            metric = statistics.A.copy()
            metric[np.diag_indices_from(metric)] += p.noise / p.variance
            chosen, unit = rounded_on_best_scale(targets, form.grid, metric)
            values = unit * form.grid[chosen]
            middle = values.mean(axis=0)
            # The spread over the samples that the lattice removes, averaged over the rows, is added to the noise.
            spread = _mean_variance(values - middle, statistics)
            wanted = _mean_variance(targets - mean, statistics)
            misfit = float((middle - mean) @ a @ (middle - mean)) / n
            error = float(statistics.squared_error(middle)) / n
            found.append(_Cast(chosen, unit, p.noise + max(wanted + misfit - spread, 0.0), error))
            if misfit <= p.noise:
                break
            p = ExactPosterior.of(rotated, p.noise, p.variance / NARROWING)
        return min(found, key=lambda f: f.error)


def _mean_variance(deviations: FloatArray, statistics: TargetStatistics) -> float:
    """Mean over rows and samples of the squares of functions with these weights."""
    squares = np.einsum("sj,jk,sk->", deviations, statistics.A, deviations, optimize=True)
    return float(squares) / len(deviations) / statistics.n_samples
