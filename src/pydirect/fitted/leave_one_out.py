"""Predictions of training rows without themselves, of fitted models with Gaussian weights and constant noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.evidence import TrainingRows
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.leave_one_out import LeaveOneOut, leave_one_out
from pydirect.linear.posterior import posterior_for_rows
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.statistics.gaussian import collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, decorrelate


@dataclass(frozen=True)
class LeftOut:
    """One model's predictions of distinct rows, all copies of a row left out at a time.

    ``first`` are distinct rows, ``where`` the distinct row of each row, ``count`` their weights, ``precision`` that of
    each target, ``epistemic`` the variance of f, (n_distinct, n_outputs).
    """

    model: FittedRegressor
    found: LeaveOneOut
    first: NDArray[np.intp]
    where: NDArray[np.intp]
    count: FloatArray
    precision: FloatArray
    epistemic: FloatArray

    def log_density(self, targets: FloatArray) -> FloatArray:
        """Log density of standardised targets of the distinct rows, (n_distinct, n_outputs)."""
        densities = np.empty_like(targets)
        for k, spread in enumerate(self.epistemic.T):
            noise = self.model.posteriors[k].noise
            mixture = PredictiveDistribution(noise.q, self.found.means[:, k, None], spread[:, None] + noise.levels)
            densities[:, k] = mixture.log_density(targets[:, k])
        return densities


def left_out(
    models: Sequence[FittedRegressor], rows: TrainingRows, rotated: RotatedStatistics | None = None
) -> list[LeftOut]:
    """Predict every row without itself by models of one feature map, given their sums over the rows or not."""
    lead = models[0].latent
    if rotated is None:
        basis = lead.basis.for_sums(len(rows.x), 0.0)  # of Φ: nothing magnifies their rounding
        rotated = decorrelate(collect_statistics(basis.map, basis.inputs(rows.x), rows.y, rows.weight))
    first, count, where = rows.merged
    x, y, one = rows.x[first], rows.y[first], rows.counts.left_out(count)
    tau = np.array([[p.noise.precision / model.repetitions for p in model.posteriors] for model in models])
    together = replace(rotated, c=np.tile(rotated.c, len(models)), yty=np.tile(rotated.yty, len(models)))
    prior_variance = np.concatenate([model.latent.prior_scale for model in models]) ** 2
    posterior = posterior_for_rows(together, tau.ravel(), prior_variance)
    mean, variance, residual = np.zeros((3, len(x), len(models), rotated.n_outputs))
    for block in models[0].blocks(x):
        inputs, phi = lead.phi(x[block])
        moments = posterior.moments(phi)
        mean[block], variance[block] = (moment.reshape(mean[block].shape) for moment in moments)
        for m, model in enumerate(models):
            beyond = model.latent.beyond(inputs, phi)
            residual[block, m] = 0.0 if beyond is None else beyond
    results = []
    for m, model in enumerate(models):
        precision = one[:, None] * tau[m]
        found = leave_one_out(y, mean[:, m], variance[:, m], precision, model.mean_noise, residual[:, m])
        epistemic = found.latent_variances + residual[:, m]
        results.append(LeftOut(model, found, first, where, count, precision, epistemic))
    return results
