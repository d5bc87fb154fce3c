"""Exact coresets of data for networks with quadratic activations: few weighted rows with the same squared errors.

Such a network is a polynomial of its inputs, so that R = Σ_l ω_l E (y_l − f(x_l))² depends on the data only through
moments: Σ ω x^α for the degrees that f² has, Σ ω y x^β for those of f, and Σ ω y². By Carathéodory's theorem no more of
the original rows than there are moments, with other non-negative weights, have the same moments, and with them the same
R and the same gradient for every distribution of the weights. Training then costs nothing per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from math import comb
from typing import Annotated

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, as_instance, as_sample_weight, as_target
from pydirect.persistence.schema import AnyFinite, AtLeast, Positive, Shape

# Size of the largest block of features: it stays in the cache until it is summed.
_BLOCK_SIZE = 2**18


def n_moments(n_inputs: int, depth: int, bias: bool = True, n_outputs: int = 1) -> int:
    """Return the number of moments that R depends on, the largest number of rows of a coreset.

    The network is a polynomial of degree 2^depth of the inputs, its square one of twice that; without a bias
    polynomials are homogeneous, and the total weight is one more moment.
    """
    variables = as_count(n_inputs, "n_inputs") + bool(bias)
    degree = 2 ** as_count(depth, "depth")
    of_network, of_square = (comb(variables + k - 1, k) for k in (degree, 2 * degree))
    return of_square + (not bias) + as_count(n_outputs, "n_outputs") * (of_network + 1)


@dataclass(frozen=True)
class MomentFeatures:
    """Features φ(x, y) of a row whose weighted sums determine R.

    With a bias, products of Legendre polynomials of the decorrelated inputs, scaled to [−1, 1]; without, homogeneous
    monomials of them. Any basis of the same space would do, with other rounding errors.
    """

    centre: FloatArray  # (n_inputs,)
    directions: FloatArray  # (n_inputs, n_variables)
    y_centre: FloatArray  # (n_outputs,)
    y_scale: FloatArray  # (n_outputs,)
    degree: int  # of the network
    bias: bool

    @classmethod
    def of_data(cls, x: FloatArray, y: FloatArray, depth: int, bias: bool) -> MomentFeatures:
        """Return a well-conditioned basis for these data."""
        # A shift of x or y leaves the space of polynomials only when lower degrees are in it.
        centre, scale = _centre_and_scale(x, bias)
        y_centre, y_scale = _centre_and_scale(y, bias)
        z = (x - centre) / scale
        _, spread, axes = np.linalg.svd(np.linalg.qr(z).R)
        # Directions in which the rows do not vary carry no information; one is kept so that there is a polynomial.
        n_variables = max(1, int((spread > 8 * x.shape[1] * np.finfo(float).eps * spread[0]).sum()))
        reach = np.abs(z @ axes[:n_variables].T).max(axis=0)
        directions = axes[:n_variables].T / scale[:, None]
        directions = directions / np.where(reach > 0, reach, 1.0)
        return cls(centre, directions, y_centre, y_scale, 2**depth, bias)

    @property
    def n_variables(self) -> int:
        """Number of decorrelated inputs."""
        return self.directions.shape[1]

    @property
    def n_features(self) -> int:
        """Number of features φ."""
        depth = self.degree.bit_length() - 1
        return n_moments(self.n_variables, depth, self.bias, len(self.y_scale))

    def group_sums(
        self, x: FloatArray, y: FloatArray, rows: NDArray[np.intp], weight: FloatArray, starts: NDArray[np.intp]
    ) -> FloatArray:
        """Return Σ ω φ(x, y) over groups of consecutive entries of `rows`, (n_features, n_groups)."""
        out = np.zeros((self.n_features, len(starts)))
        length = max(64, _BLOCK_SIZE // self.n_features)
        for begin in range(0, len(rows), length):
            part = slice(begin, min(begin + length, len(rows)))
            values = self.transform(x[rows[part]], y[rows[part]])
            values *= weight[part]
            first = int(np.searchsorted(starts, begin, side="right")) - 1
            last = int(np.searchsorted(starts, part.stop, side="left"))
            inside = np.maximum(starts[first:last] - begin, 0)
            out[:, first:last] += np.add.reduceat(values, inside, axis=1)
        return out

    def transform(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return φ of every row, (n_features, n_rows)."""
        variables, degree = (x - self.centre) @ self.directions, 2 * self.degree
        if self.bias:  # Legendre polynomials, orthonormal for the uniform distribution
            table = legvander(variables.T, degree) * np.sqrt(2 * np.arange(degree + 1) + 1.0)
        else:
            table = variables.T[:, :, None] ** np.arange(degree + 1.0)
        table = np.ascontiguousarray(np.moveaxis(table, 2, 0))  # (degree + 1, n_variables, n_rows)
        of_square, of_network = (_products(table, k, not self.bias) for k in (degree, self.degree))
        # The total weight is a moment: among the polynomials with a bias, on its own without.
        parts = [of_square] if self.bias else [np.ones((1, len(x))), of_square]
        for target in ((y - self.y_centre) / self.y_scale).T:
            parts += [of_network * target, np.square(target)[None]]
        return np.concatenate(parts)


def _centre_and_scale(values: FloatArray, shift: bool) -> tuple[FloatArray, FloatArray]:
    """Middle of the range of every column, or zero, and the largest distance from it."""
    low, high = values.min(axis=0), values.max(axis=0)
    centre = low / 2 + high / 2 if shift else np.zeros(len(low))
    scale = np.maximum(high - centre, centre - low)
    return centre, np.where(scale > 0, scale, 1.0)


def _products(table: FloatArray, degree: int, homogeneous: bool) -> FloatArray:
    """Π_i table[α_i, i] for all |α| ≤ degree (= degree, if homogeneous), (n_products, n_rows)."""
    found = [(np.ones(table.shape[2]), degree)]  # of the variables so far, and the degree that is left
    *others, last = range(table.shape[1])
    for i in others:
        found = [(product * table[k, i], left - k) for product, left in found for k in range(left + 1)]
    chosen = [(product, k) for product, left in found for k in range(left if homogeneous else 0, left + 1)]
    return np.stack([product * table[k, last] for product, k in chosen])


def recombining_factor(columns: FloatArray) -> FloatArray:
    """Return u ≥ 0 with columns @ u = columns @ 1, at most as many positive entries as the rank.

    Non-negative least squares finds it: its active set keeps the columns of positive entries independent.
    """
    return np.asarray(nnls(columns, columns.sum(axis=1))[0])


# Coresets with more moments are refused: every halving of the rows would factorise a matrix of 100 MB.
MAX_MOMENTS = 2_500


@dataclass(frozen=True, eq=False, repr=False)
class NetworkCoreset:
    """Exact coreset: weighted rows with the same R as all of the data, for any distribution of a network's weights."""

    x: Annotated[FloatArray, Shape("n_rows", "n_features_in"), AnyFinite]
    y: Annotated[FloatArray, Shape("n_rows"), Shape("n_rows", "n_outputs")]
    weight: Annotated[FloatArray, Shape("n_rows"), Positive]
    n_samples: Annotated[float, Positive]
    depth: Annotated[int, AtLeast(1)]
    bias: bool

    def check(self) -> None:
        """Raise unless the coreset has biases."""
        if not self.bias:
            raise ValueError("coreset does not serve the network")

    def __repr__(self) -> str:
        return f"<NetworkCoreset: {len(self.x)} rows for {self.n_samples:g}, depth {self.depth}, bias {self.bias}>"

    @classmethod
    @single_blas_thread()
    def from_data(
        cls, x: ArrayLike, y: ArrayLike, depth: int, bias: bool = True, sample_weight: ArrayLike | None = None
    ) -> NetworkCoreset:
        """Reduce data to at most `n_moments` rows, in O(D³ log(n/D)) operations for D moments; few rows are kept."""
        x = as_float_array(x, "x", ("n_samples", "n_inputs"))
        targets = as_target(y, len(x))
        weight = as_sample_weight(sample_weight, len(x))
        weight = np.ones(len(x)) if weight is None else weight
        depth, bias = as_count(depth, "depth"), bool(bias)
        rows, new_weight = _reduce(x, targets, weight, depth, bias)
        kept = targets[rows, 0] if np.ndim(y) == 1 else targets[rows]
        return cls(x[rows], kept, new_weight, float(weight.sum()), depth, bias)

    def merge(self, other: NetworkCoreset) -> NetworkCoreset:
        """Return the coreset of both sets of data together."""
        as_instance(other, "other", NetworkCoreset)
        own, others = (
            f"depth {c.depth}, bias {c.bias}, {c.x.shape[1]} inputs and targets of shape {('n', *c.y.shape[1:])}"
            for c in (self, other)
        )
        if own != others:
            raise ValueError(f"coresets must serve the same networks, got {own}, and {others}")
        x, y, weight = (np.concatenate([getattr(c, name) for c in (self, other)]) for name in ("x", "y", "weight"))
        merged = self.from_data(x, y, self.depth, self.bias, weight)
        # The true number of rows, not the rounded sum of new weights.
        return replace(merged, n_samples=self.n_samples + other.n_samples)

    def update(self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> NetworkCoreset:
        """Return the coreset of this one's data and more data together; arguments as in `from_data`."""
        return self.merge(self.from_data(x, y, self.depth, self.bias, sample_weight))


def merged_tree(parts: Iterable[NetworkCoreset]) -> NetworkCoreset | None:
    """Return the coreset of the data of all parts, merged in pairs of equal height as they come; None of no parts.

    One part at most is buffered per height, and no row goes through more mergers than the tree is high: rounding errors
    do not add up along the stream.
    """
    held: list[tuple[int, NetworkCoreset]] = []
    for part in parts:
        height, coreset = 0, part
        while held and held[-1][0] == height:
            coreset, height = held.pop()[1].merge(coreset), height + 1
        held.append((height, coreset))
    return reduce(lambda total, earlier: earlier.merge(total), reversed([part for _, part in held])) if held else None


def _reduce(
    x: FloatArray, y: FloatArray, weight: FloatArray, depth: int, bias: bool
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the rows of a coreset and their weights."""
    rows = np.flatnonzero(weight)
    weight = weight[rows]
    if len(rows) <= n_moments(x.shape[1], depth, bias, y.shape[1]):
        return rows, weight
    features = MomentFeatures.of_data(x, y, depth, bias)
    size = features.n_features
    if len(rows) > size > MAX_MOMENTS:
        raise ValueError(
            f"depth {depth} and {features.n_variables} inputs must keep {size} moments, above {MAX_MOMENTS}"
        )
    scale = weight.sum()
    weight = weight / scale
    # Groups of rows are recombined as if they were rows; what survives is split into smaller groups.
    while len(rows) > size:
        n_groups = min(2 * size, len(rows))
        starts = np.arange(n_groups) * len(rows) // n_groups
        columns = features.group_sums(x, y, rows, weight, starts)
        factor = recombining_factor(columns)
        weight = weight * np.repeat(factor, np.diff(starts, append=len(rows)))
        rows, weight = rows[weight > 0], weight[weight > 0]
    return rows, weight * scale
