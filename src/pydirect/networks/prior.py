"""Prior variances of a network's weights: given, or found by empirical Bayes (Wu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pydirect._validation import as_choice, as_float_array, as_number, shown

# Mode of the hyperprior in the released program, times the number of inputs of a layer.
RELEASED_MODE = 5.0
# Squares of the KL term's gradient are finite for prior variances in this range.
PRIOR_VARIANCES = (1e-100, 1e100)


@dataclass(frozen=True)
class EmpiricalBayes:
    """Empirical-Bayes prior variance of each weight matrix and bias vector, under InverseGamma(alpha, beta).

    The optimal variance is ``s* = (Σ (σ² + M²) + 2β) / (Ω + 2α + 2)`` for Ω weights (eq. 13).

    Parameters
    ----------
    alpha : float, default=1.0
        Shape of the inverse-gamma density.
    beta : float or None, default=10.0
        None: ``5 (alpha + 1) / n_in``, which puts the mode of the hyperprior at the variance ``5 / n_in``.
    objective : {"map", "code"}, default="map"
        ``"map"``: eq. (12), the hyperprior's density at s* included. ``"code"``: the divergence at s* alone, as the
        authors' released program has it.
    """

    alpha: float = 1.0
    beta: float | None = 10.0
    objective: str = "map"

    def __post_init__(self) -> None:
        as_number(self.alpha, "alpha", above=0.0)
        if self.beta is not None:
            as_number(self.beta, "beta", above=0.0)
        as_choice(self.objective, "objective", ("map", "code"))

    @classmethod
    def released_code(cls) -> EmpiricalBayes:
        """Hyperprior and objective of the authors' released program."""
        return cls(alpha=4.4798, beta=None, objective="code")

    def key(self, n_in: int) -> tuple[str, float, float, float]:
        """Return the prior of a layer with this number of inputs, as the compiled module takes it.

        Parameters
        ----------
        n_in : int
            Number of inputs of the layer.

        Returns
        -------
        (str, float, float, float)
            Name and numbers of the prior.
        """
        beta = RELEASED_MODE * (self.alpha + 1.0) / n_in if self.beta is None else self.beta
        return self.objective, 1.0, float(self.alpha), float(beta)


def as_network_prior(prior: Any, n_sets: int) -> EmpiricalBayes | float | tuple[float, ...]:
    """Return a prior given as `EmpiricalBayes`, one variance, or one for each set of weights."""
    if isinstance(prior, EmpiricalBayes):
        return prior
    variances = as_float_array(prior, "prior", (n_sets,) if np.ndim(prior) else ())
    low, high = PRIOR_VARIANCES
    if not ((low <= variances) & (variances <= high)).all():
        raise ValueError(f"prior must hold variances from {low} to {high}, got {shown(prior)}")
    return float(variances) if variances.ndim == 0 else tuple(variances.tolist())
