"""Logistic classification with discrete weights (DIRECT for classes): Pr(t | w) = σ(t z), z = offset + φᵀw, t = ±1.

The expectation of log σ has no closed form, but two lower bounds do:

- ``"jaakkola"``: log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²), λ(ξ) = tanh(ξ/2)/(4ξ), best at ξ² = E z²
  (Jaakkola & Jordan 2000). It is quadratic in z: for given ξ this is Gaussian regression with A = Φᵀdiag(2λ)Φ and
  c = Φᵀ(t/2 − 2λ offset), and everything that solves that solves this.
- ``"exponential"``: log σ(tz) ≥ −exp(−tz), whose expectation is a product over the weights (Evans & Nair 2018,
  Theorem 2). It is the tighter of the two where z is large and determines t, as for well-separated classes; where they
  overlap it is much looser, and its best z is half the log-odds, so that its probabilities are underconfident.
"""

from pydirect.logistic.discrete import LogisticFit
from pydirect.logistic.fit import fit_logistic, fit_logistic_decorrelated
from pydirect.logistic.gaussian import VariancePrior
from pydirect.logistic.predictive import predictive_probability
from pydirect.logistic.rows import LabelledRows
from pydirect.logistic.sequential import Lattice, fit_logistic_sequential

__all__ = [
    "LabelledRows",
    "Lattice",
    "LogisticFit",
    "VariancePrior",
    "fit_logistic",
    "fit_logistic_decorrelated",
    "fit_logistic_sequential",
    "predictive_probability",
]
