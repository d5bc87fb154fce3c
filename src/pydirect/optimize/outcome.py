"""How an optimisation ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydirect._validation import FloatArray


@dataclass
class Outcome:
    """What an optimiser did: iterations, ELBO after each, and whether it came to rest."""

    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False
    trace: list[FloatArray] = field(default_factory=list)

    def add(self, step: tuple[int, bool, FloatArray]) -> None:
        """Append one stage."""
        n_iter, self.converged, trace = step
        self.n_iter += n_iter
        self.trace.append(trace)
