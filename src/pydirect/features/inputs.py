"""Preprocessing of inputs: standardised columns, optionally together with their normal scores (rank transform).

The target is often a simple function of one of the two forms of a column with heavy tails, clusters or a curved scale;
with length-scales per column, the marginal likelihood chooses between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pydirect import _core
from pydirect._dense import product
from pydirect._validation import FloatArray, short_repr
from pydirect.persistence.schema import AnyFinite, Ascending, Indices, Limits, Positive, Shape
from pydirect.statistics.gaussian import weighted_location_scale

# Largest number of knots of a column's normal scores: enough for any shape, few enough to store.
MAX_KNOTS = 512
# Largest magnitude of inputs to features: squares of the features, in the units of any target, stay finite.
LARGEST = 1e50
# Share of the rows that may be gross errors, in no fewer rows than that, and share of the variance that they leave.
FEW_ROWS, FEWEST_ROWS = 0.01, 20
NEGLIGIBLE_SHARE = 1e-3
# Directions of standardised inputs that carry less than this, relative to the largest, may be rounding alone.
SMALLEST_SINGULAR_VALUE = 1e-6


@dataclass(frozen=True)
class InputMap:
    """Standardisation of the columns in `kept`, with normal scores of those in `scored` appended on request.

    `mean` and `scale` are of all columns; indicators of one column of categories share theirs. `knots` and `scores`
    (n_scored, n_knots) are ascending values and their standardised normal scores, padded with the last.
    """

    mean: Annotated[FloatArray, Shape("n_features_in"), AnyFinite]
    scale: Annotated[FloatArray, Shape("n_features_in"), AnyFinite, Positive]
    kept: Annotated[NDArray[np.intp], Shape("n_kept*"), Indices("n_features_in")]
    knots: Annotated[FloatArray, Shape("n_scored*", "n_knots*"), AnyFinite, Ascending]
    scores: Annotated[FloatArray, Shape("n_scored*", "n_knots*"), Limits(LARGEST)]
    scored: Annotated[NDArray[np.intp], Shape("n_scored*")]

    __repr__ = short_repr

    @property
    def n_features_in(self) -> int:
        """Columns that go in."""
        return len(self.mean)

    @property
    def n_outputs(self) -> int:
        """Columns that come out."""
        return len(self.kept) + len(self.knots)

    @property
    def n_standardised(self) -> int:
        """Number of leading columns that are standardised inputs."""
        return len(self.kept)

    @property
    def axes(self) -> NDArray[np.intp]:
        """Outputs that have every kept column once: its normal scores or, where it has none, the column itself."""
        unscored = np.flatnonzero(~np.isin(self.kept, self.scored))
        return np.concatenate([unscored, self.n_standardised + np.arange(len(self.knots))])

    @property
    def forms(self) -> NDArray[np.intp]:
        """Number among the kept columns of the one that each output is a form of, (n_outputs,)."""
        return np.concatenate([np.arange(self.n_standardised), np.searchsorted(self.kept, self.scored)])

    @classmethod
    def fit(
        cls,
        x: FloatArray,
        sample_weight: FloatArray | None,
        *,
        rank: bool | None,
        groups: NDArray[np.intp] | None = None,
        unscored: NDArray[np.intp] | None = None,
    ) -> InputMap:
        """Fit the standardisation, and the normal scores on request, to the training rows.

        With `rank` None, only columns have scores in which a few rows carry nearly all variance; `unscored` never do.
        """
        mean, scale = weighted_location_scale(x, sample_weight)
        kept = np.flatnonzero(scale > 0)
        if groups is not None:
            scale = _shared_scales(scale, groups)
        scale = np.where(scale > 0, scale, 1.0)
        weight = np.ones(len(x)) if sample_weight is None else sample_weight
        scored = kept if rank else [j for j in kept if rank is None and _is_gross(x[weight > 0, j])]
        scored = np.setdiff1d(scored, [] if unscored is None else unscored).astype(np.intp)
        columns = {j: _normal_scores(x[:, j], weight) for j in scored.tolist()}
        columns = {j: (knots, scores) for j, (knots, scores) in columns.items() if len(knots) > 2}
        width = max((len(knots) for knots, _ in columns.values()), default=0)
        padded = [[np.pad(a, (0, width - len(a)), mode="edge") for a in column] for column in columns.values()]
        knots, scores = np.ascontiguousarray(np.reshape(padded, (len(columns), 2, width)).swapaxes(0, 1))
        return cls(mean, scale, kept, knots, scores, np.array(list(columns), dtype=np.intp))

    @classmethod
    def identity(cls, n_features_in: int) -> InputMap:
        """Return the map that changes nothing."""
        d = n_features_in
        return cls(np.zeros(d), np.ones(d), np.arange(d), np.empty((0, 0)), np.empty((0, 0)), np.arange(0))

    def tied(self, groups: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return a number from 0 for each output, (n_outputs,), in their order, the same for indicators of one group.

        `groups`, (n_features_in,): as in `fit`.
        """
        own = np.where(groups < 0, groups.max(initial=-1) + 1 + np.arange(len(groups)), groups)[self.kept]
        _, first, where = np.unique(own, return_index=True, return_inverse=True)
        number = np.argsort(np.argsort(first))[where]
        return np.concatenate([number, len(first) + np.arange(len(self.knots))])

    def transform(self, x: FloatArray) -> FloatArray:
        """Return the standardised kept columns, then their normal scores; (n_rows, n_outputs)."""
        out = np.empty((len(x), self.n_outputs))
        x = np.ascontiguousarray(x, dtype=np.float64)
        standardised = self.kept, self.mean, self.scale, LARGEST
        _core.map_inputs(x, *standardised, self.scored, self.knots, self.scores, out)
        return out

    def check(self) -> None:
        """Raise unless the columns with normal scores are kept ones, with knots."""
        if not np.isin(self.scored, self.kept).all():
            raise ValueError("scored must be kept columns")
        if (self.knots.shape[0] == 0) != (self.knots.shape[1] == 0):
            raise ValueError("knots must be of every column with normal scores")


@dataclass(frozen=True)
class InputRotation:
    """Linear map of standardised columns.

    - `matrix`, (n_inputs, n_outputs).
    """

    matrix: Annotated[FloatArray, Shape("n_columns*", "n_rotated")]

    __repr__ = short_repr

    @classmethod
    def whitening(cls, x: FloatArray, sample_weight: FloatArray | None) -> InputRotation:
        """Return the map to principal axes of unit variance; directions without variance, up to rounding, are dropped.

        `x`, (n_samples, n_inputs): columns of mean zero. `sample_weight`, (n_samples,).
        """
        scaled = x if sample_weight is None else x * np.sqrt(sample_weight)[:, None]
        total = len(x) if sample_weight is None else sample_weight.sum()
        # Singular values of the rows, not eigenvalues of their products, which would lose half of the digits.
        _, singular, axes = np.linalg.svd(scaled / np.sqrt(total), full_matrices=False)
        kept = singular > SMALLEST_SINGULAR_VALUE * singular.max(initial=0.0)
        # Axes are unique up to their signs: the largest component is made positive.
        axes = axes[kept]
        if axes.size:
            axes *= np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1))
        return cls(np.ascontiguousarray(axes.T / singular[kept]))

    @classmethod
    def identity(cls, n_inputs: int) -> InputRotation:
        """Return the map that changes nothing."""
        return cls(np.eye(n_inputs))

    @property
    def n_outputs(self) -> int:
        """Columns that come out."""
        return self.matrix.shape[1]

    def transform(self, x: FloatArray) -> FloatArray:
        """Return ``x @ matrix``, (n_rows, n_outputs)."""
        return np.asarray(product(x, self.matrix))


def _shared_scales(scale: FloatArray, groups: NDArray[np.intp]) -> FloatArray:
    """Return the deviations of columns, of indicators that of their whole group: the root of Σ p(1 − p)."""
    own = groups >= 0
    total = np.bincount(groups[own], scale[own] ** 2, minlength=groups.max(initial=-1) + 1)
    shared = scale.copy()
    shared[own] = np.sqrt(total[groups[own]])
    return shared


def _is_gross(column: FloatArray) -> bool:
    """Whether the rest of a column has next to no variance beside `FEW_ROWS` of its rows."""
    n_few = max(1, int(FEW_ROWS * len(column)))
    if len(column) < FEWEST_ROWS:
        return False
    away = np.abs(column - np.median(column))
    away = np.partition(away / (away.max() or 1.0), len(away) - n_few)
    rest = float(np.square(away[:-n_few]).sum())
    return 0 < rest < NEGLIGIBLE_SHARE * float(np.square(away).sum())


def within_others(x: FloatArray) -> FloatArray:
    """Return rows (n_rows, n_columns) whose few gross numbers are as far from the median as others are at most."""
    x, n_few = x.copy(), max(1, int(FEW_ROWS * len(x)))
    for column in filter(_is_gross, x.T):
        centre = np.median(column)
        reach = np.sort(np.abs(column - centre))[-1 - n_few]
        np.clip(column, centre - reach, centre + reach, out=column)
    return x


def _normal_scores(column: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most `MAX_KNOTS` distinct values and their standardised mid-rank normal scores."""
    values, where = np.unique(column[weight > 0], return_inverse=True)
    mass = np.bincount(where, weights=weight[weight > 0])
    below = np.cumsum(mass)
    scores = ndtri((below - 0.5 * mass) / below[-1])
    centre = np.average(scores, weights=mass)
    spread = np.sqrt(np.average((scores - centre) ** 2, weights=mass))
    scores = (scores - centre) / (spread if spread > 0 else 1.0)
    if len(values) > MAX_KNOTS:
        chosen = np.unique(np.searchsorted(below, np.linspace(0, below[-1], MAX_KNOTS)).clip(0, len(values) - 1))
        values, scores = values[chosen], scores[chosen]
    return values, scores
