"""Missing numbers by the conditional mean of a Gaussian: the columns of a row that are known say what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, has_nan, short_repr
from pydirect.persistence.schema import AnyFinite, Positive, Shape
from pydirect.statistics.location_scale import weighted_location_scale

ROUNDS = 10
LARGEST = 1e50  # of standardised numbers, whose squares stay finite
RIDGE = 1e-3  # of the variances
MOST_ROWS = 10_000  # that the Gaussian is fitted to
MOST_COLUMNS = 300  # of a covariance matrix; the means of more are taken as independent
BLOCK_NUMBERS = 2**21  # in the small matrices of one block of rows


@dataclass(frozen=True)
class Gaps:
    """A Gaussian of the columns, whose conditional means stand for missing numbers.

    - `mean`, `scale`, (n_columns,): of the known numbers.
    - `centre`, (n_columns,): mean of the Gaussian in units of `scale` about `mean`.
    - `precision`, (n_columns, n_columns) or (0, 0): inverse covariance in these units; empty if columns are taken as
      independent.
    """

    mean: Annotated[FloatArray, Shape("n_known*"), AnyFinite]
    scale: Annotated[FloatArray, Shape("n_known*"), AnyFinite, Positive]
    centre: Annotated[FloatArray, Shape("n_known*")]
    precision: Annotated[FloatArray, Shape("n_known* or 0", "n_known* or 0")]

    __repr__ = short_repr

    @classmethod
    def fit(cls, x: FloatArray, weight: FloatArray | None) -> Self:
        """Fit to rows with NaN in them: ten rounds of conditional means and the moments of the rows they complete.

        With the conditional covariance of what was missing, these rounds are the EM algorithm for the Gaussian of
        largest likelihood (Little & Rubin 2019, section 11.2), but for a ridge of a thousandth of the variances.

        `x`, (n_rows, n_columns): NaN where a number is missing. `weight`, (n_rows,): how many times each row counts.
        """
        few, few_weights = x, weight
        if len(x) > MOST_ROWS:
            chosen = np.sort(np.random.default_rng(0).choice(len(x), MOST_ROWS, replace=False))
            few, few_weights = x[chosen], None if weight is None else weight[chosen]
        complete = not has_nan(x)
        mean, scale = _known_location_scale(few, few_weights) if complete else _known_location_scale(x, weight)
        d = x.shape[1]
        gaps = cls(mean, scale, np.zeros(d), np.empty((0, 0)))
        if not 0 < d <= MOST_COLUMNS:
            return gaps
        missing = np.isnan(few)
        z = gaps._units(few)
        with single_blas_thread():
            for _ in range(1 if complete else ROUNDS):
                gaps = gaps._step(z, missing, few_weights)
        return gaps

    def _units(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.clip((x - self.mean) / self.scale, -LARGEST, LARGEST)

    def _step(self, z: FloatArray, missing: NDArray[np.bool_], weight: FloatArray | None) -> Self:
        """Return the Gaussian of rows that this one completes."""
        completed, spread = self._completed(z, missing, weight)
        centre = np.average(completed, axis=0, weights=weight)
        deviation = completed - centre
        total = len(z) if weight is None else weight.sum()
        covariance = (deviation.T @ (deviation if weight is None else deviation * weight[:, None]) + spread) / total
        variance = covariance.diagonal().copy()
        covariance[np.diag_indices_from(covariance)] += np.where(variance > 0, RIDGE * variance, 1.0)
        return type(self)(self.mean, self.scale, centre, np.linalg.inv(covariance))

    def _completed(
        self, z: FloatArray, missing: NDArray[np.bool_], weight: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return rows with conditional means for what is missing, and the sum of their conditional covariances.

        With precision P and missing columns m, E[z_m | rest] = c_m − P_mm⁻¹ P_mo (z_o − c_o), covariance P_mm⁻¹.
        """
        d = z.shape[1]
        deviation = np.where(missing, 0.0, z - self.centre)
        spread = np.zeros((d, d))
        if self.precision.size:
            for rows, columns in _patterns(missing):
                pull = np.take_along_axis(deviation[rows] @ self.precision, columns, axis=1)
                own = np.linalg.inv(self.precision[columns[:, :, None], columns[:, None, :]])
                np.put_along_axis(part := deviation[rows], columns, -np.einsum("rij,rj->ri", own, pull), axis=1)
                deviation[rows] = part
                if weight is not None:
                    own = own * weight[rows, None, None]
                np.add.at(spread, (columns[:, :, None], columns[:, None, :]), own)
        return deviation + self.centre, spread

    def fill(self, x: FloatArray, missing: NDArray[np.bool_]) -> None:
        """Write conditional means into rows x where numbers are missing; `x`, `missing`, (n_rows, n_columns)."""
        touched = np.flatnonzero(missing.any(axis=1))
        lacking = missing[touched]
        with single_blas_thread():
            completed, _ = self._completed(self._units(x[touched]), lacking)
        rows, columns = np.nonzero(lacking)
        x[touched[rows], columns] = self.mean[columns] + self.scale[columns] * completed[rows, columns]


def _patterns(missing: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield rows that lack equally many numbers, in blocks, and the columns that each lacks."""
    count = missing.sum(axis=1)
    for k in np.unique(count[count > 0]):
        rows = np.flatnonzero(count == k)
        size = max(1, BLOCK_NUMBERS // int(k * k))
        for begin in range(0, len(rows), size):
            chosen = rows[begin : begin + size]
            yield chosen, np.nonzero(missing[chosen])[1].reshape(len(chosen), k)


def _known_location_scale(x: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return location and scale of the known numbers of each column; zero and one of a column without any."""
    if not np.isnan(x).any():
        mean, scale = weighted_location_scale(x, weight)
    else:
        mean, scale = np.zeros((2, x.shape[1]))
        for j, known in enumerate(~np.isnan(x).T):
            if known.any():
                found = weighted_location_scale(x[known, j, None], None if weight is None else weight[known])
                mean[j], scale[j] = found[0][0], found[1][0]
    return mean, np.where(scale > 0, scale, 1.0)
