"""Moments of f at the rows of a fit: exact means, and variances that are exact where they must be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior, posterior_for_rows
from pydirect.statistics.gaussian import blocks_of
from pydirect.statistics.rotated import RotatedStatistics

# Leverages above are computed exactly, those below from random signs.
LARGEST_SKETCHED = 0.3
N_SIGNS = 128


class RowMoments:
    """Mean and variance of f at distinct rows of a fit, given all of them, computed where they are first asked for.

    Variances of rows of large leverage are exact. Elsewhere they come from projections onto random signs, which take a
    fraction of the time: there an error of a tenth in h changes e/(1 − h) by a few per cent at most.

    Where variances are exact, `missing`, (n_rows,), is what the basis functions miss at unit prior variance of weights.

    Parameters
    ----------
    basis : Basis
    residual_variance : float
        As of `Basis.missing_variance`.
    x : ndarray of shape (n_rows, n_features_in)
    weight : ndarray of shape (n_rows,)
        With which each row entered the statistics.
    rotated : RotatedStatistics
    noise, prior_variance : ndarray of shape (n_outputs,)
        Of a row of weight one, and of every weight.
    rng : numpy.random.Generator
        Draws the signs.
    n_threads : int
    """

    def __init__(
        self,
        basis: Basis,
        residual_variance: float,
        x: FloatArray,
        weight: FloatArray,
        rotated: RotatedStatistics,
        noise: FloatArray,
        prior_variance: FloatArray,
        rng: np.random.Generator,
        n_threads: int,
    ) -> None:
        self.basis, self.residual_variance, self.x, self.weight, self.rotated = (
            basis,
            residual_variance,
            x,
            weight,
            rotated,
        )
        self.noise, self.prior_variance, self.rng, self.n_threads = noise, prior_variance, rng, n_threads
        self.mean, self.variance = np.zeros((2, len(x), len(noise)))
        self.missing = np.zeros(len(x))
        self.known, self.exact = np.zeros((2, len(x)), dtype=bool)

    @cached_property
    def posterior(self) -> GaussianPosterior | FactoredPosterior:
        """Posterior of the weights of Φ."""
        return posterior_for_rows(self.rotated, 1 / self.noise, self.prior_variance)

    def at(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance at rows, (n_chosen, n_outputs) each."""
        new = rows[~self.known[rows]]
        if self.basis.n_weights > N_SIGNS * len(self.noise):  # otherwise exact ones cost no more
            self._estimate(new)
            leverages = self.weight[new, None] / self.noise * self.variance[new]
            new = new[(leverages > LARGEST_SKETCHED).any(axis=1)]
        self.exactly(new)
        return self.mean[rows], self.variance[rows]

    def exactly(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return the same without estimates."""
        new = rows[~self.exact[rows]]
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

    def _estimate(self, rows: NDArray[np.intp]) -> None:
        n_outputs = len(self.noise)
        with single_blas_thread():
            for block in blocks_of(len(rows), self.basis.n_weights):
                chosen = rows[block]
                values = self._project(self.basis.inputs(self.x[chosen]), self.n_threads)
                self.mean[chosen] = values[:, :n_outputs]
                signs = values[:, n_outputs:].reshape(len(chosen), n_outputs, N_SIGNS)
                self.variance[chosen] = np.einsum("ijk,ijk->ij", signs, signs)
        self.known[rows] = True

    @cached_property
    def _project(self) -> Callable[[FloatArray, int], FloatArray]:
        """From inputs of the map to means and square roots of variances along random signs."""
        sketch = self.posterior.sketch(self.rng, N_SIGNS)
        return self.basis.projection(np.hstack([self.posterior.coefficients, *sketch]))
