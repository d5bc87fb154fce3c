"""Labelled rows that are passed over again and again and never held.

All that an evaluation needs of a row follows from the posterior, so that nothing has to be kept per row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from pydirect._threads import ordered_map, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.logistic.ascent import Evaluation, Latent, raise_if_set
from pydirect.logistic.likelihood import softmax_terms
from pydirect.logistic.rows import drawn_log_likelihoods, evaluated, total
from pydirect.statistics.gaussian import FeatureMap
from pydirect.streams.rows import Rows


@dataclass(frozen=True)
class RowPasses:
    """Rows with labels ±1, read again for every evaluation.

    - `features`: of the rows' x.
    - `open`: returns an iterator over all rows, in blocks; y, (n_rows, n_functions): labels.
    - `offset`, (n_functions,): prior means of the logits.
    - `stop`: when it is set, there are no further passes.
    """

    features: FeatureMap
    open: Callable[[], Iterator[Rows]]
    offset: FloatArray
    n_threads: int
    stop: threading.Event = field(default_factory=threading.Event)

    def evaluate(self, latent: Latent) -> Evaluation:
        """Evaluate a posterior in one pass, as a `RowSource`; the same bits for any number of threads."""
        raise_if_set(self.stop)

        def of_block(rows: Rows) -> Evaluation:
            phi, weight = self._weighted(rows)
            mean, variance = latent.latent_moments(phi)
            return evaluated(phi, softmax_terms(rows.y, mean + self.offset, variance), weight)

        with single_blas_thread():
            parts = ordered_map(of_block, self.open(), self.n_threads)
            return total(parts, self.features.n_weights, len(self.offset), self.n_threads)

    def log_likelihoods(self, weights: FloatArray) -> FloatArray:
        """Σ ω log p(y | w) of draws of the weights, in one pass; see `LabelledRows.log_likelihoods`."""

        def of_block(rows: Rows) -> FloatArray:
            phi, weight = self._weighted(rows)
            return drawn_log_likelihoods(phi, rows.y, weight, self.offset, weights)

        with single_blas_thread():
            return np.sum(list(ordered_map(of_block, self.open(), self.n_threads)), axis=0)

    def _weighted(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Return Φ and the weights of a block of rows."""
        phi = np.ascontiguousarray(self.features.transform(rows.x, np.float64, 1))
        return phi, np.ones(len(rows)) if rows.weight is None else rows.weight
