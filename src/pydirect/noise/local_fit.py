"""Whether, and with what, a local process on leave-one-out residuals is fitted."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.linear.leave_one_out import LeaveOneOut, leave_one_out
from pydirect.noise.local_process import FEWEST_SHARED, HELD_OUT_ROWS, LocalProcess, Places
from pydirect.noise.problem import NoiseProblem
from pydirect.noise.row_moments import RowMoments

N_NEIGHBOURS = 32
LARGEST_ERROR = 1.01  # of left-out rows, squared and relative to the global model's
CLEARLY_CLOSER = 0.9
SMALLEST_GAIN = 0.02  # nats per row
ROWS_PER_FEATURE, FEWEST_ROWS = 2, 1000
# At a first look: rows that are left out, and the error from which nothing is looked at further.
FIRST_HELD_ROWS = 400
CLEARLY_FARTHER = 1.05


def fit_local(
    problem: NoiseProblem,
    moments: RowMoments,
    n_neighbours: int | None,
    memo: dict[Hashable, Any] | None = None,
) -> tuple[LocalProcess | None, float | None]:
    """Return a process on the residuals, or None, and the nats a row that it gains, None if none was tried.

    ``n_neighbours`` None is "auto": a process is kept where leave-one-out scores favour it. What depends on inputs
    only is shared through ``memo`` among models of the same rows.
    """
    kernel, n, automatic = problem.basis.hyperparameters, len(moments.x), n_neighbours is None
    if kernel is None or n < (max(ROWS_PER_FEATURE * problem.basis.n_weights, FEWEST_ROWS) if automatic else 2):
        return None, None
    first, weight, _ = problem.rows.merged
    y, inputs = problem.rows.y[first[weight > 0]], problem.basis.inputs(moments.x)
    held = problem.rng.spawn(1)[0].choice(n, min(n, HELD_OUT_ROWS), replace=False)
    k = n_neighbours or N_NEIGHBOURS
    key, many = (k, held.tobytes(), moments.weight.tobytes()), memo is not None or y.shape[1] >= FEWEST_SHARED
    scales = kernel.length_scales
    places = _once(memo, key, lambda: Places.of(inputs, scales, moments.weight, k, held, keep=many))
    if automatic:
        few = _once(memo, (*key, FIRST_HELD_ROWS), lambda: places.at(held[:FIRST_HELD_ROWS]))
        look = _fitted(problem, moments, few, y, few.rows)
        if look.gain.mean() <= 0 or look.squared_error.mean() > CLEARLY_FARTHER:
            return None, float(look.gain.mean())
    process = _fitted(problem, moments, places, y, np.arange(n))
    gain = float(process.gain.mean())
    closer = process.squared_error.mean() <= LARGEST_ERROR  # rows of equal targets, for one, gain density alone
    return (process if not automatic or (gain > SMALLEST_GAIN and closer) else None), gain


def noise_may_replace(process: LocalProcess | None, automatic: bool) -> bool:
    """Whether there is no process, or one that nobody asked for and that hardly moves the mean."""
    return process is None or (automatic and float(process.squared_error.mean()) > CLEARLY_CLOSER)


def _fitted(
    problem: NoiseProblem, moments: RowMoments, places: Places, y: FloatArray, rows: NDArray[np.intp]
) -> LocalProcess:
    """Fit a process to leave-one-out residuals of some rows."""
    moments.exactly(places.held)
    noise = np.array([posterior.noise.variance for posterior, _ in problem.fitted])

    def left_out(rows: NDArray[np.intp]) -> LeaveOneOut:
        mean, variance = moments.at(rows)
        precision = moments.weight[rows, None] / moments.noise
        residual = moments.missing[rows, None] * moments.prior_variance
        return leave_one_out(y[rows], mean, variance, precision, noise, residual)

    residuals = np.zeros_like(y)
    residuals[rows] = left_out(rows).residuals
    return places.fit(residuals, left_out(places.held).log_density)


def _once(memo: dict[Hashable, Any] | None, key: Hashable, make: Callable[[], Any]) -> Any:
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]
