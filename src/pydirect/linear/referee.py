"""The evidence of all rows for a kernel, by few landmarks: a referee between results of searches on subsets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures
from pydirect.linear.evidence import log_evidence, maximise_evidence
from pydirect.statistics.gaussian import collect_statistics
from pydirect.statistics.rotated import decorrelate

N_LANDMARKS = 300
# More rows hardly say more about nats a row.
MAX_ROWS = 8192


@dataclass(frozen=True)
class Referee:
    """Log evidence of a kernel's Nyström features on all rows, where it is largest in the noise and the prior's scale.

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
        """Return the log evidence, estimated from up to `MAX_ROWS` rows."""
        landmarks, x, y, weight = self._rows
        features = NystroemFeatures.at(landmarks, kernel)
        rotated = decorrelate(collect_statistics(features, x, y, weight, n_threads=self.n_threads))
        total = 0.0
        for k in range(y.shape[1]):
            target = rotated.target(k)
            noise, scale = maximise_evidence(target, kernel.noise_variance)
            total += log_evidence(target, noise, scale)[0]
        return total * len(self.x) / len(x)
