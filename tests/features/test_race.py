from concurrent.futures import wait

import numpy as np
import pytest

from pydirect import _threads
from pydirect._threads import threads
from pydirect.features.race import Patience, RaceRun, descend, race


class Valley:
    """Two valleys along the first axis, the deeper one on the right, and a slowly rising floor along the second."""

    n_rows = n_values = 100
    bounds = ((-3.0, 3.0), (-np.inf, np.inf))

    def __init__(self, iterations_between_updates=1000):
        self.iterations_between_updates, self.updates = iterations_between_updates, 0

    def __call__(self, theta):
        a, b = theta
        value = (a * a - 1) ** 2 - 0.3 * a + np.log1p((b / 10) ** 2)
        return value, np.array([4 * a * (a * a - 1) - 0.3, 2 * b / (100 + b * b)])

    def at(self, smoothness):
        return self

    def update(self, theta):
        self.updates += 1


def test_starts_lead_to_different_valleys():
    other, best = race(Valley(), [RaceRun("left", np.array([-0.9, 0.0])), RaceRun("right", np.array([1.1, 0.0]))])
    assert (best.name, other.name) == ("right", "left")
    assert best.theta[0] > 0 > other.theta[0] and best.value < other.value and best.n_evaluations > 2
    assert best.value == Valley()(best.theta)[0]


def test_an_interruption_is_told_even_if_all_runs_end_without_seeing_it(monkeypatch):
    def interrupted(futures):
        wait(futures)
        raise KeyboardInterrupt

    monkeypatch.setattr(_threads, "wait", interrupted)
    many = Valley()
    many.n_rows = 1000
    starts = [RaceRun("left", np.array([-1.5, 0.0])), RaceRun("right", np.array([1.5, 0.0]))]
    with threads(2), pytest.raises(KeyboardInterrupt):
        race(many, starts)


def test_a_run_goes_on_from_where_it_was():
    start = RaceRun("a", np.array([2.0, 30.0]))
    once = descend(Valley(), start, 3)
    on = descend(Valley(), once, 30)
    assert on.value < once.value < Valley()(start.theta)[0]
    assert on.n_evaluations > once.n_evaluations > 2


def test_patience_ends_what_gains_too_little():
    start = RaceRun("a", np.array([1.0, 30.0]))
    patient, hasty = (descend(Valley(), start, 100, Patience(1, gain)) for gain in (1e-9, 1.0))
    assert hasty.n_evaluations < patient.n_evaluations
    assert patient.value < hasty.value


def test_bounds_are_kept_and_updates_come_between_the_iterations():
    objective = Valley(iterations_between_updates=2)
    found = descend(objective, RaceRun("out", np.array([9.0, 1.0])), 7)
    assert objective.updates == 4
    assert abs(found.theta[0]) <= 3


def test_a_run_that_has_arrived_goes_on_where_an_update_moves_the_valley():
    class Moving(Valley):
        def __call__(self, theta):
            away = theta - self.updates
            return away @ away, 2 * away

    found = descend(Moving(iterations_between_updates=10), RaceRun("a", np.array([2.5, 2.0])), 12)
    assert found.theta[1] > 1.5  # the first was at 1


class Quadratic:
    """½ n (θ − centre)ᵀ H (θ − centre), counting evaluations."""

    iterations_between_updates = 1000

    def __init__(self, n_rows, lowest=-12.0):
        # Scales apart, and correlations.
        self.hessian, self.centre = np.diag([1.0, 0.01, 3.0, 0.1, 0.03, 10.0]) + 0.001, np.linspace(-1, 1, 6)
        self.n_rows = self.n_values = n_rows
        self.bounds = [(lowest, 12.0), *[(-12.0, 12.0)] * 5]

    def at(self, smoothness):
        return self

    def update(self, theta):
        pass

    def __call__(self, theta):
        pull = self.n_rows * self.hessian @ (theta - self.centre)
        return 0.5 * (theta - self.centre) @ pull, pull


def test_a_descent_on_more_rows_begins_with_the_curvature_of_that_on_few():
    few = descend(Quadratic(100), RaceRun("start", np.zeros(6)), 60)
    moved = RaceRun("again", np.full(6, 0.5), scale=few.scale)
    assert descend(Quadratic(1000), moved, 60).value < 1e-2
    warm, cold = (descend(Quadratic(1000), run, 3).value for run in (moved, RaceRun("cold", moved.theta)))
    assert warm < cold


def test_the_noise_stays_within_its_bounds():
    bounded = Quadratic(100, lowest=0.5)
    best = descend(bounded, RaceRun("start", np.full(6, 0.7)), 60)
    assert best.theta[0] == 0.5
    rest = bounded.centre[1:] - np.linalg.solve(bounded.hessian[1:, 1:], bounded.hessian[1:, 0] * (0.5 + 1.0))
    np.testing.assert_allclose(best.theta[1:], rest, atol=0.05)


def test_a_start_that_is_steep_on_new_rows_comes_back_from_its_bounds():
    steep = Quadratic(100)
    steep.hessian = 1e4 * steep.hessian
    assert descend(steep, RaceRun("start", np.full(6, 3.0)), 60).value < 1e-2
