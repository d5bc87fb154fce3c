"""Regression with Student-t noise by EM: rows weighted by how well they fit (Lange, Little & Taylor 1989).

A Student-t variable is Gaussian of precision u/s² with u a Gamma(ν/2, ν/2) variable of its own. Given the weights of
Φ, E u_i has a closed form (E step); given E u_i, the weights are those of a ridge regression with rows of weight E u_i
(M step). This is coordinate ascent of a bound on the evidence over q(w) Π q(u_i). Outliers weigh less, in the mean and
in the search of hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln
from scipy.stats import t as student_t

from pydirect._validation import FloatArray
from pydirect._warnings import warn
from pydirect.features.basis import Basis
from pydirect.features.rows import TrainingRows
from pydirect.linear.fit import InitialHyperparameters
from pydirect.linear.posterior import FactoredPosterior
from pydirect.noise.fit import NoiseFit, NoiseFound, NoiseProblem, RowMoments, squares_of
from pydirect.noise.model import STUDENT_T, TAILS, LogNoise
from pydirect.statistics.gaussian import collect_statistics, weighted_location_scale

DEGREES = 3.0
SMALLEST_SCALE = 1e-10
REACH = 20.0
MAX_PASSES = 15
# Change of any row's precision, in units of the scale's, at which passes end.
TOLERANCE = 0.02
# Rows of smaller precision are outliers, which the search of hyperparameters does without.
SMALLEST_PRECISION = 0.3
# Of all squares of targets about their median, what a few gross ones must carry to be warned of, and rows per such one.
LARGEST_SHARE, FEWEST_PER_OUTLIER = 0.5, 50
TINY = float(np.finfo(float).tiny)
# Median of the squares of Student-t variables.
MEDIAN_SQUARE = float(student_t.ppf(0.75, DEGREES) ** 2)


class TargetWarning(UserWarning):
    """A few targets are so far from all others that they may ruin a fit."""


def gross_targets(y: FloatArray) -> tuple[NDArray[np.bool_], FloatArray]:
    """Return which targets (n_rows, n_outputs) are gross, and their share of the squares where few carry most, else 0.

    Gross ones are far from the median in units of the median absolute deviation.
    """
    distance = np.abs(y - np.median(y, axis=0))
    distance = distance / np.maximum(distance.max(axis=0), TINY)  # squares stay finite
    median = np.median(distance, axis=0)
    far = (distance > REACH * median) & (median > 0)
    n_far, share = far.sum(axis=0), (distance**2 * far).sum(axis=0) / np.maximum((distance**2).sum(axis=0), TINY)
    return far, np.where((share > LARGEST_SHARE) & (n_far <= len(far) / FEWEST_PER_OUTLIER), share, 0.0)


def warn_of_gross(y: FloatArray, remedy: str, effect: str = "they may ruin the fit") -> bool:
    """Warn of gross targets (n_rows, n_outputs) as `gross_targets` finds them; return whether there are any."""
    far, share = gross_targets(y)
    for k in np.flatnonzero(share):
        warn(
            f"{far[:, k].sum()} of {len(y)} targets are farther than {REACH:g} median absolute deviations from the "
            f"median, and {share[k]:.1%} of all squares about it are theirs: {effect}. Look at them, or {remedy}",
            TargetWarning,
        )
    return bool(share.any())


def robust_scale(squares: FloatArray) -> FloatArray:
    """Return the scale s² of each column of squared residuals from their median, to start from; positive."""
    return np.asarray(np.maximum(np.median(squares, axis=0) / MEDIAN_SQUARE, SMALLEST_SCALE))


def within_reach(targets: FloatArray) -> FloatArray:
    """Return targets, (n_rows, n_outputs), none farther from the median than `REACH` median absolute deviations.

    The posterior hardly hears rows that far out, but means, deviations and the first fit, with Gaussian noise, do.
    """
    middle = np.median(targets, axis=0)
    reach = REACH * np.median(np.abs(targets - middle), axis=0)
    return np.where(reach > 0, np.clip(targets, middle - reach, middle + reach), targets)


def mean_precision(squares: FloatArray, scale: FloatArray | float, degrees: float = DEGREES) -> FloatArray:
    """Return E u of each row from its expected squared error and the scale s²."""
    return (degrees + 1) / (degrees + squares / scale)


def precision_bound(squares: FloatArray, scale: FloatArray | float, degrees: float = DEGREES) -> FloatArray:
    """Return ``½ E log u − KL(q(u) ‖ p(u))`` of each row, at the q of `mean_precision`."""
    shape, rate = 0.5 * (degrees + 1), 0.5 * (degrees + squares / scale)
    prior = 0.5 * degrees
    divergence = (shape - prior) * digamma(shape) - gammaln(shape) + gammaln(prior)
    divergence = divergence + prior * np.log(rate / prior) + shape * (prior / rate - 1)
    return np.asarray(0.5 * (digamma(shape) - np.log(rate)) - divergence)


def fit_student_t(problem: NoiseProblem, moments: RowMoments) -> tuple[NoiseFound, Basis, float]:
    """Return posteriors with noise, and the basis that rows without outliers gave, with its mean residual variance."""
    fit = StudentTFit(problem, moments)
    return fit.fit(), fit.basis, fit.residual_variance


class StudentTFit(NoiseFit):
    """The rows of a fit, and their squared errors, means and scale s² of every output."""

    def fit(self) -> NoiseFound:
        """Alternate precisions and means, learn features again, and alternate once more."""
        compared = [self.flat(mean) for mean in self.constant]
        variances = [mean.fitted[1] ** 2 for mean in self.constant]
        self.squares = np.stack([squares_of(loo) for loo in self.constant_left_out(np.arange(len(self.x)))], axis=1)
        self.scales, self.means = robust_scale(self.squares), np.empty_like(self.y)
        self._alternate(variances)
        fits = self._precisions() > SMALLEST_PRECISION
        if self.problem.features.learns_kernel and fits.any():
            self._learn_features(fits)
            unit = self.basis.target_scale
            if self.basis.hyperparameters is not None and unit is not None:
                variances = list((unit / self.problem.density_scale) ** 2)
            self._alternate(variances)
        for k, (candidates, variance) in enumerate(zip(compared, variances, strict=True)):
            precision = self._precisions()[:, k]
            average = float(np.average(precision, weights=self.counts))
            noise = float(self.scales[k]) / average
            start = InitialHyperparameters(noise, variance, noise)
            mean, _ = self.weighted(k, precision / average, start)
            bound = precision_bound(self.squares[:, k], self.scales[k]) - 0.5 * np.log(average)
            mean = replace(mean, log_weights=float(self.counts @ bound))
            scale = LogNoise.constant(float(self.scales[k]), len(self.compared))
            candidates[STUDENT_T] = self.best(mean, scale, TAILS)
        return self.result([STUDENT_T] * len(compared), compared, None)

    def _precisions(self) -> FloatArray:
        return mean_precision(self.squares, self.scales)

    def _alternate(self, variances: Sequence[float]) -> None:
        """Pass between precisions of rows and means given prior variances until the precisions rest."""
        basis = self.basis
        inputs = basis.inputs(self.x)
        for k, variance in enumerate(variances):
            for _ in range(MAX_PASSES):
                precision = mean_precision(self.squares[:, k], self.scales[k])
                weight, y = self.counts * precision, self.y[:, k]
                statistics = collect_statistics(basis.map, inputs, y[:, None], weight, n_threads=self.n_threads)
                ridge = FactoredPosterior.of(statistics, float(self.scales[k]), variance)
                mean, spread = self.moments(basis, ridge, 1)
                self.means[:, k] = mean[:, 0]
                self.squares[:, k] = (y - mean[:, 0]) ** 2 + spread[:, 0]
                self.scales[k] = max(np.average(precision * self.squares[:, k], weights=self.counts), SMALLEST_SCALE)
                if np.abs(mean_precision(self.squares[:, k], self.scales[k]) - precision).max() < TOLERANCE:
                    break

    def _learn_features(self, fits: NDArray[np.bool_]) -> None:
        """Fit the feature map to the rows that are no outliers; `fits`, (n_rows, n_outputs), says in which outputs.

        Means stand for outliers of rows that others of their outputs keep: of many outputs hardly a row has none.
        """
        kept = fits.any(axis=1)
        y, weight = np.where(fits, self.y, self.means)[kept], self.counts[kept]
        location, scale = weighted_location_scale(y, weight)
        scale = np.where(scale > 0, scale, 1.0)
        rows = TrainingRows(self.x[kept], (y - location) / scale, weight)
        self.basis = self.problem.learned(rows, scale * self.problem.density_scale)
        inputs, counts = self.basis.inputs(self.x), self.counts
        mean_square = collect_statistics(self.basis.map, inputs, self.y, counts, n_threads=self.n_threads).mean_square
        self.residual_variance = self.basis.mean_missing_variance(inputs, counts, mean_square)
