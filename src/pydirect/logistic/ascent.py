"""Ascent of the Jaakkola bound: regression at given ξ, the posterior's moments at the rows, the best ξ, and again.

The rows answer through a `RowSource`: rows held in memory (`pydirect.logistic.rows`), or passes over a stream that
several problems share (`pydirect.logistic.passes`). Plain steps converge linearly, and slowly where classes are far
apart; Anderson's method extrapolates from the last few, and where that lowers the bound it is taken back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import numpy as np

from pydirect._threads import for_each, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.optimize.anderson import Anderson
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import GaussianStatistics

# An iteration that raises the bound by less than this many nats and this fraction of it is the last.
RISE = 1e-4
RELATIVE_RISE = 1e-7
# A bound that is lower by less than this fraction is the same but for rounding.
ROUNDING = 1e-13


class Latent(Protocol):
    """A posterior, by its moments of f* = φᵀw."""

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance for rows of Φ; (n_rows,) each."""


class BoundParameters(Protocol):
    """Parameters of the bound: ξ of every row or, where rows are not held, the sums that follow from it."""

    memory: ClassVar[int]  # number of steps that Anderson's method remembers

    @property
    def coordinates(self) -> FloatArray:
        """The parameters as the vector that Anderson's method extrapolates."""

    @property
    def unit(self) -> float:
        """Change of coordinates that weighs as much as one of the log prior variance by 1."""

    def moved(self, coordinates: FloatArray) -> Self:
        """Return the parameters at extrapolated coordinates, where they are not too far from these."""

    def regression(self) -> GaussianStatistics:
        """Return the statistics of the regression that the bound is: A = Σ 2λω φφᵀ, c = Σ ω(t/2 − 2λ offset)φ."""


@dataclass(frozen=True)
class Evaluation:
    """A posterior at the rows of a problem.

    - `log_likelihood`: lower bound on Σ ω E log σ(t z), at the best ξ.
    - `parameters`: at that ξ.
    """

    log_likelihood: float
    parameters: BoundParameters


class RowSource(Protocol):
    """Rows with labels ±1 of one problem or several."""

    @property
    def n_threads(self) -> int:
        """Number of threads."""

    def evaluate(self, latents: Sequence[Latent | None]) -> list[Evaluation | None]:
        """Evaluate each problem's posterior, where one is given, at all rows.

        Raises KeyboardInterrupt when the user interrupts.
        """


Posterior = TypeVar("Posterior")


@dataclass(frozen=True)
class Solution(Generic[Posterior]):
    """The posterior of the regression at given parameters of the bound.

    - `latent`: its moments, with weights in their own units.
    - `cost`: what is subtracted from the expected log-likelihood: the divergence from the prior, and −log of the prior
      variance's prior.
    - `log_variance`: log of the prior variance for the next step.
    - `interrupted`: whether the user interrupted the regression.
    """

    posterior: Posterior
    latent: Latent
    cost: float
    log_variance: float
    interrupted: bool = False


Solve = Callable[[GaussianStatistics, float], Solution[Posterior]]


@dataclass(frozen=True)
class Step(Generic[Posterior]):
    """A step's bound, solution and log prior variance, and the parameters of the bound that follow from it."""

    bound: float
    solution: Solution[Posterior]
    log_variance: float
    parameters: BoundParameters


class Ascent(Generic[Posterior]):
    """The iteration of one problem: solve, evaluate, solve, … until the bound no longer rises.

    - `solve`: from regression statistics and the log prior variance to a `Solution`.
    - `log_variance`: log of the prior variance to start from.
    - `max_iter`: largest number of evaluations.
    - `solution`: the one to evaluate next.
    - `best`: the best step so far; the start, with a bound of −inf, until there is an evaluation.
    - `trace`: bound of the best step after each evaluation.
    """

    def __init__(self, solve: Solve[Posterior], start: BoundParameters, log_variance: float, max_iter: int) -> None:
        self.solve, self.max_iter, self._unit = solve, max_iter, start.unit
        self.trace: list[float] = []
        self.converged = False
        self._memory = Anderson(start.memory)
        self._retreats: list[float] = []  # log variances of plain steps to take instead of what has failed
        self._solve_at(start, log_variance)
        self.best = Step(-np.inf, self.solution, log_variance, start)

    @property
    def finished(self) -> bool:
        """Whether no more evaluations are wanted."""
        return self.converged or len(self.trace) >= self.max_iter

    @property
    def latent(self) -> Latent | None:
        """The posterior to evaluate next."""
        return None if self.finished else self.solution.latent

    def continue_trace(self, before: Ascent[Any]) -> None:
        """Let the first evaluation, if there was one, be the last one of another ascent."""
        self.trace = [*before.trace[:-1], *(self.trace or before.trace[-1:])]
        self.converged = before.converged

    def result(self, stop: threading.Event) -> Posterior:
        """Return the best posterior with how the iteration ended.

        Raises KeyboardInterrupt when there is no bound: the user interrupted too early.
        """
        if not self.trace:
            raise KeyboardInterrupt
        outcome = Outcome(self.trace[-1], np.array(self.trace), len(self.trace), self.converged)
        return with_outcome(self.best.solution.posterior, outcome, stop)

    def take(self, found: Evaluation) -> None:
        """Go on with the evaluation of `latent`."""
        bound, before = found.log_likelihood - self.solution.cost, self.best.bound
        lower = bound < before - ROUNDING * (abs(before) + 1)
        self.trace.append(max(bound, before))
        if lower:
            if len(self._memory.steps) == 1:  # it was a plain step that failed
                self._retreats = self._retreats[1:]
            self._memory.steps.clear()
            self.converged = not self._retreats
        else:
            self.best = Step(bound, self.solution, self._log_variance, found.parameters)
            self._retreats = list(dict.fromkeys((self.solution.log_variance, self._log_variance)))
            self.converged = bound - before <= RISE + RELATIVE_RISE * abs(bound)
        if self.finished or self.solution.interrupted:
            return
        if lower:
            self._solve_at(self.best.parameters, self._retreats.pop(0))
        else:
            self._extrapolate()

    def _extrapolate(self) -> None:
        parameters, log_variance = self.best.parameters, self.solution.log_variance
        point, image = self._vector(self._parameters, self._log_variance), self._vector(parameters, log_variance)
        combined = self._memory.extrapolated(point, image)
        # The prior variance changes by a factor of e beyond the plain step at most.
        moved_variance = float(np.clip(combined[-1] / self._unit, log_variance - 1.0, log_variance + 1.0))
        try:
            self._solve_at(parameters.moved(combined[:-1]), moved_variance)
        except np.linalg.LinAlgError:  # extrapolated sums need not be sums of squares
            self._memory.steps.clear()
            self._solve_at(parameters, log_variance)

    def _solve_at(self, parameters: BoundParameters, log_variance: float) -> None:
        self.solution = self.solve(parameters.regression(), log_variance)
        self._parameters, self._log_variance = parameters, log_variance

    def _vector(self, parameters: BoundParameters, log_variance: float) -> FloatArray:
        return np.append(parameters.coordinates, self._unit * log_variance)


def climb(source: RowSource, ascents: Sequence[Ascent[Any]], stop: threading.Event) -> None:
    """Iterate problems, one evaluation of the rows for all, until they converge or `stop` is set.

    An interruption sets `stop`. There is one evaluation at least, unless the source refuses it.
    """
    try:
        with single_blas_thread():
            while True:
                found = source.evaluate([ascent.latent for ascent in ascents])
                steps = [(ascent, value) for ascent, value in zip(ascents, found, strict=True) if value is not None]
                for_each(lambda step: step[0].take(step[1]), steps, min(len(steps), source.n_threads), stop)
                if any(ascent.solution.interrupted for ascent in ascents):
                    stop.set()
                if stop.is_set() or all(ascent.finished for ascent in ascents):
                    return
    except KeyboardInterrupt:
        stop.set()


def raise_if_set(stop: threading.Event) -> None:
    """Interrupt this thread too when the user has interrupted another."""
    if stop.is_set():
        raise KeyboardInterrupt


def with_outcome(posterior: Posterior, outcome: Outcome, stop: threading.Event) -> Posterior:
    """Return a discrete posterior with its bound and how the optimisation ended."""
    interrupted = outcome.interrupted or stop.is_set()
    ended = replace(outcome, converged=outcome.converged and not stop.is_set(), interrupted=interrupted)
    changed: Posterior = replace(cast(Any, posterior), outcome=ended)
    return changed
