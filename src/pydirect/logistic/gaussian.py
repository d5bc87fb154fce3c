"""The Gaussian posterior of continuous weights under the Jaakkola bound, and where it starts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_generator
from pydirect.logistic.ascent import AscentState, Step, climb, heed
from pydirect.logistic.bound import jaakkola_bound, log_xi_of
from pydirect.logistic.rows import LabelledRows
from pydirect.regression.decorrelated import NEGLIGIBLE_INFORMATION
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate

# Prior of the prior variance t of the weights: log-normal about where the variance of z is this at a typical row.
TYPICAL_LOGIT_VARIANCE = 4.0
LOG_VARIANCE_SD = 1.5
# Rows of the fit from which one to many more starts.
START_ROWS = 4_000
START_ROWS_PER_WEIGHT = 8
# Passes over the rows by batches, and the exponent with which their steps get shorter.
STOCHASTIC_EPOCHS = 2
STOCHASTIC_DECAY = 0.6


def continuous_log_xi(
    rows: LabelledRows,
    levels: ArrayLike,
    log_prior: ArrayLike,
    max_iter: int,
    batch_size: int | None,
    random_state: int,
    stop: threading.Event,
) -> FloatArray:
    """Log ξ of continuous weights with the prior's variance: from elsewhere coarse levels could hold q back."""
    w, mass = np.broadcast_arrays(np.atleast_2d(np.asarray(levels)), np.exp(np.atleast_2d(np.asarray(log_prior))))
    mass = mass / mass.sum(axis=1, keepdims=True)
    variance = float(((mass * w**2).sum(axis=1) - (mass * w).sum(axis=1) ** 2).mean())
    if not variance > 0:  # a prior on one level only
        return np.zeros(rows.n_samples)
    prior = VariancePrior(variance, 0.0)
    start = starting_point(rows, prior, max_iter, batch_size, random_state, stop)
    return climb(gaussian_step(rows, prior), start, max_iter, stop)[0].following[:-1]


# --- the decorrelated basis


def informative_directions(statistics: GaussianStatistics, variance: float) -> FloatArray:
    """Directions of Φ on which the data can say anything, whatever ξ: (n_weights, n_directions), orthonormal.

    2λ(ξ) is at most 1/4, so the information of a direction is at most a quarter of that of ΦᵀΦ; `variance` is the
    largest prior variance considered.
    """
    rotated = decorrelate(statistics)
    informative = 0.25 * variance * rotated.eigenvalues > NEGLIGIBLE_INFORMATION
    informative[np.argmax(rotated.eigenvalues)] = True  # one at least
    return rotated.keep(informative).vectors


def typical_variance(mean_square: float) -> float:
    """Prior variance of the weights at which z has its typical variance, from the mean of φᵀφ."""
    return TYPICAL_LOGIT_VARIANCE / mean_square if mean_square > 0 else 1.0


@dataclass(frozen=True)
class FullGaussian:
    """Posterior of continuous weights: covariance WWᵀ."""

    root: FloatArray
    mean: FloatArray

    @classmethod
    def solve(cls, gram: FloatArray, c: FloatArray, variance: float) -> FullGaussian:
        """Posterior of regression with statistics A and c, noise 1 and a prior of this variance."""
        precision = gram.copy()
        np.einsum("jj->j", precision)[...] += 1 / variance
        with single_blas_thread():
            factor, info = lapack.dpotrf(precision, lower=1, overwrite_a=1)
            if info != 0:
                raise np.linalg.LinAlgError("ΦᵀΦ must be positive semi-definite: rescale the features")
            inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
        root = np.ascontiguousarray(np.tril(inverse).T)
        return cls(root, root @ (root.T @ c))

    def kl(self, variance: float) -> float:
        """KL divergence from the prior of this variance."""
        b, log_determinant = len(self.mean), 2 * np.log(self.root.diagonal()).sum()
        return float(0.5 * (self._second_moments / variance - b + b * np.log(variance) - log_determinant))

    def better_variance(self, variance_prior: VariancePrior, variance: float) -> float:
        """Prior variance after a step of empirical Bayes."""
        squares = float(self.mean @ self.mean)
        trace = self._second_moments - squares
        # γ, positive whatever rounding does
        determined = max(len(self.mean) - trace / variance, 1e-6)
        return variance_prior.step(variance, squares, determined)

    @property
    def _second_moments(self) -> float:
        return float(np.vdot(self.root, self.root)) + float(self.mean @ self.mean)

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of φᵀw for rows of Φ; (n_rows,) each."""
        turned = phi @ self.root
        return phi @ self.mean, np.einsum("ij,ij->i", turned, turned)


@dataclass(frozen=True)
class VariancePrior:
    """Log-normal prior of the prior variance of the weights.

    Parameters
    ----------
    centre : float
        Its median.
    sd : float
        Of the logarithm; 0 fixes the variance.
    """

    centre: float
    sd: float

    def penalty(self, variance: float) -> float:
        """Return −log density, zero at the median."""
        return 0.5 * (np.log(variance / self.centre) / self.sd) ** 2 if self.sd > 0 else 0.0

    def step(self, variance: float, squares: float, determined: float) -> float:
        """Approximate Newton step in log variance, from ‖m‖² and the number of weights that the data determine.

        The evidence's gradient is ½ (‖m‖²/t − γ), its curvature at most γ/2 (MacKay 1992).
        """
        if self.sd == 0:
            return variance
        precision = self.sd**-2
        gradient = 0.5 * (squares / variance - determined) - precision * np.log(variance / self.centre)
        return float(variance * np.exp(np.clip(gradient / (0.5 * determined + precision), -2.0, 2.0)))


def gaussian_step(rows: LabelledRows, variance_prior: VariancePrior) -> Step:
    """Step of ξ and the prior variance with continuous weights, by one factorisation: parameters log ξ, log t."""

    def step(parameters: FloatArray) -> AscentState:
        xi, variance = np.exp(parameters[:-1]), float(np.exp(parameters[-1]))
        statistics = rows.weighted_statistics(xi)
        posterior = FullGaussian.solve(statistics.A, statistics.c[:, 0], variance)
        mean, spread = rows.moments(posterior)
        kl = posterior.kl(variance)
        bound = jaakkola_bound(rows.t, mean, spread, rows.weight) - kl - variance_prior.penalty(variance)
        log_xi = log_xi_of(mean, spread)
        new = posterior.better_variance(variance_prior, variance)
        following = np.append(log_xi, np.log(new))
        safe = following if new == variance else np.append(log_xi, parameters[-1])
        return AscentState(posterior, variance, bound, following, safe)

    return step


def starting_point(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    max_iter: int,
    batch_size: int | None,
    random_state: int,
    stop: threading.Event,
) -> FloatArray:
    """Parameters of the Gaussian step to start from: by batches, or from a fit to some of the rows where are many."""
    if batch_size is not None:
        return _stochastic_start(rows, variance_prior, batch_size, as_generator(random_state), stop)
    start = np.append(np.zeros(rows.n_samples), np.log(variance_prior.centre))
    size = start_size(rows)
    if rows.n_samples < 2 * size:
        return start
    begin = np.append(np.zeros(size), start[-1])
    found, _ = climb(gaussian_step(rows.sample(size), variance_prior), begin, max_iter, stop)
    return np.append(log_xi_of(*rows.moments(found.posterior)), np.log(found.variance))


def start_size(rows: LabelledRows) -> int:
    """Return how many rows to start from."""
    return max(START_ROWS, START_ROWS_PER_WEIGHT * rows.n_weights)


def _stochastic_start(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    batch_size: int,
    rng: np.random.Generator,
    stop: threading.Event,
) -> FloatArray:
    """Natural gradients from batches of rows (Hoffman et al. 2013), a few epochs.

    The natural parameters of the Gaussian are A + I/t and c at the best ξ, sums over rows: a step mixes in the sums of
    a batch, as if all rows were like it, at the ξ of the weights as they are.
    """
    gram, c = np.zeros((rows.n_weights, rows.n_weights)), np.zeros(rows.n_weights)
    variance, posterior, n_steps = variance_prior.centre, None, 0
    batches = (pair for _ in range(STOCHASTIC_EPOCHS) for pair in rows.batches(batch_size, rng))
    try:
        for batch, repetitions in batches:
            heed(stop)
            xi = np.ones(batch.n_samples) if posterior is None else np.exp(log_xi_of(*batch.moments(posterior)))
            statistics = batch.weighted_statistics(xi)
            n_steps += 1
            rate = n_steps**-STOCHASTIC_DECAY
            gram += rate * (repetitions * statistics.A - gram)
            c += rate * (repetitions * statistics.c[:, 0] - c)
            posterior = FullGaussian.solve(gram, c, variance)
            variance = posterior.better_variance(variance_prior, variance)
    except KeyboardInterrupt:
        stop.set()
    if posterior is None:
        return np.append(np.zeros(rows.n_samples), np.log(variance))
    return np.append(log_xi_of(*rows.moments(posterior)), np.log(variance))


def mean_square(rows: LabelledRows) -> float:
    """Mean of φᵀφ over the rows."""
    squares: Any = sum(rows.map_blocks(lambda phi, part: rows.weight[part] @ np.einsum("ij,ij->i", phi, phi)))
    return float(squares) / float(rows.weight.sum())
