"""Ascent of quadratic problems with discrete weights: coordinate ascent and Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.optimize.cholesky import cholesky_of_ridge, solve_factored
from pydirect.optimize.outcome import Outcome

# A weight has moved when its mean has by this many posterior standard deviations.
MOVE_THRESHOLD = 1e-3
# An iteration that raises the ELBO by less than this fraction of it is the last.
RELATIVE_RISE = 1e-6
# Sweeps between computations of the residual c − As afresh.
REFRESH_EVERY = 20
# The pipeline's stages; Newton's systems are solved by conjugate gradients.
FIRST_SWEEPS = 10
NEWTON_STEPS, NEWTON_TOLERANCE, NEWTON_RISE = 30, 1e-4, 3e-6
CG_STEPS, CG_TOLERANCE = 20, 0.2
# Levels are coarse when tau mean(diag A) spacing² exceeds this: then inference is an integer least-squares problem.
COARSE_LEVELS = 20.0
# With at most this many weights, where it costs nothing, iterations go on until rounding decides: data that differ by
# rounding only (a row given twice, a weight of two) then give results that do.
SMALL_PROBLEM = 300
OPTIMIZERS = ("pipeline", "lbfgs")


@dataclass(frozen=True)
class QuadraticProblem:
    """What optimisers see beside the solver: the matrix and how coarse the levels are."""

    a: NDArray[np.float32]
    a_exact: FloatArray
    c: FloatArray
    prior_precision: FloatArray
    spacing: float
    max_iter: int

    @property
    def precision(self) -> float:
        """Factor on all thresholds."""
        return 1e-6 if self.a.shape[0] <= SMALL_PROBLEM else 1.0

    def coarseness(self, tau: float) -> float:
        """``δ = tau mean(diag A) spacing²``: about 2 where the levels are as wide as the posterior."""
        return tau * float(self.a.diagonal().mean()) * self.spacing**2

    def ridge(self, tau: float) -> tuple[NDArray[np.float32], FloatArray]:
        """Cholesky factor U (C-ordered, upper) of A + prior_precision / tau and the ridge solution."""
        factor = cholesky_of_ridge(self.a_exact, self.prior_precision / tau, self.a)
        return np.asarray(factor, dtype=np.float32), solve_factored(factor, self.c)


# Number of iterations, whether it came to rest, and the ELBO after each.
StageResult: TypeAlias = tuple[int, bool, FloatArray]
Stage: TypeAlias = Callable[[Any, QuadraticProblem], StageResult]


def _sweeps(solver: Any, problem: QuadraticProblem, n_sweeps: int | None = None) -> StageResult:
    fine, n_sweeps = problem.precision, min(n_sweeps or problem.max_iter, problem.max_iter)
    return solver.coordinate_ascent(n_sweeps, fine * MOVE_THRESHOLD, fine * RELATIVE_RISE, REFRESH_EVERY)


def _newton(solver: Any, problem: QuadraticProblem) -> StageResult:
    fine, n_steps = problem.precision, min(NEWTON_STEPS, problem.max_iter)
    return solver.newton(n_steps, NEWTON_TOLERANCE * fine, CG_STEPS, CG_TOLERANCE, NEWTON_RISE * fine)


def _pipeline(problem: QuadraticProblem, tau: float) -> list[Stage]:
    """Stages after the lattice start: sweeps, Newton's method where it helps, then sweeps until nothing moves.

    On the six problems of 2000 weights that bench/paper/reference_problems.py rebuilds, Newton's method gained 1 to 2
    nats over sweeps where δ < 6 and nothing, at the price of a factorisation, where δ > 200.
    """
    if problem.a.shape[0] > SMALL_PROBLEM and problem.coarseness(tau) > COARSE_LEVELS:
        return [_sweeps]
    return [partial(_sweeps, n_sweeps=FIRST_SWEEPS), _newton, _sweeps]


def run(solver: Any, problem: QuadraticProblem, warm: bool = False) -> Outcome:
    """Maximise from the rounded ridge solution, or from the solver's present state when `warm`.

    An interruption (KeyboardInterrupt) ends it at the last completed stage, flagged.
    """
    if not warm:
        solver.start_from_lattice(*problem.ridge(solver.tau))
    outcome = Outcome()
    try:
        for stage in _pipeline(problem, solver.tau):
            outcome.add(stage(solver, problem))
    except KeyboardInterrupt:
        outcome.interrupted, outcome.converged = True, False
    return outcome
