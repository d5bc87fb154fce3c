"""How an optimisation ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pydirect._validation import FloatArray, as_count, short_repr
from pydirect.persistence.fields import require_array, require_number, require_type


@dataclass
class Outcome:
    """How an optimisation ended: the ELBO that it reached, and how it got there.

    Attributes
    ----------
    elbo : float, default=np.nan
        Lower bound on log p(y) in nats, −(n/2) log 2π included.
    trace : ndarray of shape (n_iter,), optional
        ELBO after each iteration.
    n_iter : int, default=0
    converged : bool, default=False
        Whether it came to rest.
    interrupted : bool, default=False
        Whether it was stopped from the keyboard; the result is then the best so far.
    """

    elbo: float = np.nan
    trace: FloatArray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False

    __repr__ = short_repr

    def add(self, stage: tuple[int, bool, FloatArray]) -> None:
        """Append one stage: its number of iterations, whether it came to rest, and its trace.

        Parameters
        ----------
        stage : (int, bool, ndarray)
            Number of iterations, whether it came to rest, and its trace.
        """
        n_iter, self.converged, trace = stage
        self.n_iter += n_iter
        self.trace = np.append(self.trace, trace)

    def at(self, elbo: float) -> Outcome:
        """Return the same with the exact ELBO, also in place of the last entry of the trace.

        Iterations that see A in single precision round theirs.

        Parameters
        ----------
        elbo : float
            The exact ELBO.

        Returns
        -------
        Outcome
            The outcome.
        """
        trace = np.append(np.append(self.trace, elbo)[: max(self.n_iter, 1) - 1], elbo)
        return replace(self, elbo=elbo, trace=trace)

    def less(self, penalty: float) -> Outcome:
        """Return the same with a constant subtracted from all values.

        Parameters
        ----------
        penalty : float
            What is subtracted.

        Returns
        -------
        Outcome
            The outcome.
        """
        return replace(self, elbo=self.elbo - penalty, trace=self.trace - penalty)

    def check(self) -> None:
        """Raise unless all fields have their types and ranges."""
        require_number(self.elbo, "elbo")
        require_array(self.trace, "elbo_trace", *self.trace.shape[:1])
        as_count(self.n_iter, "n_iter", 0)
        require_type(self.converged, "converged", bool)
        require_type(self.interrupted, "interrupted", bool)


class WithOutcome:
    """A fitted posterior, which says how its fit ended."""

    if TYPE_CHECKING:
        outcome: Outcome

    @property
    def elbo(self) -> float:
        """Lower bound on log p(y) in nats."""
        return self.outcome.elbo

    @property
    def elbo_trace(self) -> FloatArray:
        """ELBO after each iteration, (n_iter,)."""
        return self.outcome.trace

    @property
    def n_iter(self) -> int:
        """Number of iterations."""
        return self.outcome.n_iter

    @property
    def converged(self) -> bool:
        """Whether the fit came to rest."""
        return self.outcome.converged

    @property
    def interrupted(self) -> bool:
        """Whether the fit was stopped from the keyboard."""
        return self.outcome.interrupted
