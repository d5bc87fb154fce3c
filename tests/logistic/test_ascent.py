"""The ascent of a bound: accelerated, never downwards, ended by convergence, max_iter or an interruption."""

from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event

import numpy as np
import pytest

from pydirect.logistic.ascent import Ascent, Evaluation, Solution, climb
from pydirect.optimize.outcome import Outcome, WithOutcome


@dataclass
class Point:
    """A parameter of a toy problem, whose regression is itself."""

    x: float
    unit: float = 1.0
    memory: int = 5

    @property
    def coordinates(self):
        return np.array([self.x])

    def moved(self, coordinates):
        return Point(float(coordinates[0]))

    def regression(self):
        return self.x


@dataclass
class Toy:
    """A source whose plain step goes from x to step(x), with the bound −x²."""

    step: object
    n_threads: int = 1
    visited: list = field(default_factory=list)

    def evaluate(self, latents):
        self.visited += [x for x in latents if x is not None]
        return [None if x is None else Evaluation(-(x**2), Point(self.step(x))) for x in latents]


@dataclass(frozen=True)
class Answer(WithOutcome):
    """A posterior that says how its fit ended."""

    x: float
    outcome: Outcome | None = None


def solve(x, log_variance):
    return Solution(Answer(x), x, 0.0, log_variance)


def ascend(step, start=10.0, max_iter=1000, solve=solve):
    source, stop = Toy(step), Event()
    ascent = Ascent(solve, Point(start), 0.0, max_iter)
    climb(source, [ascent], stop)
    return ascent.result(stop), source.visited


def test_linear_convergence_is_extrapolated_to_its_limit():
    posterior, visited = ascend(lambda x: 0.99 * x)
    assert posterior.converged and abs(posterior.x) < 1e-3
    assert posterior.n_iter == len(visited) < 10


def test_an_extrapolation_that_lowers_the_bound_is_taken_back():
    def step(x):  # a bend, beyond which steps are short: extrapolation from before it overshoots
        return 0.99 * x if x > 9.5 else x - 0.9 * (x > 1.0) - 0.5 * x * (x <= 1.0)

    posterior, visited = ascend(step)
    assert (np.diff(posterior.elbo_trace) >= 0).all()
    assert any(abs(b) > abs(a) for a, b in pairwise(visited)), "one step was too far"
    assert posterior.elbo == -(min(map(abs, visited)) ** 2) == posterior.elbo_trace[-1]


def test_a_regression_without_a_solution_is_taken_back():
    def positive(x, log_variance):
        if x < 0.5:
            raise np.linalg.LinAlgError
        return solve(x, log_variance)

    posterior, visited = ascend(lambda x: 1.0 + 0.8 * (x - 1.0) if x < 5 else 0.9 * x, solve=positive)
    assert posterior.converged and min(visited) >= 0.5


def test_a_variance_whose_step_fails_stays_as_it_was():
    def solve_best_at_zero(x, log_variance):  # the step of the variance is downhill
        return Solution(Answer(x), x, 10.0 * log_variance**2, log_variance + 1.0)

    posterior, _ = ascend(lambda x: 0.5 * x, start=1.0, solve=solve_best_at_zero)
    assert posterior.converged and posterior.elbo == pytest.approx(0.0, abs=1e-3)


def test_max_iter_is_the_number_of_evaluations():
    posterior, visited = ascend(lambda x: x - 0.1, max_iter=3)
    assert posterior.n_iter == len(visited) == 3 and not posterior.converged


def test_problems_share_evaluations_until_each_has_converged():
    source, stop = Toy(lambda x: 0.5 * x), Event()
    ascents = [Ascent(solve, Point(start), 0.0, 100) for start in (0.0, 10.0)]
    climb(source, ascents, stop)
    assert [ascent.converged for ascent in ascents] == [True, True] and not stop.is_set()
    assert len(ascents[0].trace) < len(ascents[1].trace)


def test_an_interruption_keeps_the_best_so_far():
    def interrupt(x):
        if x < 8.0:
            raise KeyboardInterrupt
        return x - 1.0

    posterior, _ = ascend(interrupt)
    assert posterior.interrupted and not posterior.converged and posterior.x < 10.0


def test_an_interruption_before_any_evaluation_is_passed_on():
    def interrupt(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ascend(interrupt)


def test_an_interrupted_regression_ends_the_ascent():
    def interrupted(x, log_variance):
        return Solution(Answer(x), x, 0.0, log_variance, interrupted=x < 9.5)

    posterior, visited = ascend(lambda x: 0.9 * x, solve=interrupted)
    assert posterior.interrupted and visited == [10.0] and posterior.x == 10.0
