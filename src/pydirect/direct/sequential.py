"""Regression on a few levels per weight with a sequential posterior: as accurate as continuous weights.

From the statistics A, c, yᵀy and n alone, at a given noise variance and prior variance; see `SequentialPosterior` for
the equations. With own scales every weight's levels are as wide as its posterior needs, a power of two times a common
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas

from pydirect import _core
from pydirect._threads import resolve_n_threads
from pydirect._validation import (
    FloatArray,
    RandomState,
    as_choice,
    as_count,
    as_flag,
    as_float_array,
    as_generator,
    as_number,
)
from pydirect._warnings import ignored, warn
from pydirect.direct.sequential_posterior import (
    DRAW_KINDS,
    HARMLESS_COARSENESS,
    LARGEST_EXPONENT,
    SequentialPosterior,
    SequentialSampler,
    pack_codes,
)
from pydirect.distributions.categorical import as_level_count, as_levels, evenly_spaced_levels
from pydirect.distributions.noise import NoisePosterior
from pydirect.distributions.priors import (
    DensityPrior,
    GaussianPrior,
    Prior,
    SpikeAndSlabPrior,
    as_log_prior,
    as_prior,
    grid_log_mass,
    variance_of,
)
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics

LEVEL_SCALES = ("own", "centred", "shared")
ORDERS = ("min_pivot", "diagonal", "natural")
# Largest level in units of the prior standard deviation, of the common step and of shared levels.
REACH = 4.0
# Posterior standard deviations that a weight's own levels extend to on either side of its mean.
COVERAGE = 3.0
COVERAGE_OF_TERNARY = 2.0
# Largest share of outermost levels among those drawn that costs next to nothing; root mean square of their spacings,
# in conditional standard deviations, from which levels are called coarse.
MANY_OUTERMOST, TELLING_COARSENESS = 0.05, 3.5
# Nats per weight: the gap from which levels are called coarse; nats, and nats per weight, of the standard error of the
# ELBO from which it says little.
COARSE_GAP, LARGE_ERROR, LARGE_ERROR_PER_WEIGHT = 0.5, 1.0, 0.01


class CoarseLevelsWarning(UserWarning):
    """Levels are too far apart for what the data say about the weights."""


@dataclass(frozen=True)
class SequentialRegression:
    """The model y = Φw + ε with weights on levels, at a given noise variance."""

    statistics: TargetStatistics
    noise: float  # σ²
    prior_variance: float  # of a weight, in squared units of the prior
    prior: Prior  # in units of the square root of `prior_variance`
    # (1, n_levels) or (n_weights, n_levels): in own units, zero among them, where scales are own; in prior units where
    # they are shared
    unit_levels: FloatArray
    level_scales: str
    # (1, n_levels) or (n_weights, n_levels): log masses of shared levels, in place of `prior`
    log_prior: FloatArray | None
    order: str | NDArray[np.int64]  # (n_weights,)
    ties: NDArray[np.intp] | None = None  # (n_weights,)
    given_exponents: NDArray[np.int8] | None = None  # (n_weights,)
    n_threads: int = 1

    @property
    def own_scales(self) -> bool:
        """Whether every weight has a scale of its own."""
        return self.level_scales != "shared"

    @property
    def prior_sd(self) -> float:
        """Unit of the prior."""
        return float(np.sqrt(self.prior_variance))

    @property
    def weight_variance(self) -> float:
        """v: variance of a weight, which only the quality of q depends on; the unit's where the prior has none."""
        return self.prior_variance * variance_of(self.prior)

    @property
    def step(self) -> float:
        """Common unit h of all levels."""
        return REACH * self.prior_sd / float(np.abs(self.unit_levels).max()) if self.own_scales else self.prior_sd

    @property
    def widths(self) -> FloatArray:
        """Width of each level's cell, like `unit_levels`."""
        levels = self.unit_levels
        edges = (levels[:, 1:] + levels[:, :-1]) / 2
        outer = levels[:, [0, -1]] + np.diff(levels, axis=1)[:, [0, -1]] / 2 * [-1, 1]
        return np.diff(np.concatenate([outer[:, :1], edges, outer[:, 1:]], axis=1), axis=1)

    def factorise(self, scale: FloatArray, order: str | NDArray[np.int64]) -> tuple[FloatArray, NDArray[np.int64]]:
        """Factorise H = τA + I/v in own units; the factor and its order."""
        tau, a = 1 / self.noise, np.ascontiguousarray(self.statistics.A)
        ridge = np.full(len(a), 1 / self.weight_variance)
        if isinstance(order, str) and order == "diagonal":
            order = np.argsort((tau * a.diagonal() + ridge) * scale**2, kind="stable")
        if isinstance(order, str):
            factor, found, rank = _core.cholesky(a, ridge, scale, order == "min_pivot", tau, self.n_threads)
        else:
            permuted, found = np.ascontiguousarray(a[np.ix_(order, order)]), order
            factor, _, rank = _core.cholesky(permuted, ridge, scale[order], False, tau, self.n_threads)
        if rank < len(a):
            raise self._failure("τA + I/v is not positive definite in double precision")
        return factor, found

    def _failure(self, what: str) -> ValueError:
        strength = self.weight_variance / self.noise * float(np.trace(self.statistics.A))
        return ValueError(
            f"{what}: noise {self.noise:.3g}, prior variance {self.weight_variance:.3g}, "
            f"prior variance × tr A / noise = {strength:.3g}; raise the noise or lower the prior variance"
        )

    def exponents(self) -> NDArray[np.int8]:
        """Return e_j = ⌈log₂((|m_j| + κ sd_j) / ((K + ½) h))⌉, so that own levels cover the posterior; zero if shared.

        Levels about m_j need not cover |m_j|. Of weights that are tied, the largest.
        """
        b = self.statistics.n_weights
        if self.given_exponents is not None or not self.own_scales:
            return np.zeros(b, dtype=np.int8) if self.given_exponents is None else self.given_exponents
        factor, _ = self.factorise(np.ones(b), "natural")
        mean = solve(factor, self.statistics.c) / self.noise
        sd = np.sqrt(_core.inverse_diagonal(factor, self.n_threads))
        edge = (np.abs(self.unit_levels[:, [0, -1]]) + self.widths[:, [0, -1]] / 2).min(axis=1)
        coverage = COVERAGE if self.unit_levels.shape[1] > 3 else COVERAGE_OF_TERNARY
        reach = coverage * sd + (np.abs(mean) if self.level_scales == "own" else 0.0)
        needed = np.ceil(np.log2(reach / (edge * self.step)))
        if np.abs(needed).max() > LARGEST_EXPONENT:
            least, most = needed.min(), needed.max()
            raise self._failure(f"own scales span 2^{least:.0f} to 2^{most:.0f}, as of columns in very different units")
        if self.ties is not None:
            largest = np.full(self.ties.max() + 1, -np.inf)
            np.maximum.at(largest, self.ties, needed)
            needed = largest[self.ties]
        return needed.astype(np.int8)

    def log_masses(self, levels: FloatArray, scale: FloatArray) -> FloatArray:
        """Log prior masses of levels in own units, (n_weights or 1, n_levels): of shared levels they sum to one.

        Of own levels they are density × spacing, and sum to no more than one: the rest belongs to levels that are not
        offered, so that the bound does not reward levels that look at the data.
        """
        if not self.own_scales:
            return self.prior.log_mass(levels) if self.log_prior is None else self.log_prior
        own = scale[:, None] / self.prior_sd
        assert isinstance(self.prior, DensityPrior | SpikeAndSlabPrior)
        return grid_log_mass(self.prior, own * levels, own * self.widths)

    def sampler(self) -> tuple[SequentialSampler, NDArray[np.int8], float]:
        """Return what draws weights, the exponents of their levels, and the continuous weights' log evidence."""
        target, v, exponents = self.statistics, self.weight_variance, self.exponents()
        scale = np.ldexp(self.step, exponents.astype(np.int64))
        factor, order = self.factorise(scale, self.order)
        mean = np.empty(target.n_weights)
        mean[order] = solve(factor, (scale * target.c)[order]) / self.noise * scale[order]
        levels = self.unit_levels
        if self.level_scales == "centred":
            levels = levels + (mean / scale)[:, None]
        log_prior = self.log_masses(levels, scale)
        tilt = log_prior + np.square(scale[:, None] * levels) / (2 * v)
        squared_error = target.yty - float(target.c @ mean)  # yᵀy − τ cᵀH⁻¹c
        constant = -0.5 * (target.n_samples * np.log(2 * np.pi * self.noise) + squared_error / self.noise)
        log_determinant = 2 * (np.log(factor.diagonal()).sum() - np.log(scale).sum())
        evidence = constant - 0.5 * (log_determinant + target.n_weights * np.log(v))
        levels, tilt = (np.ascontiguousarray(t[order] if len(t) > 1 else t) for t in (levels, tilt))
        sampler = SequentialSampler(factor, order, scale, (mean / scale)[order], levels, tilt, float(constant))
        return sampler, exponents, float(evidence)

    def fit(self, n_draws: int, kind: str, seed: int) -> SequentialPosterior:
        """Draw, and report."""
        sampler, exponents, evidence = self.sampler()
        draws = sampler.draw(n_draws, kind, seed, self.n_threads)
        if not np.isfinite(draws.log_weights).all():
            raise self._failure("draws have no finite probability")
        mean, elbo, levels = sampler.by_weight(sampler.mean), float(draws.log_weights.mean()), self.unit_levels
        coarseness = sampler.factor.diagonal() * np.diff(sampler.levels, axis=1).max(axis=1)
        return SequentialPosterior(
            packed_codes=pack_codes(draws.codes, levels.shape[1]),
            packed_nearest=pack_codes(sampler.draw(1, "nearest", seed, self.n_threads).codes, levels.shape[1]),
            unit_levels=levels if len(levels) > 1 else levels[0],
            level_exponents=exponents,
            centres=mean * sampler.scale if self.level_scales == "centred" else np.empty(0),
            step=self.step,
            own_mean=mean.astype(np.float32),
            coarseness=sampler.by_weight(coarseness).astype(np.float32),
            log_weights=draws.log_weights,
            log_evidence_continuous=evidence,
            prior_variance=self.prior_variance,
            has_gaussian_prior=self.log_prior is None and isinstance(self.prior, GaussianPrior),
            draw_kind=kind,
            noise=NoisePosterior(np.array([self.noise]), np.ones(1)),
            outcome=Outcome(elbo, np.array([elbo]), 1, True),
            sampler=sampler,
        )


def solve(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Solve RᵀR x = right for an upper factor with contiguous rows, without a copy of it."""
    lower = factor.T  # as Fortran sees the same memory
    return np.asarray(blas.dtrsv(lower, blas.dtrsv(lower, right, lower=1), lower=1, trans=1))


def fit_sequential(
    statistics: TargetStatistics | GaussianStatistics,
    noise: float,
    prior_variance: float = 1.0,
    *,
    prior: Prior | str = "gaussian",
    n_levels: int = 15,
    levels: ArrayLike | None = None,
    log_prior: ArrayLike | None = None,
    level_scales: str = "own",
    order: str | ArrayLike = "min_pivot",
    ties: ArrayLike | None = None,
    level_exponents: ArrayLike | None = None,
    n_draws: int = 64,
    draws: str = "stratified",
    keep_factor: bool = False,
    random_state: RandomState = 0,
    n_threads: int | None = None,
) -> SequentialPosterior:
    """Draw weights on levels one after another, from statistics alone.

    Parameters
    ----------
    statistics : GaussianStatistics or TargetStatistics
        Of one target; of several, ``statistics.target(k)``.
    noise : float
        Noise variance σ²; where the evidence of continuous weights is largest, see `maximise_evidence`.
    prior_variance : float, default=1.0
        Squared unit of the prior: the prior variance of a weight under the Gaussian prior.
    prior : str or Prior, default="gaussian"
        In units of the square root of `prior_variance`; own scales need a density, or a spike and slab of one.
    n_levels : int, default=15
        Number of values that a weight can take: odd with own scales, at most 16 for 4 bits; 3 are ternary weights.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Instead of `n_levels` evenly spaced ones. Ascending; with own scales in any unit, one row, zero among them;
        with shared ones in units of the square root of `prior_variance`, to ±4 by default.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Log masses of shared levels, any table, in place of `prior`.
    level_scales : {"own", "centred", "shared"}, default="own"
        ``"own"``: a power of two per weight, so that its levels are as wide as its posterior. ``"centred"``: the same
        about the mean of the weight's posterior, for data that determine weights to a small fraction of their size; it
        stores a mean per weight, and no weight is zero. As these levels look at the data, the ELBO of few of them may
        lie above the evidence of continuous weights: do not compare the two.
    order : {"min_pivot", "diagonal", "natural"} or array_like of shape (n_weights,), default="min_pivot"
        Order of the factorisation, whose last weight is drawn first. ``"min_pivot"``: the smallest remaining pivot in
        own units comes next. ``"diagonal"``: by the diagonal of H in own units.
    ties : array_like of int, shape (n_weights,), optional
        Number of a group for every weight: own levels have one scale per group, so that devices store fewer.
    level_exponents : array_like of int, shape (n_weights,), optional
        Own scales as exponents of two, for instance those of another output, in place of those that the posterior
        needs.
    n_draws : int, default=64
        Number of draws to keep.
    draws : {"stratified", "independent"}, default="stratified"
        See `SequentialPosterior.draw`.
    keep_factor : bool, default=False
        Whether to keep the factor, 8 n_weights² bytes, for further draws and, under the Gaussian prior, exact moments
        of continuous weights.
    random_state : Generator, int or None, default=0
        Seed of the draws.
    n_threads : int, optional
        Results have the same bits for any number.

    Returns
    -------
    SequentialPosterior
        The draws.

    Raises
    ------
    ValueError
        When an argument is invalid, or ``A/σ² + I/v`` is not positive definite in double precision.

    Warns
    -----
    CoarseLevelsWarning
        When levels are too far apart for what the data say: the ELBO lies more than half a nat per weight below the
        evidence of continuous weights, or varies too much from draw to draw, or the root mean square of the weights'
        largest spacings is above 5 conditional standard deviations.

    Notes
    -----
    The factorised lattice is that of Klein (2000), *Finding the closest lattice vector when it's unusually close*.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.direct import fit_sequential
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((200, 3))
    >>> y = phi @ [1.0, 0.0, -0.5] + 2.0 * rng.standard_normal(200)
    >>> posterior = fit_sequential(GaussianStatistics.from_arrays(phi, y), noise=4.0)
    >>> posterior.draws.shape, posterior.draws.mean(axis=0).round(1).tolist()
    ((64, 3), [0.8, -0.2, -0.4])
    """
    target = as_target_statistics(statistics)
    b, noise = target.n_weights, as_number(noise, "noise", above=0.0)
    prior_variance = as_number(prior_variance, "prior_variance", above=0.0)
    own = as_choice(level_scales, "level_scales", LEVEL_SCALES) != "shared"
    as_flag(keep_factor, "keep_factor")
    as_choice(draws, "draws", DRAW_KINDS)
    unit_levels = as_own_levels(levels, n_levels) if own else _shared_levels(levels, n_levels, b)
    if log_prior is not None and own:
        raise ValueError(f"log_prior must be None with level_scales={level_scales!r}: give a prior")
    prior = as_prior(prior)
    if own and not isinstance(prior, DensityPrior | SpikeAndSlabPrior):
        raise ValueError(f"prior must have a density, or use level_scales='shared', got {prior!r}")
    model = SequentialRegression(
        statistics=target,
        noise=noise,
        prior_variance=prior_variance,
        prior=prior,
        unit_levels=unit_levels,
        level_scales=level_scales,
        log_prior=None if log_prior is None else as_log_prior(log_prior, unit_levels, b),
        order=_as_order(order, b),
        ties=_as_integers(ties, "ties", b, (0, b - 1), np.intp, level_scales),
        given_exponents=_as_integers(
            level_exponents, "level_exponents", b, (-LARGEST_EXPONENT, LARGEST_EXPONENT), np.int8, level_scales
        ),
        n_threads=resolve_n_threads(n_threads),
    )
    seed = int(as_generator(random_state).integers(2**63))
    posterior = model.fit(as_count(n_draws, "n_draws"), draws, seed)
    if is_coarse(posterior):
        warn_of_coarse_levels(posterior)
    if not keep_factor:
        posterior.sampler = None
    return posterior


@dataclass(frozen=True)
class Lattice:
    """Levels of the weights, their prior and the number of draws, as `fit_sequential` takes them.

    `ties` are for own scales, and left out of account with others.
    """

    prior: Prior = field(default_factory=GaussianPrior)  # prior of a weight in units of its standard deviation
    n_levels: int = 15  # number of levels
    levels: ArrayLike | None = None  # levels, by default evenly spaced
    level_scales: str = "own"  # scales of the levels
    ties: NDArray[np.intp] | None = None  # weights that share a scale
    n_draws: int = 64  # number of draws
    keep_factor: bool = False  # whether the factor is kept

    def draw(
        self,
        target: TargetStatistics,
        noise: float,
        variance: float,
        seed: int,
        n_threads: int,
        level_exponents: NDArray[np.int8] | None = None,
    ) -> SequentialPosterior:
        """Draw weights whose prior, scaled, has a given variance; whether levels are coarse is left to the caller."""
        own = {"ties": self.ties if self.level_scales == "own" else None, "level_exponents": level_exponents}
        options = vars(self) | own | {"random_state": seed, "n_threads": n_threads}
        with ignored(CoarseLevelsWarning):
            return fit_sequential(target, noise, variance / variance_of(self.prior), **options)

    def draw_together(
        self, problems: Sequence[tuple[TargetStatistics, float, float]], seeds: Sequence[int], n_threads: int
    ) -> list[SequentialPosterior]:
        """Draw weights for statistics, noise and prior variances each.

        Own levels have the same scales, the widest that any needs, so that devices store them once.
        """
        given = [(*problem, seed, n_threads) for problem, seed in zip(problems, seeds, strict=True)]
        found = [self.draw(*own) for own in given]
        if self.level_scales != "own":
            return found
        widest = np.max([posterior.level_exponents for posterior in found], axis=0)
        return [
            posterior if np.array_equal(posterior.level_exponents, widest) else self.draw(*own, widest)
            for posterior, own in zip(found, given, strict=True)
        ]


def _as_integers(
    values: ArrayLike | None, name: str, n_weights: int, ends: tuple[int, int], dtype: type, level_scales: str
) -> NDArray[Any] | None:
    if values is None:
        return None
    if level_scales != "own":
        raise ValueError(f"{name} must be None with level_scales={level_scales!r}")
    given = as_float_array(values, name, (n_weights,))
    if (given != np.rint(given)).any() or given.min() < ends[0] or given.max() > ends[1]:
        raise ValueError(f"{name} must be integers from {ends[0]} to {ends[1]}")
    return given.astype(dtype)


def as_own_levels(levels: ArrayLike | None, n_levels: int) -> FloatArray:
    """Validate levels in own units, (1, n_levels); by default integers about zero."""
    if levels is None:
        if as_level_count(n_levels) % 2 == 0:
            raise ValueError(f"n_levels must be odd with level_scales='own', zero among the levels, got {n_levels}")
        return np.arange(-(n_levels // 2), n_levels // 2 + 1, dtype=np.float64)[None]
    given = as_levels(levels)
    if len(given) > 1 or given.shape[1] < 2 or not (np.diff(given) > 0).all() or not (given == 0.0).any():
        raise ValueError("levels must be one ascending row of two or more with zero among them for level_scales='own'")
    return given


def _shared_levels(levels: ArrayLike | None, n_levels: int, n_weights: int) -> FloatArray:
    if levels is None:
        return evenly_spaced_levels(n_levels, REACH)[None]
    given = as_levels(levels, n_weights)
    if given.shape[1] < 2 or not (np.diff(given) > 0).all():
        raise ValueError("levels must be ascending, two or more per weight")
    return given


def _as_order(order: str | ArrayLike, n_weights: int) -> str | NDArray[np.int64]:
    if isinstance(order, str):
        return as_choice(order, "order", ORDERS)
    given = as_float_array(order, "order", (n_weights,))
    if not np.array_equal(np.sort(given), np.arange(n_weights)):
        raise ValueError(f"order must be a permutation of 0 to {n_weights - 1}")
    return given.astype(np.int64)


def is_coarse(posterior: SequentialPosterior) -> bool:
    """Whether levels are too far apart, or reach too little far, for what the data say about the weights.

    That draws agree proves nothing: where levels are much further apart than conditional standard deviations, all mass
    is on one of them. Nor does a small gap: the ELBO of one level that stands for a wide cell near the mean may even be
    above the evidence. Rounding to spacings ρ adds variances of about ρ²/12 to conditional ones of one: as much
    at a root mean square of 3.5.
    Where the noise variance was raised, levels were coarse at the one of largest evidence.
    """
    typical = np.sqrt(np.mean(np.square(posterior.coarseness, dtype=np.float64)))
    return loses_evidence(posterior) or posterior.noise_factor > 1 or bool(typical > TELLING_COARSENESS)


def loses_evidence(posterior: SequentialPosterior) -> bool:
    """Whether levels that may be coarse cost much of the evidence, or the ELBO is uncertain.

    A gap alone proves nothing: another prior than the Gaussian has another evidence.
    """
    b = posterior.n_weights
    suspicious = posterior.coarseness.max() > HARMLESS_COARSENESS or outermost_share(posterior) > MANY_OUTERMOST
    loses = posterior.gap > COARSE_GAP * b or posterior.elbo_stderr > max(LARGE_ERROR, LARGE_ERROR_PER_WEIGHT * b)
    return bool(suspicious and loses)


def outermost_share(posterior: SequentialPosterior) -> float:
    """Return the share of a weight's two outermost levels among those drawn."""
    codes = posterior.codes
    return float(np.mean((codes == 0) | (codes == posterior.unit_levels.shape[-1] - 1)))


def warn_of_coarse_levels(posterior: SequentialPosterior) -> None:
    """Warn that levels are coarse, with figures that show how, what was done about it and what helps."""
    done, remedies = "", ["raise n_levels (up to 256 take a byte per weight)"]
    if not posterior.level_exponents.any():
        remedies.append("give levels scales of their own")
    elif not posterior.centres.size:
        remedies.append("centre levels at the weights' means (level_scales='centred')")
    if posterior.noise_factor > 1:
        done = (
            f" The noise variance was raised by a factor of {posterior.noise_factor:.3g}, to what the levels can "
            "represent, so predictions are less accurate than those of continuous weights."
        )
    else:
        remedies.append("raise the noise variance")
    side = "below" if posterior.gap >= 0 else "above"
    warn(
        "levels are coarse for what the data say: the ELBO lies "
        f"{abs(posterior.gap) / posterior.n_weights:.2g} nats per weight {side} the evidence of continuous weights "
        f"(standard error {posterior.elbo_stderr:.2g} nats), the largest spacing is {posterior.coarseness.max():.3g} "
        f"conditional standard deviations, {outermost_share(posterior):.0%} of drawn levels are the outermost.{done} "
        f"To represent such data better, {', '.join(remedies)}, or use Gaussian weights",
        CoarseLevelsWarning,
    )
