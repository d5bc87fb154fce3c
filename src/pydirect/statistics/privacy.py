"""Differential privacy: what a release may tell about one row, and what is left of a budget.

Gaussian noise of deviation σ on sums that a row moves by at most Δ, in Euclidean length, is (ε, δ)-private exactly
where ``Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) ≤ δ`` (Balle & Wang 2018, theorem 8). Only μ = Δ/σ matters, and releases
about the same rows are together as one with μ² = Σμᵢ² (Dong, Roth & Su 2022, corollary 3.3).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from pydirect._validation import as_number

# Of log μ: noise a million times the sensitivity, or a thousandth of it.
_LOG_MU = (-14.0, 7.0)
# A share of the budget that is rounding.
ROUNDING = 1e-9
# Two releases at a time must not both see the same rest of a budget.
_SPENDING = threading.Lock()


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ at which Gaussian noise is (ε, δ)-differentially private."""
    mu, epsilon = as_number(mu, "mu", above=0.0), as_number(epsilon, "epsilon", at_least=0.0)
    first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return float(np.exp(first) * -np.expm1(min(epsilon + second - first, 0.0)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ, sensitivity over the noise's deviation, that is (ε, δ)-differentially private."""
    epsilon = as_number(epsilon, "epsilon", above=0.0)
    delta = as_number(delta, "delta", above=0.0, below=1.0)
    below, above = np.exp(_LOG_MU)
    if not gaussian_delta(below, epsilon) < delta < gaussian_delta(above, epsilon):
        raise ValueError(f"epsilon and delta must be of a practical size, got {epsilon:g} and {delta:g}")
    log_mu = brentq(lambda log_mu: gaussian_delta(np.exp(log_mu), epsilon) - delta, *_LOG_MU, xtol=1e-12)
    return float(np.exp(log_mu)) * (1 - 1e-11)  # on the private side of rounding


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε at which Gaussian noise is (ε, δ)-differentially private."""
    mu, delta = as_number(mu, "mu", above=0.0), as_number(delta, "delta", above=0.0, below=1.0)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    above = mu**2 / 2 + mu * np.sqrt(2 * np.log(1 / delta)) + 1.0  # the tail bound of zero-concentrated privacy, and 1
    return float(brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, above, xtol=1e-12))


@dataclass
class PrivacyBudget:
    """What all releases about the same rows may tell together: (ε, δ)-differential privacy of adding or removing a row.

    `epsilon` of 1 is a common choice, 10 protects little; `delta` is well below one over the number of rows; `spent` is
    the sum of μ² of all releases so far. Sites with rows of different people have a budget each.
    """

    epsilon: float
    delta: float
    spent: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.spent = as_number(self.spent, "spent", at_least=0.0)
        if self.spent > self._allowed * (1 + ROUNDING):
            raise ValueError(f"spent must be at most {self._allowed:g}, got {self.spent:g}")

    @property
    def _allowed(self) -> float:
        return gaussian_mu(self.epsilon, self.delta) ** 2

    @property
    def remaining(self) -> float:
        """Budget ε that one more release may have, at the same δ; releases add to less than the sum of their ε."""
        left = self._allowed - self.spent
        return gaussian_epsilon(np.sqrt(left), self.delta) if left > ROUNDING * self._allowed else 0.0

    def spend(self, epsilon: float | None = None) -> float:
        """Count a release, before it is made, and return its μ: sensitivity over the noise's standard deviation."""
        allowed = self._allowed
        wanted = None if epsilon is None else gaussian_mu(epsilon, self.delta) ** 2
        with _SPENDING:
            left = allowed - self.spent
            wanted = left if wanted is None else wanted
            if left <= ROUNDING * allowed or wanted > left + ROUNDING * allowed:
                asked = "" if epsilon is None else f", got {epsilon:g}"
                raise ValueError(f"epsilon must be at most what is left of the budget, {self.remaining:.4g}{asked}")
            self.spent = min(self.spent + wanted, allowed)
        return float(np.sqrt(wanted))
