"""Rows with counts, as the weighted passes of classification take them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_float_array
from pydirect.logistic.ascent import Ascent, LatentGaussian, LikelihoodMoments, climb
from pydirect.logistic.count_likelihood import (
    POISSON,
    CountLikelihood,
    as_counts,
    likeliest_dispersion,
    log_predictive_probability,
)
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.likelihood import Likelihood
from pydirect.logistic.rows import LabelledRows
from pydirect.logistic.start import ascend_rows
from pydirect.statistics.gaussian import IdentityFeatures


@dataclass(frozen=True)
class CountRows(LabelledRows):
    """Rows with counts t, (n_samples, 1), of log means offset + φᵀw, the offset (n_samples, 1) with log exposures."""

    counts: CountLikelihood = POISSON  # likelihood of the counts

    @classmethod
    def from_counts(cls, phi: ArrayLike, y: ArrayLike, offset: ArrayLike, counts: CountLikelihood = POISSON) -> Self:
        """Build from a design matrix."""
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        y = as_float_array(as_counts(y, "y"), "y", (len(phi),))
        means = as_float_array(np.broadcast_to(np.asarray(offset, float), len(phi)), "offset", (len(phi),))
        features = IdentityFeatures(phi.shape[1])
        return cls(features, phi, y[:, None], np.ones(len(phi)), means[:, None], counts=counts)

    @property
    def terms(self) -> Likelihood:
        return self.counts.terms

    @property
    def first_guess(self) -> FloatArray:
        return self.counts.first_guess(self.t, self.offset)

    def log_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        return log_predictive_probability(self.t[:, 0], mean[:, 0], variance, self.counts.dispersion)

    def with_best_dispersion(self, latent: LatentGaussian | LikelihoodMoments) -> CountRows:
        """Return the same rows with the dispersion that fits best, given a posterior."""
        mean, variance = self.moments(latent)
        return replace(self, counts=self.counts.at_best(self.t, mean, variance, self.weight))

    def with_dispersion(self, dispersion: float) -> CountRows:
        """Return the same rows with a given dispersion."""
        return replace(self, counts=CountLikelihood(dispersion))

    def at_constant_rate(self, learns_dispersion: bool) -> CountRows:
        """Return the same rows with the dispersion that is likeliest at the offsets alone, or none."""
        offset = self.offset[:, 0]
        return self.with_dispersion(
            likeliest_dispersion(self.t[:, 0], offset, self.weight) if learns_dispersion else 0.0
        )

    @property
    def constant_log_likelihood(self) -> float:
        """Σ ω log p(t) at the offsets alone."""
        return float(self.weight @ self.counts.log_probability(self.t[:, 0], self.offset[:, 0]))

    @property
    def largest_precision(self) -> float:
        return float(np.maximum(self.t, np.exp(self.offset)).max())


# Times that the dispersion and the weights are improved in turn, and the change of log α that is none.
MOST_ROUNDS = 8
SAME_LOG_DISPERSION = 0.02


@single_blas_thread()
def ascend_counts(
    rows: CountRows,
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
    near: Ascent[FullGaussian] | None = None,
) -> tuple[CountRows, Ascent[FullGaussian]]:
    """Fit continuous weights, their prior variance and, in turn with them, the dispersion of a negative binomial."""
    ascent = ascend_rows(rows, variance_prior, max_iter=max_iter, stop=stop, near=near)
    for _ in range(MOST_ROUNDS if rows.counts.dispersion > 0 else 0):
        if stop.is_set():
            break
        improved = rows.with_best_dispersion(ascent.best.solution.latent)
        change = abs(np.log(improved.counts.dispersion / rows.counts.dispersion))
        again = Ascent(
            gaussian_solve(variance_prior, improved.improved if improved.is_held else None),
            ascent.best.solution.state,
            max_iter,
        )
        climb(improved, again, stop)
        if not again.trace:  # interrupted
            break
        rows, ascent = improved, again
        if change < SAME_LOG_DISPERSION:
            break
    return rows, ascent
