"""Optimisers: ascent of quadratic problems, L-BFGS and Adam; they know no likelihood."""

from pydirect.optimize.gradient import adam, lbfgs
from pydirect.optimize.outcome import Outcome
from pydirect.optimize.quadratic import QuadraticProblem

__all__ = ["Outcome", "QuadraticProblem", "adam", "lbfgs"]
