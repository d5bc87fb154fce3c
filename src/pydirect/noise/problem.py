"""A fit with constant noise, as data for whoever looks for another kind, and the moments of f at its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.rows import TrainingRows
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior, posterior_for_rows
from pydirect.statistics.gaussian import blocks_of
from pydirect.statistics.rotated import RotatedStatistics

# Leverages above are computed exactly, those below from random signs.
LARGEST_SKETCHED = 0.3
N_SIGNS = 128
# Posterior of one output and the prior standard deviation of its weights.
Fitted = tuple[GaussianPosterior, float]


@dataclass(eq=False)
class RowMoments:
    """Mean and variance of f at distinct rows of a fit, given all of them, computed where they are first asked for.

    Variances of rows of large leverage are exact. Elsewhere they come from projections onto random signs, which take a
    fraction of the time: there an error of a tenth in h changes e/(1 − h) by a few per cent at most. Where variances
    are exact, `missing`, (n_rows,), is what the basis functions miss at unit prior variance of weights.

    - `residual_variance`: as of `Basis.missing_variance`.
    - `x`, (n_rows, n_features_in); `weight`, (n_rows,), with which each row entered the statistics.
    - `noise`, `prior_variance`, (n_outputs,): of a row of weight one, and of every weight.
    - `rng`: draws the signs.
    """

    basis: Basis
    residual_variance: float
    x: FloatArray
    weight: FloatArray
    rotated: RotatedStatistics
    noise: FloatArray
    prior_variance: FloatArray
    rng: np.random.Generator
    n_threads: int

    def __post_init__(self) -> None:
        self.mean, self.variance = np.zeros((2, len(self.x), len(self.noise)))
        self.missing = np.zeros(len(self.x))
        self.known, self.exact = np.zeros((2, len(self.x)), dtype=bool)

    @cached_property
    def posterior(self) -> GaussianPosterior | FactoredPosterior:
        """Posterior of the weights of Φ."""
        return posterior_for_rows(self.rotated, 1 / self.noise, self.prior_variance)

    @cached_property
    def _project(self) -> Callable[[FloatArray, int], FloatArray]:
        """From inputs of the map to means and square roots of variances along random signs."""
        sketch = self.posterior.sketch(self.rng, N_SIGNS)
        return self.basis.projection(np.hstack([self.posterior.coefficients, *sketch]))

    def at(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance at rows, (n_chosen, n_outputs) each."""
        new, n_outputs = rows[~self.known[rows]], len(self.noise)
        if self.basis.n_weights > N_SIGNS * n_outputs:  # otherwise exact ones cost no more
            with single_blas_thread():
                for block in blocks_of(len(new), self.basis.n_weights):
                    chosen = new[block]
                    values = self._project(self.basis.inputs(self.x[chosen]), self.n_threads)
                    self.mean[chosen] = values[:, :n_outputs]
                    signs = values[:, n_outputs:].reshape(len(chosen), n_outputs, N_SIGNS)
                    self.variance[chosen] = np.einsum("ijk,ijk->ij", signs, signs)
            self.known[new] = True
            leverages = self.weight[new, None] / self.noise * self.variance[new]
            new = new[(leverages > LARGEST_SKETCHED).any(axis=1)]
        return self.exactly(rows, new)

    def exactly(self, rows: NDArray[np.intp], new: NDArray[np.intp] | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the same without estimates at some of the rows, `new`, or at all."""
        new = rows if new is None else new
        new = new[~self.exact[new]]
        with single_blas_thread():
            for block in blocks_of(len(new), self.basis.n_weights):
                chosen = new[block]
                inputs = self.basis.inputs(self.x[chosen])
                phi = np.ascontiguousarray(self.basis.map.transform(inputs, np.float64, self.n_threads))
                self.mean[chosen], self.variance[chosen] = self.posterior.moments(phi)
                missing = self.basis.missing_variance(inputs, phi, self.residual_variance)
                self.missing[chosen] = 0.0 if missing is None else missing
        self.known[new] = self.exact[new] = True
        return self.mean[rows], self.variance[rows]


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
        x, rng = self.rows.x[first[used]], self.rng.spawn(1)[0]
        given = self.basis, self.residual_variance, x, weight[used], self.rotated
        return RowMoments(*given, noise, variance, rng, self.n_threads)
