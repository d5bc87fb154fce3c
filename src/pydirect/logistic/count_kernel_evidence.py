"""Kernel hyperparameters by empirical Bayes, from counts.

The ELBO of a Gaussian process of log rates, as for labels in `pydirect.logistic.kernel_evidence`: regression on working
responses, whose q is improved by natural gradients, the kernel by L-BFGS, and the dispersion by its expected
log-likelihood whenever q is brought up to date.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.screen import screen_columns
from pydirect.features.search_record import HyperparameterSearch
from pydirect.logistic.count_likelihood import CountLikelihood, moment_dispersion
from pydirect.logistic.kernel_evidence import (
    LEAST_PRECISION,
    LatentMarginalLikelihood,
    Moments,
    n_searched,
    search_few_then_many,
)
from pydirect.logistic.likelihood import RowTerms

# Unit of log rates: divided by it, they have the priors of standardised targets.
LOG_RATE_UNIT = 1.0


@dataclass(frozen=True)
class CountContrast:
    """Likelihood of counts as a function of the log rate relative to its prior mean, for the search of a kernel.

    - `y`, `offset`, (n_rows, 1): counts and prior means of the log means.
    - `counts`: Poisson or negative binomial.
    - `learns`: whether the dispersion is learned.
    """

    y: FloatArray
    offset: FloatArray
    counts: CountLikelihood
    learns: bool
    n_contrasts: int = 1

    def first_guess(self) -> FloatArray:
        """Return the log rates about which the likelihood is first expanded, (n_rows, 1)."""
        return self.counts.first_guess(self.y, self.offset)

    def expected(self, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over Gaussian log rates of given means, (n_rows, 1), and variances, (n_rows,)."""
        terms = self.counts.terms(self.y, self.offset + mean, variance)
        return replace(terms, precision=np.maximum(terms.precision, LEAST_PRECISION))

    def improved(self, moments: Moments, weight: FloatArray) -> CountContrast:
        """Return the likelihood with the dispersion that fits best."""
        if not self.learns:
            return self
        best = self.counts.at_best(self.y, self.offset + moments.mean, moments.variance, weight)
        return replace(self, counts=best)


def fit_count_hyperparameters(
    x: FloatArray,
    y: FloatArray,
    offset: FloatArray,
    weight: FloatArray,
    *,
    learns_dispersion: bool,
    n_linear: int,
    rng: np.random.Generator,
    max_rows: int,
    n_threads: int = 1,
    tied: NDArray[np.intp] | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Maximise the bound on the evidence of counts times the priors: a race of starts on few rows, then the best.

    - `x`, (n_samples, n_inputs): standardised inputs, then their normal scores.
    - `y`, `offset`, (n_samples,): counts and prior means of their log means.
    - `weight`, (n_samples,): how many rows each counts for.
    - `learns_dispersion`: negative binomial, else Poisson.
    - `n_linear`, `rng`, `max_rows`, `tied`: as in `fit_label_hyperparameters`.

    Returns the hyperparameters, amplitudes in squared units of `LOG_RATE_UNIT`, and the record of the search.
    """
    dispersion = moment_dispersion(y, offset, weight) if learns_dispersion else 0.0

    def objective(rows: NDArray[np.intp]) -> LatentMarginalLikelihood:
        likelihood = CountContrast(y[rows, None], offset[rows, None], CountLikelihood(dispersion), learns_dispersion)
        return LatentMarginalLikelihood(
            x[rows],
            likelihood,
            weight[rows],
            n_linear=n_linear,
            n_threads=n_threads,
            tied=tied,
            unit=LOG_RATE_UNIT,
        )

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(x[:, :n_linear], stabilised(y, offset)[:, None], rng, n_threads)
    chosen = rng.permutation(len(x))[: n_searched(len(x), max_rows)]
    return search_few_then_many(objective, chosen, scores, len(x))


def stabilised(y: FloatArray, offset: FloatArray) -> FloatArray:
    """Return standardised residuals of about equal variance by Anscombe's (1948) root, (n_samples,)."""
    root = np.sqrt(y + 0.375) - np.sqrt(np.exp(offset) + 0.375)
    scale = root.std()
    return np.asarray((root - root.mean()) / scale if scale > 0 else np.zeros(len(y)))
