"""Optuna's parameters as columns of a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from pydirect.decisions.space import Column

# Integers with more values than these are searched as if they were continuous.
MANY_VALUES = 10_000


@dataclass(frozen=True)
class Parameter:
    """A parameter of Optuna as a column of a box.

    Numbers are divided by their range, of logarithms if asked for. Those with steps take up one step each, so that
    uniform numbers make all values equally likely.
    """

    distribution: BaseDistribution

    @property
    def column(self) -> Column:
        """The column: with levels where the parameter has steps."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return Column(np.arange(float(len(d.choices))), is_category=True)
        assert isinstance(d, FloatDistribution | IntDistribution)
        if d.step is None:
            return Column()
        n = round((d.high - d.low) / d.step) + 1
        if n > MANY_VALUES:
            return Column()
        return Column(np.array([self._to_unit(d.low + k * d.step) for k in range(n)]))

    def to_unit(self, value: Any) -> float:
        """Return a value's number in the box."""
        internal = self.distribution.to_internal_repr(value)
        return internal if isinstance(self.distribution, CategoricalDistribution) else self._to_unit(internal)

    def from_unit(self, u: float) -> Any:
        """Return the value at a number of the box."""
        d = self.distribution
        if isinstance(d, CategoricalDistribution):
            return d.to_external_repr(u)
        assert isinstance(d, FloatDistribution | IntDistribution)
        low, high = self._ends
        scaled = low + u * (high - low)
        value = math.exp(scaled) if d.log else scaled
        if d.step is not None:
            value = d.low + d.step * round((value - d.low) / d.step)
        return d.to_external_repr(min(max(value, d.low), d.high))

    @property
    def _ends(self) -> tuple[float, float]:
        """Ends of the range, or of its logarithms, half a step beyond the last values."""
        d = self.distribution
        assert isinstance(d, FloatDistribution | IntDistribution)
        half = 0.0 if d.step is None else 0.5 * d.step
        low, high = d.low - half, d.high + half
        return (math.log(low), math.log(high)) if d.log else (low, high)

    def _to_unit(self, value: float) -> float:
        low, high = self._ends
        d = self.distribution
        assert isinstance(d, FloatDistribution | IntDistribution)
        return ((math.log(value) if d.log else value) - low) / (high - low)
