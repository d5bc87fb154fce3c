"""A race of starting points: a few iterations of L-BFGS each, then the best alone for as long as it gains."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from pydirect._validation import FloatArray

# Iterations of every start before the best is chosen.
RACE_ITERATIONS = 12
# Bounds that are out of reach.
FAR = 1e3


class Objective(Protocol):
    """A negative log posterior of log parameters θ."""

    iterations_between_updates: int

    @property
    def n_rows(self) -> int:
        """Rows that it is a sum over."""
        ...  # pragma: no cover

    @property
    def n_values(self) -> int:
        """Targets or labels of which it is the density: with so many, its curvature grows."""
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
    - `factor`, (n_parameters, n_parameters): lower, of the inverse Hessian of the value per target, so far as known.
    """

    name: str
    theta: FloatArray
    value: float = np.inf
    smoothness: float = 1.5
    n_evaluations: int = 0
    factor: FloatArray | None = None


def descend(objective: Objective, run: Run, n_iterations: int, patience: Patience | None = None) -> Run:
    """Minimise from where a run has led, by L-BFGS in coordinates z of unit curvature, θ = θ₀ + factor z.

    The value per target has much the same curvature on any rows: what earlier descents have learned of it serves again.
    Noise, θ's first entry, depends on z's first alone, which takes over its bounds; elsewhere θ is clipped. While
    nothing is known, z = θ − θ₀ within the bounds of θ, and the value is not divided: the first step then goes as far
    as it can, which is how short length-scales are found.
    """
    objective = objective.at(run.smoothness)
    low, high = np.transpose(objective.bounds)
    theta, value, n_evaluations = np.clip(run.theta, low, high), run.value, 0
    known = run.factor is not None
    n = objective.n_values if known else 1
    factor = np.eye(len(theta)) if run.factor is None else run.factor
    values: list[float] = []
    enough = False

    def per_value(z: FloatArray) -> tuple[float, FloatArray]:
        free = theta + factor @ z
        inside = np.clip(free, low, high)
        value, gradient = objective(inside)
        return value / n, (gradient * (free == inside) / n) @ factor

    def watch(intermediate_result: OptimizeResult) -> None:
        nonlocal enough
        values.append(float(intermediate_result.fun))
        if patience is not None and len(values) > patience.iterations:
            enough = n * (values[-1 - patience.iterations] - values[-1]) < patience.gain * objective.n_rows
        if enough:
            raise StopIteration

    per_update = min(objective.iterations_between_updates, n_iterations)
    for _ in range(round(n_iterations / per_update)):
        objective.update(theta)
        bounds = np.transpose([low - theta, high - theta])
        if known:
            bounds[0] /= factor[0, 0]
            bounds[1:] = -FAR, FAR
        best = minimize(
            per_value,
            np.zeros(len(theta)),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=watch,
            options={"maxiter": per_update, "maxfun": 2 * per_update + 5, "ftol": 1e-7, "maxcor": 20},
        )
        theta = np.clip(theta + factor @ best.x, low, high)
        value, n_evaluations = n * float(best.fun), n_evaluations + best.nfev
        with suppress(np.linalg.LinAlgError):  # curvatures so different that rounding spoils them
            factor = np.linalg.cholesky(objective.n_values / n * (factor @ best.hess_inv.todense() @ factor.T))
            known, n = True, objective.n_values
        if enough:
            break
    return replace(run, theta=theta, value=value, n_evaluations=n_evaluations, factor=factor)


def race(objective: Objective, starts: Iterable[Run], n_iterations: int = RACE_ITERATIONS) -> list[Run]:
    """Return the runs from all starts, in their order."""
    return [descend(objective, start, n_iterations) for start in starts]
