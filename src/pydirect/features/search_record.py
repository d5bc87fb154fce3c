"""What a search of hyperparameters has tried, kept with the features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.kernel import PAIRS, SMOOTHNESS, SQUARED_EXPONENTIAL
from pydirect.features.race import RaceRun
from pydirect.features.screen import RELEVANT
from pydirect.persistence.schema import AtLeast, OneOf, Shape

# Nats that parts of axes must gain, by `product_order`, and nats a row: with a product that gained 11 on 1000 rows,
# errors on a table grew by 4 %, with pairs that gained 27 on 280, densities fell by .07 nats a row.
AXES_MARGINS = {0: (10.0, 0.02), PAIRS: (30.0, 0.04)}


def axes_margin(n_rows: int, order: int) -> float:
    """Return the nats that a part of axes must gain on so many rows."""
    least, per_row = AXES_MARGINS[order]
    return max(least, per_row * n_rows)


def unpursued(gains: Mapping[int, float], chosen: int | None, n_rows: int) -> dict[int, float]:
    """Return gains of parts of axes, of which only the chosen one, if any, was pursued: no other is a winner."""
    return {each: gain if each == chosen else min(gain, axes_margin(n_rows, each)) for each, gain in gains.items()}


def best_axes(gains: Mapping[int, float], n_rows: int) -> int | None:
    """Return the `product_order` of the part of axes that gains most beyond its margin; None if none does."""
    beyond = {order: gain - axes_margin(n_rows, order) for order, gain in gains.items()}
    order = max(beyond, key=lambda each: beyond[each], default=None)
    return None if order is None or beyond[order] <= 0 else order


@dataclass(frozen=True, eq=False, repr=False)
class HyperparameterSearch:
    """Record of a search of hyperparameters; all values are logarithms, the largest is the best.

    - `scores` (n_columns,): effect of each column on the targets as a normal deviate; zeros if rows were too few.
    - `start_values` (n_starts,): posterior density at the end of each start, on the rows of the race.
    - `smoothness_values` (0,), (3,) or (4,): the same for ν = 1/2, 3/2, 5/2, ∞ where tried, from the best start.
    - `nearest_starts`, `nearest_values` (n_nearest,): the same by nearest-preceding evidence, empty if not asked.
    - `product_gain`, `pairs_gain`: nats by which a product over axes, or over pairs of them, in place of the isotropic
      part raised the density on the rows of the search; None where it was not tried.
    - `n_rows`: rows of the race, those on which parts of axes were compared, and all distinct rows.
    """

    columns: Annotated[NDArray[np.intp], Shape("n_columns")]
    scores: Annotated[FloatArray, Shape("n_columns")]
    starts: Annotated[tuple[str, ...], Shape("n_starts")]
    start_values: Annotated[FloatArray, Shape("n_starts")]
    smoothness_values: Annotated[FloatArray, Shape("0 or 3 or 4")]
    nearest_starts: Annotated[tuple[str, ...], Shape("n_nearest*")]
    nearest_values: Annotated[FloatArray, Shape("n_nearest*")]
    smoothness: Annotated[float, OneOf(*SMOOTHNESS, SQUARED_EXPONENTIAL)]
    n_rows: tuple[int, int, int]
    n_evaluations: Annotated[int, AtLeast(0)]
    product_gain: float | None = None
    pairs_gain: float | None = None

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        raced: Sequence[RaceRun],
        smoothness: float,
        n_rows: tuple[int, int, int],
        tried: Sequence[RaceRun],
        gains: Mapping[int, float],
        shaped: Sequence[RaceRun] = (),
        near: Sequence[RaceRun] = (),
    ) -> Self:
        """Return the record of the runs of the race, of all that were tried, and of those in between."""
        starts, nearest = (tuple(run.name for run in runs) for runs in (raced, near))
        of_start, of_shape, of_nearest = (-np.array([run.value for run in runs]) for runs in (raced, shaped, near))
        values = starts, of_start, of_shape, nearest, of_nearest
        n_evaluations, axes_gains = sum(run.n_evaluations for run in tried), (gains.get(0), gains.get(PAIRS))
        return cls(np.arange(len(scores)), scores, *values, smoothness, n_rows, n_evaluations, *axes_gains)

    @property
    def relevant(self) -> np.ndarray:
        """Columns of X that the screen has found relevant."""
        found: np.ndarray = self.columns[self.scores > RELEVANT]
        return found

    @property
    def axes_gains(self) -> dict[int, float]:
        """Gains of the parts of axes that were tried, by `product_order`."""
        gains = {0: self.product_gain, PAIRS: self.pairs_gain}
        return {order: gain for order, gain in gains.items() if gain is not None}

    @property
    def axes_chosen(self) -> int | None:
        """The `product_order` of the part of axes that gained most beyond its margin; None if none did."""
        return best_axes(self.axes_gains, self.n_rows[1])

    def __repr__(self) -> str:
        few, many, n = self.n_rows
        found = ", ".join(map(str, self.relevant[:12])) + (", …" if len(self.relevant) > 12 else "")
        lines = [
            f"HyperparameterSearch: {self.n_evaluations} evaluations on {few} and {many} of {n} rows",
            f"  columns screened in: {found or 'none'}",
            f"  starts: {_best_of(self.starts, self.start_values)}",
        ]
        if self.smoothness_values.size:
            values = " ".join(
                f"{v:g}: {e:.1f}" for v, e in zip((*SMOOTHNESS, np.inf), self.smoothness_values, strict=False)
            )
            lines.append(f"  smoothness: {values}; 1.5 unless another clearly gains")
        for order, name in ((0, "product over axes"), (PAIRS, "pairs of axes")):
            gain, margin = self.axes_gains.get(order), axes_margin(many, order)
            if gain is not None:
                verdict = "chosen" if order == self.axes_chosen else "not chosen"
                told = f"{gain:+.1f}; {verdict} (it must gain more than {margin:g})"
                lines.append(f"  {name} in place of the isotropic part: {told}")
        if self.nearest_starts:
            lines.append(f"  by nearest-preceding evidence: {_best_of(self.nearest_starts, self.nearest_values)}")
        return "\n".join(lines)


def _best_of(starts: tuple[str, ...], values: FloatArray) -> str:
    tried = ", ".join(f"{s} {v:.1f}" for s, v in zip(starts, values, strict=True))
    return f"{tried}; best: {starts[int(values.argmax())]}"
