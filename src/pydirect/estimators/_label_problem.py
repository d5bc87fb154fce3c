"""The problem that a classifier solves: rows with labels, in the directions about which they say anything."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from pydirect._validation import FloatArray
from pydirect.logistic.ascent import Ascent
from pydirect.logistic.gaussian import FullGaussian, VariancePrior
from pydirect.logistic.rows import LabelledRows
from pydirect.logistic.sharpness import sharpest
from pydirect.logistic.start import ascend_rows


@dataclass(frozen=True)
class LabelProblem:
    """Rows with labels, in the features and in the directions of them about which the rows say anything.

    - `raw`, `rotated`: the rows in the features and in the directions.
    - `vectors`, (n_weights, n_directions).
    - `ascent`: of continuous weights, when they have been fitted.
    - `precision_factor`: of A in the covariance of the weights.
    - `left_out`, (n_rows,): log probabilities of the labels, each left out; empty until then.
    """

    raw: LabelledRows
    rotated: LabelledRows
    vectors: FloatArray
    variance_prior: VariancePrior
    mean_missing_variance: float
    stop: threading.Event = field(default_factory=threading.Event)
    ascent: Ascent[FullGaussian] | None = None
    precision_factor: float = 1.0
    left_out: FloatArray = field(default_factory=lambda: np.empty(0))

    def at_rest(self, max_iter: int, near: Self | None = None) -> Self:
        """Return the problem with continuous weights fitted, from those of other features on."""
        start = None if near is None else near.ascent
        ascent = ascend_rows(self.rotated, self.variance_prior, max_iter=max_iter, stop=self.stop, near=start)
        [left_out] = self.rotated.left_out_log_probabilities(ascent.best.solution.latent)
        return replace(self, ascent=ascent, left_out=left_out)

    def sharpened(self) -> Self:
        """Return the problem with the precision by which several classes predict left-out labels best."""
        if self.raw.n_functions == 1 or self.ascent is None or self.stop.is_set():
            return self
        factor, left_out = sharpest(self.rotated, self.ascent)
        return replace(self, precision_factor=factor, left_out=left_out)

    @property
    def log_loss(self) -> float:
        """Mean −log probability of labels that are left out."""
        return -float(self.raw.weight @ self.left_out / self.raw.weight.sum())
