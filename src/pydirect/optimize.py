"""Optimisers of a mean-field objective that is quadratic in the means; they know nothing of likelihoods.

Each takes a solver (the compiled `_core.MeanField`, which holds the problem and the current state) and moves it uphill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.optimize import Bounds, minimize

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice

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
# What single precision holds with all its digits, and sums of some such numbers.
SINGLE_RANGE = (1e-37, 1e38)

OPTIMIZERS = ("pipeline", "large_neighbourhood", "lattice", "newton", "coordinate_ascent", "annealed", "lbfgs")


@dataclass
class Outcome:
    """What an optimiser did: iterations, ELBO after each, and whether it came to rest."""

    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False
    trace: list[FloatArray] = field(default_factory=list)

    def add(self, step: tuple[int, bool, FloatArray]) -> None:
        """Append one stage."""
        n_iter, self.converged, trace = step
        self.n_iter += n_iter
        self.trace.append(trace)


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


def in_single_precision(a: FloatArray) -> NDArray[np.float32]:
    """Return ``A = ΦᵀΦ`` in the precision in which optimisers multiply by it.

    Raises
    ------
    ValueError
        When single precision cannot hold it.
    """
    largest = float(a.diagonal().max(initial=0.0))
    if largest and not SINGLE_RANGE[0] <= largest <= SINGLE_RANGE[1]:
        raise ValueError(
            "X must be nearer to 1 in size in the raw basis, which is optimised in single precision: the largest sum "
            f"of squares of a basis function is {largest:.3g}. Rescale X, or use basis='decorrelated'"
        )
    return a.astype(np.float32)


def cholesky_of_ridge(
    a: FloatArray, ridge: FloatArray, narrow: NDArray[np.float32] | None = None
) -> NDArray[np.floating[Any]]:
    """Upper factor U, C-ordered, of UᵀU = A + diag(ridge); below the diagonal stands what was there.

    Single precision, which is twice as fast, serves until the ridge is below its rounding of A's largest eigenvalue or
    numbers leave its range; then double precision. Sums over rows are positive semi-definite to rounding only: where
    the ridge is below that it is raised to it, at first to what sums in double precision leave, then in single.

    Parameters
    ----------
    a : ndarray of shape (n_weights, n_weights)
    ridge : ndarray of shape (n_weights,)
    narrow : ndarray of the same shape as `a`, float32, optional
        A in single precision, when it is at hand.

    Raises
    ------
    numpy.linalg.LinAlgError
        When A is not positive semi-definite.
    """
    largest, b = float(a.diagonal().max(initial=0.0)), a.shape[0]
    rounding = [b * largest * np.finfo(np.float64).eps, np.sqrt(b) * largest * np.finfo(np.float32).eps]
    in_range = SINGLE_RANGE[0] <= largest + float(ridge.max(initial=0.0)) <= SINGLE_RANGE[1]
    attempts = [(np.float32, 0.0)] if in_range else []
    for precision, raised in (*attempts, (np.float64, 0.0), *((np.float64, r) for r in rounding)):
        single = precision is np.float32
        copy: NDArray[Any] = (narrow if single and narrow is not None else a).astype(precision)
        np.einsum("jj->j", copy)[...] += (ridge + raised).astype(precision)
        with single_blas_thread():
            factor, info = (lapack.spotrf if single else lapack.dpotrf)(copy.T, lower=1, overwrite_a=1, clean=0)
        if info == 0:
            return factor.T
    raise np.linalg.LinAlgError(
        f"A + ridge must be positive definite, but its Cholesky factorisation failed at column {info}: raise the ridge "
        "or rescale the problem"
    )


def solve_factored(factor: NDArray[np.floating[Any]], right: FloatArray) -> FloatArray:
    """Solve UᵀU x = right for a factor from `cholesky_of_ridge`, without a copy of it; (n_weights, ...)."""
    single = factor.dtype == np.float32
    lower, right = factor.T, right.astype(factor.dtype)  # as Fortran sees the same memory
    with single_blas_thread():
        if right.ndim == 1:  # two triangular solves are many times faster than LAPACK's driver for one column
            solve = blas.strsv if single else blas.dtrsv
            return solve(lower, solve(lower, right, lower=1), lower=1, trans=1).astype(np.float64)
        return (lapack.spotrs if single else lapack.dpotrs)(lower, right, lower=1)[0].astype(np.float64)


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


def lbfgs_on_logits(
    solver: Any, n_levels: int, logits: FloatArray, noise_logits: FloatArray, max_iter: int
) -> tuple[FloatArray, FloatArray, Outcome]:
    """Maximise over softmax logits by L-BFGS, the published way (Evans & Nair 2018, section 5.2): a baseline.

    Parameters
    ----------
    solver : _core.MeanField
    n_levels : int
    logits : ndarray of shape (n_weights, n_levels)
        Start; the paper's is the log prior.
    noise_logits : ndarray of shape (n_noise,)
    max_iter : int

    Returns
    -------
    logits, noise_logits, Outcome
    """
    shape, split = logits.shape, logits.size

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient, noise_gradient = solver.elbo_and_gradient(
            n_levels, theta[:split].reshape(shape), np.ascontiguousarray(theta[split:])
        )
        return value, np.concatenate([gradient.ravel(), noise_gradient])

    best, outcome = lbfgs(objective, np.concatenate([logits.ravel(), noise_logits]), max_iter)
    return best[:split].reshape(shape), best[split:], outcome


def lbfgs(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    max_iter: int,
    relative_rise: float = 1e-12,
    n_corrections: int = 10,
    bounds: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, Outcome]:
    """Maximise a smooth function by SciPy's L-BFGS-B.

    Parameters
    ----------
    objective : callable
        Value and gradient at a point.
    start : ndarray of shape (n_parameters,)
    max_iter : int
    relative_rise : float
        An iteration that raises the value by less than this fraction of it is the last.
    n_corrections : int
        Steps that the approximation of the Hessian remembers.
    bounds : pair of ndarray of shape (n_parameters,), optional
        Lowest and highest values; infinite where there are none.

    Returns
    -------
    best : ndarray of shape (n_parameters,)
        Highest point evaluated: the last one of a line search that failed may lie below one that it has seen.
    Outcome
        Interrupting it (KeyboardInterrupt) ends it there, flagged.
    """
    trace: list[float] = []
    best, best_value = start, -np.inf

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, best_value
        value, gradient = objective(theta)
        if value > best_value:
            best, best_value = theta.copy(), value
        trace.append(value)
        return -value, -gradient

    options = {
        "maxiter": max_iter,
        "maxfun": 40 * max_iter + 10,  # out of reach: an iteration takes no more than two line searches of 20
        "ftol": relative_rise,
        "gtol": 1e-6,
        "maxcor": n_corrections,
    }
    try:
        with single_blas_thread():
            box = None if bounds is None else Bounds(*bounds)
            result = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=box, options=options)
        outcome = Outcome(int(result.nit), bool(result.status == 0))
    except KeyboardInterrupt:
        outcome = Outcome(len(trace), interrupted=True)
    outcome.trace = [np.maximum.accumulate(trace)]
    return best, outcome


# Adam's memory of gradients and of their squares (Kingma & Ba 2015).
ADAM_DECAY = (0.9, 0.999)
ADAM_STEP = 0.1
ADAM_HALVINGS = 6
# Adam is at rest where so little, in nats a row, is gained on the way on which every parameter could move by one.
ADAM_REST = 0.05


class Adam:
    """Adaptive steps up a stochastic gradient (Kingma & Ba 2015)."""

    def __init__(self, shape: tuple[int, ...], step: float = ADAM_STEP) -> None:
        self.step = step
        self._n, self._first, self._second = 0, np.zeros(shape), np.zeros(shape)

    def __call__(self, gradient: FloatArray) -> FloatArray:
        """Return what to add to the parameters."""
        self._n += 1
        a, b = ADAM_DECAY
        self._first += (1 - a) * (gradient - self._first)
        self._second += (1 - b) * (gradient**2 - self._second)
        size = np.sqrt(self._second / (1 - b**self._n)) + 1e-8
        return self.step / (1 - a**self._n) * self._first / size


def adam_on_logits(
    value: Callable[[FloatArray], float],
    gradients: Callable[[], Iterator[Callable[[FloatArray], FloatArray]]],
    logits: FloatArray,
    max_epochs: int,
) -> tuple[FloatArray, Outcome]:
    """Maximise over softmax logits by stochastic gradients; the step is halved when an epoch gains little.

    Parameters
    ----------
    value : callable
        The objective at given logits, evaluated after every epoch.
    gradients : callable
        Returns an epoch's functions from logits to unbiased gradients, one a batch.
    logits : ndarray of shape (n_weights, n_levels)
        Start.
    max_epochs : int

    Returns
    -------
    logits, Outcome
        The best of all epochs' ends.
    """
    adam = Adam(logits.shape)
    best, trace = logits, [value(logits)]
    outcome = Outcome()
    smallest = adam.step * 0.5**ADAM_HALVINGS
    try:
        while outcome.n_iter < max_epochs and not outcome.converged:
            for gradient in gradients():
                logits = logits + adam(gradient(logits))
            outcome.n_iter += 1
            reached = value(logits)
            if reached <= trace[-1] + 1e-4 * (abs(trace[-1]) + 1):
                adam.step /= 2
                outcome.converged = adam.step < smallest
            if reached > trace[-1]:
                best = logits
            trace.append(max(reached, trace[-1]))
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.trace = [np.array(trace)]
    return best, outcome


def through_softmax(q: FloatArray, gradient: FloatArray) -> FloatArray:
    """Gradient in logits from one in probabilities, over the last axis."""
    return np.asarray(q * (gradient - (q * gradient).sum(axis=-1, keepdims=True)))


@dataclass(frozen=True)
class AdamSchedule:
    """Adam's steps and how their size falls: constant first, then along half a cosine to nothing.

    Parameters
    ----------
    n_steps : int
    step : float
        Of every parameter at first.
    n_checks : int
        How many times the objective is evaluated, evenly spread over the steps.
    """

    n_steps: int
    step: float
    n_checks: int = 50

    def step_at(self, i: int) -> float:
        """Size of the i-th step."""
        return self.step * 0.5 * (1.0 + np.cos(np.pi * i / self.n_steps))


def adam(
    gradient: Callable[[FloatArray, int], FloatArray],
    value: Callable[[FloatArray], float],
    start: FloatArray,
    schedule: AdamSchedule,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    first_check: int = 0,
    rest: float = ADAM_REST,
) -> tuple[FloatArray, Outcome]:
    """Maximise by Adam, the steps' size following a schedule.

    Parameters
    ----------
    gradient : callable
        From a point and the number of the step to an unbiased gradient; steps where it is not finite are left out.
    value : callable
        The objective at a point, evaluated at the schedule's checks.
    start : ndarray of shape (n_parameters,)
    schedule : AdamSchedule
    bounds : pair of ndarray of shape (n_parameters,), optional
        Steps end there.
    first_check : int
        Step before which the objective is not looked at: `gradient` then follows another one.
    rest : float
        The run has converged when the last quarter of the checks raised the objective by less than this, times the sum
        of the steps' sizes there: the last steps of a schedule are so small that they gain little anywhere.

    Returns
    -------
    theta : ndarray of shape (n_parameters,)
        The best point of all checks, the last point before the first one.
    Outcome
    """
    optimiser = Adam(start.shape)
    theta, best, best_value = start, start, -np.inf
    trace: list[float] = []
    paths: list[float] = []  # sum of the steps' sizes by each check
    path = 0.0
    outcome = Outcome()
    every = max(1, schedule.n_steps // schedule.n_checks)
    try:
        for i in range(schedule.n_steps):
            optimiser.step = schedule.step_at(i)
            path += optimiser.step
            g = gradient(theta, i)
            if np.isfinite(g).all():
                theta = theta + optimiser(g)
                theta = theta if bounds is None else np.clip(theta, *bounds, out=theta)
            outcome.n_iter = i + 1
            if outcome.n_iter == schedule.n_steps or (outcome.n_iter % every == 0 and i >= first_check):
                trace.append(value(theta))
                paths.append(path)
                if trace[-1] > best_value:
                    best, best_value = theta, trace[-1]
        late = max(0, len(trace) - 1 - schedule.n_checks // 4)
        outcome.converged = bool(best_value - trace[late] < rest * (path - paths[late]))
    except KeyboardInterrupt:
        outcome.interrupted = True
        best = best if trace else theta
    outcome.trace = [np.maximum.accumulate(trace)]
    return best, outcome
