"""The decorrelated basis: where mean field becomes exact.

With A = VΛVᵀ the rotated weights Vᵀw no longer interact, so each q_j has its closed form for every noise level and
there are no local optima; an isotropic Gaussian prior does not change. With levels around each weight's posterior the
ELBO is the model's log evidence but for the discretisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import logsumexp

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_number
from pydirect.distributions import DensityPrior, FactorizedCategorical, GaussianPrior, as_level_count
from pydirect.models import MeanFieldPosterior, NoisePosterior, warn_at_edge
from pydirect.optimize import cholesky_of_ridge, solve_factored
from pydirect.statistics import GaussianStatistics

# A direction whose data would narrow its prior by less than this fraction of the variance is dropped.
NEGLIGIBLE_INFORMATION = 1e-5
# Two parameters are found to rounding, so that data that differ by rounding only give models that do.
TO_ROUNDING = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200}


@dataclass(frozen=True)
class RotatedStatistics:
    """Statistics in the decorrelated basis: ΦᵀΦ is diagonal there.

    Attributes
    ----------
    vectors : ndarray of shape (n_weights, n_directions)
        Orthonormal columns V; directions on which A vanishes may be missing.
    eigenvalues : ndarray of shape (n_directions,)
    c : ndarray of shape (n_directions, n_outputs)
        VᵀΦᵀy
    yty : ndarray of shape (n_outputs,)
    n_samples : float
    """

    vectors: FloatArray
    eigenvalues: FloatArray
    c: FloatArray
    yty: FloatArray
    n_samples: float

    def keep(self, mask: np.ndarray) -> RotatedStatistics:
        """Return the statistics restricted to some directions."""
        vectors = self.vectors if mask.all() else np.ascontiguousarray(self.vectors[:, mask])
        return replace(self, vectors=vectors, eigenvalues=self.eigenvalues[mask], c=self.c[mask])

    def scaled(self, variance: float) -> RotatedStatistics:
        """Return the statistics of √variance Φ: weights of prior variance one instead of `variance`."""
        return replace(self, eigenvalues=self.eigenvalues * variance, c=self.c * np.sqrt(variance))

    def averaged(self, repetitions: float) -> RotatedStatistics:
        """Return the statistics of rows that count so many times less: all sums divided."""
        return replace(
            self,
            eigenvalues=self.eigenvalues / repetitions,
            c=self.c / repetitions,
            yty=self.yty / repetitions,
            n_samples=self.n_samples / repetitions,
        )


def decorrelate(statistics: GaussianStatistics) -> RotatedStatistics:
    """Diagonalise A; through the rows (a thin factorisation) when there are fewer rows than weights."""
    with single_blas_thread():
        if statistics.rows is not None:
            eigenvalues, left = eigh(statistics.rows @ statistics.rows.T, driver="evd", check_finite=False)
            used = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
            eigenvalues = eigenvalues[used]
            vectors = (statistics.rows.T @ left[:, used]) / np.sqrt(eigenvalues)
        else:
            eigenvalues, vectors = eigh(statistics.A, driver="evd", check_finite=False)
            used = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
            eigenvalues, vectors = eigenvalues[used], vectors if used.all() else vectors[:, used]
        # By Cauchy and Schwarz no direction explains more than there is; where rounding of A (of float32 blocks, above
        # all) says otherwise, the evidence would run away.
        largest = np.sqrt(np.outer(eigenvalues, statistics.yty))
        c = np.clip(vectors.T @ statistics.c, -largest, largest)
        return RotatedStatistics(vectors, eigenvalues, c, statistics.yty, statistics.n_samples)


def log_evidence(
    eigenvalues: FloatArray, c: FloatArray, yty: float, n: float, noise: float, scale: float
) -> tuple[float, FloatArray]:
    """Log marginal likelihood with continuous Gaussian weights, and its gradient.

    ``log N(y; 0, noise I + scale ΦΦᵀ)`` from the eigenvalues λ of ΦᵀΦ and the projections c = VᵀΦᵀy:
    ``−½ [n log 2πσ² + Σ log(1 + tλ/σ²) + (yᵀy − Σ t c²/(σ² + tλ))/σ²]`` with t the prior variance.

    Parameters
    ----------
    eigenvalues, c : ndarray of shape (n_directions,)
    yty, n : float
    noise : float
        σ²
    scale : float
        Prior variance t of the weights.

    Returns
    -------
    value : float
    gradient : ndarray of shape (2,)
        In log noise and log scale.
    """
    total = noise + scale * eigenvalues  # variance of the data along each direction, times nothing else
    fit = scale * c**2 / total
    residual = max(yty - fit.sum(), 0.0) / noise
    value = -0.5 * (n * np.log(2 * np.pi * noise) + np.log1p(scale * eigenvalues / noise).sum() + residual)
    share = scale * eigenvalues / total  # how much of each direction the data determine
    pull = scale * c**2 / total**2
    d_noise = -0.5 * (n - share.sum() - residual + pull.sum())
    d_scale = -0.5 * (share.sum() - pull.sum())
    return float(value), np.array([d_noise, d_scale])


def maximise_evidence(
    rotated: RotatedStatistics,
    noise: float,
    scale: float = 1.0,
    *,
    output: int = 0,
    fit_noise: bool = True,
    fit_scale: bool = True,
    prior_sd: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """Noise variance and prior variance that maximise the evidence, from a start.

    Parameters
    ----------
    rotated : RotatedStatistics
    noise, scale : float
        Start.
    output : int
    fit_noise, fit_scale : bool
        Whether the noise variance and the prior variance are free.
    prior_sd : tuple of float, optional
        Standard deviations of Gaussian priors on log noise and log scale about the start: a start that is an estimate
        from the same data's neighbourhood keeps small data sets from running away.

    Returns
    -------
    noise, scale : float
    """
    c, yty, n = rotated.c[:, output], float(rotated.yty[output]), rotated.n_samples
    start = np.log([noise, scale])
    begin = start.copy()
    free = np.array([fit_noise, fit_scale])
    tightness = np.zeros(2) if prior_sd is None else np.array(prior_sd) ** -2.0

    def negative(moved: FloatArray) -> tuple[float, FloatArray]:
        theta = start.copy()
        theta[free] = moved
        value, gradient = log_evidence(rotated.eigenvalues, c, yty, n, *np.exp(theta))
        pull = tightness * (theta - start)
        return float(0.5 * pull @ (theta - start) - value) / n, (pull - gradient)[free] / n

    # Noise between a hundred-thousandth and a hundred of the targets' spread.
    middle = np.log(yty / n) if yty > 0 else 0.0
    bounds = np.array([(middle - np.log(1e10), middle + np.log(1e4)), (np.log(1e-12), np.log(1e12))])
    begin[free] = np.clip(start, *bounds.T)[free]
    if free.any():
        with single_blas_thread():
            best = minimize(
                negative, begin[free], jac=True, method="L-BFGS-B", bounds=bounds[free], options=TO_ROUNDING
            )
            begin[free] = _polished(negative, best.x, bounds[free])
    found_noise, found_scale = np.exp(begin)
    return float(found_noise) if fit_noise else noise, float(found_scale) if fit_scale else scale


def _polished(
    objective: Callable[[FloatArray], tuple[float, FloatArray]], theta: FloatArray, bounds: FloatArray
) -> FloatArray:
    """Newton steps from near a minimum, by differences of the gradient.

    Values tell a minimum to the square root of rounding only, gradients to rounding: so data that differ by rounding
    give parameters that do.
    """
    step = 1e-4 * np.eye(len(theta))
    for _ in range(3):
        hessian = np.stack([(objective(theta + e)[1] - objective(theta - e)[1]) / 2e-4 for e in step])
        values, vectors = np.linalg.eigh(hessian + hessian.T)
        if values[0] <= 0:
            break
        move = vectors @ (vectors.T @ objective(theta)[1] * 2 / values)
        if np.abs(move).max() > 1e-3:  # at a bound, or where the evidence says nothing
            break
        theta = np.clip(theta - move, *bounds.T)
    return theta


def noise_by_evidence(
    statistics: GaussianStatistics,
    noise: float,
    scale: float = 1.0,
    *,
    output: int = 0,
    n_iter: int = 2,
    n_probes: int = 8,
) -> float:
    """Noise variance near the maximum of the evidence, without an eigendecomposition.

    MacKay's fixed point σ² = ‖y − Φw‖² / (n − γ) at the ridge solution w, γ = n_weights − λ tr (A + λI)⁻¹ with
    λ = σ²/scale (MacKay 1992), the trace from random signs (Hutchinson 1990; the same signs at every call).

    Parameters
    ----------
    statistics : GaussianStatistics
    noise : float
        Start.
    scale : float
        Prior variance of the weights.
    output : int
    n_iter : int
        Factorisations, in single precision while it suffices.
    n_probes : int

    Returns
    -------
    float
    """
    b = statistics.n_weights
    c, yty, n = statistics.c[:, output], float(statistics.yty[output]), statistics.n_samples
    signs = np.sign(np.random.default_rng(0).standard_normal((b, n_probes)))
    for _ in range(n_iter):
        ridge = noise / scale
        factor = cholesky_of_ridge(statistics.A, np.full(b, ridge))
        solved = solve_factored(factor, np.column_stack([c, signs]))
        w = solved[:, 0]
        determined = b - ridge * float(np.einsum("jk,jk->", signs, solved[:, 1:])) / n_probes
        # ‖y − Φw‖² = yᵀy − cᵀw − ridge wᵀw at the solution of (A + ridge I) w = c
        squared_error = max(float(yty - c @ w - ridge * w @ w), 1e-12 * yty)
        noise = squared_error / max(n - determined, 0.05 * n)
    return noise


@dataclass
class DecorrelatedPosterior(MeanFieldPosterior):
    """A factorised posterior of rotated weights.

    Attributes
    ----------
    vectors : ndarray of shape (n_weights, n_directions)
        The rotation; `weights` lives in its columns.
    prior_variance : float
        Variance of the directions that were dropped, which stay at their prior.
    """

    vectors: FloatArray = None  # type: ignore[assignment]
    prior_variance: float = 1.0

    @property
    def coefficients(self) -> FloatArray:
        """Posterior mean of the weights of Φ, (n_weights,)."""
        return self.vectors @ self.mean

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of ``f* = φᵀw`` for rows of Φ; (n_rows,) each."""
        rotated = phi @ self.vectors
        mean, variance = super().latent_moments(rotated, n_threads)
        return mean, variance + self.prior_variance * self._outside(phi, rotated)

    def latent_cumulant(self, phi: FloatArray, order: int) -> FloatArray:
        """Cumulants of f*, order 1 to 4; dropped directions count as Gaussian."""
        rotated = phi @ self.vectors
        cumulant = super().latent_cumulant(rotated, order)
        return cumulant + self.prior_variance * self._outside(phi, rotated) if order == 2 else cumulant

    def _outside(self, phi: FloatArray, rotated: FloatArray) -> FloatArray:
        """Squared length of the rows of Φ outside the kept directions, (n_rows,)."""
        if self.vectors.shape[1] == self.vectors.shape[0]:
            return np.zeros(len(phi))
        return np.maximum(np.einsum("ij,ij->i", phi, phi) - np.einsum("ij,ij->i", rotated, rotated), 0.0)

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights); dropped directions are drawn from a Gaussian prior."""
        drawn = super().sample_weights(n_samples, rng) @ self.vectors.T
        if self.vectors.shape[1] < self.vectors.shape[0]:
            free = np.sqrt(self.prior_variance) * rng.standard_normal(drawn.shape)
            drawn += free - (free @ self.vectors) @ self.vectors.T
        return drawn


def fit_decorrelated(
    rotated: RotatedStatistics,
    noise: float,
    *,
    prior: DensityPrior | None = None,
    output: int = 0,
    n_levels: int = 15,
    reach: float = 4.0,
    n_noise_levels: int = 15,
    max_iter: int = 1000,
) -> DecorrelatedPosterior:
    """Fit the posterior in the decorrelated basis, with levels placed around each weight's posterior.

    Parameters
    ----------
    rotated : RotatedStatistics
    noise : float
        Centre of the noise grid, usually from `maximise_evidence`.
    prior : DensityPrior
        Standard Gaussian by default; of each rotated weight.
    output : int
    n_levels : int
    reach : float
        Levels extend so many posterior standard deviations to both sides.
    n_noise_levels : int
        1 fixes the noise at `noise`.
    max_iter : int

    Returns
    -------
    DecorrelatedPosterior
    """
    noise, reach = as_number(noise, "noise", above=0.0), as_number(reach, "reach", above=0.0)
    n_levels, n_noise_levels = as_level_count(n_levels), as_count(n_noise_levels, "n_noise_levels")
    max_iter = as_count(max_iter, "max_iter")
    prior = GaussianPrior() if prior is None else prior
    if not hasattr(prior, "log_density"):
        raise TypeError(f"prior must have a density, log_density(w), to place levels anywhere, got {prior!r}")
    n, yty = rotated.n_samples, float(rotated.yty[output])
    prior_variance = prior.variance
    information = prior_variance * rotated.eigenvalues / noise
    rotated = rotated.keep(information > NEGLIGIBLE_INFORMATION)
    eigenvalues, c = rotated.eigenvalues, np.ascontiguousarray(rotated.c[:, output])

    determined = (information / (1 + information)).sum()
    width = np.sqrt(2.0 / max(n - determined, 1.0))  # posterior sd of log σ² (Laplace)
    noise_levels = noise * np.exp(min(reach * width, np.log(30.0)) * np.linspace(-1, 1, n_noise_levels))
    if n_noise_levels == 1:
        noise_levels = np.array([noise])
    noise_posterior = NoisePosterior(noise_levels, np.eye(n_noise_levels)[n_noise_levels // 2])

    tau = noise_posterior.precision
    spread = 1 / np.sqrt(tau * eigenvalues + 1 / prior_variance)
    centre = tau * c * spread**2
    grid = np.linspace(-reach, reach, n_levels)
    rounds = 1 if isinstance(prior, GaussianPrior) else 3  # other posteriors are not where the Gaussian one is
    for _ in range(rounds):
        levels = centre[:, None] + spread[:, None] * grid
        # Mass = density × spacing, so that the ELBO approximates the continuous evidence; at a kink of the density the
        # masses would sum to more than one, and the ELBO would be no bound.
        log_prior = prior.log_density(levels) + np.log(spread * (grid[1] - grid[0]))[:, None]
        log_prior -= np.maximum(logsumexp(log_prior, axis=1, keepdims=True), 0.0)
        weights = _tilted(levels, log_prior, tau, c, eigenvalues)
        centre, spread = weights.mean, weights.std

    def ascend(log_tau: float) -> tuple[FactorizedCategorical, NoisePosterior, float]:
        """Weights at an expected precision, the noise that is best for them, and the ELBO of both."""
        weights = _tilted(levels, log_prior, np.exp(log_tau), c, eigenvalues)
        error = yty - 2 * weights.mean @ c + eigenvalues @ weights.second_moment
        logits = -np.log(n_noise_levels) - 0.5 * n * np.log(noise_levels) - 0.5 * error / noise_levels
        q_noise = np.exp(logits - logsumexp(logits))
        # At its optimum q_σ contributes the logarithm of its normaliser.
        elbo = -0.5 * n * np.log(2 * np.pi) + logsumexp(logits) - weights.kl(log_prior)
        return weights, NoisePosterior(noise_levels, q_noise), float(elbo)

    visited = [float(np.log(tau))]
    weights, noise_posterior, elbo = ascend(visited[0])
    trace, converged, interrupted = [elbo], False, False
    while len(trace) < max_iter and not converged:
        visited.append(float(np.log(noise_posterior.precision)))
        # The plain step never lowers the ELBO; where it crawls, Aitken's extrapolation of the last three goes first.
        proposals = [_aitken(*visited[-3:]), visited[-1]] if len(visited) % 3 == 0 else [visited[-1]]
        try:
            for proposal in proposals:
                candidate = ascend(proposal)
                if candidate[2] > trace[-1] or proposal == visited[-1]:
                    break
        except KeyboardInterrupt:
            interrupted = True
            break
        visited[-1] = proposal
        weights, noise_posterior, elbo = candidate
        trace.append(elbo)
        converged = trace[-1] - trace[-2] <= 1e-9 * (abs(trace[-1]) + 1)
    warn_at_edge(noise_posterior)
    return DecorrelatedPosterior(
        weights,
        noise_posterior,
        log_prior,
        elbo,
        np.array(trace),
        len(trace),
        converged,
        interrupted,
        vectors=rotated.vectors,
        prior_variance=prior_variance,
    )


def _aitken(first: float, second: float, third: float) -> float:
    """Limit of a linearly converging sequence from three of its terms, at most a factor of e³ away in τ."""
    curvature = third - 2 * second + first
    if curvature == 0.0:
        return third
    return third + float(np.clip(-((third - second) ** 2) / curvature, -3.0, 3.0))


def _tilted(
    levels: FloatArray, log_prior: FloatArray, tau: float, c: FloatArray, eigenvalues: FloatArray
) -> FactorizedCategorical:
    """``q_j ∝ p_j exp(τ (c_j w − ½ λ_j w²))``: the fixed point of Theorem 1 where nothing interacts."""
    logits = log_prior + tau * (c[:, None] - 0.5 * eigenvalues[:, None] * levels) * levels
    logits -= logits.max(axis=1, keepdims=True)
    q = np.exp(logits)
    return FactorizedCategorical(levels, q / q.sum(axis=1, keepdims=True))
