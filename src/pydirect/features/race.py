"""A race of starting points: a few iterations of L-BFGS each, then the best alone for as long as it gains."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pydirect import _core
from pydirect._threads import for_each, raise_if_set, resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_evidence import NearestEvidence

# Iterations of every start before the best is chosen.
RACE_ITERATIONS = 12
# Scale of log parameters of which nothing is known yet: values per target curve by about a quarter.
FIRST_SCALE = 2.0
# Rows from which runs go on side by side: with fewer, most of their time is Python's, which does one thing at a time.
ROWS_FOR_THREADS = 128
Objective = MarginalLikelihood | NearestEvidence


@dataclass(frozen=True)
class Patience:
    """Stop when `iterations` have gained less than `gain` nats a row."""

    iterations: int
    gain: float


RACE_PATIENCE = Patience(3, 0.001)


@dataclass(frozen=True)
class RaceRun:
    """Where a start has led.

    - `theta`, (n_parameters,).
    - `scale`, (n_parameters,): root of the inverse curvature of the value per target, so far as known.
    - `steps`, (n_steps, 2, n_parameters): the last steps, and how far they moved the gradient per target.
    """

    name: str
    theta: FloatArray
    value: float = np.inf
    smoothness: float = 1.5
    n_evaluations: int = 0
    scale: FloatArray | None = None
    steps: FloatArray | None = None

    def at(self, smoothness: float) -> RaceRun:
        """Return where a kernel of another smoothness begins, whose curvature may be another."""
        return self if smoothness == self.smoothness else replace(self, smoothness=smoothness, steps=None)


def descend(
    objective: Objective,
    run: RaceRun,
    n_iterations: int,
    patience: Patience | None = None,
    stop: threading.Event | None = None,
) -> RaceRun:
    """Minimise from where a run has led, by L-BFGS that begins with what the run has learned of the curvature."""
    objective = objective.at(run.smoothness)
    n, n_parameters, bounds = objective.n_values, len(run.theta), np.array(objective.bounds, dtype=np.float64)
    scale = np.full(n_parameters, FIRST_SCALE) if run.scale is None else run.scale
    steps = np.empty((0, 2, n_parameters)) if run.steps is None else run.steps
    lower, upper = bounds.T.copy()
    descent = _core.Descent(run.theta, lower, upper, scale, steps)
    values: list[float] = []
    since = between = objective.iterations_between_updates
    for _ in range(n_iterations):
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        if since == between:
            objective.update(descent.x)
            descent.forget_value()
            values, since = [], 0  # of a function that was another
        since += 1
        if not descent.iterate(getattr(objective, "function", objective), n):
            if since == 1 or between > n_iterations:
                break
            since = between  # brought up to date, the function may have a way down
        values.append(n * descent.value)
        if patience is not None and len(values) > patience.iterations:
            if values[-1 - patience.iterations] - values[-1] < patience.gain * objective.n_rows:
                break
    value, n_evaluations = n * descent.value, descent.n_evaluations
    return RaceRun(run.name, descent.x, value, run.smoothness, n_evaluations, descent.scale, descent.steps)


def race(
    objective: Objective,
    starts: Sequence[RaceRun],
    n_iterations: int = RACE_ITERATIONS,
    patience: Patience = RACE_PATIENCE,
) -> list[RaceRun]:
    """Return the runs from all starts, in their order, side by side."""
    stop = threading.Event()
    run = partial(descend, objective, n_iterations=n_iterations, patience=patience, stop=stop)
    runs = for_each(run, starts, workers_for(objective, starts), stop)
    raise_if_set(stop)  # which the last iterations may not have seen
    return runs


def workers_for(objective: Objective, runs: Sequence[Any]) -> int:
    """Return how many of some runs go on side by side."""
    return min(len(runs), resolve_n_threads()) if objective.n_rows >= ROWS_FOR_THREADS else 1
