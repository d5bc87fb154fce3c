"""Ascent of the Jaakkola bound, from step to accelerated step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pydirect._validation import FloatArray
from pydirect.optimize.anderson import Anderson
from pydirect.optimize.outcome import Outcome
from pydirect.regression.mean_field import MeanFieldPosterior

# An iteration that raises the bound by less than so many nats and this fraction of it is the last.
RISE = 1e-4
RELATIVE_RISE = 1e-7


@dataclass(frozen=True)
class AscentState:
    """What a step found: a posterior, its bound, and the parameters for the next step."""

    posterior: Any
    variance: float
    bound: float
    following: FloatArray  # log ξ, then what else the step improves
    safe: FloatArray  # the same but for what could lower the bound
    interrupted: bool = False


Step = Callable[[FloatArray], AscentState]


def climb(step: Step, start: FloatArray, max_iter: int, stop: threading.Event) -> tuple[AscentState, Outcome]:
    """Iterate a step that improves its parameters until the bound stays, or the user interrupts.

    Plain steps converge linearly, and slowly where classes are far apart. Anderson's method extrapolates from the last
    few; where it lowers the bound it is taken back and starts anew.
    """
    best, used = step(start), start
    trace, memory = [best.bound], Anderson()
    outcome = Outcome(interrupted=best.interrupted)
    try:
        while len(trace) < max_iter and not outcome.converged and not outcome.interrupted:
            heed(stop)
            rounding = 1e-13 * (abs(best.bound) + 1)
            # At most a factor of e beyond the plain step.
            following = best.following
            used = np.clip(memory.extrapolated(used, following), following - 1.0, following + 1.0)
            state = step(used)
            if state.bound < best.bound - rounding and len(memory.steps) > 1:
                memory.steps.clear()
                used = best.following
                state = step(used)
            if state.bound < best.bound - rounding and best.safe is not best.following:
                used = best.safe
                state = step(used)
            lower = state.bound < best.bound - rounding
            outcome.converged = state.bound - best.bound <= RISE + RELATIVE_RISE * abs(best.bound)
            outcome.interrupted = state.interrupted
            best = best if lower else state
            trace.append(max(best.bound, trace[-1]))
    except KeyboardInterrupt:
        outcome.interrupted = True
    if outcome.interrupted:
        stop.set()
    outcome.n_iter, outcome.trace = len(trace), [np.array(trace)]
    outcome.converged &= not outcome.interrupted
    return best, outcome


def heed(stop: threading.Event) -> None:
    """Interrupt this thread too when the user has interrupted another."""
    if stop.is_set():
        raise KeyboardInterrupt


def with_outcome(posterior: MeanFieldPosterior, elbo: float, outcome: Outcome, stop: threading.Event) -> Any:
    """Return the posterior with the bound and outcome of an ascent."""
    return replace(
        posterior,
        elbo=elbo,
        elbo_trace=np.concatenate(outcome.trace),
        n_iter=outcome.n_iter,
        converged=outcome.converged and not stop.is_set(),
        interrupted=outcome.interrupted or stop.is_set(),
    )
