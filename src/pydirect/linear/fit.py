"""Fits of the Gaussian posterior and of the noise variance, in the basis of eigenvectors of A.

There the weights have their closed form for every noise variance: at a fixed one the ELBO is the log evidence, and on
a grid of them weights and noise take turns without local optima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pydirect._validation import FloatArray, as_count, as_number
from pydirect._warnings import ignored
from pydirect.distributions.noise import NoiseGrid, NoiseGridWarning, warn_at_edge
from pydirect.linear.evidence import EvidenceProblem, maximise_evidence, maximise_evidence_by_factors
from pydirect.linear.posterior import GaussianPosterior
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import TargetStatistics
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, as_rotated_target

# A direction whose data would narrow its prior by less than this fraction of the variance is dropped.
NEGLIGIBLE_INFORMATION = 1e-5
# Posterior standard deviations of log σ² that its grid extends to on either side.
NOISE_REACH = 4.0
# Noise variances below this fraction of the targets' variance are not distinguished.
NOISE_FLOOR = 1e-10


def fit_gaussian(
    rotated: RotatedTarget | RotatedStatistics,
    noise: float,
    *,
    prior_variance: float = 1.0,
    n_noise_levels: int = 15,
    max_iter: int = 1000,
) -> GaussianPosterior:
    """Fit the Gaussian posterior of the weights, and the noise variance on a grid.

    Parameters
    ----------
    rotated : RotatedStatistics or RotatedTarget
        Of one target; of several, ``rotated.target(k)``.
    noise : float
        Centre of the noise grid, usually from `maximise_evidence`.
    prior_variance : float, default=1.0
        Of every weight.
    n_noise_levels : int, default=15
        1 fixes the noise at `noise`.
    max_iter : int, default=1000
        Largest number of iterations.

    Returns
    -------
    GaussianPosterior
        At a fixed noise its ELBO is the log evidence, less at most 5e-6 for each direction that is dropped; with a
        grid it is a lower bound on the log of the evidence's mean over the grid, since weights and noise are
        independent a posteriori.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics, fit_gaussian
    >>> from pydirect.statistics import decorrelate
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((100, 2))
    >>> y = phi @ [1.0, -1.0] + 0.1 * rng.standard_normal(100)
    >>> rotated = decorrelate(GaussianStatistics.from_arrays(phi, y))
    >>> fit_gaussian(rotated, noise=0.01).coefficients.round(1).tolist()
    [1.0, -1.0]
    """
    noise = as_number(noise, "noise", above=0.0)
    t = as_number(prior_variance, "prior_variance", above=0.0)
    n_noise_levels, max_iter = as_count(n_noise_levels, "n_noise_levels"), as_count(max_iter, "max_iter")
    target = as_rotated_target(rotated)
    information = t * target.eigenvalues / noise
    determined = (information / (1 + information)).sum()
    target = _informative(target, t, noise)

    width = np.sqrt(2.0 / max(target.n_samples - determined, 1.0))  # posterior sd of log σ² (Laplace)
    reach = min(NOISE_REACH * width, np.log(30.0))
    levels = noise * np.exp(reach * np.linspace(-1, 1, n_noise_levels))
    grid = NoiseGrid.of([noise] if n_noise_levels == 1 else levels)

    def ascend(log_tau: float) -> tuple[GaussianPosterior, float]:
        """Weights at an expected precision with the noise that is best for them, and the ELBO of both."""
        tau = np.exp(log_tau)
        weights = GaussianPosterior.of(target, tau, t)
        error = target.squared_error(weights.mean, weights.variance + weights.mean**2)
        q_noise, share = grid.given(error, target.n_samples)
        weights.noise = grid.posterior(q_noise)
        return weights, share - weights.kl

    visited = [float(-np.log(grid.levels[n_noise_levels // 2]))]
    posterior, elbo = ascend(visited[0])
    trace, converged, interrupted = [elbo], False, False
    while len(trace) < max_iter and not converged:
        visited.append(float(np.log(posterior.noise.precision)))
        # The plain step never lowers the ELBO; where it crawls, Aitken's extrapolation of the last three goes first.
        proposals = [_aitken(*visited[-3:]), visited[-1]] if len(visited) % 3 == 0 else [visited[-1]]
        try:
            for proposal in proposals:
                candidate = ascend(proposal)
                if candidate[1] > trace[-1] or proposal == visited[-1]:
                    break
        except KeyboardInterrupt:
            interrupted = True
            break
        visited[-1] = proposal
        posterior, elbo = candidate
        trace.append(elbo)
        converged = trace[-1] - trace[-2] <= 1e-9 * (abs(trace[-1]) + 1)
    warn_at_edge(posterior.noise)
    return replace(posterior, outcome=Outcome(elbo, np.array(trace), len(trace), converged, interrupted))


def moved_to(posterior: GaussianPosterior, target: RotatedTarget, coefficients: FloatArray) -> GaussianPosterior:
    """Return the same spreads about other means, (n_weights,), and the ELBO that is left.

    `posterior`: fitted to `target`, with a single noise level.
    """
    noise = posterior.noise.levels[:1]
    target = _informative(target, float(posterior.prior_variance), float(noise[0]))
    moved = replace(posterior, mean=posterior.rotation.transposed_times(coefficients))
    error = target.squared_error(moved.mean, moved.variance + moved.mean**2)
    elbo = NoiseGrid.of(noise).given(error, target.n_samples)[1] - moved.kl
    return replace(moved, outcome=posterior.outcome.at(float(elbo)))


def _informative(target: RotatedTarget, prior_variance: float, noise: float) -> RotatedTarget:
    """Return the statistics in directions whose data narrow the prior; weights of the others stay at their prior.

    So that the ELBO is a bound, ``R = E‖y − Φw‖²`` keeps what their variance adds to it.
    """
    kept = prior_variance * target.eigenvalues / noise > NEGLIGIBLE_INFORMATION
    free = prior_variance * float(target.eigenvalues[~kept].sum())
    return replace(target.keep(kept), yty=target.yty + free)


def _aitken(first: float, second: float, third: float) -> float:
    """Limit of a linearly converging sequence from three of its terms, at most a factor of e³ away in τ."""
    curvature = third - 2 * second + first
    if curvature == 0.0:
        return third
    return third + float(np.clip(-((third - second) ** 2) / curvature, -3.0, 3.0))


# Empirical Bayes


@dataclass(frozen=True)
class InitialHyperparameters:
    """What is known of one target's hyperparameters before inference.

    - `noise`: noise variance to start from.
    - `prior_variance`: prior variance of a weight; None where the evidence is to find it.
    - `fixed_noise`: a noise variance that stays.
    """

    noise: float
    prior_variance: float | None = None
    fixed_noise: float | None = None

    @property
    def prior_sd(self) -> tuple[float, float]:
        """Deviations of Gaussian priors on log noise and log prior variance about what is known.

        They keep small data sets from running away; many rows that say otherwise outweigh them.
        """
        return (2.0, 10.0) if self.prior_variance is None else (1.0, 0.5)

    def first_scale(self, n_samples: float, trace: float) -> float:
        """Prior variance to start from: what is known of it, or where that of f is one, given the trace of ΦᵀΦ."""
        unknown = n_samples / trace if trace else 1.0
        return unknown if self.prior_variance is None else self.prior_variance

    def by_evidence(self, rotated: RotatedTarget) -> tuple[float, float]:
        """Noise variance and prior variance of the weights that maximise the evidence; a fixed noise variance stays."""
        unit = self.first_scale(rotated.n_samples, float(rotated.eigenvalues.sum()))
        noise, scale = maximise_evidence(
            rotated.scaled(unit),
            self.fixed_noise or self.noise,
            fit_noise=self.fixed_noise is None,
            prior_sd=self.prior_sd,
        )
        return max(noise, NOISE_FLOOR), scale * unit


def by_evidence_of_all_rows(
    initial: Sequence[InitialHyperparameters], targets: Sequence[TargetStatistics]
) -> list[tuple[float, float]]:
    """Noise variance of largest evidence, or the fixed one, and the weights' prior deviation, of targets that share A.

    The scale is learned where the kernel has one, too: few random features may represent a function with larger
    weights only, and would call it noise.
    """
    problems = []
    for start, target in zip(initial, targets, strict=True):
        noise, scale = start.fixed_noise or start.noise, start.first_scale(target.n_samples, float(np.trace(target.A)))
        problems.append(EvidenceProblem(target, noise, scale, start.fixed_noise is None, start.prior_sd))
    found = zip(initial, maximise_evidence_by_factors(problems), strict=True)
    return [(start.fixed_noise or max(best.noise, NOISE_FLOOR), float(np.sqrt(best.scale))) for start, best in found]


def fit_by_evidence(
    rotated: RotatedTarget,
    initial: InitialHyperparameters,
    *,
    prior_variance: float = 1.0,
    n_noise_levels: int = 15,
    max_iter: int = 1000,
) -> tuple[GaussianPosterior, float]:
    """Return the posterior at the prior scale of largest evidence, the noise on a grid about its maximum; and scale.

    `prior_variance`: in units of the square of that scale, as the weights of the posterior are. The rest as in
    `fit_gaussian`.
    """
    noise, variance = initial.by_evidence(rotated)
    with ignored(NoiseGridWarning):  # the grid is narrow, about the evidence's maximum
        posterior = fit_gaussian(
            rotated.scaled(variance),
            noise,
            prior_variance=prior_variance,
            n_noise_levels=n_noise_levels,
            max_iter=max_iter,
        )
    return posterior, float(np.sqrt(variance))
