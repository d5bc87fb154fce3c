"""`Units`: location, scale and transform that take targets to what a model sees, and its predictions back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from pydirect._validation import FloatArray
from pydirect.persistence.schema import Positive, Shape
from pydirect.predictive.transformed import TargetTransform
from pydirect.statistics.location_scale import weighted_location_scale

LARGEST_TARGET = 1e90


@dataclass(frozen=True, eq=False)
class Units:
    """z = (g(y) − location) / scale for every output; constant targets are exact zeros.

    ``log_derivative`` is Σ log g'(y) over the training rows, ``calibration`` a factor of all predictive deviations.
    """

    location: Annotated[FloatArray, Shape("n_outputs")]
    scale: Annotated[FloatArray, Shape("n_outputs"), Positive]
    one_dimensional: bool
    transform: TargetTransform | None = None
    log_derivative: Annotated[FloatArray, Shape("n_outputs")] | None = None
    calibration: Annotated[float, Positive] = 1.0

    def check(self) -> None:
        """Raise unless parts are of the same outputs."""
        if self.one_dimensional and self.n_outputs > 1:
            raise ValueError("one_dimensional must be False for several outputs")
        if self.transform is not None and len(self.transform.names) != self.n_outputs:
            raise ValueError("transform must be of the outputs")

    @classmethod
    def fit(
        cls,
        y: FloatArray,
        weight: FloatArray | None,
        one_dimensional: bool,
        transform: TargetTransform | None = None,
        reach: Callable[[FloatArray], FloatArray] | None = None,
    ) -> tuple[Self, FloatArray]:
        """Return units and the standardised targets, (n_rows, n_outputs); `reach` clips transformed targets first."""
        derivative = None
        if transform is not None:
            slopes = transform.log_derivative(y)
            derivative = slopes.sum(axis=0) if weight is None else weight @ slopes
            y = transform.forward(y)
        check_target_size(np.abs(y).max())
        y = y if reach is None else reach(y)
        location, spread = weighted_location_scale(y, weight)
        scale = np.where(spread > 0, spread, 1.0)
        units = cls(location, scale, one_dimensional, transform, derivative)
        return units, np.where(spread > 0, (y - location) / scale, 0.0)

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return len(self.scale)

    @property
    def active(self) -> TargetTransform | None:
        """The transform, unless it changes nothing."""
        return None if self.transform is None or self.transform.is_identity else self.transform

    @property
    def density_units(self) -> FloatArray:
        """Σ log g'(y) over the training rows, zero without a transform; (n_outputs,)."""
        return np.zeros(self.n_outputs) if self.log_derivative is None else self.log_derivative

    def calibrated(self, factor: float) -> Self:
        """Return the units with this factor of all predictive deviations."""
        return replace(self, calibration=factor)

    def standardised(self, y: FloatArray) -> FloatArray:
        """Targets (n_rows, n_outputs) as the model sees them."""
        return (self.transformed(y) - self.location) / self.scale

    def transformed(self, y: FloatArray) -> FloatArray:
        """Targets (n_rows, n_outputs) transformed, in their own scale."""
        return y if self.active is None else self.active.forward(y)

    def restored(self, values: FloatArray) -> FloatArray:
        """Map transformed values, whose second axis is that of the outputs, back to y."""
        return values if self.active is None else self.active.inverse(values)

    def shape(self, values: FloatArray) -> FloatArray:
        """Drop the axis of outputs where y has none."""
        return values[:, 0] if self.one_dimensional else values


def check_target_size(size: float) -> None:
    """Raise unless squares of targets stay finite."""
    if not size <= LARGEST_TARGET:
        raise ValueError(f"y must be at most {LARGEST_TARGET:g} in magnitude, got {size:g}")
