"""Posteriors of single weights, a prior times a Gaussian likelihood, and few levels with their moments and evidence.

In the decorrelated basis weights do not interact, and the posterior is a product of

    q_j(w) = p(w) exp(−½ a_j (w − m_j)²) / Z_j,    a_j = τλ_j,  m_j = c_j/λ_j

The Gaussian prior has its closed form, any other density Gauss–Legendre quadrature on panels. Levels w_jk and
probabilities q_jk are then nodes and weights of the Gauss quadrature of q_j (Golub & Welsch 1969), which has the
moments of q_j up to order 2n − 1: for the Gaussian prior, Gauss–Hermite quadrature. The levels' prior masses are

    P_jk = q_jk Z_j exp(½ a_j (w_jk − m_j)²)

so that the model on the levels has q_jk for its posterior and Z_j for its evidence; and because log(q_jk/P_jk) is
quadratic in w, ``KL(q_j ‖ P_j)`` is ``KL(q_j ‖ p)`` from two levels on. Thus no term of the ELBO depends on the number
of levels, and a bound for continuous weights is one for any number. Σ_k P_jk is the quadrature of p/q_j under q_j,
whose even derivatives are positive: at most one, the rest being levels that are not offered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import roots_hermitenorm

from pydirect._validation import FloatArray
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import as_level_count
from pydirect.distributions.priors import DensityPrior, GaussianPrior, Prior

# Edges of panels: about zero in prior deviations, about likelihood and posterior in theirs.
ABOUT_ZERO = np.concatenate([-(4.0 ** np.arange(6, -6, -1)), [0.0], 4.0 ** np.arange(-5, 7)])
ABOUT_PEAK = np.array([-12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 1.5, 3.0, 5.0, 8.0, 12.0])
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
# Gauss quadrature of more nodes than about a sixth of those that it is found from is not accurate.
MOST_LEVELS = 64
# Times that panels are placed about a posterior that is not known yet: enough for likelihoods whose centre is up to
# some 3000 prior deviations from zero.
PLACEMENTS = 3


@dataclass(frozen=True)
class TiltedPriors:
    """Posteriors of independent weights under Gaussian likelihoods of each, with a Gaussian prior.

    Attributes
    ----------
    centre, precision : ndarray of shape (n_weights,)
        m and a of the likelihoods ``exp(−½ a (w − m)²)``.
    mean, variance : ndarray of shape (n_weights,)
    log_evidence : ndarray of shape (n_weights,)
        log Z
    """

    centre: FloatArray
    precision: FloatArray
    mean: FloatArray
    variance: FloatArray
    log_evidence: FloatArray

    @property
    def kl(self) -> float:
        """``Σ_j KL(q_j ‖ p)``, as q_j/p is the likelihood over the evidence."""
        return float((self._log_likelihood(self.mean, self.variance) - self.log_evidence).sum())

    def _log_likelihood(self, mean: FloatArray, variance: FloatArray | float = 0.0) -> FloatArray:
        """Return the expected logarithm of the likelihood, for arrays whose last axis is that of the weights."""
        return -0.5 * self.precision * (variance + (mean - self.centre) ** 2)

    def on_levels(self, n_levels: int) -> tuple[FactorizedCategorical, FloatArray]:
        """Return levels with their probabilities, and their log prior masses, (n_weights, n_levels)."""
        nodes, q = self._rule(n_levels)
        levels = self.mean[:, None] + np.sqrt(self.variance)[:, None] * nodes
        log_prior = np.log(q) + self.log_evidence[:, None] - self._log_likelihood(levels.T).T
        return FactorizedCategorical(levels, q), log_prior

    def log_density_change(self, prior: DensityPrior, step: FloatArray) -> FloatArray:
        """``E log p(w + step) − E log p(w)`` under the prior, (n_weights,)."""
        return -step * (self.mean + 0.5 * step) / prior.variance

    def _rule(self, n_levels: int) -> tuple[FloatArray, FloatArray]:
        """Nodes, in posterior deviations from the mean, and weights of the posteriors' Gauss quadrature."""
        nodes, weights = hermite(n_levels)
        return nodes, np.tile(weights, (len(self.mean), 1))


@dataclass(frozen=True)
class TiltedDensities(TiltedPriors):
    """The same with another prior.

    Attributes
    ----------
    nodes, mass : ndarray of shape (n_weights, n_nodes)
        Nodes of the quadrature, and probabilities that sum to one.
    """

    nodes: FloatArray
    mass: FloatArray

    def log_density_change(self, prior: DensityPrior, step: FloatArray) -> FloatArray:
        """``E log p(w + step) − E log p(w)`` under the prior, (n_weights,)."""
        change = prior.log_density(self.nodes + step[:, None]) - prior.log_density(self.nodes)
        return np.einsum("jk,jk->j", self.mass, change)

    def _rule(self, n_levels: int) -> tuple[FloatArray, FloatArray]:
        return gauss_quadrature(
            (self.nodes - self.mean[:, None]) / np.sqrt(self.variance)[:, None], self.mass, n_levels
        )


@lru_cache
def hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the Gauss quadrature of the standard normal distribution."""
    nodes, weights = roots_hermitenorm(n_nodes)
    return nodes, weights / weights.sum()


def gauss_quadrature(points: FloatArray, mass: FloatArray, n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights with the moments of discrete distributions up to order 2n − 1, (n_distributions, n_nodes) each.

    By Stieltjes' recurrence for the orthonormal polynomials, the eigenvalues of its tridiagonal matrix, and
    Christoffel's formula for the weights (Gautschi 2004, sections 2.2 and 3.1).

    `points`, `mass`, (n_distributions, n_points).
    """
    matrix = np.zeros((len(points), n_nodes, n_nodes))
    diagonal, below = np.einsum("jkk->jk", matrix), np.einsum("jkk->jk", matrix[:, 1:, :-1])
    previous, polynomial = np.zeros_like(points), np.sqrt(mass)  # at the points, times √mass
    for k in range(n_nodes):
        diagonal[:, k] = np.einsum("jk,jk,jk->j", polynomial, polynomial, points)
        if k < n_nodes - 1:
            rest = (points - diagonal[:, k, None]) * polynomial - below[:, k - 1, None] * previous
            below[:, k] = np.sqrt(np.einsum("jk,jk->j", rest, rest))
            previous, polynomial = polynomial, rest / below[:, k, None]
    nodes = np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)
    previous, polynomial = np.zeros_like(nodes), np.ones_like(nodes)
    squares = np.ones_like(nodes)
    for k in range(n_nodes - 1):
        rest = (nodes - diagonal[:, k, None]) * polynomial - below[:, k - 1, None] * previous
        previous, polynomial = polynomial, rest / below[:, k, None]
        squares += polynomial**2
    weights = 1 / squares
    return nodes, weights / weights.sum(axis=1, keepdims=True)


def check_level_count(n_levels: int, prior: Prior) -> None:
    """Raise unless posteriors of weights of this prior can be put on a number of levels."""
    if as_level_count(n_levels) > MOST_LEVELS and not isinstance(prior, GaussianPrior):
        raise ValueError(f"n_levels must be at most {MOST_LEVELS} with a prior that is not Gaussian, got {n_levels}")


def tilt(
    prior: DensityPrior, centre: FloatArray, precision: FloatArray, near: TiltedPriors | None = None
) -> TiltedPriors:
    """Return the posteriors of weights under the likelihoods ``exp(−½ a (w − m)²)``.

    Parameters
    ----------
    prior : DensityPrior
        Of every weight; its density need not be normalised.
    centre, precision : ndarray of shape (n_weights,)
        m, and a > 0.
    near : TiltedPriors, optional
        Posteriors of the same weights at other precisions, about which panels are placed.
    """
    prior_variance = prior.variance
    spread = 1 / (precision + 1 / prior_variance)
    shrinkage = spread / prior_variance
    mean = (1 - shrinkage) * centre
    if isinstance(prior, GaussianPrior):
        log_evidence = 0.5 * np.log(shrinkage) - 0.5 * precision * shrinkage * centre**2
        return TiltedPriors(centre, precision, mean, spread, log_evidence)
    scale, sd = np.sqrt(prior_variance), np.sqrt(spread)
    if near is None:
        near = TiltedPriors(centre, precision, mean, spread, np.zeros_like(mean))
        for _ in range(PLACEMENTS - 1):
            near = _integrate(prior, scale, centre, precision, near, sd)
    found = _integrate(prior, scale, centre, precision, near, sd)
    zero, flat = np.zeros(1), np.full(1, 1e-20 / prior_variance)
    whole = _integrate(prior, scale, zero, flat, TiltedPriors(zero, flat, zero, scale**2 + zero, zero), scale + zero)
    return replace(found, log_evidence=found.log_evidence - whole.log_evidence)


def _integrate(
    prior: DensityPrior, scale: float, centre: FloatArray, precision: FloatArray, near: TiltedPriors, sd: FloatArray
) -> TiltedDensities:
    """Integrate by Gauss and Legendre on panels about zero, where a prior may have its kink, likelihood and posterior.

    `scale`: standard deviation of the prior. `near`: about the posterior. `sd`, (n_weights,): of the Gaussian prior's
    posterior; where a peak is narrower than half of it, a single node may dominate that is not the peak yet.
    """
    peaks = ((centre, precision**-0.5), (near.mean, np.maximum(np.sqrt(near.variance), 0.5 * sd)))
    edges = [np.tile(scale * ABOUT_ZERO, (len(centre), 1))]
    edges += [middle[:, None] + width[:, None] * ABOUT_PEAK for middle, width in peaks]
    edge = np.sort(np.hstack(edges), axis=1)
    half, middle = np.diff(edge) / 2, (edge[:, 1:] + edge[:, :-1]) / 2
    nodes = (middle[:, :, None] + half[:, :, None] * NODES).reshape(len(centre), half.shape[1] * len(NODES))
    width = (half[:, :, None] * NODE_WEIGHTS).reshape(nodes.shape)
    log_joint = prior.log_density(nodes) - 0.5 * precision[:, None] * (nodes - centre[:, None]) ** 2
    highest = log_joint.max(axis=1, keepdims=True)
    mass = width * np.exp(log_joint - highest)
    total = mass.sum(axis=1, keepdims=True)
    mass /= total
    mean = np.einsum("jk,jk->j", mass, nodes)
    variance = np.einsum("jk,jk->j", mass, (nodes - mean[:, None]) ** 2)
    return TiltedDensities(centre, precision, mean, variance, (highest + np.log(total))[:, 0], nodes, mass)
