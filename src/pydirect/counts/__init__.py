"""Regression of counts: Poisson and negative binomial, log link, Gaussian weights.

The rows' likelihood, in expectation over Gaussian log rates, looks like Gaussian regression at given precisions, as for
labels: the passes are those of `pydirect.logistic`. The bound is the ELBO of a Gaussian posterior, exactly.
"""

from pydirect.counts.fit import ascend_counts
from pydirect.counts.likelihood import CountLikelihood
from pydirect.counts.predictive import CountDistribution
from pydirect.counts.rows import CountRows

__all__ = [
    "CountDistribution",
    "CountLikelihood",
    "CountRows",
    "ascend_counts",
]
