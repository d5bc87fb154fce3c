"""Marginals of the weights of a posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydirect._validation import FloatArray
from pydirect.distributions.categorical import FactorizedCategorical


class WeightMarginals:
    """Marginal moments and probabilities of the weights of a posterior, from `weights`."""

    if TYPE_CHECKING:

        @property
        def weights(self) -> FactorizedCategorical:
            """Marginal distributions of the weights; subclasses provide it."""
            ...

    @property
    def q(self) -> FloatArray:
        """Marginal probabilities, (n_weights, n_levels)."""
        return self.weights.q

    @property
    def mean(self) -> FloatArray:
        """Posterior means of the weights, (n_weights,)."""
        return self.weights.mean

    @property
    def variance(self) -> FloatArray:
        """Posterior variances of the weights, (n_weights,)."""
        return self.weights.variance

    @property
    def std(self) -> FloatArray:
        """Posterior standard deviations of the weights, (n_weights,)."""
        return self.weights.std

    @property
    def coefficients(self) -> FloatArray:
        """Posterior mean of the weights of Φ, (n_weights,)."""
        return self.mean
