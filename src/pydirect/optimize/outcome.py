"""How an optimisation ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import numpy as np

from pydirect._validation import FloatArray, short_repr
from pydirect.persistence.schema import AtLeast, Shape


@dataclass
class Outcome:
    """How an optimisation ended: the ELBO that it reached, and how it got there."""

    elbo: float = np.nan  # lower bound on log p(y) in nats, −(n/2) log 2π included
    # ELBO after each iteration, (n_iter,)
    trace: Annotated[FloatArray, Shape("n_traced*")] = field(default_factory=lambda: np.empty(0))
    n_iter: Annotated[int, AtLeast(0)] = 0
    converged: bool = False
    interrupted: bool = False  # whether it was stopped from the keyboard; the result is then the best so far

    __repr__ = short_repr

    def add(self, stage: tuple[int, bool, FloatArray]) -> None:
        """Append one stage: its number of iterations, whether it converged, and its trace."""
        n_iter, self.converged, trace = stage
        self.n_iter += n_iter
        self.trace = np.append(self.trace, trace)

    def at(self, elbo: float) -> Outcome:
        """Return the same with the exact ELBO, which steps that see A in single precision round, in the trace too."""
        trace = np.append(np.append(self.trace, elbo)[: max(self.n_iter, 1) - 1], elbo)
        return replace(self, elbo=elbo, trace=trace)

    def stopped(self) -> Outcome:
        """Return the same after an interruption."""
        return replace(self, interrupted=True, converged=False)


class WithOutcome:
    """A fitted posterior, which says how its fit ended."""

    if TYPE_CHECKING:
        outcome: Outcome

    elbo = property(attrgetter("outcome.elbo"), doc="Lower bound on log p(y) in nats.")
    elbo_trace = property(attrgetter("outcome.trace"), doc="ELBO after each iteration, (n_iter,).")
    n_iter = property(attrgetter("outcome.n_iter"), doc="Number of iterations.")
    converged = property(attrgetter("outcome.converged"), doc="Whether the fit converged.")
    interrupted = property(attrgetter("outcome.interrupted"), doc="Whether the fit was stopped from the keyboard.")
