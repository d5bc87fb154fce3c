"""Anderson acceleration of fixed-point iterations."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray


class Anderson:
    """Anderson's acceleration of a fixed-point iteration (Walker & Ni 2011).

    - `memory`: number of earlier steps that are combined with the last one.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.steps: list[tuple[FloatArray, FloatArray]] = []  # images of points, and how far each lies from its point

    def extrapolated(self, point: FloatArray, image: FloatArray) -> FloatArray:
        """Combine the last images so that the same combination of their steps is shortest."""
        self.steps = [*self.steps[-self.memory :], (image, image - point)]
        if len(self.steps) == 1:
            return image
        images, residuals = (np.diff(np.stack(a), axis=0) for a in zip(*self.steps, strict=True))
        gram = residuals @ residuals.T
        gram[np.diag_indices_from(gram)] *= 1 + 1e-10
        share = np.linalg.lstsq(gram, residuals @ self.steps[-1][1], rcond=1e-14)[0]
        return np.asarray(image - share @ images)
