"""`FittedMixed`: a function of the columns and random effects of groups as frozen data that predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.fitted.regression import Latent, OfLatent
from pydirect.linear.random_effects import RandomEffects, with_ones
from pydirect.persistence.schema import Positive, Shape
from pydirect.statistics.gaussian import blocks_of, weighted_location_scale


@dataclass(frozen=True, eq=False)
class EffectColumns:
    """z: a one, and the standardised encoded columns whose slopes differ between the groups."""

    slopes: Annotated[NDArray[np.intp], Shape("n_slopes*")]
    mean: Annotated[FloatArray, Shape("n_slopes*")]
    unit: Annotated[FloatArray, Shape("n_effects"), Positive]

    @classmethod
    def of(cls, x: FloatArray, slopes: NDArray[np.intp], weight: FloatArray) -> Self:
        mean, scale = weighted_location_scale(x[:, slopes], weight)
        return cls(slopes, mean, np.append(1.0, np.where(scale > 0, scale, 1.0)))

    def at(self, x: FloatArray) -> FloatArray:
        return np.column_stack([np.ones(len(x)), x[:, self.slopes] - self.mean]) / self.unit


@dataclass(frozen=True, eq=False, repr=False)
class FittedMixed(OfLatent):
    """Standardised targets (y − intercept) / scale are f + zᵀb, z being the `EffectColumns`."""

    one_dimensional: ClassVar[bool] = True

    latent: Latent
    intercept: float
    scale: Annotated[float, Positive]
    groups: Annotated[NDArray[Any], Shape("n_groups")]
    columns: EffectColumns
    effects: RandomEffects
    noise: Annotated[float, Positive]
    n_samples: Annotated[float, Positive]

    @property
    def elbo_units(self) -> FloatArray:
        return np.array([self.n_samples * np.log(self.scale)])

    @property
    def noise_variance(self) -> float:
        """Variance of the noise, in squared units of y."""
        return self.scale**2 * self.noise

    @property
    def group_variance(self) -> FloatArray:
        """Variances of the effects, in squared units of y and of it by those of a slope's column."""
        return np.asarray(self.noise_variance / self.effects.ratio / self.columns.unit**2)

    def number_of(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        """Numbers of the groups of labels, −1 for new ones."""
        if (labels.dtype.kind == "U") != (self.groups.dtype.kind == "U"):
            raise TypeError(f"groups must be {'text' if self.groups.dtype.kind == 'U' else 'numbers'}, as in fit")
        place = np.minimum(np.searchsorted(self.groups, labels), len(self.groups) - 1)
        return np.where(self.groups[place] == labels, place, -1)

    def _moments(self, phi: FloatArray, z: FloatArray, group: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        return self.effects.moments(self.posteriors[0], float(self.latent.prior_scale[0]), self.noise, phi, z, group)

    def predict(self, x: FloatArray, group: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of y at encoded rows of groups."""
        mean, variance = np.empty((2, len(x)))
        for rows in blocks_of(len(x), 3 * self.latent.n_columns):
            inputs, phi = self.latent.phi(x[rows])
            mean[rows], variance[rows] = self._moments(with_ones(phi), self.columns.at(x[rows]), group[rows])
            variance[rows] += self.noise + self.latent.beyond(inputs, phi)[:, 0]
        return self.intercept + self.scale * mean, self.scale * np.sqrt(variance)

    def effects_of_groups(self) -> tuple[FloatArray, FloatArray]:
        """Posterior means and deviations of every group's effects, (n_groups, n_effects), in units of y and columns."""
        mean, std = np.empty((2, *self.effects.effect.shape))
        for rows in blocks_of(len(mean), 3 * self.latent.n_columns):
            group = np.arange(len(mean))[rows]
            none = np.zeros((len(group), len(self.effects.tilt)))
            for k, unit in enumerate(np.eye(mean.shape[1])):
                found = self._moments(none, np.tile(unit, (len(group), 1)), group)
                mean[rows, k], std[rows, k] = found[0], np.sqrt(found[1])
        return self.scale / self.columns.unit * mean, self.scale / self.columns.unit * std

    def effects_left_out(
        self, y: FloatArray, weight: FloatArray, group: NDArray[np.intp], same: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of intercepts given y less f: of groups and a new one, (n_groups + 1, 2), and at rows.

        A row, of (n_rows, 2), is left out of the latter, with all of the same number.
        """

        def moments(n: Any, s: Any) -> FloatArray:
            return np.stack([s, np.full_like(s, self.noise)], axis=1) / (n + self.effects.ratio)[:, None]

        each = (weight, weight * y)
        whole = np.array([np.bincount(group, own, minlength=len(self.groups) + 1) for own in each])
        return moments(*whole), moments(*(whole[:, group] - [np.bincount(same, own)[same] for own in each]))
