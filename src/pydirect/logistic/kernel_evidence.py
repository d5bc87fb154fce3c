"""Kernel hyperparameters by empirical Bayes, from labels instead of targets.

For given ξ, Jaakkola and Jordan's bound on the logistic likelihood is a Gaussian likelihood of pseudo-targets, each
with its own noise variance. The marginal likelihood of this regression, maximised alternately with ξ, is a bound on
that of the labels.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.evidence import FIRST_ROWS, MAX_ROWS
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.logistic.bound import pseudo_targets

# Unit of logits: divided by it, they have the priors of standardised targets.
LOGIT_UNIT = 3.0
# Number of updates of ξ between two searches for the hyperparameters.
XI_ITERATIONS = 4


class LabelMarginalLikelihood:
    """Negative log posterior of the log parameters θ under the Jaakkola bound, summed over one-against-rest problems.

    - `x`, (n_rows, n_inputs).
    - `t`, (n_rows, n_problems): labels, −1 or 1.
    - `weight`, (n_rows,).
    - `offset`, (n_problems,): prior means of the logits.
    """

    def __init__(
        self, x: FloatArray, t: FloatArray, weight: FloatArray, offset: FloatArray, *, n_linear: int, n_threads: int
    ) -> None:
        self.x, self.t, self.weight, self.offset, self.n_threads = x, t, weight, offset, n_threads
        self.xi = np.ones_like(t)
        self.parts = [MarginalLikelihood(x, t[:, k, None], weight, n_linear, n_threads) for k in range(t.shape[1])]
        self._set_targets()

    def _set_targets(self) -> None:
        targets, precision = pseudo_targets(self.t, self.offset, self.xi)
        for k, part in enumerate(self.parts):
            part.y, part.weight = targets[:, k, None] / LOGIT_UNIT, precision[:, k] * self.weight

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the value, up to a function of ξ alone, and the gradient."""
        value, gradient = self.parts[0].penalty(theta)
        for part in self.parts:
            of_part = part.negative_log_likelihood(theta)
            value, gradient = value + of_part[0], gradient + of_part[1]
        return value, gradient

    def start(self) -> FloatArray:
        """Return θ to start from, with the noise variance of the bound: 1 in units of the logit."""
        theta = self.parts[0].start.copy()
        theta[0] = -2 * np.log(LOGIT_UNIT)
        return theta

    def update_xi(self, theta: FloatArray) -> None:
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
) -> KernelHyperparameters:
    """Maximise the bound on the marginal likelihood of labels times the priors, as `fit_hyperparameters` does.

    - `x`, (n_samples, n_inputs): standardised inputs, then their normal scores.
    - `t`, (n_samples, n_problems): labels, −1 or 1, of one-against-rest problems, which share the hyperparameters.
    - `sample_weight`, (n_samples,).
    - `offset`, (n_problems,).
    - `n_linear`: leading inputs that the linear part sees.
    - `rng`: chooses the rows.
    - `max_rows`: largest number of rows for one problem; for several, fewer, at the same cost.

    Returns the hyperparameters, amplitudes in squared units of `LOGIT_UNIT`.
    """
    weight = sample_weight
    order = rng.permutation(len(x))
    largest = min(len(x), max(2, round(max_rows * t.shape[1] ** (-1 / 3))))
    # Rows, and L-BFGS iterations between updates of ξ.
    stages: list[tuple[int, tuple[int, ...]]]
    if largest <= FIRST_ROWS:
        stages = [(largest, (5,) * 10)]
    else:
        stages = [(FIRST_ROWS, (5,) * 10), (largest, (5, 5))]
    theta, n_evaluations = None, 0
    with single_blas_thread():
        for rows, rounds in stages:
            chosen = np.sort(order[:rows])
            objective = LabelMarginalLikelihood(
                x[chosen], t[chosen], weight[chosen], offset, n_linear=n_linear, n_threads=n_threads
            )
            theta = objective.start() if theta is None else theta
            bounds = [(theta[0], theta[0])] + [(-12.0, 12.0)] * (len(theta) - 1)
            for max_iter in rounds:
                objective.update_xi(theta)
                options = {"maxiter": max_iter, "maxfun": max_iter + 10, "ftol": 1e-7, "maxcor": 20}
                best = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
                theta, n_evaluations = best.x, n_evaluations + best.nfev
    assert theta is not None
    return objective.parts[0].unpack(theta, n_evaluations)
