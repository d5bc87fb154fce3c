"""Logistic classification of rows that are passed over again and again and never held.

The best ξ of a row follows from the posterior, ξ² = E z² (see `pydirect.logistic`), so that nothing has to be kept for
a row: a pass that knows a step's posterior computes ξ on the way and leaves A = Σ 2λω φφᵀ, c = Σ ω(t/2 − 2λ offset)φ,
from which the next posterior follows, and the bound of the one it knew. Several problems, one class against the rest
each, share the pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pydirect import _core
from pydirect._threads import for_each, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.distributions.priors import DensityPrior
from pydirect.logistic.ascent import RELATIVE_RISE, RISE, climb
from pydirect.logistic.bound import jaakkola_bound, jaakkola_lambda, log_xi_of
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_step, start_size
from pydirect.logistic.rows import LabelledRows, Latent
from pydirect.optimize.anderson import Anderson
from pydirect.optimize.outcome import Outcome
from pydirect.regression.decorrelated import fit_decorrelated
from pydirect.regression.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.statistics.gaussian import FeatureMap, GaussianStatistics, gram_of, ordered_map
from pydirect.statistics.rotated import decorrelate
from pydirect.streams.rows import Rows

# Squares of numbers that Anderson's method remembers for a problem are n_weights² times twice this and two more.
STREAM_MEMORY = 3


@dataclass(frozen=True)
class BoundSums:
    """What a pass leaves of a problem's rows: regression at the best ξ of a posterior, and that posterior's bound.

    Parameters
    ----------
    regression : GaussianStatistics
        Of targets t/(4λ) − offset with weights 2λω.
    log_likelihood : float
        Lower bound of Σ ω E log σ(t z).
    """

    regression: GaussianStatistics
    log_likelihood: float


@dataclass(frozen=True)
class RowPasses:
    """Rows with labels ±1 that can be gone through again.

    Parameters
    ----------
    features : FeatureMap
        Of the rows' x.
    open : callable
        Returns an iterator over blocks of rows; their y, (n_rows, n_problems), hold labels ±1.
    offset : ndarray of shape (n_problems,)
        Prior means of z.
    n_threads : int
    """

    features: FeatureMap
    open: Callable[[], Iterator[Rows]]
    offset: FloatArray
    n_threads: int

    def sums(self, latents: Sequence[Latent | None]) -> list[BoundSums | None]:
        """Pass over all rows once, for every problem whose posterior is given; the same bits for any threads."""
        b, given = self.features.n_weights, [k for k, latent in enumerate(latents) if latent is not None]
        grams = {k: np.zeros((b, b)) for k in given}
        vectors = {k: np.zeros(b) for k in given}
        numbers = np.zeros((len(latents), 3))  # yᵀy, Σ of weights, bound

        def of_block(rows: Rows) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
            phi = np.ascontiguousarray(self.features.transform(rows.x, np.float64, 1))
            weight = np.ones(len(rows)) if rows.weight is None else rows.weight
            return [self._block_sums(phi, rows.y[:, k], weight, latents[k], float(self.offset[k])) for k in given]

        with single_blas_thread():
            for parts in ordered_map(of_block, self.open(), self.n_threads):
                for k, (gram, vector, three) in zip(given, parts, strict=True):
                    _core.add_upper_triangle(gram, grams[k], self.n_threads)
                    vectors[k] += vector
                    numbers[k] += three
        found: list[BoundSums | None] = [None] * len(latents)
        for k in given:
            _core.mirror_upper_triangle(grams[k], self.n_threads)
            yty, n_samples, bound = numbers[k]
            regression = GaussianStatistics(vectors[k][:, None], np.array([yty]), float(n_samples), gram=grams[k])
            found[k] = BoundSums(regression, float(bound))
        return found

    @staticmethod
    def _block_sums(
        phi: FloatArray, t: FloatArray, weight: FloatArray, latent: Any, offset: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        mean, variance = latent.latent_moments(phi, 1)
        mean = mean + offset
        lam = jaakkola_lambda(np.exp(log_xi_of(mean, variance)))
        targets, precision = t / (4 * lam) - offset, 2 * lam * weight
        vector = phi.T @ (precision * targets)
        numbers = precision @ targets**2, precision.sum(), jaakkola_bound(t, mean, variance, weight)
        return gram_of(phi * np.sqrt(precision)[:, None]), vector, np.array(numbers)


@dataclass(frozen=True)
class Solved:
    """The posterior of a problem's regression.

    Parameters
    ----------
    posterior : object
    latent : Latent
        Its moments, with weights in their own units.
    cost : float
        What the bound loses: the divergence from the prior, and −log of the prior variance's prior.
    log_variance : float
        Log of the prior variance for the next step.
    """

    posterior: Any
    latent: Latent
    cost: float
    log_variance: float


Solve = Callable[[GaussianStatistics, float], Solved]


@dataclass(frozen=True)
class ScaledLatent:
    """Moments of f* for weights in units of √variance."""

    posterior: Latent
    variance: float

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance for rows of Φ; (n_rows,) each."""
        mean, variance = self.posterior.latent_moments(phi, n_threads)
        return np.sqrt(self.variance) * mean, self.variance * variance


def gaussian_solve(variance_prior: VariancePrior) -> Solve:
    """Return the step with continuous weights: one factorisation, and one of empirical Bayes."""

    def solve(regression: GaussianStatistics, log_variance: float) -> Solved:
        variance = float(np.exp(log_variance))
        posterior = FullGaussian.solve(regression.A, regression.c[:, 0], variance)
        cost = posterior.kl(variance) + variance_prior.penalty(variance)
        return Solved(posterior, posterior, cost, float(np.log(posterior.better_variance(variance_prior, variance))))

    return solve


def decorrelated_solve(prior: DensityPrior, n_levels: int, variance_prior: VariancePrior) -> Solve:
    """Return the step with discrete weights in the basis where they do not interact."""

    def solve(regression: GaussianStatistics, log_variance: float) -> Solved:
        variance = float(np.exp(log_variance))
        rotated = decorrelate(regression).scaled(variance)
        posterior = fit_decorrelated(rotated, 1.0, prior=prior, n_levels=n_levels, n_noise_levels=1)
        cost = posterior.weights.kl(posterior.log_prior) + variance_prior.penalty(variance)
        return Solved(posterior, ScaledLatent(posterior, variance), cost, log_variance)

    return solve


def raw_solve(levels: FloatArray, log_prior: FloatArray, optimizer: str, random_state: int, n_threads: int) -> Solve:
    """Return the step with discrete weights of the features themselves; each starts at the last posterior."""
    last: MeanFieldPosterior | None = None

    def solve(regression: GaussianStatistics, log_variance: float) -> Solved:
        nonlocal last
        options: dict[str, Any] = {"optimizer": optimizer, "random_state": random_state, "n_threads": n_threads}
        last = fit_mean_field(regression, levels, log_prior, [1.0], start=last, **options)
        return Solved(last, last, last.weights.kl(last.log_prior), log_variance)

    return solve


@dataclass(frozen=True)
class _Step:
    """The best step so far: its bound, what was solved, and the sums that its pass left."""

    bound: float
    solved: Solved
    log_variance: float
    sums: BoundSums


class Ascent:
    """The iteration of one problem: solve, pass, solve, … until the bound stays.

    Anderson's method extrapolates the sums, which are what a step depends on; where it lowers the bound it is taken
    back. See `pydirect.logistic` for the same iteration where ξ is held.

    Parameters
    ----------
    solve : callable
    start : GaussianStatistics
        Sums to start from.
    log_variance : float
    max_iter : int
        Largest number of passes.
    """

    def __init__(self, solve: Solve, start: GaussianStatistics, log_variance: float, max_iter: int) -> None:
        self.solve, self.max_iter, self._unit = solve, max_iter, start.n_samples
        self.outcome = Outcome()
        self.trace: list[float] = []
        self.best: _Step | None = None
        self._memory = Anderson(STREAM_MEMORY)
        self._retreats: list[float] = []  # log variances of plain steps to take instead of what has failed
        self._at(start, log_variance)

    @property
    def finished(self) -> bool:
        """Whether no more passes are wanted."""
        return self.outcome.converged or len(self.trace) >= self.max_iter

    @property
    def latent(self) -> Latent | None:
        """The posterior that the next pass is for."""
        return None if self.finished else self.solved.latent

    @property
    def posterior(self) -> Any:
        """The best posterior found; the first, where there was no pass for it."""
        return (self.solved if self.best is None else self.best.solved).posterior

    @property
    def log_variance(self) -> float:
        """Log of its prior variance."""
        return self._log_variance if self.best is None else self.best.log_variance

    def result(self, interrupted: bool) -> Any:
        """Return the best posterior with what became of the iteration."""
        return replace(
            self.posterior,
            elbo=self.trace[-1],
            elbo_trace=np.array(self.trace),
            n_iter=len(self.trace),
            converged=self.outcome.converged and not interrupted,
            interrupted=interrupted,
        )

    def _at(self, regression: GaussianStatistics, log_variance: float) -> None:
        self.solved = self.solve(regression, log_variance)
        self._point, self._log_variance = self._flat(regression, log_variance), log_variance

    def _flat(self, regression: GaussianStatistics, log_variance: float) -> FloatArray:
        return np.concatenate([regression.A.ravel() / self._unit, regression.c[:, 0] / self._unit, [log_variance]])

    def take(self, sums: BoundSums) -> None:
        """Go on with what a pass at `latent` left."""
        bound = sums.log_likelihood - self.solved.cost
        before = self.best.bound if self.best is not None else -np.inf
        lower = bound < before - 1e-13 * (abs(before) + 1)
        self.trace.append(max(bound, before))
        if lower:
            if len(self._memory.steps) == 1:  # it was a plain step that failed
                self._retreats = self._retreats[1:]
            self._memory.steps.clear()
        else:
            self.best = _Step(bound, self.solved, self._log_variance, sums)
            variances = (self.solved.log_variance, self._log_variance)
            self._retreats = list(dict.fromkeys(variances))
        at_rest = not self._retreats if lower else bound - before <= RISE + RELATIVE_RISE * abs(bound)
        self.outcome.converged = at_rest
        if self.finished:
            return
        assert self.best is not None
        if lower:
            self._at(self.best.sums.regression, self._retreats.pop(0))
        else:
            self._extrapolate(sums.regression, self.solved.log_variance)

    def _extrapolate(self, regression: GaussianStatistics, log_variance: float) -> None:
        image = self._flat(regression, log_variance)
        combined = self._memory.extrapolated(self._point, image)
        b, unit = regression.n_weights, self._unit
        gram, c = unit * combined[: b * b].reshape(b, b), unit * combined[b * b : -1, None]
        further = GaussianStatistics(c, regression.yty, regression.n_samples, gram=gram)
        try:
            self._at(further, float(np.clip(combined[-1], log_variance - 1.0, log_variance + 1.0)))
        except np.linalg.LinAlgError:  # an extrapolated matrix need not be one of squares
            self._memory.steps.clear()
            self._at(regression, log_variance)


def climb_together(passes: RowPasses, ascents: Sequence[Ascent]) -> bool:
    """Iterate problems until all are at rest, one pass over the rows for all; return whether the user interrupted."""
    stop = threading.Event()
    try:
        while not stop.is_set() and not all(ascent.finished for ascent in ascents):
            found = passes.sums([ascent.latent for ascent in ascents])
            steps = [(ascent, sums) for ascent, sums in zip(ascents, found, strict=True) if sums is not None]
            with single_blas_thread():
                for_each(lambda step: step[0].take(step[1]), steps, min(len(steps), passes.n_threads), stop)
    except KeyboardInterrupt:
        stop.set()
    return stop.is_set()


def sampled_start(rows: LabelledRows, variance_prior: VariancePrior, max_iter: int) -> tuple[GaussianStatistics, float]:
    """Return sums at the ξ of continuous weights that were fitted to a sample, and the log of their prior variance.

    Parameters
    ----------
    rows : LabelledRows
        The sample, which weighs as much as all rows.
    variance_prior : VariancePrior
    max_iter : int
    """
    size = min(start_size(rows), rows.n_samples)
    rows = rows.sample(size)
    start = np.append(np.zeros(size), np.log(variance_prior.centre))
    found, outcome = climb(gaussian_step(rows, variance_prior), start, max_iter, threading.Event())
    if outcome.interrupted:
        raise KeyboardInterrupt
    return rows.weighted_statistics(np.exp(found.following[:-1])), float(np.log(found.variance))
