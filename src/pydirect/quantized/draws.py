"""Samples of small models: sequential posteriors whose scales of levels all outputs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect._warnings import ignored
from pydirect.direct.sequential import CoarseLevelsWarning, fit_sequential, with_common_scales
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.quantized.samples import choose_samples
from pydirect.statistics.gaussian import TargetStatistics

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
    options: dict[str, Any] = {"levels": levels, "ties": ties, "n_draws": n_draws, "n_threads": n_threads}

    def fit(p: DrawProblem, seed: int, exponents: NDArray[np.int8] | None) -> SequentialPosterior:
        with ignored(CoarseLevelsWarning):  # coarse levels are judged by their predictions
            own = options | {"level_exponents": exponents, "random_state": seed}
            return fit_sequential(p.statistics, p.noise, p.prior_variance, **own)

    seeded = zip(problems, seeds.tolist(), strict=True)
    posteriors = with_common_scales([partial(fit, problem, seed) for problem, seed in seeded])
    return [_samples(problems, posteriors, n_samples, rng) for n_samples in counts]


def _samples(
    problems: Sequence[DrawProblem], posteriors: Sequence[SequentialPosterior], n_samples: int, rng: np.random.Generator
) -> Samples:
    codes = [choose_samples(p, n_samples, "moments", rng) for p in posteriors]
    lacking = [_lacking_variance(*both) for both in zip(problems, posteriors, codes, strict=True)]
    return Samples(
        np.vstack(codes),
        np.ldexp(1.0, posteriors[0].level_exponents.astype(np.int64)),
        np.array([p.step for p in posteriors]),
        np.array([problem.noise for problem in problems]) + lacking,
    )


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
