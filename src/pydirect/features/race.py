"""A race of starting points: a few iterations of L-BFGS each, then the best alone for as long as it gains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from pydirect._validation import FloatArray

# Iterations of every start before the best is chosen.
RACE_ITERATIONS = 12


class Objective(Protocol):
    """A negative log posterior of log parameters θ."""

    iterations_between_updates: int

    @property
    def n_rows(self) -> int:
        """Rows that it is a sum over."""
        ...  # pragma: no cover

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of θ."""
        ...  # pragma: no cover

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient."""
        ...  # pragma: no cover

    def at(self, smoothness: float) -> Self:
        """Return the same with a kernel of this smoothness."""
        ...  # pragma: no cover

    def update(self, theta: FloatArray) -> None:
        """Make the bound that stands for the posterior tight at θ, if it is one."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class Patience:
    """Stop when `iterations` have gained less than `gain` nats a row."""

    iterations: int
    gain: float


@dataclass(frozen=True)
class Run:
    """Where a start has led.

    - `name`: of the start.
    - `theta`, (n_parameters,).
    - `value`: −log posterior.
    - `smoothness`: of the kernel.
    - `n_evaluations`: of the last descent.
    """

    name: str
    theta: FloatArray
    value: float = np.inf
    smoothness: float = 1.5
    n_evaluations: int = 0


def descend(objective: Objective, run: Run, n_iterations: int, patience: Patience | None = None) -> Run:
    """Minimise from where a run has led."""
    objective = objective.at(run.smoothness)
    theta, value, n_evaluations = run.theta, run.value, 0
    values: list[float] = []
    enough = False

    def watch(intermediate_result: OptimizeResult) -> None:
        nonlocal enough
        values.append(float(intermediate_result.fun))
        if patience is not None and len(values) > patience.iterations:
            enough = values[-1 - patience.iterations] - values[-1] < patience.gain * objective.n_rows
        if enough:
            raise StopIteration

    per_update = min(objective.iterations_between_updates, n_iterations)
    for _ in range(round(n_iterations / per_update)):
        objective.update(theta)
        best = minimize(
            objective,
            np.clip(theta, *np.transpose(objective.bounds)),
            jac=True,
            method="L-BFGS-B",
            bounds=objective.bounds,
            callback=watch,
            options={"maxiter": per_update, "maxfun": 2 * per_update + 5, "ftol": 1e-7, "maxcor": 20},
        )
        theta, value, n_evaluations = best.x, float(best.fun), n_evaluations + best.nfev
        if enough:
            break
    return replace(run, theta=theta, value=value, n_evaluations=n_evaluations)


def race(objective: Objective, starts: Iterable[Run], n_iterations: int = RACE_ITERATIONS) -> list[Run]:
    """Return the runs from all starts, in their order."""
    return [descend(objective, start, n_iterations) for start in starts]
