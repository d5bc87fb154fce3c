"""Classification: p(y | w) = σ(tz) for two classes, softmax(z) for more, z = offset + φᵀw.

What is maximised:

- ``"softmax"``: the ELBO itself. For Gaussian weights the expectation of the log-likelihood is an integral of one
  dimension for any number of classes (`pydirect.logistic.likelihood`), so that the bound on the log evidence is as
  tight as a Gaussian allows. The classes share the covariance of their weights, and with it one factorisation.
- ``"jaakkola"``: log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²), λ(ξ) = tanh(ξ/2)/(4ξ), best at ξ² = E z²
  (Jaakkola & Jordan 2000); each class against the rest. It needs only the first two moments of z, and so is a bound for
  discrete weights of any kind: mean field's.
- ``"exponential"``: log σ(tz) ≥ −exp(−tz), whose expectation is a product over the weights (Evans & Nair 2018,
  Theorem 2); each class against the rest. It is tighter than Jaakkola's where z is large and determines t, as for
  well-separated classes; where they overlap it is much looser, and its best z is half the log-odds, so that its
  probabilities are underconfident.

Weights drawn one after another come from a quadratic expansion of the softmax about its Gaussian posterior. Their ELBO
takes the likelihood of the draws as it is: an unbiased estimate of a lower bound.
"""

from pydirect.direct.sequential import Lattice as Lattice
from pydirect.logistic.count_likelihood import (
    CountDistribution as CountDistribution,
    CountLikelihood as CountLikelihood,
)
from pydirect.logistic.fit import (
    LogisticFit as LogisticFit,
    fit_logistic as fit_logistic,
    fit_logistic_decorrelated as fit_logistic_decorrelated,
)
from pydirect.logistic.gaussian import VariancePrior as VariancePrior
from pydirect.logistic.latent import (
    ExtremeLikelihood as ExtremeLikelihood,
    IntervalLikelihood as IntervalLikelihood,
    LatentLikelihood as LatentLikelihood,
    OrdinalLikelihood as OrdinalLikelihood,
)
from pydirect.logistic.problem import ascend_latent as ascend_latent
from pydirect.logistic.rows import LabelledRows as LabelledRows
