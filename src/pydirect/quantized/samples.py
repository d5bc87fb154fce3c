"""Posterior samples: draws, the most probable one, a few with the posterior's moments, or rounded to shared levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from pydirect._validation import FloatArray
from pydirect.direct.sequential import Lattice
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.statistics.gaussian import TargetStatistics

# Exchanges of one code for another per weight.
EXCHANGES = 8
# Losses of exchanges held at once.
MOST_LOSSES = 2**20
Codes = NDArray[np.uint8]


def choose_samples(posterior: Any, n_samples: int, rng: np.random.Generator) -> Codes:
    """Choose level indices of samples, (n_samples, n_weights).

    Per weight, the mean and the variance over the samples are those of the posterior, as nearly as the levels allow. A
    sequential posterior has samples already: its first draws, which are stratified, or the vector of most probable
    levels in place of a single one.
    """
    if isinstance(posterior, SequentialPosterior):
        if n_samples == 1:
            return posterior.most_probable()[None, :]
        if n_samples <= posterior.n_draws:
            return posterior.codes[:n_samples]
        if posterior.sampler is not None:
            return posterior.draw(n_samples).codes
        raise ValueError(f"n_samples must be at most n_draws of the fit, {posterior.n_draws}, got {n_samples}")
    weights = posterior if isinstance(posterior, FactorizedCategorical) else posterior.weights
    return matched_samples(weights, n_samples, rng)


def matched_samples(weights: FactorizedCategorical, n_samples: int, rng: np.random.Generator) -> Codes:
    """Choose samples with the mean and variance of every weight, as nearly as its levels allow.

    Start from equally spaced quantiles of every weight; exchange codes one by one while that lowers
    ``(mean − s_j)²·S + (sd − sd_j)²``; then shuffle every weight's codes among the samples.
    """
    n_weights, n_levels = weights.q.shape
    levels, mean, sd = np.broadcast_to(weights.levels, weights.q.shape), weights.mean, weights.std
    step = max(MOST_LOSSES // (n_samples * n_levels), 1)
    blocks = [slice(begin, begin + step) for begin in range(0, n_weights, step)]
    codes = [_exchanged(weights.q[b], levels[b], mean[b], sd[b], n_samples) for b in blocks]
    return rng.permuted(np.vstack(codes), axis=1).T


def _exchanged(q: FloatArray, levels: FloatArray, mean: FloatArray, sd: FloatArray, n_samples: int) -> Codes:
    """Return codes of some weights, (n_weights, n_samples), in no particular order."""
    cumulative = np.cumsum(q, axis=1)
    cumulative /= cumulative[:, -1:]
    at = (np.arange(n_samples) + 0.5) / n_samples
    codes = (cumulative[:, :, None] <= at).sum(axis=1).astype(np.uint8)
    possible = q > 0
    mean, sd = mean[:, None, None], sd[:, None, None]
    rows = np.arange(len(codes))
    values = np.take_along_axis(levels, codes.astype(np.intp), axis=1)
    for _ in range(EXCHANGES):
        first, second = values.sum(axis=1)[:, None, None], (values**2).sum(axis=1)[:, None, None]
        old, new = values[:, :, None], levels[:, None, :]
        m = (first - old + new) / n_samples
        v = np.maximum((second - old**2 + new**2) / n_samples - m**2, 0.0)
        loss = np.where(possible[:, None, :], n_samples * (m - mean) ** 2 + (np.sqrt(v) - sd) ** 2, np.inf)
        best = loss.reshape(len(codes), -1).argmin(axis=1)
        sample, level = np.divmod(best, levels.shape[1])
        if (codes[rows, sample] == level).all():
            break
        codes[rows, sample] = level
        values[rows, sample] = levels[rows, level]
    return codes


REACHES = (1.0, 0.7, 0.5, 0.35)
POLISH_SWEEPS = 3


def sample_targets(posterior: Any, n_samples: int, rng: np.random.Generator) -> FloatArray:
    """Draw weights of Φ, (n_samples, n_weights), shifted and scaled to the posterior's mean."""
    if n_samples == 1:
        return np.asarray(posterior.coefficients)[None, :]
    drawn = posterior.sample_weights(n_samples, rng)
    # An unbiased variance about this mean.
    return np.asarray(posterior.coefficients + np.sqrt(n_samples / (n_samples - 1)) * (drawn - drawn.mean(axis=0)))


def rounded_on_best_scale(targets: FloatArray, grid: FloatArray, metric: FloatArray) -> tuple[NDArray[np.uint8], float]:
    """Round to levels ``scale · grid``, at the scale with the smallest error of the mean and of the samples."""
    largest = float(np.abs(targets).max()) or 1.0
    tried = []
    for scale in (reach * largest for reach in REACHES):
        codes = round_to_levels(targets, scale * grid, metric)
        error = scale * grid[codes] - targets
        mean = error.mean(axis=0)
        spread = np.einsum("sj,jk,sk->", error, metric, error, optimize=True) / len(error) ** 2
        tried.append((float(mean @ metric @ mean + spread), codes, scale))
    return min(tried, key=lambda own: own[0])[1:]


def round_to_levels(targets: FloatArray, levels: FloatArray, metric: FloatArray) -> Codes:
    """Round vectors to a lattice of levels so that their errors cancel in the mean.

    Samples are rounded in order: each target is shifted by the errors of those before it, so that the mean of S samples
    is off by one sample's error divided by S. Each is rounded weight by weight, later weights compensating for the
    errors of earlier ones (Babai's nearest plane, with clipping at the levels' ends), then improved by coordinate
    descent.

    `targets`, (n_samples, n_weights). `levels`, (n_levels,): ascending. `metric`, (n_weights, n_weights): H of the
    squared error ``(w − t)ᵀH(w − t)``, positive definite: ΦᵀΦ and the prior's precision. Returns uint8
    (n_samples, n_weights).
    """
    order = np.argsort(-np.diag(metric), kind="stable")  # those that matter most first; the others compensate
    h = metric[np.ix_(order, order)]
    # With H⁻¹ = UᵀU, U upper triangular, row i of U says how later weights compensate for an error of weight i.
    lower = cholesky(h, lower=True)
    inverse = solve_triangular(lower, np.eye(len(h)), lower=True)
    upper = cholesky(inverse.T @ inverse, lower=False)
    middles = (levels[1:] + levels[:-1]) / 2
    diagonal = np.diag(h).copy()
    codes = np.empty(targets.shape, dtype=np.uint8)
    carried = np.zeros(len(h))
    for s, target in enumerate(targets[:, order]):
        wanted = target + carried
        left = wanted.copy()
        chosen = np.empty(len(h), dtype=np.intp)
        for i in range(len(h)):
            chosen[i] = np.searchsorted(middles, left[i])
            error = (left[i] - levels[chosen[i]]) / upper[i, i]
            left[i + 1 :] -= error * upper[i, i + 1 :]
        slope = h @ (levels[chosen] - wanted)
        for _ in range(POLISH_SWEEPS):
            moved = False
            for i in range(len(h)):
                now = levels[chosen[i]]
                new = int(np.searchsorted(middles, now - slope[i] / diagonal[i]))
                if new != chosen[i]:
                    slope += h[i] * (levels[new] - now)
                    chosen[i], moved = new, True
            if not moved:
                break
        carried = wanted - levels[chosen]
        codes[s, order] = chosen
    return codes


N_DRAWS = 32
# Mean squared residual of samples, in noise variances, from which levels are too coarse; the factor on the prior
# variance that is tried then, and how often.
TOO_COARSE, NARROWER, MOST_NARROWED = 4.0, 1 / 8, 5


@dataclass(frozen=True)
class DrawProblem:
    """Regression of one output: what `fit_sequential` fits."""

    statistics: TargetStatistics
    noise: float
    prior_variance: float


@dataclass(frozen=True)
class Samples:
    """Samples of the weights of all outputs."""

    # uint8 (n_outputs · n_samples, n_weights)
    codes: NDArray[np.uint8]
    # (n_weights,): powers of two; a weight of output k is ``unit[k] · scale · level``
    scale: FloatArray
    # (n_outputs,)
    unit: FloatArray
    # (n_outputs,): noise variance, with what the samples lack
    noise: FloatArray


def draw_samples(
    problems: Sequence[DrawProblem],
    counts: Sequence[int],
    levels: FloatArray,
    ties: NDArray[np.intp],
    rng: np.random.Generator,
    n_threads: int,
) -> list[Samples]:
    """Draw samples of all outputs, as many as each count; one sample takes the most probable level each time.

    `levels`, (n_levels,). `ties`, (n_weights,): weights of one group share a scale; see `fit_sequential`.
    """
    seeds = rng.integers(2**31, size=len(problems))
    n_draws = max(N_DRAWS, *counts)
    lattice = Lattice(levels=levels, ties=ties, n_draws=n_draws)  # coarse levels are judged by their predictions
    sums = [(p.statistics, p.noise, p.prior_variance) for p in problems]
    posteriors = lattice.draw_together(sums, seeds.tolist(), n_threads)
    scale, unit = np.ldexp(1.0, posteriors[0].level_exponents.astype(np.int64)), np.array([p.step for p in posteriors])
    found = []
    for n_samples in counts:
        codes = [choose_samples(p, n_samples, rng) for p in posteriors]
        lacking = [_lacking_variance(*both) for both in zip(problems, posteriors, codes, strict=True)]
        noise = np.array([p.noise for p in problems]) + lacking
        found.append(Samples(np.vstack(codes), scale, unit, noise))
    return found


def accurate_samples(
    problems: Sequence[DrawProblem], counts: Sequence[int], levels: FloatArray, *options: Any
) -> list[Samples]:
    """Draw samples at the prior variances of the problems, or at the smaller ones whose samples fit the rows best.

    The evidence lets weights of nearly redundant columns be large and cancel, which levels of a few bits cannot do.
    `options`: the others of `draw_samples`.
    """
    best = draw_samples(problems, counts, levels, *options)
    least = _residual(problems, best[0], levels)
    for _ in range(MOST_NARROWED):
        if least <= TOO_COARSE:
            break
        problems = [replace(p, prior_variance=NARROWER * p.prior_variance) for p in problems]
        samples = draw_samples(problems, counts, levels, *options)
        residual = _residual(problems, samples[0], levels)
        if residual < least:
            best, least = samples, residual
    return best


def _residual(problems: Sequence[DrawProblem], samples: Samples, levels: FloatArray) -> float:
    """Mean squared residual of samples in noise variances, averaged over problems."""
    codes = samples.codes.reshape(len(problems), -1, samples.codes.shape[1])
    total = 0.0
    for problem, own, unit in zip(problems, codes, samples.unit, strict=True):
        squares = problem.statistics.squared_error(unit * samples.scale * levels[own]).mean()
        total += squares / problem.statistics.n_samples / problem.noise
    return total / len(problems)


def _lacking_variance(problem: DrawProblem, posterior: SequentialPosterior, codes: NDArray[np.uint8]) -> float:
    """Return the error that samples do not show, averaged over the rows: it is noise to a device.

    The posterior variance of f*, and the squared error of the samples' mean, without the samples' variance.
    """
    values, mean = posterior.values(codes), posterior.continuous_mean.astype(np.float64)
    middle = values.mean(axis=0)
    wanted = _mean_square(posterior.draws - posterior.mean, problem.statistics)
    error = _mean_square((middle - mean)[None], problem.statistics)
    return max(wanted + error - _mean_square(values - middle, problem.statistics), 0.0)


def _mean_square(weights: FloatArray, statistics: TargetStatistics) -> float:
    """Mean over rows and vectors of the squares of functions with these weights."""
    return float(np.einsum("sj,sj->", weights @ statistics.A, weights)) / len(weights) / statistics.n_samples


def gaussian_problem(precision: FloatArray, mean: FloatArray, prior_variance: float) -> DrawProblem:
    """Return the regression whose posterior is Gaussian with this mean and precision, prior included.

    Its sums are those of rows with noise variance one.
    """
    a = precision.copy()
    a[np.diag_indices_from(a)] -= 1 / prior_variance
    c = precision @ mean
    return DrawProblem(TargetStatistics(a, c, float(c @ mean), float(len(mean))), 1.0, prior_variance)
