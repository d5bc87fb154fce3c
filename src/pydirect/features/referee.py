"""The evidence of all rows for a kernel, by few landmarks: a referee between results of searches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures

N_LANDMARKS = 300
# Steps between noise variances that are tried, of which few rows know little where tails are heavy.
NOISE_STEP, MOST_STEPS = 1.6, 8
# More rows hardly say more about nats a row.
MAX_ROWS = 8192


@dataclass(frozen=True)
class Referee:
    """Log evidence of a kernel on all rows, by landmarks (Snelson & Ghahramani 2006).

    What landmarks miss of a row's variance is noise of that row: without it, rough kernels would seem worse than they
    are.

    - `x`, (n_rows, n_inputs).
    - `y`, (n_rows, n_outputs): the evidence is summed over outputs.
    - `sample_weight`, (n_rows,).
    - `rng`: chooses the landmarks, the same for all kernels.
    """

    x: FloatArray
    y: FloatArray
    sample_weight: FloatArray
    rng: np.random.Generator
    n_threads: int = 1

    @cached_property
    def _rows(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        order = self.rng.permutation(len(self.x))[:MAX_ROWS]
        rows = np.sort(order)
        return np.unique(self.x[order[:N_LANDMARKS]], axis=0), self.x[rows], self.y[rows], self.sample_weight[rows]

    def __call__(self, kernel: KernelHyperparameters) -> float:
        """Return the log evidence where it is largest in the noise, estimated from up to `MAX_ROWS` rows."""
        landmarks, x, _, _ = self._rows
        phi = NystroemFeatures.at(landmarks, kernel).transform(x, n_threads=self.n_threads)
        missing = np.maximum(kernel.diagonal(x) - np.einsum("ij,ij->i", phi, phi), 0.0)
        best = self.log_evidence(phi, missing, kernel.noise_variance)
        for factor in (NOISE_STEP, 1 / NOISE_STEP):
            for step in range(1, MOST_STEPS):
                value = self.log_evidence(phi, missing, kernel.noise_variance * factor**step)
                if value <= best:
                    break
                best = value
            if step > 1:
                break
        return best * len(self.x) / len(x)

    def log_evidence(self, phi: FloatArray, missing: FloatArray, noise: float) -> float:
        """Return the log evidence of the rows for features (n_rows, n_weights), what they miss (n_rows,) and noise."""
        _, _, y, weight = self._rows
        variance = noise / weight + missing
        scaled = phi / variance[:, None]
        precision = scaled.T @ phi
        precision[np.diag_indices_from(precision)] += 1.0
        factor = np.linalg.cholesky(precision)
        pulled = solve_triangular(factor, scaled.T @ y, lower=True)
        squares = np.sum(y**2 / variance[:, None]) - np.square(pulled).sum()
        log_determinant = np.log(2 * np.pi * variance).sum() + 2 * np.log(factor.diagonal()).sum()
        # A row that counts ω times has a density to the power of ω.
        spare = (1 - weight).sum() * np.log(2 * np.pi * noise) - np.log(weight).sum()
        return float(0.5 * (y.shape[1] * (spare - log_determinant) - squares))
