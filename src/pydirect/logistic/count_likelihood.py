"""Likelihoods of counts: Poisson and negative binomial with mean μ = exp(z), and in expectation over Gaussian z.

With dispersion α, y has the mean μ and the variance μ + αμ²; α = 0 is Poisson's. With z ~ N(m, v),

- Poisson: E log p(y | z) = ym − exp(m + v/2) − log y!, in closed form.
- Negative binomial, r = 1/α: log p(y | z) = yu − (y + r) log(1 + exp u) + const with u = z − log r: the likelihood of
  y successes in y + r trials with the logit u, so that its expectation is the one that classification integrates
  (`pydirect.logistic.expectations`).

Their first and second derivatives in m are the residual and minus the precision of a Gaussian regression, which is how
the weighted passes of `pydirect.logistic` fit them: by the variational bound of a Gaussian posterior (Opper &
Archambeau 2009), tight for the best Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betaln, gammaln, log_expit

from pydirect._validation import FloatArray
from pydirect.logistic.expectations import expected_sigmoid
from pydirect.logistic.likelihood import RowTerms

# Largest log mean whose exponential is taken: beyond it no count is that large.
LARGEST_LOG_MEAN = 100.0
# Log of how many times larger than its count the expected mean of a row can be: at no optimum, but on the way to it.
FARTHEST = 12.0
# Dispersions that are considered: with less, a negative binomial is Poisson's to all purposes.
LEAST_DISPERSION, MOST_DISPERSION = 1e-4, 1e2


@dataclass(frozen=True)
class CountLikelihood:
    """Poisson or negative binomial likelihood of counts y with mean exp(z).

    Parameters
    ----------
    dispersion : float, default=0.0
        α of the variance μ + αμ²; 0 for Poisson.
    """

    dispersion: float = 0.0

    @property
    def size(self) -> float:
        """Number of failures r = 1/α of the negative binomial, infinite for Poisson."""
        return 1 / self.dispersion if self.dispersion > 0 else np.inf

    def log_normaliser(self, y: FloatArray) -> FloatArray:
        """Return what log p(y | z) has beyond the terms in z: −log y!, or log Γ(y + r)/(Γ(r) y!), the shape of y.

        Parameters
        ----------
        y : ndarray of shape (n_rows, 1)
            Counts.

        Returns
        -------
        ndarray
            In nats.
        """
        if self.dispersion == 0:
            return np.asarray(-gammaln(y + 1))
        return np.asarray(-betaln(self.size, y + 1) - np.log(y + self.size))

    def log_probability(self, y: FloatArray, z: FloatArray) -> FloatArray:
        """Log p(y | z); arguments broadcast against each other.

        Parameters
        ----------
        y : ndarray of shape (n_rows, 1)
            Counts.
        z : ndarray
            Log means.

        Returns
        -------
        ndarray
            In nats.
        """
        if self.dispersion == 0:
            return y * z - _exp(z) + self.log_normaliser(y)
        u = z - np.log(self.size)
        return np.asarray(y * log_expit(u) + self.size * log_expit(-u) + self.log_normaliser(y))

    def terms(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over Gaussian z: `y` and `mean` (n_rows, 1), `variance` (n_rows,).

        Parameters
        ----------
        y : ndarray of shape (n_rows, 1)
            Counts.
        mean : ndarray of shape (n_rows, 1)
            Means of z.
        variance : ndarray of shape (n_rows,)
            Variances of z.

        Returns
        -------
        RowTerms
            Expectations and their derivatives at every row.
        """
        count, m = y[:, 0], mean[:, 0]
        if self.dispersion == 0:
            rate, slope, curvature = _continued_exp(m + 0.5 * variance, np.log(count + 1) + FARTHEST)
            return RowTerms(count * m - rate + self.log_normaliser(count), (count - slope)[:, None], curvature)
        u, trials = m - np.log(self.size), count + self.size
        expected = expected_sigmoid(u, variance)
        value = count * u - trials * expected.log_partition + self.log_normaliser(count)
        return RowTerms(value, (count - trials * expected.probability)[:, None], trials * expected.curvature)

    def at_best(self, y: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray) -> CountLikelihood:
        """Return the negative binomial whose dispersion maximises Σ ω E log p(y | z); arguments as of `terms`.

        Parameters
        ----------
        y : ndarray of shape (n_rows, 1)
            Counts.
        mean : ndarray of shape (n_rows, 1)
            Means of z.
        variance : ndarray of shape (n_rows,)
            Variances of z.
        weight : ndarray of shape (n_rows,)
            How many times each row counts.

        Returns
        -------
        CountLikelihood
            With the best dispersion.
        """

        def loss(log_dispersion: float) -> float:
            return -float(weight @ CountLikelihood(float(np.exp(log_dispersion))).terms(y, mean, variance).value)

        limits = (np.log(LEAST_DISPERSION), np.log(MOST_DISPERSION))
        found = minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-3})
        return CountLikelihood(float(np.exp(found.x)))

    def first_guess(self, y: FloatArray, offset: FloatArray) -> FloatArray:
        """Return log rates, relative to their prior means `offset`, about which to expand first; all of one shape.

        Half-way between the count and its prior mean: an expansion about the latter is useless where they are far
        apart.

        Parameters
        ----------
        y : ndarray of shape (n_rows, 1)
            Counts.
        offset : ndarray
            Prior means of z.

        Returns
        -------
        ndarray
            Log rates.
        """
        return np.asarray(np.log((y + _exp(offset)) / (2 * _exp(offset))))


POISSON = CountLikelihood()


def moment_dispersion(y: FloatArray, offset: FloatArray, weight: FloatArray) -> float:
    """Return the dispersion by moments of counts whose log means are `offset`, (n_rows,): where a search begins."""
    expected = _exp(offset)
    excess = float(weight @ ((y - expected) ** 2 - expected)) / max(float(weight @ expected**2), 1e-300)
    return float(np.clip(excess, LEAST_DISPERSION, MOST_DISPERSION))


def _continued_exp(z: FloatArray, limit: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return exp(z), continued beyond a limit by its Taylor polynomial of degree two, and its first two derivatives.

    The bound is then the same wherever an optimum can be, concave everywhere, and steps that went too far come back.
    """
    value, beyond = _exp(np.minimum(z, limit)), np.maximum(z - limit, 0.0)
    return value * (1 + beyond + 0.5 * beyond**2), value * (1 + beyond), value


def _exp(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.minimum(z, LARGEST_LOG_MEAN)))
