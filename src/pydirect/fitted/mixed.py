"""`FittedMixed`: a function of the columns and random effects of groups as frozen data that predicts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.fitted.regression import Latent, OfLatent
from pydirect.linear.random_effects import RandomEffects, in_columns, with_ones
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
    """Standardised targets (y − intercept) / scale are f + zᵀb, z being the `EffectColumns`.

    `groups`: labels of the groups of each factor, all of which but the first have intercepts only.
    """

    one_dimensional: ClassVar[bool] = True

    latent: Latent
    intercept: float
    scale: Annotated[float, Positive]
    factors: Annotated[tuple[Hashable, ...], Shape("n_factors")]  # names
    groups: Annotated[tuple[NDArray[Any], ...], Shape("n_factors")]
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
        q = len(self.columns.unit)
        ratio = self.effects.ratio[[*range(q), *q + self._first[:-1]]]
        return np.asarray(self.noise_variance / ratio / np.append(self.columns.unit, np.ones(len(ratio) - q)) ** 2)

    @property
    def _first(self) -> NDArray[np.intp]:
        """Numbers of the first levels of factors that are not the first, and of all their levels."""
        return np.cumsum([0, *(len(own) for own in self.groups[1:])])

    def number_of(self, labels: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
        """Numbers of the groups of labels of each factor, (n_rows, n_factors), −1 for new ones."""
        number = []
        for name, own, groups, first in zip(self.factors, labels, self.groups, [0, *self._first], strict=False):
            kinds = ["text" if kind.dtype.kind == "U" else "numbers" for kind in (groups, own)]
            if kinds[0] != kinds[1]:
                raise TypeError(f"groups must be {kinds[0]} in column {name!r}, as in fit, got {kinds[1]}")
            place = np.minimum(np.searchsorted(groups, own), len(groups) - 1)
            number.append(np.where(groups[place] == own, place + first, -1))
        return np.stack(number, axis=1)

    def _moments(self, *rows: Any) -> tuple[FloatArray, FloatArray]:
        return self.effects.moments(self.posteriors[0], float(self.latent.prior_scale[0]), self.noise, *rows)

    def predict(self, x: FloatArray, group: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of y at encoded rows of groups, (n_rows, n_factors), or (n_rows,) of one."""
        (mean, variance), first, group = np.empty((2, len(x))), self._first, group.reshape(len(x), len(self.groups))
        of_new = self.noise / self.effects.ratio[len(self.columns.unit) + first[:-1]]
        for rows in blocks_of(len(x), 3 * self.latent.n_columns + first[-1]):
            (inputs, phi), z, others = self.latent.phi(x[rows]), self.columns.at(x[rows]), group[rows, 1:]
            own, levels = group[rows, 0], in_columns(others, first[-1])
            mean[rows], variance[rows] = self._moments(with_ones(phi), z, own, levels)
            variance[rows] += self.noise + self.latent.beyond(inputs, phi)[:, 0] + (others < 0) @ of_new
        return self.intercept + self.scale * mean, self.scale * np.sqrt(variance)

    def effects_of_groups(self) -> list[FloatArray]:
        """Posterior means and deviations of each factor's effects, (2, n_groups, n_effects), in units of y, columns."""
        (n, q), first = self.effects.effect.shape, self._first
        found = np.empty((2, n * q + first[-1]))
        for rows in blocks_of(found.shape[1], 3 * self.latent.n_columns + first[-1]):
            group, k = np.divmod(np.arange(found.shape[1])[rows], q)
            level, phi = (group - n) * q + k, np.zeros((len(k), len(self.effects.tilt)))
            z, levels = np.eye(q)[k] * (level < 0)[:, None], in_columns(level[:, None], first[-1])
            found[:, rows] = self._moments(phi, z, np.where(level < 0, group, -1), levels)
        found[1] = np.sqrt(found[1])
        units = [self.columns.unit, *np.ones((len(first) - 1, 1))]
        parts = zip(units, np.split(found, n * q + first[:-1], axis=1), strict=True)
        return [self.scale / unit * own.reshape(2, -1, len(unit)) for unit, own in parts]
