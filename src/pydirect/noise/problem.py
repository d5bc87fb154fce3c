"""`NoiseProblem`: a fit with constant noise, as data for whoever looks for another kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.evidence import TrainingRows
from pydirect.linear.fit import InitialHyperparameters
from pydirect.linear.posterior import GaussianPosterior
from pydirect.noise.row_moments import RowMoments
from pydirect.statistics.rotated import RotatedStatistics

# Posterior of one output and the prior standard deviation of its weights.
Fitted = tuple[GaussianPosterior, float]


@dataclass(frozen=True)
class NoiseProblem:
    """Distinct rows of a fit, its posteriors with constant noise, and what another fit needs.

    ``learn_basis`` learns a feature map like that of the fit from rows, given their targets' scale; ``noise_basis``
    one of at most as many functions for log variances, None where the map is given. ``density_scale`` (n_outputs,) are
    the targets' units.
    """

    basis: Basis
    residual_variance: float
    rows: TrainingRows
    rotated: RotatedStatistics
    fitted: Sequence[Fitted]
    initial: Sequence[InitialHyperparameters]
    effective_rows: float
    density_scale: FloatArray
    learn_basis: Callable[[TrainingRows, FloatArray], Basis] | None
    noise_basis: Callable[[TrainingRows, FloatArray, int], Basis] | None
    n_functions: int
    max_search_rows: int
    max_iter: int
    block_dtype: str
    rng: np.random.Generator
    n_threads: int

    def moments(self) -> RowMoments:
        """Moments of f at the distinct rows of positive weight."""
        first, weight, _ = self.rows.merged
        used = weight > 0
        noise = np.array([1 / posterior.noise.precision for posterior, _ in self.fitted])
        variance = np.array([scale for _, scale in self.fitted]) ** 2
        return RowMoments(
            self.basis,
            self.residual_variance,
            self.rows.x[first[used]],
            weight[used],
            self.rotated,
            noise,
            variance,
            self.rng.spawn(1)[0],
            self.n_threads,
        )
