"""What a search of hyperparameters has tried, kept with the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.kernel import SMOOTHNESS
from pydirect.features.screen import RELEVANT
from pydirect.persistence.schema import AtLeast, OneOf, Shape

# Nats that a part of axes must gain, and nats a row: with 11 on 1000 rows, errors on a table grew by 4 %.
AXES_MARGIN, AXES_MARGIN_PER_ROW = 10.0, 0.02


def axes_margin(n_rows: int) -> float:
    """Return the nats that a part of axes must gain on so many rows."""
    return max(AXES_MARGIN, AXES_MARGIN_PER_ROW * n_rows)


@dataclass(frozen=True, eq=False, repr=False)
class HyperparameterSearch:
    """Record of a search of hyperparameters; all values are logarithms, the largest is the best.

    - `scores` (n_columns,): effect of each column on the targets as a normal deviate; zeros if rows were too few.
    - `start_values` (n_starts,): posterior density at the end of each start, on the rows of the race.
    - `smoothness_values` (3,) or (0,): the same for ν = 1/2, 3/2, 5/2, from the best start.
    - `nearest_starts`, `nearest_values` (n_nearest,): the same by nearest-preceding evidence, empty if not asked.
    - `evidences` (2,) or (0,): evidence of all rows for the results of exact and of nearest-preceding evidence.
    - `product_gain`, `pairs_gain`: nats by which a product over axes, or over pairs of them, in place of the isotropic
      part raised the density on the rows of the search; None where it was not tried.
    - `n_rows`: rows of the race, of the search that followed, and all distinct rows.
    """

    columns: Annotated[NDArray[np.intp], Shape("n_columns")]
    scores: Annotated[FloatArray, Shape("n_columns")]
    starts: Annotated[tuple[str, ...], Shape("n_starts")]
    start_values: Annotated[FloatArray, Shape("n_starts")]
    smoothness_values: Annotated[FloatArray, Shape(f"{len(SMOOTHNESS)} or 0")]
    nearest_starts: Annotated[tuple[str, ...], Shape("n_nearest*")]
    nearest_values: Annotated[FloatArray, Shape("n_nearest*")]
    evidences: Annotated[FloatArray, Shape("2 or 0")]
    smoothness: Annotated[float, OneOf(*SMOOTHNESS)]
    n_rows: tuple[int, int, int]
    n_evaluations: Annotated[int, AtLeast(0)]
    product_gain: float | None = None
    pairs_gain: float | None = None

    @property
    def relevant(self) -> np.ndarray:
        """Columns of X that the screen has found relevant."""
        found: np.ndarray = self.columns[self.scores > RELEVANT]
        return found

    @property
    def nearest_gain(self) -> float:
        """Nats a row by which the evidence of all rows is larger for the result of nearest-preceding evidence."""
        return float(self.evidences[1] - self.evidences[0]) / self.n_rows[2] if self.evidences.size else 0.0

    def __repr__(self) -> str:
        few, many, n = self.n_rows
        found = ", ".join(map(str, self.relevant[:12])) + (", …" if len(self.relevant) > 12 else "")
        lines = [
            f"HyperparameterSearch: {self.n_evaluations} evaluations on {few} and {many} of {n} rows",
            f"  columns screened in: {found or 'none'}",
            f"  starts: {_best_of(self.starts, self.start_values)}",
        ]
        if self.smoothness_values.size:
            values = " ".join(f"{v:g}: {e:.1f}" for v, e in zip(SMOOTHNESS, self.smoothness_values, strict=True))
            lines.append(f"  smoothness: {values}; 1.5 unless another clearly gains")
        margin, gains = axes_margin(many), {"product over axes": self.product_gain, "pairs of axes": self.pairs_gain}
        tried = {name: gain for name, gain in gains.items() if gain is not None}
        for name, gain in tried.items():
            verdict = "chosen" if gain > margin and gain == max(tried.values()) else "not chosen"
            lines.append(
                f"  {name} in place of the isotropic part: {gain:+.1f}; {verdict} (it must gain more than {margin:g})"
            )
        if self.evidences.size:
            values = ", ".join(f"{v:.1f}" for v in self.evidences)
            lines += [
                f"  starts by nearest-preceding evidence: {_best_of(self.nearest_starts, self.nearest_values)}",
                f"  evidence of all rows for the two results: {values}; smoothness: {self.smoothness:g}",
            ]
        return "\n".join(lines)


def _best_of(starts: tuple[str, ...], values: FloatArray) -> str:
    tried = ", ".join(f"{s} {v:.1f}" for s, v in zip(starts, values, strict=True))
    return f"{tried}; best: {starts[int(values.argmax())]}"
