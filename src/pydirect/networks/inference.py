"""Ways to find the expected log-likelihood of a network with random weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Inference:
    """How the expected log-likelihood of the evidence lower bound is found.

    - `kind` ({"moments", "shared", "local", "mean"}): by moment propagation, from draws of the weights that all rows
      share, from draws of every row's own pre-activations, or at the means of the weights.
    - `fresh`: whether every training step makes new draws: the objective is then stochastic, and only Adam climbs it.
    """

    name: str
    kind: str
    fresh: bool = False


DVI = Inference("dvi", "moments")
MCVI = Inference("mcvi", "shared", fresh=True)
RMCVI = Inference("rmcvi", "local", fresh=True)
MAP = Inference("map", "mean")
# Draws of the network's own seed.
KEPT = Inference("kept", "shared")
