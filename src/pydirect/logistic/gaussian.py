"""The Gaussian posterior of continuous weights under the Jaakkola bound, and their prior variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.logistic.ascent import Solution, Solve
from pydirect.regression.decorrelated import NEGLIGIBLE_INFORMATION
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate

# Prior of the weights' prior variance: log-normal around the value at which z has this variance at a typical row.
TYPICAL_LOGIT_VARIANCE = 4.0
LOG_VARIANCE_SD = 1.5
# Directions are kept that would carry information at this many times the typical prior variance.
VARIANCE_MARGIN = 10.0


@dataclass(frozen=True)
class FullGaussian:
    """Posterior of continuous weights: covariance WWᵀ."""

    root: FloatArray
    mean: FloatArray

    @classmethod
    def solve(cls, gram: FloatArray, c: FloatArray, variance: float) -> FullGaussian:
        """Posterior of regression with statistics A and c, noise variance 1 and a prior of the given variance."""
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
        """KL divergence from the prior of the given variance."""
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

    @classmethod
    def wide(cls, mean_square: float) -> VariancePrior:
        """Prior around the variance at which z has its typical variance, from the mean of φᵀφ."""
        return cls(TYPICAL_LOGIT_VARIANCE / mean_square if mean_square > 0 else 1.0, LOG_VARIANCE_SD)

    def scaled(self, factor: float) -> VariancePrior:
        """Prior of the variance times a factor."""
        return VariancePrior(self.centre * factor, self.sd)

    def penalty(self, variance: float) -> float:
        """Return −log density, zero at the median."""
        return 0.5 * (np.log(variance / self.centre) / self.sd) ** 2 if self.sd > 0 else 0.0

    def step(self, variance: float, squares: float, determined: float) -> float:
        """Approximate Newton step in log variance, from ‖m‖² and the number of weights that the data determine.

        With prior variance t the evidence's gradient is ½ (‖m‖²/t − γ), its curvature at most γ/2 (MacKay 1992).
        """
        if self.sd == 0:
            return variance
        precision = self.sd**-2
        gradient = 0.5 * (squares / variance - determined) - precision * np.log(variance / self.centre)
        return float(variance * np.exp(np.clip(gradient / (0.5 * determined + precision), -2.0, 2.0)))


def gaussian_solve(variance_prior: VariancePrior) -> Solve[FullGaussian]:
    """Return the step with continuous weights: one factorisation, and a step of empirical Bayes."""

    def solve(regression: GaussianStatistics, log_variance: float) -> Solution[FullGaussian]:
        variance = float(np.exp(log_variance))
        posterior = FullGaussian.solve(regression.A, regression.c[:, 0], variance)
        cost = posterior.kl(variance) + variance_prior.penalty(variance)
        better = posterior.better_variance(variance_prior, variance)
        following = log_variance if better == variance else float(np.log(better))
        return Solution(posterior, posterior, cost, following)

    return solve


def informative_directions(statistics: GaussianStatistics, variance: float) -> FloatArray:
    """Directions of Φ about which the data carry information at any ξ: (n_weights, n_directions), orthonormal.

    2λ(ξ) is at most 1/4, so the information of a direction is at most a quarter of that of ΦᵀΦ; prior variances are
    considered up to `VARIANCE_MARGIN` times `variance`, the typical one.
    """
    rotated = decorrelate(statistics)
    informative = 0.25 * VARIANCE_MARGIN * variance * rotated.eigenvalues > NEGLIGIBLE_INFORMATION
    informative[np.argmax(rotated.eigenvalues)] = True  # one at least
    return rotated.target(0).keep(informative).vectors
