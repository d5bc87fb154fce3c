"""A race of starting points: a few iterations of L-BFGS each, then the best alone for as long as it gains."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from pydirect._threads import for_each, raise_if_set, resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_evidence import NearestEvidence

# Iterations of every start before the best is chosen.
RACE_ITERATIONS = 12
# Scale of log parameters of which nothing is known yet: values per target curve by about a quarter.
FIRST_SCALE = 2.0
# By what share of the square of a scale one descent may shrink it.
LEAST_CHANGE = 1e-4
# Rows from which runs go on side by side: with fewer, most of their time is Python's, which does one thing at a time.
ROWS_FOR_THREADS = 128
Objective = MarginalLikelihood | NearestEvidence


@dataclass(frozen=True)
class Patience:
    """Stop when `iterations` have gained less than `gain` nats a row."""

    iterations: int
    gain: float


RACE_PATIENCE = Patience(4, 0.001)


@dataclass(frozen=True)
class RaceRun:
    """Where a start has led.

    - `theta`, (n_parameters,).
    - `scale`, (n_parameters,): root of the inverse curvature of the value per target, so far as known.
    """

    name: str
    theta: FloatArray
    value: float = np.inf
    smoothness: float = 1.5
    n_evaluations: int = 0
    scale: FloatArray | None = None


def descend(
    objective: Objective,
    run: RaceRun,
    n_iterations: int,
    patience: Patience | None = None,
    stop: threading.Event | None = None,
) -> RaceRun:
    """Minimise from where a run has led, by L-BFGS in coordinates z of about unit curvature, θ = scale z."""
    objective = objective.at(run.smoothness)
    n, n_rows, bounds = objective.n_values, objective.n_rows, np.array(objective.bounds, dtype=np.float64)
    theta, value, n_evaluations = np.clip(run.theta, *bounds.T), run.value, 0
    scale = np.full(len(theta), FIRST_SCALE) if run.scale is None else run.scale
    values: list[float] = []
    enough = False

    def per_value(z: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(np.clip(scale * z, *bounds.T))  # rounding alone leads outside
        return value / n, scale * gradient / n

    def watch(intermediate_result: OptimizeResult) -> None:
        nonlocal enough
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        values.append(float(intermediate_result.fun))
        if patience is not None and len(values) > patience.iterations:
            enough = n * (values[-1 - patience.iterations] - values[-1]) < patience.gain * n_rows
        if enough:
            raise StopIteration

    per_update = min(objective.iterations_between_updates, n_iterations)
    for _ in range(round(n_iterations / per_update)):
        objective.update(theta)
        best = minimize(
            per_value,
            theta / scale,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds / scale[:, None],
            callback=watch,
            options={"maxiter": per_update, "maxfun": 2 * per_update + 5, "ftol": 1e-7, "maxcor": 20},
        )
        theta = np.clip(scale * best.x, *bounds.T)
        value, n_evaluations = n * float(best.fun), n_evaluations + best.nfev
        scale = scale * np.sqrt(np.maximum(best.hess_inv.todense().diagonal(), LEAST_CHANGE))
        if enough:
            break
    return replace(run, theta=theta, value=value, n_evaluations=n_evaluations, scale=scale)


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
