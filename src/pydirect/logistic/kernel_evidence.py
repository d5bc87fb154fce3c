"""Kernel hyperparameters by empirical Bayes, from labels instead of targets.

For given ξ, Jaakkola and Jordan's bound on the logistic likelihood is a Gaussian likelihood of pseudo-targets, each
with its own noise variance. The marginal likelihood of this regression, maximised alternately with ξ, is a bound on
that of the labels.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_expit

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.screen import screen_columns
from pydirect.features.search import MAX_ROWS, search
from pydirect.features.search_record import HyperparameterSearch
from pydirect.logistic.bound import jaakkola_bound, jaakkola_lambda, pseudo_targets
from pydirect.logistic.gaussian import FullGaussian
from pydirect.regression.referee import N_LANDMARKS

# Unit of logits: divided by it, they have the priors of standardised targets.
LOGIT_UNIT = 3.0
# Number of updates of ξ between two searches for the hyperparameters.
XI_ITERATIONS = 4
# Rows of the referee, and iterations of its ξ.
REFEREE_ROWS = 8192
REFEREE_ITERATIONS = 6


class LabelMarginalLikelihood:
    """Negative log posterior of the log parameters θ under the Jaakkola bound, summed over one-against-rest problems.

    - `x`, (n_rows, n_inputs).
    - `t`, (n_rows, n_problems): labels, −1 or 1.
    - `weight`, (n_rows,).
    - `offset`, (n_problems,): prior means of the logits.
    """

    iterations_between_updates = 5

    def __init__(
        self,
        x: FloatArray,
        t: FloatArray,
        weight: FloatArray,
        offset: FloatArray,
        *,
        n_linear: int,
        n_threads: int,
        tied: NDArray[np.intp] | None = None,
    ) -> None:
        self.x, self.t, self.weight, self.offset, self.n_threads = x, t, weight, offset, n_threads
        self.parts = [MarginalLikelihood(x, t_k[:, None], weight, n_linear, n_threads, tied) for t_k in t.T]
        first = self.parts[0]
        self.n_rows, self.d, self.tied, self.mean = len(x), first.d, first.tied, first.mean
        self.start = self.parts[0].start.copy()
        self.start[0] = -2 * np.log(LOGIT_UNIT)  # the noise variance of the bound: 1 in units of the logit
        self.bounds = [(self.start[0], self.start[0]), *self.parts[0].bounds[1:]]
        self.xi = np.ones_like(t)
        self._set_targets()

    def at(self, smoothness: float) -> LabelMarginalLikelihood:
        """Return the same with a kernel of this smoothness; both share their memory but for ξ."""
        other = copy.copy(self)
        other.parts = [part.at(smoothness) for part in self.parts]
        other.xi = np.ones_like(self.t)
        other._set_targets()
        return other

    def unpack(self, theta: FloatArray, n_evaluations: int = 0) -> KernelHyperparameters:
        """Return the hyperparameters of θ."""
        return self.parts[0].unpack(theta, n_evaluations)

    def _set_targets(self) -> None:
        targets, precision = pseudo_targets(self.t, self.offset, self.xi)
        for k, part in enumerate(self.parts):
            part.y, part.weight = targets[:, k, None] / LOGIT_UNIT, precision[:, k] * self.weight
        self.constant = -regression_constant(self.xi, self.weight[:, None])

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the value, up to a constant, and the gradient."""
        value, gradient = self.parts[0].penalty(theta)
        value += self.constant
        for part in self.parts:
            of_part = part.negative_log_likelihood(theta)
            value, gradient = value + of_part[0], gradient + of_part[1]
        return value, gradient

    def update(self, theta: FloatArray) -> None:
        """Iterate ξ² ← E z² at given hyperparameters."""
        hyperparameters = self.parts[0].unpack(theta)
        lower = np.tril(hyperparameters.covariance(self.x, self.x, self.n_threads))
        prior = LOGIT_UNIT**2 * (lower + np.tril(lower, -1).T)
        for _ in range(XI_ITERATIONS):
            for k in range(self.t.shape[1]):
                target, precision = pseudo_targets(self.t[:, k], self.offset[k], self.xi[:, k])
                root = np.sqrt(precision * self.weight)
                factor = cho_factor(np.eye(len(root)) + root[:, None] * prior * root, lower=True, check_finite=False)
                smoother = root[:, None] * cho_solve(factor, root[:, None] * prior, check_finite=False)
                mean = self.offset[k] + smoother.T @ target
                variance = prior.diagonal() - np.einsum("ij,ij->j", prior, smoother)
                self.xi[:, k] = np.sqrt(mean**2 + np.maximum(variance, 0.0))
        self._set_targets()


def fit_label_hyperparameters(
    x: FloatArray,
    t: FloatArray,
    sample_weight: FloatArray,
    offset: FloatArray,
    *,
    n_linear: int,
    rng: np.random.Generator,
    max_rows: int = MAX_ROWS,
    n_threads: int = 1,
    tied: NDArray[np.intp] | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Maximise the bound on the marginal likelihood of labels times the priors, as `search_hyperparameters` does.

    - `x`, (n_samples, n_inputs): standardised inputs, then their normal scores.
    - `t`, (n_samples, n_problems): labels, −1 or 1, of one-against-rest problems, which share the hyperparameters.
    - `sample_weight`, (n_samples,).
    - `offset`, (n_problems,).
    - `n_linear`: leading inputs that the linear part sees.
    - `rng`: chooses the rows.
    - `max_rows`: largest number of rows for one problem; for several, fewer, at the same cost.
    - `tied`, (n_inputs,): the length-scale of each input; see `MarginalLikelihood`.

    Returns the hyperparameters, amplitudes in squared units of `LOGIT_UNIT`, and the record of the search.
    """

    def objective(rows: NDArray[np.intp]) -> LabelMarginalLikelihood:
        return LabelMarginalLikelihood(
            x[rows], t[rows], sample_weight[rows], offset, n_linear=n_linear, n_threads=n_threads, tied=tied
        )

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(x[:, :n_linear], t, rng, n_threads)
        largest = min(len(x), max(2, round(max_rows * t.shape[1] ** (-1 / 3))))
        referee = LabelReferee(x, t, sample_weight, offset, rng, n_threads)
        return search(objective, len(x), scores, rng, max_rows=largest, referee=referee)


def regression_constant(xi: FloatArray, weight: FloatArray) -> float:
    """Log of the factor by which the Jaakkola bound at ξ differs from the density of its pseudo-targets.

    Σ ω (1/(16λ) + log σ(ξ) − ξ/2 + λξ²) + ½ log(π/λ), up to a function of the weights.
    """
    lam = jaakkola_lambda(xi)
    rows = weight * (1 / (16 * lam) + log_expit(xi) - 0.5 * xi + lam * xi**2) + 0.5 * np.log(np.pi / lam)
    return float(rows.sum())


@dataclass(frozen=True)
class LabelReferee:
    """Bound on the log evidence of a kernel's Nyström features for the labels of all rows.

    - `x`, (n_rows, n_inputs).
    - `t`, (n_rows, n_problems): −1 or 1; the bound is summed over problems.
    - `sample_weight`, (n_rows,).
    - `offset`, (n_problems,).
    - `rng`: chooses the landmarks, the same for all kernels.
    """

    x: FloatArray
    t: FloatArray
    sample_weight: FloatArray
    offset: FloatArray
    rng: np.random.Generator
    n_threads: int = 1

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return self.rng.permutation(len(self.x))[:REFEREE_ROWS]

    def __call__(self, kernel: KernelHyperparameters) -> float:
        """Return the bound."""
        landmarks = np.unique(self.x[self._order[:N_LANDMARKS]], axis=0)
        phi = NystroemFeatures.at(landmarks, kernel).transform(self.x[self._order], n_threads=self.n_threads)
        weight, total = self.sample_weight[self._order], 0.0
        for t, offset in zip(self.t[self._order].T, self.offset, strict=True):
            xi = np.ones(len(t))
            for _ in range(REFEREE_ITERATIONS):
                targets, precision = pseudo_targets(t, offset, xi)
                scaled = phi * (precision * weight)[:, None]
                posterior = FullGaussian.solve(scaled.T @ phi, np.zeros((phi.shape[1], 1)), LOGIT_UNIT**2)
                root = posterior.root
                posterior = FullGaussian(root, root @ (root.T @ (scaled.T @ targets[:, None])))
                mean, variance = posterior.latent_moments(phi)
                mean = mean[:, 0]
                xi = np.sqrt((mean + offset) ** 2 + variance)
            total += jaakkola_bound(t, mean + offset, variance, weight) - posterior.kl(LOGIT_UNIT**2)
        return total * len(self.x) / len(self._order)
