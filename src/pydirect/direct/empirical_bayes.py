"""Fits of raw weights by empirical Bayes: noise variance and prior scale from the statistics, the posterior given them.

Everything is in units of the statistics' targets, which estimators standardise; posteriors come back with their levels
in units of the prior standard deviation, which comes with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from pydirect._validation import FloatArray
from pydirect._warnings import ignored
from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.direct.mixture import fit_mixture
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential import Lattice, loses_evidence
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.noise import NoiseGridWarning
from pydirect.distributions.priors import DensityPrior, MixturePriorTable
from pydirect.linear.fit import NOISE_FLOOR, InitialHyperparameters, by_evidence_of_all_rows
from pydirect.statistics.gaussian import TargetStatistics

# Nats per weight below the evidence of continuous weights from which levels are useless at a noise variance.
USELESS_GAP = 5.0
# Smallest and largest factor by which the noise variance is raised at once; larger ones pass by the highest ELBO.
NOISE_STEPS = (2.0, 8.0)
GRID_RECENTRINGS = 12
Posterior: TypeAlias = MeanFieldPosterior | MixturePosterior


# The raw basis, weights drawn one after another


def draw_by_evidence(
    lattice: Lattice,
    targets: Sequence[TargetStatistics],
    initial: Sequence[InitialHyperparameters],
    seeds: Sequence[int],
    *,
    may_centre: bool,
    n_threads: int,
) -> list[tuple[SequentialPosterior, float]]:
    """Draw weights of targets that share A, each at the noise and prior variance of largest evidence on all rows.

    `may_centre`: whether levels may move to posterior means where they are useless otherwise. Returns `posterior` and
    `prior_sd` of each; the prior is scaled so that its variance is that of the evidence.
    """
    maxima = by_evidence_of_all_rows(initial, targets)
    each = zip(targets, initial, seeds, maxima, strict=True)
    return [_drawn(lattice, *own, may_centre=may_centre, n_threads=n_threads) for own in each]


def _drawn(
    lattice: Lattice,
    target: TargetStatistics,
    start: InitialHyperparameters,
    seed: int,
    maximum: tuple[float, float],
    *,
    may_centre: bool,
    n_threads: int,
) -> tuple[SequentialPosterior, float]:
    """Draw; where levels are coarse, without ties; where they are useless, centred or at the noise of highest ELBO.

    What levels cannot represent is noise to this model. A sum of squares E that noise variance σ² does not explain
    makes a gap of about E / 2σ², and E / n would explain it; less is tried first, as more noise loosens weights. The
    prior scale follows, as large weights that cancel are beyond a lattice, and no noise is more than all there is.
    """
    noise, prior_sd = max(maximum[0], NOISE_FLOOR), maximum[1]  # a given one, too: own scales of levels have a range

    def draw(noise: float, prior_sd: float) -> SequentialPosterior:
        return lattice.draw(target, noise, prior_sd**2, seed, n_threads)

    best = draw(noise, prior_sd)
    if loses_evidence(best) and lattice.ties is not None:
        lattice = replace(lattice, ties=None)
        best = draw(noise, prior_sd)
    if may_centre and isinstance(lattice.prior, DensityPrior) and _is_useless(best):
        lattice = replace(lattice, level_scales="centred")
        best = draw(noise, prior_sd)
    largest = max(float(target.yty) / target.n_samples, noise)
    tried, raise_noise = best, start.fixed_noise is None and _is_useless(best)
    while raise_noise:
        gap = tried.log_evidence_continuous - float(np.median(tried.log_weights))  # of a typical draw
        factor = np.clip(np.sqrt(2 * max(gap, 0.0) / target.n_samples), *NOISE_STEPS)
        raised = min(float(factor * tried.noise.variance), largest)
        [(_, scale)] = by_evidence_of_all_rows([replace(start, fixed_noise=raised)], [target])
        tried = draw(raised, scale)
        if tried.elbo > best.elbo:
            best, prior_sd = tried, scale
        # Of useless levels the ELBO is too uncertain to end the search.
        raise_noise = (tried is best or _is_useless(tried)) and raised < largest
    best = replace(best, noise_factor=float(best.noise.variance) / noise)
    return best.in_units_of(prior_sd), prior_sd


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

    def fit(
        self, targets: Sequence[TargetStatistics], initial: Sequence[InitialHyperparameters]
    ) -> list[tuple[Posterior, float]]:
        """Fit targets at the noise and prior variance of largest evidence: posterior and prior deviation of each.

        After an interruption by the user what is left is kept short.
        """
        fitted: list[tuple[Posterior, float]] = []
        for target, start in zip(targets, initial, strict=True):
            interrupted = bool(fitted) and fitted[-1][0].interrupted
            policy = replace(self, max_iter=1) if interrupted else self
            posterior, prior_sd = policy._fit(target, start)
            interrupted = interrupted or posterior.interrupted
            if self.n_components > 1:  # split it, on its noise levels
                policy = replace(self, max_iter=1, n_components=1) if interrupted else self
                with ignored(NoiseGridWarning):
                    posterior = policy._at(target, posterior.noise.levels, prior_sd, posterior)
            if interrupted or posterior.interrupted:
                posterior.outcome = posterior.outcome.stopped()
            fitted.append((posterior.in_units_of(prior_sd), prior_sd))
        return fitted

    def _at(
        self,
        target: TargetStatistics,
        noise_levels: FloatArray | list[float],
        prior_sd: float,
        start: Posterior | None = None,
    ) -> Posterior:
        """Fit one factor per weight, under a prior of either kind, or make a mixture of such a fit."""
        options: dict[str, Any] = {name: getattr(self, name) for name in ("log_prior", "optimizer", "max_iter")}
        options |= {"levels": self.levels * prior_sd, "noise_levels": noise_levels, "n_threads": self.n_threads}
        if start is not None:
            options |= {"start": start, "n_components": self.n_components, "entropy": self.entropy}
        elif isinstance(self.log_prior, MixturePriorTable):
            options["n_components"] = 1
        else:
            return fit_mean_field(target, **options)
        return fit_mixture(target, **options)

    def _fit(self, target: TargetStatistics, start: InitialHyperparameters) -> tuple[Posterior, float]:
        """Fit one factor per weight, the noise on a grid or raised to what the levels cannot represent.

        The evidence is that of continuous weights. Where levels are far apart and the weights are not redundant, the
        best point of the lattice leaves a mean squared error ‖y − Φs‖²/n above it, and a model without it would be too
        sure. The prior scale follows: what needs large weights that cancel is beyond a lattice. Of all noise variances
        up to the one that explains its error, that of the highest ELBO; returned with the fit that it is of.
        """
        [(noise, prior_sd)] = by_evidence_of_all_rows([start], [target])
        tried = best = self._on_grid(target, noise, prior_sd)
        while self.noise == "constant":
            error = target.squared_error(tried.mean) / target.n_samples
            if error <= 1.25 * noise or tried.interrupted:
                break
            noise = float(min(error, NOISE_STEPS[1] * noise))
            [(_, scale)] = by_evidence_of_all_rows([replace(start, fixed_noise=noise)], [target])
            tried = self._at(target, [noise], scale)
            if tried.elbo > best.elbo:
                best, prior_sd = tried, scale
        if tried.interrupted:
            best.outcome = best.outcome.stopped()
        return best, prior_sd

    def _on_grid(self, target: TargetStatistics, noise: float, prior_sd: float) -> Posterior:
        """Fit with the noise on a grid about `noise`, moved while the posterior piles up at its edge."""
        n = self.n_noise_levels
        grid = np.logspace(-1, 1, n) if self.noise == "grid" and n > 1 else np.ones(1)
        with ignored(NoiseGridWarning):
            for _ in range(GRID_RECENTRINGS):
                posterior = self._at(target, noise * grid, prior_sd)
                edge = posterior.noise.at_edge()
                if edge is None or posterior.interrupted or (edge == "lower" and noise <= NOISE_FLOOR):
                    return posterior
                noise = max(float(posterior.noise.levels[0 if edge == "lower" else -1]), NOISE_FLOOR)
        return self._at(target, noise * grid, prior_sd)
