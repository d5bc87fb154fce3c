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
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from scipy.stats import rankdata

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.derivatives import matern_pull
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
        super().__init__(x, y[:, None], np.ones(len(x)), 0, 1, tied)
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
        short = likelihood.start.copy()
        short[2 : 2 + likelihood.d] -= 1.2
        noisy = likelihood.start.copy()
        noisy[0] = np.log(0.3)
        starts = [
            RaceRun("long", likelihood.start, smoothness=SMOOTHNESS),
            RaceRun("short", short, smoothness=SMOOTHNESS),
        ]
        starts.append(RaceRun("noisy", noisy, smoothness=SMOOTHNESS))
        if earlier is not None and len(earlier) == len(short):
            starts = [RaceRun("earlier", earlier, smoothness=SMOOTHNESS), *starts[:1]]
        best = min(race(likelihood, starts), key=lambda run: run.value)
        best = descend(likelihood, best, 40, Patience(6, 0.0005))
        kernel = replace(likelihood.at(SMOOTHNESS).unpack(best.theta), isotropic_amplitude=0.0, linear_amplitude=0.0)
    return kernel, best.theta


@dataclass
class Surrogate:
    """A Gaussian process conditioned on rows, with landmarks, L, and the posterior of the weights of Φ."""

    kernel: KernelHyperparameters
    landmarks: FloatArray
    factor: FloatArray
    posterior: RecursivePosterior

    @classmethod
    def of(cls, kernel: KernelHyperparameters, landmarks: FloatArray, x: FloatArray, y: FloatArray) -> Self:
        """Condition on rows x, (n_rows, n_inputs), with targets y, (n_rows,)."""
        with single_blas_thread():
            covariance = kernel.covariance(landmarks, landmarks)
            factor = cholesky_with_jitter(covariance, float(covariance.diagonal().mean()))
        if factor is None:
            raise ValueError("the covariance of the landmarks cannot be factorised")
        own = cls(kernel, landmarks, np.tril(factor), RecursivePosterior.prior(len(landmarks), kernel.noise_variance))
        own.posterior = RecursivePosterior.of(GaussianStatistics.from_arrays(own.features(x), y), kernel.noise_variance)
        return own

    @property
    def noise_variance(self) -> float:
        """Variance of the noise."""
        return self.posterior.noise_variance

    def copy(self) -> Self:
        """Return an independent copy."""
        return replace(self, posterior=self.posterior.copy())

    def features(self, x: FloatArray) -> FloatArray:
        """Return Φ, (n_rows, n_landmarks)."""
        with single_blas_thread():
            k = self.kernel.covariance(x, self.landmarks)
            return np.asarray(solve_triangular(self.factor, k.T, lower=True, check_finite=False).T)

    def learn(self, x: FloatArray, y: FloatArray) -> Self:
        """Add rows, one after another, in place; new ones become landmarks."""
        for row, target in zip(x[:, None], y, strict=True):
            self._add_landmark(row)
            self.posterior.update(self.features(row), np.array([target]))
        return self

    def believe(self, x: FloatArray, rng: np.random.Generator) -> Self:
        """Add rows whose targets are not known yet, as drawn from the process, one after another, in place."""
        for row in x[:, None]:
            mean, std = self.moments(row)
            self.learn(row, mean + std * rng.standard_normal(1))
        return self

    def _add_landmark(self, z: FloatArray) -> None:
        """Make a row, (1, n_inputs), a landmark unless those there are represent it."""
        phi = self.features(z)[0]
        prior = float(self.kernel.diagonal(z)[0])
        rest = prior - float(phi @ phi)
        if rest <= SEEN * prior:
            return
        b = len(phi)
        factor, covariance = np.zeros((b + 1, b + 1)), np.zeros((b + 1, b + 1))
        factor[:b, :b], factor[b, :b], factor[b, b] = self.factor, phi, np.sqrt(rest)
        covariance[:b, :b], covariance[b, b] = self.posterior.covariance, self.posterior.prior_variance
        self.landmarks, self.factor = np.vstack([self.landmarks, z]), factor
        self.posterior = replace(self.posterior, mean=np.append(self.posterior.mean, 0.0), covariance=covariance)

    def moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of f, without the noise; (n_rows,) each."""
        phi = self.features(x)
        mean, variance = self.posterior.moments(phi)
        residual = np.maximum(self.kernel.diagonal(x) - np.einsum("ij,ij->i", phi, phi), 0.0)
        return mean, np.sqrt(variance + residual)

    def prepared(self) -> PreparedSurrogate:
        """Return what predicts quickly: weights of k(x, Z) for means, and a matrix for variances."""
        with single_blas_thread():
            known = np.eye(len(self.factor)) - self.posterior.covariance
            half = solve_triangular(self.factor, known, lower=True, trans=1)
            matrix = solve_triangular(self.factor, half.T, lower=True, trans=1)
            weights = solve_triangular(self.factor, self.posterior.mean, lower=True, trans=1)
        return PreparedSurrogate(self.kernel, self.landmarks, weights, 0.5 * (matrix + matrix.T))


@dataclass(frozen=True)
class PreparedSurrogate:
    """Moments and gradients: μ = k(x, Z)α, α = L⁻ᵀm, and σ² = k(x, x) − k(x, Z) M k(Z, x), M = L⁻ᵀ(I − S)L⁻¹."""

    kernel: KernelHyperparameters
    landmarks: FloatArray
    weights: FloatArray
    matrix: FloatArray

    @cached_property
    def _others(self) -> PreparedRows:
        return self.kernel.prepared(self.landmarks)

    def moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of f, without the noise; (n_rows,) each."""
        with single_blas_thread():
            k = self.kernel.covariance(x, self._others)
            return k @ self.weights, self._std(x, k, k @ self.matrix)

    def gradients(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean, standard deviation, (n_rows,) each, and their gradients, (n_rows, n_inputs) each."""
        with single_blas_thread():
            k = self.kernel.covariance(x, self._others)
            km = k @ self.matrix
            std = self._std(x, k, km)
            scaled, others = x / self.kernel.length_scales, self.landmarks / self.kernel.length_scales
            order = 2 * self.kernel.smoothness
            distance = np.sqrt(order) * cdist(scaled, others)
            slope = -order * self.kernel.ard_amplitude * matern_pull(distance, self.kernel.smoothness)

            def along(coefficients: FloatArray) -> FloatArray:
                weight = slope * coefficients
                return (scaled * weight.sum(axis=1)[:, None] - weight @ others) / self.kernel.length_scales

            return k @ self.weights, std, along(self.weights), -along(km) / std[:, None]

    def _std(self, x: FloatArray, k: FloatArray, km: FloatArray) -> FloatArray:
        prior = self.kernel.diagonal(x)
        variance = prior - np.einsum("ij,ij->i", k, km)
        return np.sqrt(np.maximum(variance, 1e-12 * prior))


# Landmarks of a surrogate: what bounds its cost. Half of them are the rows that matter most.
MAX_LANDMARKS = 300
# Rows between two searches of hyperparameters grow by this factor.
GROWTH = 1.1
# Values whose squares can be summed; larger ones count as infinite.
LARGEST = 1e150


class StandardisedTargets:
    """Values of a function that is maximised: standardised, after the worse half was brought to a normal's quantiles.

    How bad bad values are tells nothing of where the best ones are, but would set the scale (the half-rank warping of
    Song et al. 2024, The Vizier Gaussian process bandit algorithm, section 3.1.1). Order is kept.
    """

    def __init__(self, values: FloatArray) -> None:
        finite = values[np.abs(values) <= LARGEST]
        values = np.clip(values, finite.min(initial=0.0), finite.max(initial=0.0))
        middle = float(np.median(values))
        spread = float(np.sqrt(np.mean((values[values >= middle] - middle) ** 2)))
        quantiles = spread * ndtri((rankdata(values) - 0.5) / len(values))
        warped = np.where(values >= middle, values, middle + np.minimum(quantiles, 0.0))
        self.known, index = np.unique(values, return_index=True)
        self.warped = warped[index]
        self.mean, self.scale = float(warped.mean()), float(warped.std()) or 1.0

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return values in the surrogate's units, those between known ones by interpolation."""
        beyond = np.where(np.abs(values) <= LARGEST, np.maximum(values - self.known[-1], 0.0), 0.0)
        return (np.interp(values, self.known, self.warped) + beyond - self.mean) / self.scale

    def priority(self, values: FloatArray) -> FloatArray:
        """Return how much each row matters, (n_rows,)."""
        return values


class Signed:
    """Values of a constraint, feasible up to zero: arsinh(c) in units of their size, which keeps the sign.

    Large violations are compressed, as by the bilog transform of Eriksson & Poloczek (2021, Scalable constrained
    Bayesian optimization, section 3), but without its kink at zero.
    """

    threshold: float

    def __init__(self, values: FloatArray) -> None:
        size = np.abs(values[np.isfinite(values) & (values != 0)])
        self.size = float(np.median(size)) if len(size) else 1.0
        shaped = self._shaped(values)
        self.mean, self.scale = float(shaped.mean()), float(shaped.std()) or 1.0
        self.threshold = -self.mean / self.scale

    def _shaped(self, values: FloatArray) -> FloatArray:
        limit = np.nan_to_num(values / self.size, posinf=1e100, neginf=-1e100)
        return np.asarray(np.arcsinh(limit))

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return values in the surrogate's units."""
        return (self._shaped(values) - self.mean) / self.scale

    def priority(self, values: FloatArray) -> FloatArray:
        """Return how much each row matters, (n_rows,): those near zero most."""
        return -np.abs(values)


class LearnedFunction:
    """One function on the inputs of a box, from the rows at which it is known.

    Between searches of the hyperparameters, whose number of rows grows geometrically, a row costs one update of rank
    one. With more than `MAX_LANDMARKS` rows the surrogate is built anew whenever a third as many have become landmarks.
    """

    def __init__(
        self, tied: NDArray[np.intp], units: type[StandardisedTargets] | type[Signed], rng: np.random.Generator
    ) -> None:
        self._tied, self._make_units, self.rng = tied, units, rng
        self._x, self.values = np.empty((0, len(tied))), np.empty(0)
        self._theta: FloatArray | None = None
        self._next_search, self._n_used = 0, 0
        self._surrogate: Surrogate | None = None
        self.units: StandardisedTargets | Signed

    @property
    def n_rows(self) -> int:
        """Rows at which the function is known."""
        return len(self._x)

    def add(self, x: FloatArray, values: FloatArray) -> None:
        """Add rows x, (n_rows, n_inputs), and values, (n_rows,), of which NaN are unknown."""
        known = ~np.isnan(values)
        self._x, self.values = np.vstack([self._x, x[known]]), np.append(self.values, values[known])

    def surrogate(self) -> Surrogate:
        """Return the surrogate of all rows so far."""
        new = slice(self._n_used, None)
        found = self._surrogate
        if found is None or self.n_rows >= self._next_search or len(found.landmarks) >= MAX_LANDMARKS * 4 // 3:
            found = self._built()
        else:
            found.learn(self._x[new], self.units(self.values[new]))
        self._surrogate, self._n_used = found, self.n_rows
        return found

    def _built(self) -> Surrogate:
        """Return a surrogate of all rows with new landmarks and, if it is time, hyperparameters."""
        self.units = self._make_units(self.values)
        y = self.units(self.values)
        chosen = self._chosen()
        if self.n_rows >= self._next_search:
            self._kernel, self._theta = fit_kernel(self._x[chosen], y[chosen], self._tied, self._theta)
            self._next_search = max(self.n_rows + 1, math.ceil(GROWTH * self.n_rows))
        return Surrogate.of(self._kernel, np.unique(self._x[chosen], axis=0), self._x, y)

    def _chosen(self) -> NDArray[np.intp]:
        """Return the rows of landmarks: all of them, or those that matter most and others by chance."""
        order = np.argsort(-self.units.priority(self.values), kind="stable")
        if self.n_rows <= MAX_LANDMARKS:
            return order
        first, rest = order[: MAX_LANDMARKS // 2], order[MAX_LANDMARKS // 2 :]
        return np.append(first, self.rng.choice(rest, MAX_LANDMARKS - len(first), replace=False))
