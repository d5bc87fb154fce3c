"""Labelled rows held in memory, with their features computed block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_float_array, as_number, as_sample_weight
from pydirect.logistic.ascent import Evaluation, Latent
from pydirect.logistic.bound import best_log_xi, jaakkola_bound, pseudo_targets
from pydirect.statistics.gaussian import (
    Block,
    FeatureMap,
    GaussianStatistics,
    IdentityFeatures,
    block_rows,
    collect_statistics,
    row_blocks,
)

# Features of rows are held, instead of computed again at every iteration, up to this many bytes.
HELD_BYTES = 2**30


@dataclass(frozen=True)
class RotatedFeatures:
    """Basis functions times a matrix: a few directions of a larger basis."""

    features: FeatureMap
    vectors: FloatArray

    @property
    def n_weights(self) -> int:
        """Number of directions."""
        return self.vectors.shape[1]

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ·vectors."""
        rotated: Block = self.features.transform(x, np.float64, n_threads) @ self.vectors
        return rotated.astype(dtype, copy=False)


@dataclass(frozen=True)
class LabelledRows:
    """Rows of basis functions with labels ±1: all that both bounds need of the data.

    Parameters
    ----------
    features : FeatureMap
    x : ndarray of shape (n_samples, n_features_in)
    t : ndarray of shape (n_samples,)
        −1 or 1.
    weight : ndarray of shape (n_samples,)
        How many times each row counts, positive.
    offset : float
        Added to φᵀw: the prior mean of z.
    n_threads : int
    """

    features: FeatureMap
    x: FloatArray
    t: FloatArray
    weight: FloatArray
    offset: float = 0.0
    n_threads: int = 1

    @classmethod
    def from_arrays(
        cls,
        phi: ArrayLike,
        t: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        offset: float = 0.0,
        n_threads: int | None = None,
    ) -> LabelledRows:
        """Build from a design matrix.

        Parameters
        ----------
        phi : array_like of shape (n_samples, n_weights)
        t : array_like of shape (n_samples,)
            Labels, −1 or 1.
        sample_weight : array_like of shape (n_samples,), optional
        offset : float
        n_threads : int, optional

        Examples
        --------
        >>> LabelledRows.from_arrays([[1.0], [2.0], [3.0]], [1, -1, 1], [1.0, 0.0, 2.0]).t.tolist()
        [1.0, 1.0]
        """
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        labels = as_float_array(t, "t", (len(phi),))
        if not (np.abs(labels) == 1).all():
            raise ValueError(f"t must be -1 or 1, got {labels[np.abs(labels) != 1][0]}")
        weight = as_sample_weight(sample_weight, len(phi))
        weight = np.ones(len(phi)) if weight is None else weight
        used = weight > 0  # rows of weight zero count as absent
        if not used.all():
            phi, labels, weight = phi[used], labels[used], weight[used]
        offset, n_threads = as_number(offset, "offset"), resolve_n_threads(n_threads)
        return cls(IdentityFeatures(phi.shape[1]), phi, labels, weight, offset, n_threads)

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.features.n_weights

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.x)

    def problem(self, t: FloatArray, offset: float) -> LabelledRows:
        """Return the same rows with other labels and another prior mean of z."""
        return replace(self, t=np.ascontiguousarray(t), offset=float(offset))

    def map_blocks(self, function: Callable[[FloatArray, slice], Any]) -> Iterator[Any]:
        """Apply a function to blocks of Φ and the slice of rows that each holds; results in order."""

        def of_block(bounds: tuple[int, int]) -> Any:
            rows = slice(*bounds)
            return function(np.ascontiguousarray(self.features.transform(self.x[rows], np.float64, 1)), rows)

        return ordered_map(of_block, row_blocks(self.n_samples, block_rows(self.n_weights, np.float64)), self.n_threads)

    def weighted_statistics(self, xi: FloatArray) -> GaussianStatistics:
        """Return A = Φᵀdiag(2λω)Φ and c = Φᵀdiag(ω)(t/2 − 2λ offset), the statistics of the bound's regression."""
        targets, precision = pseudo_targets(self.t, self.offset, xi)
        return collect_statistics(
            self.features, self.x, targets[:, None], precision * self.weight, n_threads=self.n_threads
        )

    def moments(self, latent: Latent) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of z at every row."""
        mean, variance = np.empty(self.n_samples), np.empty(self.n_samples)

        def fill(phi: FloatArray, rows: slice) -> None:
            mean[rows], variance[rows] = latent.latent_moments(phi, n_threads=1)

        with single_blas_thread():
            for _ in self.map_blocks(fill):
                pass
        return self.offset + mean, variance

    def evaluate(self, latents: Sequence[Latent | None]) -> list[Evaluation | None]:
        """Evaluate posteriors at all rows, as a `RowSource`."""
        return [None if latent is None else self._evaluation(latent) for latent in latents]

    def _evaluation(self, latent: Latent) -> Evaluation:
        mean, variance = self.moments(latent)
        log_likelihood = jaakkola_bound(self.t, mean, variance, self.weight)
        return Evaluation(log_likelihood, RowParameters(self, best_log_xi(mean, variance)))

    def rotated(self, vectors: FloatArray) -> LabelledRows:
        """Return the rows of Φ·vectors, held when they fit into memory."""
        return replace(self, features=RotatedFeatures(self.features, vectors)).held()

    def chosen(self, rows: NDArray[np.intp]) -> LabelledRows:
        """Return some of the rows."""
        return replace(self, x=self.x[rows], t=self.t[rows], weight=self.weight[rows])

    def batches(self, batch_size: int, rng: np.random.Generator) -> Iterator[tuple[LabelledRows, float]]:
        """Yield all rows in batches, in random order, with the number of all rows per row of the batch."""
        order = rng.permutation(self.n_samples)
        for begin in range(0, self.n_samples, batch_size):
            chosen = np.sort(order[begin : begin + batch_size])
            yield self.chosen(chosen), self.n_samples / len(chosen)

    def sample(self, size: int) -> LabelledRows:
        """Return a random subset of the rows, held, reweighted to the total weight of all rows."""
        part = self.chosen(np.sort(np.random.default_rng(0).choice(self.n_samples, size, replace=False)))
        return replace(part, weight=part.weight * (self.weight.sum() / part.weight.sum())).held()

    @property
    def is_held(self) -> bool:
        """Whether `x` is Φ."""
        return isinstance(self.features, IdentityFeatures)

    def held(self) -> LabelledRows:
        """Return the same rows with Φ computed once, when it fits into memory."""
        if self.is_held or 8 * self.n_samples * self.n_weights > HELD_BYTES:
            return self
        with single_blas_thread():
            phi = np.concatenate(list(self.map_blocks(lambda phi, _: phi)))
        return replace(self, features=IdentityFeatures(self.n_weights), x=phi)

    def mean_square(self) -> float:
        """Mean of φᵀφ over the rows."""
        squares: Any = sum(self.map_blocks(lambda phi, part: self.weight[part] @ np.einsum("ij,ij->i", phi, phi)))
        return float(squares) / float(self.weight.sum())


@dataclass(frozen=True)
class RowParameters:
    """ξ of every row, by its logarithm: the parameters of the bound for rows in memory."""

    memory: ClassVar[int] = 5
    unit: ClassVar[float] = 1.0
    rows: LabelledRows
    log_xi: FloatArray

    @classmethod
    def at_one(cls, rows: LabelledRows) -> RowParameters:
        """Return ξ = 1 for every row."""
        return cls(rows, np.zeros(rows.n_samples))

    @property
    def xi(self) -> FloatArray:
        """ξ of every row."""
        return np.exp(self.log_xi)

    @property
    def coordinates(self) -> FloatArray:
        """Log ξ."""
        return self.log_xi

    def moved(self, coordinates: FloatArray) -> RowParameters:
        """Return the parameters at other coordinates, each ξ within a factor of e of this one."""
        return replace(self, log_xi=np.clip(coordinates, self.log_xi - 1.0, self.log_xi + 1.0))

    def regression(self) -> GaussianStatistics:
        """Return the statistics of the bound's regression."""
        return self.rows.weighted_statistics(self.xi)
