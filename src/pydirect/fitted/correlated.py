"""`FittedCorrelated`: outputs with correlated functions and noise, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pydirect._dense import product
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.residual import draw_residual
from pydirect.fitted.predictor import Predictor, Units
from pydirect.persistence.schema import AtLeast, Binds, Positive, Shape


@dataclass(frozen=True, eq=False, repr=False)
class FittedCorrelated(Predictor):
    """f = Φ(x)W with W Gaussian about `mean`, `root` and `vectors` as of `CorrelatedFit`; standardised units.

    `signal` B and `noise` Σ, (n_outputs, n_outputs), are the prior covariance of a row of W and that of the noise.
    """

    basis: Annotated[Basis, Binds(n_weights="n_weights", n_features_in="n_features_in")]
    units: Units
    mean: Annotated[FloatArray, Shape("n_weights", "n_outputs")]
    root: Annotated[FloatArray, Shape("n_weights", "n_outputs", "n_directions")]
    signal: Annotated[FloatArray, Shape("n_outputs", "n_outputs")]
    noise: Annotated[FloatArray, Shape("n_outputs", "n_outputs")]
    residual_variance: Annotated[float, AtLeast(0.0)]
    n_samples: Annotated[float, Positive]
    log_evidence: float
    n_iter: int
    converged: bool
    vectors: Annotated[FloatArray, Shape("n_weights", "n_weights")] | None = None
    interrupted: bool = False

    @property
    def n_columns(self) -> int:
        return int(np.prod(self.root.shape[1:])) + self.basis.n_weights

    @property
    def mean_noise(self) -> FloatArray:
        """Noise variances, standardised, (n_outputs,)."""
        return self.noise.diagonal()

    def check(self) -> None:
        """Raise unless roots are of all weights, or of those of each vector."""
        b, p, n_directions = self.root.shape
        if n_directions != (b * p if self.vectors is None else p):
            raise ValueError("root must have as many directions as weights, or, with vectors, as outputs")

    def latent(self, x: FloatArray, diagonal: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of f (n_rows, n_outputs), its covariances or their diagonals, and residual variance."""
        inputs, n_threads = self.basis.inputs(x), resolve_n_threads()
        phi = np.ascontiguousarray(self.basis.map.transform(inputs, np.float64, n_threads))
        residual = self.basis.missing_variance(inputs, phi, self.residual_variance)
        root = self.root
        if self.vectors is None:
            root = product(phi, root.reshape(len(root), -1), n_threads).reshape(len(x), *root.shape[1:])
        spread = np.square(root).sum(axis=2) if diagonal else root @ root.swapaxes(1, 2)
        if self.vectors is not None:
            squares = np.square(product(phi, self.vectors, n_threads))
            spread = product(squares, spread.reshape(len(root), -1), n_threads).reshape(len(x), *spread.shape[1:])
        return product(phi, self.mean, n_threads), spread, residual

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        if not with_variance:
            return product(self.basis.transform(x, np.float64, resolve_n_threads()), self.mean), None
        mean, variance = np.empty((2, len(x), self.units.n_outputs))
        for rows in self.blocks(x):
            mean[rows], spread, residual = self.latent(x[rows], diagonal=True)
            variance[rows] = spread + residual[:, None] * self.signal.diagonal()
        return mean, variance

    def between_outputs(self, x: FloatArray) -> FloatArray:
        """Covariance of the outputs of every row, noise included, (n_rows, n_outputs, n_outputs), in y's units."""
        found = np.empty((len(x), *self.noise.shape))
        for rows in self.blocks(x):
            _, spread, residual = self.latent(x[rows], diagonal=False)
            found[rows] = spread + residual[:, None, None] * self.signal + self.noise
        scale = self.units.calibration * self.units.scale
        return np.asarray(found * scale[:, None] * scale)

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        return [(np.ones(1), np.full((len(x), 1), level)) for level in self.mean_noise]

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        apart = () if self.vectors is None else (len(self.root),)
        weights = self.root @ rng.standard_normal((*apart, self.root.shape[2], n_samples))
        if self.vectors is not None:
            weights = product(self.vectors, weights.reshape(len(weights), -1)).reshape(weights.shape)
        weights = self.mean[:, :, None] + weights
        phi = self.basis.transform(x, np.float64, resolve_n_threads())
        values = product(phi, weights.reshape(len(weights), -1)).reshape(len(x), *weights.shape[1:])
        n_draws = self.units.n_outputs * n_samples
        residual = draw_residual(self.basis, self.basis.inputs(x), self.residual_variance, n_draws, rng)
        if residual is not None:
            values += _together(self.signal, residual.reshape(values.shape))
        return np.asarray(values)

    def noise_values(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return _together(self.noise, rng.standard_normal((len(x), len(self.noise), n_samples)))


def _together(covariance: FloatArray, normal: FloatArray) -> FloatArray:
    """Give independent variables (n_rows, n_outputs, n_draws) the covariance of the outputs."""
    return np.asarray(np.einsum("ab,nbs->nas", np.linalg.cholesky(covariance), normal))
