"""Sufficient statistics of standardised targets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from pydirect._validation import FloatArray, short_repr
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import RotatedStatistics, decorrelate
from pydirect.statistics.running import RunningStatistics

# Of targets from their mean: squares of smaller deviations lose digits, or vanish.
SMALLEST_DEVIATION = 1e-145


@dataclass
class Standardised:
    """Statistics of standardised targets, which models of one feature map can share.

    - `location`, `scale`, (n_outputs,): of the targets; the scale is 1 where they are constant.
    - `repetitions`: number of times that an average row counts.
    """

    location: FloatArray
    scale: FloatArray
    gaussian: GaussianStatistics
    repetitions: float

    __repr__ = short_repr

    @classmethod
    def of(cls, statistics: RunningStatistics, repetitions: float | None = None) -> Self:
        """Standardise the targets; by default weights count relative to each other alone."""
        location, scale = statistics.target_location_scale()
        _require_squares(statistics, scale)
        constant, scale = scale == 0, np.where(scale > 0, scale, 1.0)
        gaussian = statistics.gaussian(location, scale)
        gaussian.c[:, constant], gaussian.yty[constant] = 0.0, 0.0  # exact, as standardised targets are
        if repetitions is None:
            repetitions = statistics.n_samples / statistics.effective_rows
        return cls(location, scale, gaussian, repetitions)

    @cached_property
    def rotated(self) -> RotatedStatistics:
        """The same in the decorrelated basis."""
        return decorrelate(self.gaussian)


def _require_squares(statistics: RunningStatistics, scale: FloatArray) -> None:
    """Raise where squares of the targets' deviations leave the range of numbers.

    Where squares cannot show whether a target is constant, products with the features can: none is larger than the
    deviations of both allow.
    """
    spread = np.sqrt(statistics.n_samples * statistics.scatter.diagonal())
    used = spread > 0
    deviation = np.abs(statistics.cross[:, used] / spread[used]).max(axis=1, initial=0.0)
    noise = 20 * np.finfo(float).eps * np.abs(statistics.y_mean)
    deviation = np.where(scale > 0, scale, np.where(deviation > noise, deviation, 0.0))
    small = (deviation > 0) & (deviation < SMALLEST_DEVIATION)
    if small.any():
        raise ValueError(
            f"y must vary by at least {SMALLEST_DEVIATION:g} or not at all where only sums over rows are kept, got "
            f"{deviation[small][0]:.1g}: rescale it"
        )
