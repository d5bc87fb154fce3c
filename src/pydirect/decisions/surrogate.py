"""A Gaussian process for expensive functions: exact on few rows, of bounded cost on many, and with gradients.

The prior is a constant plus a Matérn process with ν = 5/2 and a length-scale per column. Rows are landmarks of
Nyström features, Φ(x) = k(x, Z)L⁻ᵀ, while there are few: the process is then exact. A row that comes later becomes a
landmark, too, which adds a row to L and a weight that earlier landmarks do not change,

    l = L⁻¹k(Z, z),   λ² = k(z, z) − lᵀl,   φ_new(x) = (k(x, z) − lᵀΦ(x))/λ,

and the posterior of all weights follows by one update of rank one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from scipy.stats import rankdata

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.derivatives import radial_pull
from pydirect.features.kernel import KernelHyperparameters, PreparedRows
from pydirect.features.maps import cholesky_with_jitter
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.race import Patience, RaceRun, descend, race
from pydirect.linear.recursive import RecursivePosterior
from pydirect.statistics.gaussian import GaussianStatistics

SMOOTHNESS = 2.5
# Prior mean and scale of the logarithms of noise variance, amplitude and length-scales (at one column) of functions of
# little noise; the noise variance is in units of the targets' variance.
LOG_NOISE = (-8.0, 3.0)
LOG_AMPLITUDE = (0.0, 1.0)
LOG_LENGTH_SCALE = (-0.7, 1.0)
LOG_NOISE_BOUNDS = (float(np.log(1e-8)), float(np.log(4.0)))
# Share of the prior variance below which a new row is as good as a landmark already.
SEEN = 1e-7


class SmoothLikelihood(MarginalLikelihood):
    """Marginal likelihood of a smooth process alone, without linear and rough parts, of possibly no noise."""

    smoothness = SMOOTHNESS

    def __init__(self, x: FloatArray, y: FloatArray, tied: NDArray[np.intp]) -> None:
        super().__init__(x, y[:, None], np.ones(len(x)), 0, tied)
        d = self.d
        centre = LOG_LENGTH_SCALE[0] + 0.5 * np.log(d)
        self.mean = np.r_[LOG_NOISE[0], LOG_AMPLITUDE[0], np.full(d, centre), np.zeros(3)]
        self.sd = np.r_[LOG_NOISE[1], LOG_AMPLITUDE[1], np.full(d, LOG_LENGTH_SCALE[1]), np.ones(3)]
        self.start = np.r_[np.log(1e-3), 0.0, np.full(d, centre), -30.0, 0.0, -30.0]

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of θ, of the parts that are left out as well."""
        return [LOG_NOISE_BOUNDS, *[(-8.0, 8.0)] * (self.d + 1), (-30.0, -30.0), (0.0, 0.0), (-30.0, -30.0)]


def fit_kernel(
    x: FloatArray, y: FloatArray, tied: NDArray[np.intp], earlier: FloatArray | None
) -> tuple[KernelHyperparameters, FloatArray]:
    """Return the hyperparameters of largest posterior density and their θ, from that of an earlier search if given."""
    with single_blas_thread(), np.errstate(under="ignore"):
        likelihood = SmoothLikelihood(x, y, tied)
        short, noisy = likelihood.start.copy(), likelihood.start.copy()
        short[2 : 2 + likelihood.d] -= 1.2  # shorter length-scales
        noisy[0] = np.log(0.3)
        starts = [likelihood.start, short, noisy] if earlier is None else [earlier, likelihood.start]
        runs = race(likelihood, [RaceRun("", theta, smoothness=SMOOTHNESS) for theta in starts])
        best = descend(likelihood, min(runs, key=lambda run: run.value), 40, Patience(6, 0.0005))
        kernel = replace(likelihood.at(SMOOTHNESS).unpack(best.theta), isotropic_amplitude=0.0, linear_amplitude=0.0)
    return kernel, best.theta


@dataclass(frozen=True)
class Surrogate:
    """A Gaussian process conditioned on rows: landmarks Z, L, and the posterior N(m, S) of the weights of Φ.

    Means and variances are μ = k(x, Z)α, α = L⁻ᵀm, and σ² = k(x, x) − k(x, Z) M k(Z, x), M = L⁻ᵀ(I − S)L⁻¹.
    """

    kernel: KernelHyperparameters
    landmarks: FloatArray
    factor: FloatArray
    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, kernel: KernelHyperparameters, landmarks: FloatArray, x: FloatArray, y: FloatArray) -> Self:
        """Condition on rows x, (n_rows, n_inputs), with targets y, (n_rows,)."""
        with single_blas_thread():
            covariance = kernel.covariance(landmarks, landmarks)
            factor = cholesky_with_jitter(covariance, float(covariance.diagonal().mean()))
            if factor is None:
                raise ValueError("the covariance of the landmarks cannot be factorised")
            phi = solve_triangular(factor, kernel.covariance(x, landmarks).T, lower=True, check_finite=False).T
        posterior = RecursivePosterior.of(GaussianStatistics.from_arrays(phi, y), kernel.noise_variance)
        return cls(kernel, landmarks, np.tril(factor), posterior.mean, posterior.covariance)

    def learned(self, x: FloatArray, y: FloatArray, rng: np.random.Generator | None = None) -> Self:
        """Return it with more rows, which become landmarks unless those there represent them.

        Targets that are NaN are not known yet: they are drawn from the process, one after another.
        """
        landmarks, factor, mean, covariance = self.landmarks, self.factor, self.mean, self.covariance
        for row, prior, target in zip(x[:, None], self.kernel.diagonal(x), y, strict=True):
            phi = solve_triangular(factor, self.kernel.covariance(row, landmarks)[0], lower=True, check_finite=False)
            rest = prior - phi @ phi
            if rest > SEEN * prior:
                phi, above = np.append(phi, np.sqrt(rest)), np.zeros((len(phi), 1))
                landmarks, factor = np.vstack([landmarks, row]), np.vstack([np.hstack([factor, above]), phi])
                mean, covariance = np.append(mean, 0.0), block_diag(covariance, 1.0)
            gain = covariance @ phi
            f, variance = phi @ mean, phi @ gain
            if rng is not None and np.isnan(target):
                target = f + np.sqrt(variance) * rng.standard_normal()
            total = variance + self.kernel.noise_variance
            mean = mean + gain * ((target - f) / total)
            covariance = covariance - np.outer(gain, gain) / total
        return replace(self, landmarks=landmarks, factor=factor, mean=mean, covariance=covariance)

    @cached_property
    def _prepared(self) -> tuple[PreparedRows, FloatArray, FloatArray]:
        """The landmarks, α and M."""
        with single_blas_thread():
            known = np.eye(len(self.factor)) - self.covariance
            half = solve_triangular(self.factor, known, lower=True, trans=1)
            matrix = solve_triangular(self.factor, half.T, lower=True, trans=1)
            weights = solve_triangular(self.factor, self.mean, lower=True, trans=1)
        return self.kernel.prepared(self.landmarks), weights, 0.5 * (matrix + matrix.T)

    def moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of f, without the noise; (n_rows,) each."""
        return self._moments(x)[:2]

    def _moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, standard deviation, and k(x, Z)M, (n_rows, n_landmarks)."""
        others, weights, matrix = self._prepared
        with single_blas_thread():
            k, prior = self.kernel.covariance(x, others), self.kernel.diagonal(x)
            image = k @ matrix
            variance = prior - np.einsum("ij,ij->i", k, image)
            return k @ weights, np.sqrt(np.maximum(variance, 1e-12 * prior)), image

    def gradients(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean, standard deviation, (n_rows,) each, and their gradients, (n_rows, n_inputs) each."""
        mean, std, image = self._moments(x)
        scales = self.kernel.length_scales
        rows, others = x / scales, self.landmarks / scales
        slope = -self.kernel.ard_amplitude * radial_pull(cdist(rows, others), self.kernel.smoothness)

        def along(coefficients: FloatArray) -> FloatArray:
            weight = slope * coefficients
            return (rows * weight.sum(axis=1)[:, None] - weight @ others) / scales

        with single_blas_thread():
            return mean, std, along(self._prepared[1]), -along(image) / std[:, None]


# Landmarks of a surrogate: what bounds its cost. Half of them are the rows that matter most.
MAX_LANDMARKS = 300
# Rows between two searches of hyperparameters grow by this factor.
GROWTH = 1.1
# Values whose squares can be summed; larger ones count as infinite.
LARGEST = 1e150


def standardised(seen: FloatArray, values: FloatArray) -> FloatArray:
    """Return values of a function that is maximised, standardised as those `seen`, with the worse half as a normal's.

    How bad bad values are tells nothing of where the best ones are, but would set the scale (the half-rank warping of
    Song et al. 2024, The Vizier Gaussian process bandit algorithm, section 3.1.1). Order is kept; values between known
    ones follow by interpolation.
    """
    finite = seen[np.abs(seen) <= LARGEST]
    seen = np.clip(seen, finite.min(initial=0.0), finite.max(initial=0.0))
    middle = float(np.median(seen))
    spread = float(np.sqrt(np.mean((seen[seen >= middle] - middle) ** 2)))
    quantiles = spread * ndtri((rankdata(seen) - 0.5) / len(seen))
    warped = np.where(seen >= middle, seen, middle + np.minimum(quantiles, 0.0))
    known, index = np.unique(seen, return_index=True)
    beyond = np.where(np.abs(values) <= LARGEST, np.maximum(values - known[-1], 0.0), 0.0)
    return np.asarray((np.interp(values, known, warped[index]) + beyond - warped.mean()) / (warped.std() or 1.0))


def signed(seen: FloatArray, values: FloatArray) -> FloatArray:
    """Return values of a constraint, feasible up to zero: arsinh(c), c in units of their size, standardised as `seen`.

    Large violations are compressed, as by the bilog transform of Eriksson & Poloczek (2021, Scalable constrained
    Bayesian optimization, section 3), but without its kink at zero.
    """
    apart = np.abs(seen[np.isfinite(seen) & (seen != 0)])
    size = float(np.median(apart)) if len(apart) else 1.0
    known, found = (np.arcsinh(np.nan_to_num(c / size, posinf=1e100, neginf=-1e100)) for c in (seen, values))
    return np.asarray((found - known.mean()) / (known.std() or 1.0))


class LearnedFunction:
    """One function on the inputs of a box, an objective or a constraint, from the rows at which it is known.

    Between searches of the hyperparameters, whose number of rows grows geometrically, a row costs one update of rank
    one. With more than `MAX_LANDMARKS` rows the surrogate is built anew whenever a third as many have become landmarks.
    """

    def __init__(self, tied: NDArray[np.intp], *, is_constraint: bool = False) -> None:
        self._tied, self._is_constraint = tied, is_constraint
        self._x, self.values = np.empty((0, len(tied))), np.empty(0)
        self._seen = self.values  # when the surrogate was built
        self._theta: FloatArray | None = None
        self._next_search, self._n_used = 0, 0
        self._surrogate: Surrogate | None = None

    def add(self, x: FloatArray, values: FloatArray) -> None:
        """Add rows x, (n_rows, n_inputs), and values, (n_rows,), of which NaN are unknown."""
        known = ~np.isnan(values)
        self._x, self.values = np.vstack([self._x, x[known]]), np.append(self.values, values[known])

    def units(self, values: FloatArray) -> FloatArray:
        """Return values in the units of the surrogate."""
        return (signed if self._is_constraint else standardised)(self._seen, values)

    def surrogate(self, rng: np.random.Generator) -> Surrogate:
        """Return the surrogate of all rows so far."""
        found, n, new = self._surrogate, len(self._x), slice(self._n_used, None)
        if found is None or n >= self._next_search or len(found.landmarks) >= MAX_LANDMARKS * 4 // 3:
            found = self._built(n, rng)
        else:
            found = found.learned(self._x[new], self.units(self.values[new]))
        self._surrogate, self._n_used = found, n
        return found

    def _built(self, n: int, rng: np.random.Generator) -> Surrogate:
        """Return a surrogate of all n rows with new landmarks and, if it is time, hyperparameters."""
        # Landmarks are all rows, or those that matter most, constraints near zero, and others by chance.
        chosen = np.argsort(np.abs(self.values) if self._is_constraint else -self.values, kind="stable")
        if n > MAX_LANDMARKS:
            first, rest = np.split(chosen, [MAX_LANDMARKS // 2])
            chosen = np.append(first, rng.choice(rest, MAX_LANDMARKS - len(first), replace=False))
        self._seen = self.values
        y = self.units(self.values)
        if n >= self._next_search:
            self._kernel, self._theta = fit_kernel(self._x[chosen], y[chosen], self._tied, self._theta)
            self._next_search = max(n + 1, math.ceil(GROWTH * n))
        return Surrogate.of(self._kernel, np.unique(self._x[chosen], axis=0), self._x, y)
