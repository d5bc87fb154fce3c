"""Optimisers: ascent of quadratic problems, L-BFGS and Adam; they know no likelihood."""

from pydirect.optimize.gradient import adam as adam, lbfgs as lbfgs
from pydirect.optimize.outcome import Outcome as Outcome
from pydirect.optimize.quadratic import QuadraticProblem as QuadraticProblem
