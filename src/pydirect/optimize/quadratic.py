"""Ascent of quadratic problems with discrete weights: coordinate ascent and Newton's method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._validation import FloatArray
from pydirect.optimize.cholesky import cholesky_of_ridge, solve_factored
from pydirect.optimize.outcome import Outcome

# A weight has moved when its mean has by this many posterior standard deviations.
MOVE_THRESHOLD = 1e-3
# An iteration that raises the ELBO by less than this fraction of it is the last.
RELATIVE_RISE = 1e-6
# The pipeline's stages; Newton's systems are solved by conjugate gradients.
FIRST_SWEEPS = 10
NEWTON_STEPS, NEWTON_TOLERANCE, NEWTON_RISE = 30, 1e-4, 3e-6
CG_STEPS, CG_TOLERANCE = 20, 0.2
# Levels are coarse when tau mean(diag A) spacing² exceeds this, of small problems and of others: then inference is an
# integer least-squares problem, with many local optima.
COARSE_LEVELS_OF_FEW, COARSE_LEVELS = 2.0, 20.0
# Factors of the noise precision at which coarse levels are rounded to while the ridge solution lies beyond them.
PRECISION_FACTORS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
# Coarse levels are rounded to again where the noise precision has moved by more than this factor, this often at most.
SAME_PRECISION, ROUNDS = 1.05, 4
# With at most this many weights, where it costs nothing, iterations go on until rounding decides: data that differ by
# rounding only (a row given twice, a weight of two) then give results that do.
SMALL_PROBLEM = 300
OPTIMIZERS = ("pipeline", "lbfgs")


class LevelLattice(NamedTuple):
    """What weights are rounded to levels with, one after another."""

    factor: NDArray[np.float32]  # (n_weights, n_weights): upper, of a multiple of A + prior_precision / tau in `order`
    order: NDArray[np.int64]  # (n_weights,): weight at each position; the last is rounded first
    ridge: FloatArray  # (n_weights,): solution of continuous weights


@dataclass(frozen=True)
class QuadraticProblem:
    """What optimisers see beside the solver: the matrix and how coarse the levels are."""

    a: NDArray[np.float32]  # (n_weights, n_weights): A in single precision
    a_exact: FloatArray  # (n_weights, n_weights): the matrix A
    c: FloatArray  # (n_weights,): Φᵀy
    prior_precision: FloatArray  # (n_weights,): inverse prior variances
    levels: FloatArray  # (n_weights or 1, n_levels)
    max_iter: int  # largest number of iterations
    n_threads: int = 1  # number of threads; results have the same bits for any

    @property
    def is_small(self) -> bool:
        """Whether exactness costs nothing."""
        return self.a.shape[0] <= SMALL_PROBLEM

    @property
    def precision(self) -> float:
        """Factor on all thresholds."""
        return 1e-6 if self.is_small else 1.0

    def is_coarse(self, tau: float) -> bool:
        """Whether ``δ = tau mean(diag A) spacing²`` is large; at about 2 levels are as wide as the posterior."""
        gaps = np.diff(np.sort(self.levels, axis=1), axis=1)
        spacing = float(gaps[gaps > 0].mean()) if (gaps > 0).any() else 0.0
        delta = tau * float(self.a.diagonal().mean()) * spacing**2
        return delta > (COARSE_LEVELS_OF_FEW if self.is_small else COARSE_LEVELS)

    def lattice(self, tau: float) -> LevelLattice:
        """Weights in their own order, in single precision where that suffices."""
        factor = cholesky_of_ridge(self.a_exact, self.prior_precision / tau, self.a)
        ridge = solve_factored(factor, self.c)
        return LevelLattice(np.asarray(factor, dtype=np.float32), np.arange(len(self.c)), ridge)

    def balanced_lattice(self, tau: float) -> LevelLattice | None:
        """Weights in the order of smallest remaining pivots, which leaves no large error to the end, if A permits."""
        one = np.ones(len(self.c))
        factor, order, rank = _core.cholesky(self.a_exact, self.prior_precision, one, True, tau, self.n_threads)
        if rank < len(self.c):
            return None
        ridge = np.empty(len(self.c))
        ridge[order] = solve_factored(factor, tau * self.c[order])
        return LevelLattice(factor.astype(np.float32), order, ridge)

    def lattices(self, tau: float) -> Iterator[LevelLattice]:
        """Lattices to start from, at noise precision `tau` or below.

        Coarse levels are rounded to in two orders, whose optima differ by up to hundreds of nats; a ridge solution
        beyond the levels would leave its overshoot to the last weights.
        """
        yield self.lattice(tau)
        if not self.is_coarse(tau):
            return
        for factor in PRECISION_FACTORS:
            lattice = self.balanced_lattice(factor * tau)
            if lattice is None:
                return
            yield lattice
            if ((self.levels.min(axis=1) <= lattice.ridge) & (lattice.ridge <= self.levels.max(axis=1))).all():
                return


# Number of iterations, whether it converged, and the ELBO after each.
StageResult: TypeAlias = tuple[int, bool, FloatArray]


def _sweeps(solver: Any, problem: QuadraticProblem, n_sweeps: int, exact: bool = False) -> StageResult:
    fine, n_sweeps = problem.precision, min(n_sweeps, problem.max_iter)
    return solver.coordinate_ascent(n_sweeps, fine * MOVE_THRESHOLD, fine * RELATIVE_RISE, exact or problem.is_small)


def _newton(solver: Any, problem: QuadraticProblem) -> StageResult:
    fine, n_steps = problem.precision, min(NEWTON_STEPS, problem.max_iter)
    return solver.newton(n_steps, NEWTON_TOLERANCE * fine, CG_STEPS, CG_TOLERANCE, NEWTON_RISE * fine, problem.is_small)


def _stages(solver: Any, problem: QuadraticProblem) -> Iterator[StageResult]:
    """Climb by sweeps, Newton's method where it helps, then exact sweeps until nothing moves.

    On the six problems of bench/paper/reference_problems.py, Newton's method gained 1 to 2 nats where δ < 6, none where
    δ > 200.
    """
    if problem.is_small or not problem.is_coarse(solver.tau):
        yield _sweeps(solver, problem, FIRST_SWEEPS)
        yield _newton(solver, problem)
    yield _sweeps(solver, problem, problem.max_iter)
    if not problem.is_small:
        yield _sweeps(solver, problem, problem.max_iter, exact=True)


class Naturals(NamedTuple):
    """Natural parameters of all factors, (n_weights,) each, and the noise posterior, (n_noise_levels,)."""

    eta: FloatArray
    kappa: FloatArray
    q_noise: FloatArray


@dataclass
class _Search:
    """Ascents from several starts, of which the best is kept."""

    solver: Any
    problem: QuadraticProblem
    outcome: Outcome = field(default_factory=Outcome)
    best: tuple[float, Naturals, Outcome] | None = None  # where the best ascent ended, and its ELBO

    def ascend(self) -> None:
        """Climb from where the solver is."""
        solver, self.outcome = self.solver, Outcome()
        for stage in _stages(solver, self.problem):
            self.outcome.add(stage)
        elbo = solver.elbo()
        if self.best is None or elbo > self.best[0]:
            self.best = elbo, Naturals(solver.eta, solver.kappa, solver.q_noise), self.outcome

    def from_lattices(self) -> None:
        """Climb from the lattices at the solver's noise, and again where the best optimum has another."""
        for _ in range(ROUNDS):
            before, best, q_noise = self.solver.tau, self.best, self.solver.q_noise
            for lattice in self.problem.lattices(before):
                self.solver.set_noise(q_noise)
                self.solver.start_from_lattice(*lattice)
                self.ascend()
            self.return_to_best()
            tau = self.solver.tau
            has_moved = abs(np.log(tau / before)) > np.log(SAME_PRECISION)
            if self.best is best or not has_moved or not self.problem.is_coarse(tau):
                return

    def put(self, naturals: Naturals) -> None:
        """Put the solver to natural parameters at their own noise."""
        self.solver.set_noise(naturals.q_noise)
        self.solver.start_from_naturals(naturals.eta, naturals.kappa)

    def return_to_best(self) -> None:
        """Put the solver back to the best optimum so far, if there is one."""
        if self.best is not None:
            _, naturals, self.outcome = self.best
            self.put(naturals)


def run(
    solver: Any, problem: QuadraticProblem, warm: bool = False, relaxed: Callable[[], Naturals | None] | None = None
) -> Outcome:
    """Maximise from rounded ridge solutions, or from the solver's present state when `warm`.

    Few weights on coarse levels have many local optima: they rise from another method's optimum, `relaxed`, too. An
    interruption ends it, flagged, at the best optimum so far or at the last completed stage.
    """
    search = _Search(solver, problem)
    try:
        if warm:
            search.ascend()
        else:
            search.from_lattices()
            if relaxed is not None and problem.is_small and problem.is_coarse(solver.tau):
                found = relaxed()
                if found is not None:
                    search.put(found)
                    search.ascend()
                    search.return_to_best()
    except KeyboardInterrupt:
        search.return_to_best()
        search.outcome = search.outcome.stopped()
    return search.outcome
