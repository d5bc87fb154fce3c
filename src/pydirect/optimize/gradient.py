"""Ascent by gradients: L-BFGS and Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.optimize.outcome import Outcome


class Anderson:
    """Anderson's acceleration of a fixed-point iteration by its last `memory` steps (Walker & Ni 2011)."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.steps: list[tuple[FloatArray, FloatArray]] = []  # images of points, and how far each lies from its point

    def extrapolated(self, point: FloatArray, image: FloatArray) -> FloatArray:
        """Combine the last images so that the same combination of their steps is shortest."""
        self.steps = [*self.steps[-self.memory :], (image, image - point)]
        if len(self.steps) == 1:
            return image
        images, residuals = (np.diff(np.stack(a), axis=0) for a in zip(*self.steps, strict=True))
        gram = residuals @ residuals.T
        gram[np.diag_indices_from(gram)] *= 1 + 1e-10
        share = np.linalg.lstsq(gram, residuals @ self.steps[-1][1], rcond=1e-14)[0]
        return np.asarray(image - share @ images)


def lbfgs_on_logits(
    solver: Any, n_levels: int, logits: FloatArray, noise_logits: FloatArray, max_iter: int
) -> tuple[FloatArray, FloatArray, Outcome]:
    """Maximise over softmax logits by L-BFGS, the published way (Evans & Nair 2018, section 5.2): a baseline."""
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
    *,
    relative_rise: float = 1e-12,
    n_corrections: int = 10,
    bounds: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[FloatArray, Outcome]:
    """Maximise a smooth function by SciPy's L-BFGS-B, (n_parameters,).

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.optimize import lbfgs
    >>> target = np.array([3.0, -1.0])
    >>> best, _ = lbfgs(lambda x: (-0.5 * float(sum((x - target) ** 2)), target - x), np.zeros(2), max_iter=100)
    >>> best.round(6).tolist()
    [3.0, -1.0]
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
        outcome = Outcome(n_iter=int(result.nit), converged=bool(result.status == 0))
    except KeyboardInterrupt:
        outcome = Outcome(n_iter=len(trace), interrupted=True)
    outcome.elbo, outcome.trace = best_value, np.maximum.accumulate(trace)
    return best, outcome


# Adam's memory of gradients and of their squares (Kingma & Ba 2015).
ADAM_DECAY = (0.9, 0.999)
# Adam has converged where it gains less than this, in nats per row, while every parameter could move by one.
ADAM_TOLERANCE = 0.05


def through_softmax(q: FloatArray, gradient: FloatArray) -> FloatArray:
    """Gradient in logits from one in probabilities, over the last axis."""
    return np.asarray(q * (gradient - (q * gradient).sum(axis=-1, keepdims=True)))


def adam(
    gradient: Callable[[FloatArray, int], FloatArray],
    value: Callable[[FloatArray], float],
    start: FloatArray,
    n_steps: int,
    step: float,
    n_checks: int,
    *,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    first_check: int = 0,
    tolerance: float = ADAM_TOLERANCE,
) -> tuple[FloatArray, Outcome]:
    """Maximise by Adam, whose steps' size falls along half a cosine to nothing, (n_parameters,).

    The value is taken `n_checks` times, evenly spread over the steps, from step `first_check` on.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.optimize import adam
    >>> target = np.array([3.0, -1.0])
    >>> best, _ = adam(lambda x, _: target - x, lambda x: -float(sum((x - target) ** 2)), np.zeros(2), 500, 0.1, 5)
    >>> best.round(1).tolist()
    [3.0, -1.0]
    """
    a, b = ADAM_DECAY
    n_taken, first, second = 0, np.zeros(start.shape), np.zeros(start.shape)
    theta, best, best_value = start, start, -np.inf
    trace: list[float] = []
    paths: list[float] = []  # sum of the steps' sizes by each check
    path = 0.0
    outcome = Outcome()
    every = max(1, n_steps // n_checks)
    try:
        for i in range(n_steps):
            size = step * 0.5 * (1.0 + np.cos(np.pi * i / n_steps))
            path += size
            g = gradient(theta, i)
            if np.isfinite(g).all():
                n_taken += 1
                first += (1 - a) * (g - first)
                second += (1 - b) * (g**2 - second)
                theta = theta + size / (1 - a**n_taken) * first / (np.sqrt(second / (1 - b**n_taken)) + 1e-8)
                theta = theta if bounds is None else np.clip(theta, *bounds, out=theta)
            outcome.n_iter = i + 1
            if outcome.n_iter == n_steps or (outcome.n_iter % every == 0 and i >= first_check):
                trace.append(value(theta))
                paths.append(path)
                if trace[-1] > best_value:
                    best, best_value = theta, trace[-1]
        late = max(0, len(trace) - 1 - n_checks // 4)
        outcome.converged = bool(best_value - trace[late] < tolerance * (path - paths[late]))
    except KeyboardInterrupt:
        outcome.interrupted = True
        best = best if trace else theta
    outcome.elbo, outcome.trace = best_value, np.maximum.accumulate(trace)
    return best, outcome
