"""Preprocessing of inputs: standardised columns, optionally together with their normal scores (rank transform).

The target is often a simple function of one of the two forms of a column with heavy tails, clusters or a curved scale;
with length-scales per column, the marginal likelihood chooses between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pydirect import _core
from pydirect._validation import FloatArray, short_repr
from pydirect.persistence.fields import require_array, require_positive

# Largest number of knots of a column's normal scores: enough for any shape, few enough to store.
MAX_KNOTS = 512
# Largest magnitude of inputs to features: squares of the features, in the units of any target, stay finite.
LARGEST = 1e50
# Directions of standardised inputs that carry less than this, relative to the largest, may be rounding alone.
SMALLEST_SINGULAR_VALUE = 1e-6


@dataclass(frozen=True)
class InputMap:
    """Standardisation of columns, with normal scores appended on request.

    Parameters
    ----------
    mean, scale : ndarray of shape (n_features_in,)
        Location and unit of each column; indicators of one column of categories share theirs.
    kept : ndarray of int, shape (n_kept,)
        Columns that are not constant.
    knots, scores : ndarray of shape (n_scored, n_knots) or (0, 0)
        Values of each column with normal scores, ascending, and these scores, standardised; padded with the last if a
        column has fewer.
    scored : ndarray of int, shape (n_scored,)
        Columns with normal scores: kept ones of more than two values, as the scores of two are these values again.
    """

    mean: FloatArray
    scale: FloatArray
    kept: NDArray[np.intp]
    knots: FloatArray
    scores: FloatArray
    scored: NDArray[np.intp]

    __repr__ = short_repr

    @property
    def n_outputs(self) -> int:
        """Columns that come out."""
        return len(self.kept) + len(self.knots)

    @property
    def n_standardised(self) -> int:
        """Number of leading columns that are standardised inputs."""
        return len(self.kept)

    @classmethod
    def fit(
        cls,
        x: FloatArray,
        sample_weight: FloatArray | None,
        *,
        rank: bool,
        groups: NDArray[np.intp] | None = None,
    ) -> InputMap:
        """Fit the standardisation, and the normal scores on request, to the training rows.

        Parameters
        ----------
        x : ndarray of shape (n_samples, n_features_in)
            Rows of inputs.
        sample_weight : ndarray of shape (n_samples,) or None
            How many times each row counts; None for once.
        rank : bool
            Whether to append the normal scores.
        groups : ndarray of int, shape (n_features_in,), optional
            Equal numbers from 0 for the indicators of one column of categories, −1 for numbers. Together, indicators
            have variance one as a column of numbers has, and all of their categories are equally far apart; else many
            rare ones would drown the other columns.
        """
        mean, scale = weighted_location_scale(x, sample_weight)
        kept = np.flatnonzero(scale > 0)
        if groups is not None:
            scale = _shared_scales(scale, groups)
        scale = np.where(scale > 0, scale, 1.0)
        weight = np.ones(len(x)) if sample_weight is None else sample_weight
        columns = {int(j): _normal_scores(x[:, j], weight) for j in kept} if rank else {}
        columns = {j: (knots, scores) for j, (knots, scores) in columns.items() if len(knots) > 2}
        if not columns:
            return cls(mean, scale, kept, np.empty((0, 0)), np.empty((0, 0)), np.empty(0, dtype=np.intp))
        width = max(len(knots) for knots, _ in columns.values())
        padded = [[np.pad(a, (0, width - len(a)), mode="edge") for a in column] for column in columns.values()]
        knots, scores = (np.stack(part) for part in zip(*padded, strict=True))
        return cls(mean, scale, kept, knots, scores, np.array(list(columns), dtype=np.intp))

    @classmethod
    def identity(cls, n_features_in: int) -> InputMap:
        """Return the map that changes nothing.

        Parameters
        ----------
        n_features_in : int
            Number of columns.
        """
        d = n_features_in
        return cls(np.zeros(d), np.ones(d), np.arange(d), np.empty((0, 0)), np.empty((0, 0)), np.arange(0))

    def tied(self, groups: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return a number from 0 for each output, (n_outputs,), in their order, the same for indicators of one group.

        `groups`, (n_features_in,): as in `fit`.

        Parameters
        ----------
        groups : ndarray of int of shape (n_features_in,)
            Number of the group of every column, as in `fit`.

        Returns
        -------
        ndarray of int of shape (n_outputs,)
            Numbers of the groups.
        """
        own = np.where(groups < 0, groups.max(initial=-1) + 1 + np.arange(len(groups)), groups)[self.kept]
        _, first, where = np.unique(own, return_index=True, return_inverse=True)
        number = np.argsort(np.argsort(first))[where]
        return np.concatenate([number, len(first) + np.arange(len(self.knots))])

    def transform(self, x: FloatArray) -> FloatArray:
        """Return the standardised kept columns, then their normal scores; (n_rows, n_outputs).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            Inputs of the feature map.
        """
        out = np.empty((len(x), self.n_outputs))
        x = np.ascontiguousarray(x, dtype=np.float64)
        standardised = self.kept, self.mean, self.scale, LARGEST
        _core.map_inputs(x, *standardised, self.scored, self.knots, self.scores, out)
        return out

    def check(self, n_features_in: int) -> int:
        """Raise unless the map takes this number of columns and its numbers are in range; return `n_outputs`.

        Parameters
        ----------
        n_features_in : int
            Number of columns.

        Returns
        -------
        int
            Number of outputs.
        """
        d, knots = n_features_in, self.knots
        require_array(self.mean, "mean", d, largest=np.inf)
        require_positive(self.scale, "scale", d, largest=np.inf)
        if self.kept.dtype.kind != "i" or self.kept.ndim != 1 or not np.isin(self.kept, np.arange(d)).all():
            raise ValueError(f"kept must be columns below {d}")
        require_array(knots, "knots", *knots.shape, largest=np.inf)
        require_array(self.scores, "scores", *knots.shape, largest=LARGEST)
        if self.scored.dtype.kind != "i" or self.scored.ndim != 1 or not np.isin(self.scored, self.kept).all():
            raise ValueError("scored must be kept columns")
        if len(knots) != len(self.scored) or (knots.size == 0 and knots.shape != (0, 0)) or (np.diff(knots) < 0).any():
            raise ValueError("knots must ascend for every column with normal scores")
        return self.n_outputs


@dataclass(frozen=True)
class Rotation:
    """Linear map of standardised columns.

    - `matrix`, (n_inputs, n_outputs).
    """

    matrix: FloatArray

    __repr__ = short_repr

    @classmethod
    def whitening(cls, x: FloatArray, sample_weight: FloatArray | None) -> Rotation:
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
    def identity(cls, n_inputs: int) -> Rotation:
        """Return the map that changes nothing."""
        return cls(np.eye(n_inputs))

    @property
    def n_outputs(self) -> int:
        """Columns that come out."""
        return self.matrix.shape[1]

    def transform(self, x: FloatArray) -> FloatArray:
        """Return ``x @ matrix``, (n_rows, n_outputs)."""
        return x @ self.matrix


def weighted_location_scale(x: FloatArray, sample_weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of columns; the deviation of a column that is constant up to rounding is zero."""
    if x.shape[1] == 0:
        return np.empty(0), np.empty(0)
    if sample_weight is not None:
        x, sample_weight = x[sample_weight > 0], sample_weight[sample_weight > 0]
    # Relative to the first row, so that a large common offset loses no digits, and in units of a power of two, so that
    # squares neither overflow nor underflow and scaling does not round.
    size = np.abs(x).max(axis=0)
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 2, -1000))
    origin = x[0] / unit
    shifted = x / unit - origin
    mean = np.average(shifted, axis=0, weights=sample_weight)
    scale = np.sqrt(np.average((shifted - mean) ** 2, axis=0, weights=sample_weight))
    noise = 10 * np.finfo(float).eps * (size / unit)
    return unit * (origin + mean), np.where(scale > noise, unit * scale, 0.0)


def _shared_scales(scale: FloatArray, groups: NDArray[np.intp]) -> FloatArray:
    """Return the deviations of columns, of indicators that of their whole group: the root of Σ p(1 − p)."""
    own = groups >= 0
    total = np.bincount(groups[own], scale[own] ** 2, minlength=groups.max(initial=-1) + 1)
    shared = scale.copy()
    shared[own] = np.sqrt(total[groups[own]])
    return shared


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
