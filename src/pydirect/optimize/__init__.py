"""Optimisers: ascent of quadratic problems, L-BFGS and Adam; they know no likelihood."""

from pydirect.optimize.gradient import AdamSchedule, adam, lbfgs
from pydirect.optimize.outcome import Outcome
from pydirect.optimize.quadratic import QuadraticProblem

__all__ = ["AdamSchedule", "Outcome", "QuadraticProblem", "adam", "lbfgs"]
