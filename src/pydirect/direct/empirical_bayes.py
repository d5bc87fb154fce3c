"""Fits of raw weights by empirical Bayes: noise variance and prior scale from the statistics, the posterior given them.

Everything is in units of the statistics' targets, which estimators standardise; posteriors come back with their levels
in units of the prior standard deviation, which comes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect._warnings import ignored
from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.direct.mixture import fit_mixture
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential import CoarseLevelsWarning, fit_sequential, loses_evidence
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.noise import NoiseGridWarning
from pydirect.distributions.priors import DensityPrior, MixturePriorTable, Prior, variance_of
from pydirect.linear.evidence import maximise_evidence_by_factors
from pydirect.linear.fit import NOISE_FLOOR, InitialHyperparameters
from pydirect.statistics.gaussian import TargetStatistics

# Nats per weight below the evidence of continuous weights from which levels are useless at a noise variance.
USELESS_GAP = 5.0
# Smallest and largest factor by which the noise variance is raised at once; larger ones pass by the highest ELBO.
NOISE_STEPS = (2.0, 8.0)
GRID_RECENTRINGS = 12
Posterior: TypeAlias = MeanFieldPosterior | MixturePosterior


# The raw basis, weights drawn one after another


@dataclass(frozen=True)
class SequentialPolicy:
    """How the raw basis is fitted by `fit_sequential`, whose arguments these are.

    - `ties`: groups of weights that share a scale, as devices want them, where that costs next to nothing.
    """

    prior: Prior
    n_levels: int
    levels: FloatArray | None
    level_scales: str
    n_draws: int
    keep_factor: bool
    ties: NDArray[np.intp] | None
    n_threads: int

    def fit(
        self, targets: Sequence[TargetStatistics], initial: Sequence[InitialHyperparameters], seeds: Sequence[int]
    ) -> list[tuple[SequentialPosterior, float]]:
        """Fit targets that share A, each at the noise and prior variance of largest evidence on all rows.

        Returns `posterior` and `prior_sd` of each; the prior is scaled so that its variance is that of the evidence.
        """
        maxima = maximise_evidence_by_factors(
            [start.evidence_problem(target) for start, target in zip(initial, targets, strict=True)]
        )
        fitted = []
        for target, start, maximum, seed in zip(targets, initial, maxima, seeds, strict=True):
            noise, prior_sd = max(maximum.noise, NOISE_FLOOR), float(np.sqrt(maximum.scale))
            fit = partial(self._fit_at, target, seed)
            posterior, prior_sd = self._as_fine_as_needed(fit, target, start, noise, prior_sd)
            fitted.append((posterior.in_units_of(prior_sd), prior_sd))
        return fitted

    @property
    def _may_centre(self) -> bool:
        """Whether levels may move to posterior means: nobody asked for levels of another kind, or for zeros."""
        return self.level_scales == "auto" and self.levels is None and isinstance(self.prior, DensityPrior)

    def _as_fine_as_needed(
        self,
        fit: Callable[[float, float, str, NDArray[np.intp] | None], SequentialPosterior],
        target: TargetStatistics,
        start: InitialHyperparameters,
        noise: float,
        prior_sd: float,
    ) -> tuple[SequentialPosterior, float]:
        """Fit; where levels are coarse, without ties; where they are useless, centred or at the noise of highest ELBO.

        What levels cannot represent is noise to this model. A sum of squares E that noise variance σ² does not explain
        makes a gap of about E / 2σ², and E / n would explain it; less is tried first, as more noise loosens weights.
        The prior scale follows, as large weights that cancel are beyond a lattice, and no noise is more than all there
        is.
        Returns `posterior` and `prior_sd`.
        """
        ties, scales = self.ties, "own" if self.level_scales == "auto" else self.level_scales
        best = fit(prior_sd, noise, scales, ties)
        if loses_evidence(best) and ties is not None:
            ties = None
            best = fit(prior_sd, noise, scales, ties)
        if self._may_centre and _is_useless(best):
            scales = "centred"
            best = fit(prior_sd, noise, scales, ties)
        largest = max(float(target.yty) / target.n_samples, noise)
        tried, raise_noise = best, start.fixed_noise is None and _is_useless(best)
        while raise_noise:
            gap = tried.log_evidence_continuous - float(np.median(tried.log_weights))  # of a typical draw
            factor = np.clip(np.sqrt(2 * max(gap, 0.0) / target.n_samples), *NOISE_STEPS)
            raised = min(float(factor * tried.noise.variance), largest)
            _, scale = replace(start, fixed_noise=raised).by_evidence_of_all_rows(target)
            tried = fit(scale, raised, scales, ties)
            if tried.elbo > best.elbo:
                best, prior_sd = tried, scale
            # Of useless levels the ELBO is too uncertain to end the search.
            raise_noise = (tried is best or _is_useless(tried)) and raised < largest
        return replace(best, noise_factor=float(best.noise.variance) / noise), prior_sd

    def _fit_at(
        self,
        target: TargetStatistics,
        seed: int,
        prior_sd: float,
        noise: float,
        level_scales: str,
        ties: NDArray[np.intp] | None,
    ) -> SequentialPosterior:
        with ignored(CoarseLevelsWarning):
            return fit_sequential(
                target,
                noise,
                prior_sd**2 / variance_of(self.prior),
                prior=self.prior,
                n_levels=self.n_levels,
                levels=self.levels,
                level_scales=level_scales,
                ties=ties if level_scales == "own" else None,
                n_draws=self.n_draws,
                keep_factor=self.keep_factor,
                random_state=seed,
                n_threads=self.n_threads,
            )


def _is_useless(posterior: SequentialPosterior) -> bool:
    return posterior.gap > USELESS_GAP * posterior.n_weights


# The raw basis, mean field and mixtures


@dataclass(frozen=True)
class RawPolicy:
    """How the raw basis is fitted.

    - `levels`, (n_weights or 1, n_levels): in units of the prior standard deviation.
    - `log_prior`, (n_weights or 1, n_levels).
    - `noise` ({"constant", "grid", "fixed"}): ``"constant"``: fixed where the evidence of continuous
      weights is largest, and raised to what the levels cannot represent. ``"grid"``: inferred on a grid.
      ``"fixed"``: as the hyperparameters say.
    - `n_noise_levels`: size of the grid.
    - `n_components`, `entropy`, `optimizer`, `max_iter`, `n_threads`: as in `fit_mixture`.
    """

    levels: FloatArray
    log_prior: FloatArray | MixturePriorTable
    noise: str = "constant"
    n_noise_levels: int = 15
    n_components: int = 1
    entropy: str = "pairwise"
    optimizer: str = "pipeline"
    max_iter: int = 1000
    n_threads: int = 1

    @property
    def grid(self) -> FloatArray:
        """Noise levels in units of the noise variance that they are about."""
        return (
            np.logspace(-1, 1, self.n_noise_levels) if self.noise == "grid" and self.n_noise_levels > 1 else np.ones(1)
        )

    def begin(self, statistics: TargetStatistics, initial: InitialHyperparameters) -> RawFit:
        """Find a target's noise variance and prior scale by evidence."""
        return RawFit(self, statistics, initial, *initial.by_evidence_of_all_rows(statistics))


@dataclass(frozen=True)
class RawFit:
    """One target's fit in the raw basis, begun: its noise variance and prior scale are found.

    - `noise`: noise variance that the grid is about.
    """

    policy: RawPolicy
    statistics: TargetStatistics
    initial: InitialHyperparameters
    noise: float
    prior_sd: float

    def finish(self, interrupted: bool = False) -> tuple[Posterior, float]:
        """Fit; after an interruption by the user what is left is kept short.

        Returns `posterior`; `prior_sd`.
        """
        fit = self.cut_short() if interrupted else self
        posterior = fit._on_grid()
        if fit.policy.noise == "constant":
            fit, posterior = fit._with_lattice_noise(posterior)
        interrupted = interrupted or posterior.interrupted
        if fit.policy.n_components > 1:
            posterior = fit._split(posterior, interrupted)
        if interrupted or posterior.interrupted:
            posterior.outcome = posterior.outcome.stopped()
        return posterior.in_units_of(fit.prior_sd), fit.prior_sd

    def cut_short(self) -> RawFit:
        """Return the same with one iteration per stage."""
        return replace(self, policy=replace(self.policy, max_iter=1))

    def _options(self) -> dict[str, Any]:
        levels, passed = self.policy.levels * self.prior_sd, ("log_prior", "optimizer", "max_iter", "n_threads")
        return {"levels": levels, **{name: getattr(self.policy, name) for name in passed}}

    def _at(self, noise_levels: FloatArray | list[float]) -> Posterior:
        """Fit one factor per weight, under a prior of either kind."""
        options = self._options() | {"noise_levels": noise_levels}
        if isinstance(self.policy.log_prior, MixturePriorTable):
            return fit_mixture(self.statistics, n_components=1, **options)
        return fit_mean_field(self.statistics, **options)

    def _on_grid(self) -> Posterior:
        """Fit with the noise on a grid about `noise`, moved while the posterior piles up at its edge."""
        noise, grid = self.noise, self.policy.grid
        with ignored(NoiseGridWarning):
            for _ in range(GRID_RECENTRINGS):
                posterior: Posterior = self._at(noise * grid)
                edge = posterior.noise.at_edge()
                if edge is None or posterior.interrupted or (edge == "lower" and noise <= NOISE_FLOOR):
                    return posterior
                noise = max(float(posterior.noise.levels[0 if edge == "lower" else -1]), NOISE_FLOOR)
        return self._at(noise * grid)

    def _with_lattice_noise(self, posterior: Posterior) -> tuple[RawFit, Posterior]:
        """Raise a fixed noise variance to what the levels cannot represent, which is noise to this model.

        The evidence is that of continuous weights. Where levels are far apart and the weights are not redundant, the
        best point of the lattice leaves a mean squared error ‖y − Φs‖²/n above it, and a model without it would be too
        sure. The prior scale follows: what needs large weights that cancel is beyond a lattice. Of all noise variances
        up to the one that explains its error, that of the highest ELBO; returned with the fit that it is of.
        """
        tried = best = self, posterior
        while (noise := tried[0]._unexplained(tried[1])) is not None:
            _, prior_sd = replace(self.initial, fixed_noise=noise).by_evidence_of_all_rows(self.statistics)
            fit = replace(self, noise=noise, prior_sd=prior_sd)
            tried = fit, fit._at([noise])
            best = max(best, tried, key=lambda pair: pair[1].elbo)
        if tried[1].interrupted:
            best[1].outcome = best[1].outcome.stopped()
        return best

    def _unexplained(self, posterior: Posterior) -> float | None:
        """Noise variance nearer to a mean squared error that is well above the one assumed, or None."""
        error = self.statistics.squared_error(posterior.mean) / self.statistics.n_samples
        if error <= 1.25 * self.noise or posterior.interrupted:
            return None
        return float(min(error, NOISE_STEPS[1] * self.noise))

    def _split(self, posterior: Posterior, interrupted: bool) -> MixturePosterior:
        """Make a mixture of a factorised posterior, on its noise levels; of one component after an interruption."""
        policy = self.policy
        fit = self.cut_short() if interrupted else self
        with ignored(NoiseGridWarning):
            return fit_mixture(
                self.statistics,
                noise_levels=posterior.noise.levels,
                start=posterior,
                n_components=1 if interrupted else policy.n_components,
                entropy=policy.entropy,
                **fit._options(),
            )


def finish(fits: Sequence[RawFit]) -> list[tuple[Posterior, float]]:
    """Finish the fits of one model's targets: the posterior and the prior standard deviation of each.

    After an interruption by the user the targets that are left are kept short.
    """
    fitted: list[tuple[Posterior, float]] = []
    for fit in fits:
        fitted.append(fit.finish(bool(fitted) and fitted[-1][0].interrupted))
    return fitted
