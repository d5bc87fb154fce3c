"""Labelled rows that are passed over again and again and never held.

The best ξ of a row follows from the posterior, ξ² = E z², so that nothing has to be kept per row: a pass at a given
posterior computes ξ on the way and returns the bound and the sums A = Σ 2λω φφᵀ, c = Σ ω(t/2 − 2λ offset)φ, from which
the next posterior follows. Several problems, each one class against the rest, share the pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from pydirect import _core
from pydirect._threads import ordered_map, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.logistic.ascent import Evaluation, Latent, raise_if_set
from pydirect.logistic.bound import best_log_xi, jaakkola_bound, pseudo_targets
from pydirect.statistics.gaussian import FeatureMap, GaussianStatistics, gram_of
from pydirect.streams.rows import Rows


@dataclass(frozen=True)
class RowPasses:
    """Rows with labels ±1 of several problems, read again for every evaluation.

    - `features`: of the rows' x.
    - `open`: returns an iterator over blocks of rows; their y, (n_rows, n_problems), hold labels ±1.
    - `offset`, (n_problems,): prior means of z.
    - `stop`: when it is set, there are no further passes.
    """

    features: FeatureMap
    open: Callable[[], Iterator[Rows]]
    offset: FloatArray
    n_threads: int
    stop: threading.Event = field(default_factory=threading.Event)

    def evaluate(self, latents: Sequence[Latent | None]) -> list[Evaluation | None]:
        """Evaluate posteriors in one pass, as a `RowSource`; the same bits for any number of threads."""
        raise_if_set(self.stop)
        b, given = self.features.n_weights, [(k, latent) for k, latent in enumerate(latents) if latent is not None]
        grams, vectors = [np.zeros((b, b)) for _ in given], np.zeros((len(given), b))
        numbers = np.zeros((len(given), 3))  # yᵀy, Σ of weights, bound

        def of_block(rows: Rows) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
            phi = np.ascontiguousarray(self.features.transform(rows.x, np.float64, 1))
            weight = np.ones(len(rows)) if rows.weight is None else rows.weight
            return [_block_sums(phi, rows.y[:, k], weight, latent, float(self.offset[k])) for k, latent in given]

        with single_blas_thread():
            for parts in ordered_map(of_block, self.open(), self.n_threads):
                for i, (gram, vector, three) in enumerate(parts):
                    _core.add_upper_triangle(gram, grams[i], self.n_threads)
                    vectors[i] += vector
                    numbers[i] += three
        found: list[Evaluation | None] = [None] * len(latents)
        for (k, _), gram, vector, (yty, n_samples, bound) in zip(given, grams, vectors, numbers, strict=True):
            _core.mirror_upper_triangle(gram, self.n_threads)
            sums = GaussianStatistics(vector[:, None], np.array([yty]), float(n_samples), gram=gram)
            found[k] = Evaluation(float(bound), SumParameters(sums))
        return found


def _block_sums(
    phi: FloatArray, t: FloatArray, weight: FloatArray, latent: Latent, offset: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    mean, variance = latent.latent_moments(phi, n_threads=1)
    mean = mean + offset
    targets, precision = pseudo_targets(t, offset, np.exp(best_log_xi(mean, variance)))
    precision = precision * weight
    vector = phi.T @ (precision * targets)
    numbers = precision @ targets**2, precision.sum(), jaakkola_bound(t, mean, variance, weight)
    return gram_of(phi * np.sqrt(precision)[:, None]), vector, np.array(numbers)


@dataclass(frozen=True)
class SumParameters:
    """Sums at the ξ of some posterior: the parameters of the bound for rows that are not held."""

    # Anderson's method holds n_weights² numbers twice per step remembered and twice more.
    memory: ClassVar[int] = 3
    sums: GaussianStatistics

    @property
    def coordinates(self) -> FloatArray:
        """A and c."""
        return np.concatenate([self.sums.A.ravel(), self.sums.c[:, 0]])

    @property
    def unit(self) -> float:
        """Total weight of the rows in the sums."""
        return self.sums.n_samples

    def moved(self, coordinates: FloatArray) -> SumParameters:
        """Return the sums at other coordinates; A need not be positive semi-definite there."""
        b = self.sums.n_weights
        gram, c = coordinates[: b * b].reshape(b, b), coordinates[b * b :, None]
        return SumParameters(replace(self.sums, gram=gram, c=c, rows=None))

    def regression(self) -> GaussianStatistics:
        """Return the sums."""
        return self.sums
