"""Ascent of the ELBO of classification: regression at given precisions, moments at the rows, new precisions, and again.

At logits of given moments every likelihood of `pydirect.logistic.likelihood` looks like Gaussian regression: with
precisions h and residuals r of the rows, A = Φᵀdiag(h)Φ, and the mean of the weights moves by S(Φᵀr − m/τ),
S = (A + I/τ)⁻¹. For the Jaakkola bound this is its fixed-point iteration, for the softmax Newton's. The rows answer
through a `RowSource`: rows held in memory, or passes over a stream (`pydirect.logistic.rows`). Over a stream, the means
are extrapolated from the last few steps by Anderson's method. In memory, they are the best for every covariance, and
the prior variance moves by secants. A step that lowers the bound is shortened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from scipy.linalg import cho_solve

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.optimize.cholesky import ridge_factor
from pydirect.optimize.gradient import Anderson
from pydirect.optimize.outcome import Outcome

# An iteration that raises the bound by less than this many nats and this fraction of it is the last.
RISE = 0.03
RELATIVE_RISE = 3e-5
# The same fraction where means are the best for every covariance, and of so many functions, whose iterations are dear.
RELATIVE_RISE_OF_BEST = 1e-4
RELATIVE_RISE_OF_MANY, MANY_FUNCTIONS = 5e-4, 8
# A bound that is lower by less than this fraction is the same but for rounding.
ROUNDING = 1e-13
# Earlier steps that are combined with the last one, and shares of a plain step that are tried when it fails.
MEMORY = 5
SHARES = (1.0, 0.5, 0.25, 0.1, 0.03)
# Least and largest secant step of the log prior variance, relative to the plain one, the first one, which is no secant,
# and the largest length. After a plain step, the best variance as a rule turns back, by about half of it.
SECANT_STEPS = (0.33, 2.0)
FIRST_STEP = 0.65
LONGEST_SECANT = 1.0
# Change of the log prior variance that tells no slope.
SMALLEST_CHANGE = 1e-3


class LatentGaussian(Protocol):
    """A posterior of the weights of all functions, by its moments."""

    @property
    def mean(self) -> FloatArray:
        """Means of the weights, (n_weights, n_functions)."""

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (n_rows, n_functions) and variance (n_rows,) of φᵀw for rows of Φ."""


@dataclass(frozen=True)
class LikelihoodMoments:
    """A posterior whose moments at all rows are known.

    - `row_mean`, (n_rows, n_functions) and `row_variance`, (n_rows,): of φᵀw.
    """

    mean: FloatArray  # (n_weights, n_functions): of the weights
    row_mean: FloatArray
    row_variance: FloatArray


@dataclass(frozen=True)
class BoundEvaluation:
    """A posterior at the rows."""

    log_likelihood: float  # Σ ω E log p(y | z), or a lower bound on it
    gram: FloatArray  # A = Σ ω h φφᵀ, (n_weights, n_weights)
    gradient: FloatArray  # Σ ω φ rᵀ, (n_weights, n_functions)


class RowSource(Protocol):
    """Rows with labels."""

    def evaluate(self, latent: Any) -> BoundEvaluation:
        """Evaluate a posterior at all rows. Raises KeyboardInterrupt when the user interrupts."""


@dataclass(frozen=True)
class State:
    """Where the iteration is: A, the weights' means (n_weights, n_functions), and the log of their prior variance."""

    gram: FloatArray
    mean: FloatArray
    log_variance: float

    @classmethod
    def after(cls, found: BoundEvaluation, mean: FloatArray, log_variance: float) -> State:
        """Return the state that a step from given means leads to."""
        variance = float(np.exp(log_variance))
        factor = ridge_factor(found.gram.copy(), 1 / variance)
        with single_blas_thread():
            step = cho_solve((factor, True), found.gradient - mean / variance)
        return cls(found.gram, mean + step, log_variance)

    def towards(self, other: State, share: float) -> State:
        """Return the state a share of the way to another."""
        return State(
            self.gram + share * (other.gram - self.gram),
            self.mean + share * (other.mean - self.mean),
            self.log_variance + share * (other.log_variance - self.log_variance),
        )

    @property
    def targets(self) -> FloatArray:
        """Return c of the regression with these means, (n_weights, n_functions)."""
        return self.gram @ self.mean + self.mean / np.exp(self.log_variance)


Posterior = TypeVar("Posterior", bound=Any)


@dataclass(frozen=True)
class Solution(Generic[Posterior]):
    """The posterior at a state."""

    state: State  # the one given, or a better one that it was moved to
    posterior: Posterior
    latent: LatentGaussian | LikelihoodMoments  # its moments, with weights in their own units
    # What is subtracted from the expected log-likelihood: the divergence from the prior, and −log of the prior
    # variance's prior.
    cost: float
    log_variance: float  # log of the prior variance for the next step
    interrupted: bool = False  # whether the user interrupted the regression


Solve = Callable[[State], Solution[Posterior]]


class Ascent(Generic[Posterior]):
    """The iteration: solve, evaluate, solve, … until the bound no longer rises.

    `solution` is to be evaluated next, `best` the best so far and `bound` its bound (the start and −inf at first),
    `trace` the bound after each evaluation.
    """

    def __init__(self, solve: Solve[Posterior], start: State, max_iter: int) -> None:
        self.solve, self.max_iter = solve, max_iter
        self.trace: list[float] = []
        self.converged = False
        self._memory = Anderson(MEMORY)
        self._last_variances: tuple[float, float] | None = None  # logs of a prior variance and of the next
        self._target = start
        self._shares: list[float] = []  # of the step to the target that are left to try
        self._solve_at(start, 1.0)
        self.best, self.bound = self.solution, -np.inf

    @property
    def finished(self) -> bool:
        """Whether no more evaluations are wanted."""
        return self.converged or len(self.trace) >= self.max_iter

    def result(self, stop: threading.Event) -> Outcome:
        """Return how the iteration ended."""
        return ended(Outcome(self.trace[-1], np.array(self.trace), len(self.trace), self.converged), stop)

    def take(self, found: BoundEvaluation) -> None:
        """Go on with the evaluation of `solution`."""
        bound, before = found.log_likelihood - self.solution.cost, self.bound
        self.trace.append(max(bound, before))
        if bound < before - ROUNDING * (abs(before) + 1) or np.isnan(bound):
            self._memory.steps.clear()
            if not np.isfinite(self.bound):
                raise FloatingPointError("the bound is not a number: rescale the features")
            self.converged = not self._shares
            if not self.finished:
                share = self._shares.pop(0)
                self._solve_at(self.best.state.towards(self._target, share), share)
            return
        self.best, self.bound = self.solution, bound
        best_means = isinstance(self.solution.latent, LikelihoodMoments)
        relative = RELATIVE_RISE
        if best_means:
            many = self.solution.state.mean.shape[1] >= MANY_FUNCTIONS
            relative = RELATIVE_RISE_OF_MANY if many else RELATIVE_RISE_OF_BEST
        self.converged = bound - before <= self._share * (RISE + relative * abs(bound))
        if self.finished or self.solution.interrupted:
            return
        state = self.solution.state
        if best_means:  # a Newton step would move the best means away
            self._target = moved = State(found.gram, state.mean, self._secant(state.log_variance))
        else:
            self._target = State.after(found, self.solution.latent.mean, self.solution.log_variance)
            means = self._memory.extrapolated(state.mean.ravel(), self._target.mean.ravel())
            moved = replace(self._target, mean=means.reshape(state.mean.shape))
        self._shares = list(SHARES if len(self._memory.steps) > 1 else SHARES[1:])
        self._solve_at(moved, 1.0)

    def _secant(self, before: float) -> float:
        """Log of the prior variance that is its own best one, if that changes as it did in the last step."""
        after, last = self.solution.log_variance, self._last_variances
        self._last_variances, factor = (before, after), FIRST_STEP
        if last is not None and abs(before - last[0]) > SMALLEST_CHANGE:
            slope = (after - last[1]) / (before - last[0])
            factor = float(np.clip(1 / max(1 - slope, 1 / SECANT_STEPS[1]), *SECANT_STEPS))
        return before + float(np.clip(factor * (after - before), -LONGEST_SECANT, LONGEST_SECANT))

    def _solve_at(self, state: State, share: float) -> None:
        self.solution, self._share = self.solve(state), share


def climb(source: RowSource, ascent: Ascent[Posterior], stop: threading.Event) -> Ascent[Posterior]:
    """Iterate until the bound converges or `stop` is set, as an interruption does; there is one evaluation at least.

    Raises KeyboardInterrupt before there is a bound.
    """
    try:
        with single_blas_thread():
            while not ascent.trace or not (stop.is_set() or ascent.finished):
                ascent.take(source.evaluate(ascent.solution.latent))
                if ascent.solution.interrupted:
                    stop.set()
    except KeyboardInterrupt:
        stop.set()
    if not ascent.trace:
        raise KeyboardInterrupt
    return ascent


def ended(outcome: Outcome, stop: threading.Event) -> Outcome:
    """Return how an optimisation ended that `stop` may have ended."""
    return outcome.stopped() if stop.is_set() else outcome


def with_outcome(posterior: Posterior, outcome: Outcome, stop: threading.Event) -> Posterior:
    """Return a discrete posterior with its bound and how the optimisation ended."""
    changed: Posterior = replace(cast(Any, posterior), outcome=ended(outcome, stop))
    return changed
