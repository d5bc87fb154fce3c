"""The ascent of a bound: accelerated, never downwards, ended by convergence, max_iter or an interruption."""

from dataclasses import dataclass, field
from itertools import pairwise
from threading import Event

import numpy as np
import pytest

from pydirect.logistic.ascent import Ascent, BoundEvaluation, Solution, State, climb, with_outcome
from pydirect.optimize.outcome import Outcome, WithOutcome


@dataclass(frozen=True)
class Point(WithOutcome):
    """A posterior of one weight, by its mean, that says how its fit ended."""

    x: float
    outcome: Outcome | None = None

    @property
    def mean(self):
        return np.array([[self.x]])


@dataclass
class Toy:
    """A source whose plain step goes from x to step(x) where the prior variance is 1, with the bound −x²."""

    step: object
    visited: list = field(default_factory=list)

    def evaluate(self, latent):
        x = latent.x
        self.visited.append(x)
        return BoundEvaluation(-(x**2), np.eye(1), np.array([[2.0 * (self.step(x) - x) + x]]))


def solve(state):
    point = Point(float(state.mean[0, 0]))
    return Solution(state, point, point, 0.0, state.log_variance)


def ascend(step, start=10.0, max_iter=1000, solve=solve, log_variance=0.0):
    source, stop = Toy(step), Event()
    ascent = Ascent(solve, State(np.eye(1), np.array([[start]]), log_variance), max_iter)
    climb(source, ascent, stop)
    return with_outcome(ascent.best.posterior, ascent.result(stop), stop), source.visited


def test_a_step_is_that_of_regression():
    rng = np.random.default_rng(0)
    phi, y, mean = rng.standard_normal((9, 3)), rng.standard_normal((9, 2)), rng.standard_normal((3, 2))
    found = BoundEvaluation(0.0, phi.T @ phi, phi.T @ (y - phi @ mean))
    state = State.after(found, mean, np.log(0.4))
    targets = phi.T @ y
    np.testing.assert_allclose(state.mean, np.linalg.solve(phi.T @ phi + 2.5 * np.eye(3), targets), rtol=1e-10)
    np.testing.assert_allclose(state.targets, targets, rtol=1e-10)


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


def test_a_step_too_far_is_shortened():
    posterior, visited = ascend(lambda x: -1.5 * x)
    assert posterior.converged and abs(posterior.x) < 0.1
    assert visited[1] == pytest.approx(-15.0) and abs(visited[2]) < 10.0
    assert (np.diff(posterior.elbo_trace) >= 0).all()


def test_a_step_that_no_share_of_raises_the_bound_is_the_last():
    posterior, visited = ascend(lambda x: x + 1.0, start=1.0)
    assert posterior.converged and posterior.x == 1.0 and posterior.elbo == -1.0
    assert 2 < len(visited) < 10


def test_the_solution_may_move_to_a_better_state():
    def halved(state):
        return solve(State(state.gram, 0.5 * state.mean, state.log_variance))

    posterior, visited = ascend(lambda x: 0.9 * x, solve=halved)
    assert visited[0] == 5.0 and posterior.converged and abs(posterior.x) < 0.1


def test_max_iter_is_the_number_of_evaluations():
    posterior, visited = ascend(lambda x: x - 0.1, max_iter=3)
    assert posterior.n_iter == len(visited) == 3 and not posterior.converged


def test_an_interruption_keeps_the_best_so_far():
    def interrupt(x):
        if x < 8.0:
            raise KeyboardInterrupt
        return x - 1.0

    posterior, _ = ascend(interrupt)
    assert posterior.interrupted and not posterior.converged and posterior.x < 10.0


def test_an_interrupted_regression_ends_the_ascent():
    def interrupted(state):
        point = Point(float(state.mean[0, 0]))
        return Solution(state, point, point, 0.0, state.log_variance, interrupted=point.x < 9.5)

    posterior, visited = ascend(lambda x: 0.9 * x, solve=interrupted)
    assert posterior.interrupted and visited == [10.0] and posterior.x == 10.0
