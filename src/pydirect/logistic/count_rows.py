"""Rows with counts, as the weighted passes of classification take them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_float_array
from pydirect.logistic.ascent import Latent, RowMoments
from pydirect.logistic.count_likelihood import POISSON, CountLikelihood
from pydirect.logistic.count_predictive import as_counts, log_predictive_probability
from pydirect.logistic.likelihood import Likelihood
from pydirect.logistic.rows import LabelledRows
from pydirect.statistics.gaussian import IdentityFeatures


@dataclass(frozen=True)
class CountRows(LabelledRows):
    """Rows of basis functions with counts y, whose log means are offset + φᵀw.

    `t`, (n_samples, 1): the counts. `offset`, (n_samples, 1): log exposure and the intercept. Everything else as in
    `LabelledRows`.

    Parameters
    ----------
    features : FeatureMap
        From rows of x to Φ.
    x : ndarray of shape (n_samples, n_features_in)
        Rows of inputs.
    t : ndarray of shape (n_samples, 1)
        Counts.
    weight : ndarray of shape (n_samples,)
        How many times each row counts.
    offset : ndarray of shape (n_samples, 1)
        Prior means of the log rates.
    likelihood : str, default="softmax"
        As in `LabelledRows`, where there are labels.
    n_threads : int, default=1
        Number of threads; results have the same bits for any.
    counts : CountLikelihood, default=POISSON
        Likelihood of the counts.
    """

    counts: CountLikelihood = POISSON

    @classmethod
    def from_counts(cls, phi: ArrayLike, y: ArrayLike, offset: ArrayLike, counts: CountLikelihood = POISSON) -> Self:
        """Build from a design matrix.

        Parameters
        ----------
        phi : array_like of shape (n_samples, n_weights)
            Φ.
        y : array_like of shape (n_samples,)
            Counts.
        offset : float or array_like of shape (n_samples,)
            Prior means of the log means, log exposure included.
        counts : CountLikelihood, default=POISSON
            With a positive dispersion, `ascend_counts` learns it from there.

        Examples
        --------
        >>> CountRows.from_counts([[1.0], [2.0]], [3, 0], 0.5).largest_precision
        3.0
        """
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        y = as_float_array(as_counts(y, "y"), "y", (len(phi),))
        means = as_float_array(np.broadcast_to(np.asarray(offset, float), len(phi)), "offset", (len(phi),))
        features = IdentityFeatures(phi.shape[1])
        return cls(features, phi, y[:, None], np.ones(len(phi)), means[:, None], counts=counts)

    @property
    def terms(self) -> Likelihood:
        """The likelihood in expectation."""
        return self.counts.terms

    @property
    def first_guess(self) -> FloatArray:
        """Values of φᵀw about which the likelihood is first expanded, (n_samples, 1)."""
        return self.counts.first_guess(self.t, self.offset)

    def log_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Log E p(y | z) of every row's count for Gaussian z of these moments, (n_samples,).

        Parameters
        ----------
        mean : ndarray of shape (n_samples, 1)
            Means of z less the offset.
        variance : ndarray of shape (n_samples,)
            Variances of z.

        Returns
        -------
        ndarray of shape (n_samples,)
            In nats.
        """
        return log_predictive_probability(self.t[:, 0], mean[:, 0], variance, self.counts.dispersion)

    def with_best_dispersion(self, latent: Latent | RowMoments) -> CountRows:
        """Return the same rows with the dispersion that fits best, given a posterior.

        Parameters
        ----------
        latent : posterior or RowMoments
            Posterior of the weights, or its moments at the rows.

        Returns
        -------
        CountRows
            The rows.
        """
        mean, variance = self.moments(latent)
        return replace(self, counts=self.counts.at_best(self.t, mean, variance, self.weight))

    def with_dispersion(self, dispersion: float) -> CountRows:
        """Return the same rows with a given dispersion.

        Parameters
        ----------
        dispersion : float
            Dispersion 1/r; 0 is Poisson.

        Returns
        -------
        CountRows
            The rows.
        """
        return replace(self, counts=CountLikelihood(dispersion))

    @property
    def largest_precision(self) -> float:
        """Return what no row's precision exceeds by far: the largest count or prior mean."""
        return float(np.maximum(self.t, np.exp(self.offset)).max())
