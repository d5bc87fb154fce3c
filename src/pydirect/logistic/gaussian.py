"""The Gaussian posterior of continuous weights, and their prior variance.

The functions of several classes share one covariance S. Their likelihood does not see the mean of the logits over the
classes, in whose direction weights keep their prior: of K functions K − 1 contrasts are free, and each has covariance
S, as have the logits themselves but for that direction. One factorisation serves all classes, and S = (A + I/τ)⁻¹ with
the precisions of `RowTerms` maximises the ELBO among shared covariances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from pydirect._dense import product, squared_norms
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.linear.fit import NEGLIGIBLE_INFORMATION
from pydirect.logistic.ascent import LikelihoodMoments, Solution, Solve, State
from pydirect.optimize.cholesky import ridge_factor
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate

# Prior of the weights' prior variance: log-normal around the value at which z has this variance at a typical row.
TYPICAL_LOGIT_VARIANCE = 4.0
LOG_VARIANCE_SD = 1.5
# Directions are kept that would carry information at this many times the typical prior variance.
VARIANCE_MARGIN = 10.0
# Columns of the covariance's root that are multiplied by rows at a time.
ROOT_COLUMNS = 128
# Of the search for the prior variance: most secants, their lengths, and the least curvature relative to the largest.
SECANTS = 4
SMALLEST_STEP, LARGEST_STEP = 0.02, 1.5
LEAST_CURVATURE = 0.1


@dataclass(frozen=True)
class FullGaussian:
    """Posterior of continuous weights."""

    root: FloatArray  # (n_weights, n_weights): R, upper triangular, with covariance RRᵀ for each function
    mean: FloatArray  # (n_weights, n_functions)

    @classmethod
    def solve(cls, gram: FloatArray, mean: FloatArray, variance: float) -> FullGaussian:
        """Posterior with given means, and the covariance of regression with A, noise variance 1 and a prior's."""
        try:
            factor = ridge_factor(gram.copy(), 1 / variance)
        except np.linalg.LinAlgError:
            raise np.linalg.LinAlgError("ΦᵀΦ must be positive semi-definite: rescale the features") from None
        with single_blas_thread():
            inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
        return cls(np.ascontiguousarray(np.tril(inverse).T), mean)

    @property
    def n_free(self) -> int:
        """Number of free contrasts of the functions."""
        return max(self.mean.shape[1] - 1, 1)

    def kl(self, variance: float) -> float:
        """KL divergence from the prior of the given variance."""
        return 0.5 * self._squares / variance + self.n_free * self.kl_of_spread(variance)

    def kl_of_spread(self, variance: float) -> float:
        """KL divergence of one function's weights whose mean is zero."""
        b, log_determinant = len(self.mean), 2 * np.log(self.root.diagonal()).sum()
        return float(0.5 * (self._trace / variance - b + b * np.log(variance) - log_determinant))

    def determined(self, variance: float) -> float:
        """Return γ, the number of weights that the rows determine; positive whatever rounding does."""
        return max(self.n_free * (len(self.mean) - self._trace / variance), 1e-6)

    def slope(self, variance: float) -> float:
        """Return the derivative of the log evidence in the log prior variance τ, ½ (‖m‖²/τ − γ) (MacKay 1992)."""
        return 0.5 * (self._squares / variance - self.determined(variance))

    @property
    def _trace(self) -> float:
        return float(np.vdot(self.root, self.root))

    @property
    def _squares(self) -> float:
        return float(np.vdot(self.mean, self.mean))

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (n_rows, n_functions) and variance (n_rows,) of φᵀw for rows of Φ."""
        variance = np.zeros(len(phi))
        for begin in range(0, len(self.root), ROOT_COLUMNS):  # below its diagonal, the root is zero
            columns = slice(begin, begin + ROOT_COLUMNS)
            end = min(columns.stop, len(self.root))
            variance += squared_norms(np.asarray(product(phi[:, :end], self.root[:end, columns]), dtype=np.float64))
        return product(phi, self.mean), variance


@dataclass(frozen=True)
class VariancePrior:
    """Log-normal prior of the prior variance of the weights."""

    centre: float  # its median
    sd: float  # of the logarithm; 0 fixes the variance

    @classmethod
    def wide(cls, mean_square: float, typical: float = TYPICAL_LOGIT_VARIANCE) -> VariancePrior:
        """Prior around the variance at which z has a typical one, from the mean of φᵀφ."""
        return cls(typical / mean_square if mean_square > 0 else 1.0, LOG_VARIANCE_SD)

    def scaled(self, factor: float) -> VariancePrior:
        """Prior of the variance times a factor."""
        return VariancePrior(self.centre * factor, self.sd)

    def penalty(self, variance: float) -> float:
        """Return −log density, zero at the median."""
        return 0.5 * (np.log(variance / self.centre) / self.sd) ** 2 if self.sd > 0 else 0.0

    def best(self, gram: FloatArray, posterior: FullGaussian, log_variance: float) -> float:
        """Log of the best prior variance for given A and c of the regression, by secants from where a posterior is."""
        if self.sd == 0:
            return log_variance
        precision, centre, variance = self.sd**-2, float(np.log(self.centre)), float(np.exp(log_variance))
        targets = gram @ posterior.mean + posterior.mean / variance
        slope = posterior.slope(variance) - precision * (log_variance - centre)
        curvature = 0.5 * posterior.determined(variance) + precision  # the largest it can be
        least = LEAST_CURVATURE * curvature
        for _ in range(SECANTS):
            step = float(np.clip(slope / curvature, -LARGEST_STEP, LARGEST_STEP))
            log_variance += step
            if abs(step) < SMALLEST_STEP:
                break
            variance = float(np.exp(log_variance))
            posterior = FullGaussian.solve(gram, posterior.mean, variance)
            posterior = replace(posterior, mean=posterior.root @ (posterior.root.T @ targets))
            before, slope = slope, posterior.slope(variance) - precision * (log_variance - centre)
            curvature = max((before - slope) / step, least)
        return log_variance


def gaussian_solve(
    variance_prior: VariancePrior, improved: Callable[[FullGaussian, float], LikelihoodMoments] | None = None
) -> Solve[FullGaussian]:
    """Return the step with continuous weights: one factorisation, means `improved` if given, empirical Bayes."""

    def solve(state: State) -> Solution[FullGaussian]:
        variance = float(np.exp(state.log_variance))
        posterior = FullGaussian.solve(state.gram, state.mean, variance)
        latent: FullGaussian | LikelihoodMoments = posterior
        if improved is not None:
            latent = improved(posterior, variance)
            posterior, state = replace(posterior, mean=latent.mean), replace(state, mean=latent.mean)
        cost = posterior.kl(variance) + variance_prior.penalty(variance)
        return Solution(state, posterior, latent, cost, variance_prior.best(state.gram, posterior, state.log_variance))

    return solve


def informative_directions(
    statistics: GaussianStatistics, variance: float, largest_precision: float = 0.25
) -> FloatArray:
    """Orthonormal directions of Φ, (n_weights, n_directions), about which the data say anything whatever the posterior.

    Precisions of labels are at most 1/4; prior variances are considered up to `VARIANCE_MARGIN` times `variance`, the
    typical one.
    """
    rotated = decorrelate(statistics)
    informative = largest_precision * VARIANCE_MARGIN * variance * rotated.eigenvalues > NEGLIGIBLE_INFORMATION
    informative[np.argmax(rotated.eigenvalues)] = True  # one at least
    return rotated.target(0).keep(informative).rotation.matrix
