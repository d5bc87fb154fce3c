"""Exact coresets of data for networks with quadratic activations: few weighted rows with the same squared errors.

Such a network is a polynomial of its inputs, so that R = Σ_l ω_l E (y_l − f(x_l))² depends on the data only through
moments: Σ ω x^α for the degrees that f² has, Σ ω y x^β for those of f, and Σ ω y². By Carathéodory's theorem no more of
the original rows than there are moments, with other non-negative weights, have the same moments, and with them the same
R and the same gradient for every distribution of the weights. Training then costs nothing per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, as_sample_weight, as_target
from pydirect.persistence.fields import require_array, require_number, require_positive, require_type
from pydirect.quadratic.moments import MomentFeatures, n_moments
from pydirect.quadratic.recombination import corrected, recombining_factor

# Coresets with more moments are refused: every halving of the rows would factorise a matrix of 100 MB.
MAX_MOMENTS = 2_500
# A halving takes about this many seconds times the cube of the number of moments.
_SECONDS_PER_CUBE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class NetworkCoreset:
    """Exact coreset: weighted rows with the same R as all of the data, for any distribution of the network's weights.

    Attributes
    ----------
    x : ndarray of shape (n_rows, n_inputs)
        Rows of the data.
    y : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Their targets.
    weight : ndarray of shape (n_rows,)
        Positive; the number of rows of the data that each represents.
    n_samples : float
        Sum of the weights of the data, n of the likelihood.
    depth : int
        Number of hidden layers of the networks that it serves.
    bias : bool
        Whether their layers have a bias.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray
    n_samples: float
    depth: int
    bias: bool

    def check(self, n_features_in: int, depth: int) -> None:
        """Raise unless the coreset is of this number of inputs, serves networks of this depth, and is in its ranges.

        Parameters
        ----------
        n_features_in : int
            Number of inputs.
        depth : int
            Number of hidden layers.
        """
        require_type(self.bias, "coreset.bias", bool)
        if not self.bias or as_count(self.depth, "coreset.depth") < depth:
            raise ValueError("coreset does not serve the network")
        require_number(self.n_samples, "coreset.n_samples", above=0.0)
        require_array(self.x, "coreset.x", len(self.y), n_features_in, largest=np.inf)
        require_array(self.y, "coreset.y", *self.y.shape[:1], *self.y.shape[1:2])
        require_positive(self.weight, "coreset.weight", len(self.y))

    def __repr__(self) -> str:
        return f"<NetworkCoreset: {len(self.x)} rows for {self.n_samples:g}, depth {self.depth}, bias {self.bias}>"

    @classmethod
    def from_data(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        depth: int,
        bias: bool = True,
        sample_weight: ArrayLike | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> NetworkCoreset:
        """Reduce data to at most `n_moments` rows.

        Data with no more rows are kept as they are. Otherwise rows are read about twice, in blocks, and the rest
        takes O(D³ log(n/D)) operations for D moments.

        Parameters
        ----------
        x : array_like of shape (n_samples, n_inputs)
            Rows of inputs.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        depth : int
            Number of hidden layers.
        bias : bool, default=True
            Whether every layer has a constant input.
        sample_weight : array_like of shape (n_samples,), optional
            Number of times that each row counts.
        progress : callable, optional
            Called with the number of rows removed so far and the total number to remove.

        Raises
        ------
        ValueError
            When there are more than `MAX_MOMENTS` moments and even more rows.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 1000)[:, None]
        >>> coreset = NetworkCoreset.from_data(x, np.sin(x[:, 0]), depth=1)
        >>> len(coreset.x), n_moments(1, 1), round(float(coreset.weight.sum()), 9)
        (9, 9, 1000.0)
        """
        x = as_float_array(x, "x", ("n_samples", "n_inputs"))
        targets = as_target(y, len(x))
        weight = as_sample_weight(sample_weight, len(x))
        weight = np.ones(len(x)) if weight is None else weight
        depth, bias = as_count(depth, "depth"), bool(bias)
        with single_blas_thread():
            rows, new_weight = _reduce(x, targets, weight, depth, bias, progress)
        kept = targets[rows, 0] if np.ndim(y) == 1 else targets[rows]
        return cls(x[rows], kept, new_weight, float(weight.sum()), depth, bias)

    def merge(self, other: NetworkCoreset) -> NetworkCoreset:
        """Return the coreset of both sets of data together.

        Parameters
        ----------
        other : NetworkCoreset
            Coreset of other data.

        Returns
        -------
        NetworkCoreset
            The coreset.

        Raises
        ------
        ValueError
            When the two serve different networks.
        """
        if not isinstance(other, NetworkCoreset):
            raise TypeError(f"other must be a NetworkCoreset, got {type(other).__name__}")
        own, others = (
            f"depth {c.depth}, bias {c.bias}, {c.x.shape[1]} inputs and targets of shape {('n', *c.y.shape[1:])}"
            for c in (self, other)
        )
        if own != others:
            raise ValueError(f"coresets must serve the same networks, got {own}, and {others}")
        x, y, weight = (np.concatenate([getattr(c, name) for c in (self, other)]) for name in ("x", "y", "weight"))
        merged = self.from_data(x, y, self.depth, self.bias, weight)
        # The true number of rows, not the rounded sum of new weights.
        n_samples = self.n_samples + other.n_samples
        return replace(merged, n_samples=n_samples)

    def update(
        self,
        x: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> NetworkCoreset:
        """Return the coreset of this one's data and more data together; arguments as in `from_data`.

        Parameters
        ----------
        x : array_like of shape (n_rows, n_inputs)
            Rows of inputs.
        y : array_like of shape (n_rows,)
            Targets.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.
        progress : callable, optional
            Called now and then with how far the work is.

        Returns
        -------
        NetworkCoreset
            The coreset.
        """
        return self.merge(self.from_data(x, y, self.depth, self.bias, sample_weight, progress))


def merged_tree(parts: Iterable[NetworkCoreset]) -> NetworkCoreset:
    """Return the coreset of the data of all parts, merged in pairs of equal height as they come.

    One part at most is held for every height of the tree, a logarithm of their number in all, and no row goes through
    more mergers than the tree is high: rounding errors do not add up along the stream.

    `parts`: at least one.
    """
    held: list[tuple[int, NetworkCoreset]] = []
    for part in parts:
        height, coreset = 0, part
        while held and held[-1][0] == height:
            coreset, height = held.pop()[1].merge(coreset), height + 1
        held.append((height, coreset))
    total = held.pop()[1]
    while held:
        total = held.pop()[1].merge(total)
    return total


def _reduce(
    x: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    depth: int,
    bias: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return the rows of a coreset and their weights."""
    rows = np.flatnonzero(weight)
    weight = weight[rows]
    if len(rows) <= n_moments(x.shape[1], depth, bias, y.shape[1]):
        return rows, weight
    features = MomentFeatures.of_data(x, y, depth, bias)
    size = features.n_features
    n_removed = max(len(rows) - size, 0)
    if n_removed and size > MAX_MOMENTS:
        halvings = ceil(log2(len(rows) / size))
        raise ValueError(
            f"a coreset for depth {depth} and {features.n_variables} inputs must keep {size} moments, more than "
            f"{MAX_MOMENTS}: it would take about {5 * 8 * size**2 / 1e9:.2g} GB and "
            f"{halvings * _SECONDS_PER_CUBE * size**3:.2g} s"
        )
    total = None
    columns = np.empty((size, 0))
    scale = weight.sum()
    weight = weight / scale
    # Groups of rows are recombined as if they were rows; what survives is split into smaller groups.
    while len(rows) > size:
        starts = np.arange(min(2 * size, len(rows))) * len(rows) // min(2 * size, len(rows))
        columns = features.group_sums(x, y, rows, weight, starts)
        total = columns.sum(axis=1) if total is None else total
        factor = recombining_factor(columns)
        weight = weight * np.repeat(factor, np.diff(starts, append=len(rows)))
        rows, weight = rows[weight > 0], weight[weight > 0]
        if progress is not None:
            progress(min(n_removed, n_removed + size - len(rows)), n_removed)
    if total is not None:
        columns = features.group_sums(x, y, rows, weight, np.arange(len(rows)))
        weight = weight * corrected(columns, np.ones(len(rows)), total)
    kept = weight > 0
    return rows[kept], weight[kept] * scale
