"""Ascent of quadratic problems with discrete weights: lattice, coordinates, Newton, neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, as_choice
from pydirect.optimize.cholesky import cholesky_of_ridge, solve_factored
from pydirect.optimize.outcome import Outcome

# A weight has moved when its mean has by this many posterior standard deviations.
MOVE_THRESHOLD = 1e-3
# An iteration that raises the ELBO by less than this fraction of it is the last.
RELATIVE_RISE = 1e-6
# Levels are coarse when tau mean(diag A) spacing² exceeds this: then inference is an integer least-squares problem.
COARSE_LEVELS = 20.0
BLOCK_SIZE = 150
# Up to so many weights, where it costs nothing, iterations go on until rounding decides: data that differ by rounding
# only (a row given twice, a weight of two) then give results that do.
SMALL_PROBLEM = 300
OPTIMIZERS = ("pipeline", "large_neighbourhood", "lattice", "newton", "coordinate_ascent", "annealed", "lbfgs")


@dataclass(frozen=True)
class QuadraticProblem:
    """What optimisers see beside the solver: the matrix and how coarse the levels are."""

    a: NDArray[np.float32]
    a_exact: FloatArray
    c: FloatArray
    prior_precision: FloatArray
    spacing: float
    max_iter: int
    random_state: int

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


def _sweeps(solver: Any, problem: QuadraticProblem, n: int) -> tuple[int, bool, FloatArray]:
    fine = problem.precision
    return solver.coordinate_ascent(min(n, problem.max_iter), fine * MOVE_THRESHOLD, fine * RELATIVE_RISE, 20, 0)


def _sweeps_alone(solver: Any, problem: QuadraticProblem, anneal: int) -> tuple[int, bool, FloatArray]:
    """Coordinate ascent with nothing after it: it crawls where levels are fine, so that a small rise is no rest."""
    return solver.coordinate_ascent(problem.max_iter, MOVE_THRESHOLD, 1e-3 * RELATIVE_RISE, 20, anneal)


def _newton(solver: Any, problem: QuadraticProblem) -> tuple[int, bool, FloatArray]:
    return solver.newton(min(30, problem.max_iter), 1e-4 * problem.precision, 20, 0.2, 3e-6 * problem.precision, False)


def neighbourhoods(solver: Any, problem: QuadraticProblem, n_steps: int) -> tuple[int, bool, FloatArray]:
    """Take large-neighbourhood steps on random blocks of weights."""
    b = problem.a.shape[0]
    rng = np.random.default_rng(problem.random_state)
    size = max(1, min(BLOCK_SIZE, b // 2))
    blocks = np.stack([rng.choice(b, size, replace=False) for _ in range(min(n_steps, problem.max_iter))])
    return solver.large_neighbourhood(blocks, 2, 100 * MOVE_THRESHOLD)


def _start_from_lattice(solver: Any, problem: QuadraticProblem) -> None:
    solver.start_from_lattice(*problem.ridge(solver.tau))


Stage = Callable[[Any, QuadraticProblem], tuple[int, bool, FloatArray]]


def _lattice_stages(problem: QuadraticProblem, tau: float) -> list[Stage]:
    """Sweeps from the lattice start, then what helps at this coarseness, then sweeps until nothing moves.

    On the six problems of 2000 weights that bench/paper/reference_problems.py rebuilds, Newton's method gained 1 to 2
    nats over sweeps where δ < 6 and nothing, at the price of a factorisation, where δ > 200; forty neighbourhoods there
    gained 2 and 50 nats. Small problems can afford both.
    """
    coarse = problem.coarseness(tau) > COARSE_LEVELS
    small = problem.a.shape[0] <= SMALL_PROBLEM
    stages: list[Stage] = [lambda s, p: _sweeps(s, p, 10)]
    if coarse:
        stages.append(lambda s, p: neighbourhoods(s, p, 40))
    if small or not coarse:
        stages.append(_newton)
    return [*stages, lambda s, p: _sweeps(s, p, p.max_iter)]


def run(optimizer: str, solver: Any, problem: QuadraticProblem, warm: bool = False) -> Outcome:
    """Maximise from a start of the optimiser's own, or from the solver's present state when `warm`.

    Parameters
    ----------
    optimizer : str
        One of `OPTIMIZERS`.
    solver : _core.MeanField
    problem : QuadraticProblem
    warm : bool

    Returns
    -------
    Outcome
        Interrupting it (KeyboardInterrupt) ends it at the last completed stage, flagged.
    """
    as_choice(optimizer, "optimizer", OPTIMIZERS)
    if not warm:
        if optimizer in ("coordinate_ascent", "annealed"):
            solver.start_from_prior()
        elif optimizer == "newton":
            solver.start_from_ridge(problem.ridge(solver.tau)[1])
        else:
            _start_from_lattice(solver, problem)
    stages: dict[str, list[Stage]] = {
        "coordinate_ascent": [lambda s, p: _sweeps_alone(s, p, 0)],
        "annealed": [lambda s, p: _sweeps_alone(s, p, min(40, p.max_iter))],
        "newton": [_newton, lambda s, p: _sweeps(s, p, p.max_iter)],
        "lattice": [lambda s, p: _sweeps(s, p, 10), _newton, lambda s, p: _sweeps(s, p, p.max_iter)],
        "pipeline": _lattice_stages(problem, solver.tau),
        "large_neighbourhood": [
            *_lattice_stages(problem, solver.tau),
            lambda s, p: neighbourhoods(s, p, 200),
            lambda s, p: _sweeps(s, p, p.max_iter),
        ],
    }
    outcome = Outcome()
    try:
        for stage in stages[optimizer]:
            outcome.add(stage(solver, problem))
    except KeyboardInterrupt:
        outcome.interrupted, outcome.converged = True, False
    return outcome
