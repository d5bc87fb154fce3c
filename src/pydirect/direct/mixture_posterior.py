"""A mixture of factorised posteriors, and bounds on its entropy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, logsumexp, rel_entr

from pydirect import _core
from pydirect._dense import product
from pydirect._validation import (
    FloatArray,
    RandomState,
    as_count,
    as_float_array,
    as_generator,
    as_level_indices,
    short_repr,
)
from pydirect.distributions.categorical import FactorizedCategorical, WeightMarginals
from pydirect.distributions.noise import NoisePosterior
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.persistence.schema import LogMasses, Positive, Probabilities, Shape

ENTROPIES = ("pairwise", "taylor")
# What a component keeps of its weight where it has none left: it may come back.
SMALLEST_ALPHA = 1e-300
SMALLEST_MASS = 1e-12


def pairwise_entropy(alpha: ArrayLike, q: ArrayLike) -> tuple[float, float]:
    """Lower and upper bound of the entropy of a mixture, from distances between its components.

    ``Σ_i α_i H(q_i) − Σ_i α_i log Σ_k α_k exp(−D(i, k))``, a lower bound with the Bhattacharyya distance for D and an
    upper one with the Kullback-Leibler divergence; both exact for one component and for components that share no
    weight vector (Kolchinsky & Tracey, Estimating mixture entropy with pairwise distances, Entropy 19(7), 2017).

    Parameters
    ----------
    alpha : array_like of shape (n_components,)
        Weights of the components.
    q : array_like of shape (n_components, n_weights, n_levels)
        Probabilities of the levels, component by component.

    Returns
    -------
    lower, upper : float
        In nats.

    Examples
    --------
    >>> lower, upper = pairwise_entropy([0.5, 0.5], [[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> round(float(lower / np.log(2)), 12), round(float(upper / np.log(2)), 12)
    (1.0, 1.0)
    """
    q = as_float_array(q, "q", ("n_components", "n_weights", "n_levels"))
    alpha = as_float_array(alpha, "alpha", q.shape[:1])
    used = alpha > 0
    alpha, q = alpha[used], q[used]
    own, root = entr(q).sum(axis=(1, 2)), np.sqrt(q)
    with np.errstate(divide="ignore"):
        log_overlap = np.log(np.einsum("ijw,kjw->ikj", root, root)).sum(axis=2)
    np.fill_diagonal(log_overlap, 0.0)
    divergence = np.stack([rel_entr(component, q).sum(axis=(1, 2)) for component in q])
    lower, upper = (
        float(alpha @ own - alpha @ logsumexp(np.log(alpha) + similarity, axis=1))
        for similarity in (log_overlap, -divergence)
    )
    return lower, upper


def taylor_entropy(
    alpha: FloatArray, q: FloatArray, log_centre: FloatArray
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Lower bound of the entropy of a mixture from ``log q ≤ log a + q/a − 1`` about ``a = ⊗_j a_j`` (Theorem 3).

    `alpha`, (n_components,). `q`, (n_components, n_weights, n_levels). `log_centre`, (n_weights, n_levels): log a; a
    need not be normalised. Returns `value`; `gradient_alpha`, `gradient_q`, `gradient_log_centre`: of all entries as if
    they were free.
    """
    over = q * np.exp(-log_centre)
    factors = np.maximum(np.einsum("ijw,kjw->ikj", q, over), 1e-300)
    log_factors = np.log(factors)
    # Beyond exp(300) the bound is of no use: it must only stay finite.
    pairs = np.exp(np.minimum(log_factors.sum(axis=2), 300.0))
    log_a = np.einsum("ijw,jw->i", q, log_centre)
    value = float(1.0 - alpha @ log_a - alpha @ pairs @ alpha)
    without = alpha[:, None, None] * alpha[:, None] * pairs[:, :, None] / factors  # (i, k, j)
    pull = np.einsum("ikj,kjw->ijw", without, over)
    gradient_q = -alpha[:, None, None] * log_centre - 2.0 * pull
    gradient_centre = np.einsum("ijw,ijw->jw", pull, q) - np.einsum("i,ijw->jw", alpha, q)
    return value, -log_a - 2.0 * pairs @ alpha, gradient_q, gradient_centre


def log_table(q: FloatArray) -> FloatArray:
    """Return log q as the compiled samplers want it, (n_weights, n_levels, n_components)."""
    with np.errstate(divide="ignore"):
        return np.ascontiguousarray(np.log(q).transpose(1, 2, 0))


@dataclass
class MixturePosterior(WeightMarginals, WithOutcome):
    """A fitted mixture of factorised posteriors, and a factorised posterior of the noise.

    The trace of the ELBO is under the bound or estimate that each stage ascends; the last is exact, those before are of
    A in single precision, and may lie above it by as much as that rounds.
    """

    levels: Annotated[FloatArray, Shape("n_weights or 1", "n_levels")]
    component_q: Annotated[FloatArray, Shape("n_components", "n_weights", "n_levels"), Probabilities]
    alpha: Annotated[FloatArray, Shape("n_components"), Probabilities, Positive]  # weights of the components
    noise: NoisePosterior
    # Under a mixture prior the effective one of each component, not normalised.
    log_prior: Annotated[FloatArray, Shape("n_components or 1", "n_weights or 1", "n_levels"), LogMasses]
    entropy_lower: float  # bracket of the entropy of the weights, see `pairwise_entropy`
    entropy_upper: float
    outcome: Outcome

    __repr__ = short_repr

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.alpha)

    @cached_property
    def components(self) -> list[FactorizedCategorical]:
        """The components' weights."""
        return [FactorizedCategorical(self.levels, q) for q in self.component_q]

    @cached_property
    def weights(self) -> FactorizedCategorical:
        """Marginal distributions of the weights: the factorised posterior with the same marginal probabilities."""
        return FactorizedCategorical(self.levels, np.einsum("i,ijk->jk", self.alpha, self.component_q))

    @property
    def entropy_bracket(self) -> tuple[float, float]:
        """Lower and upper bound of the entropy of the weights, in nats."""
        return self.entropy_lower, self.entropy_upper

    def most_probable(self) -> NDArray[np.uint8]:
        """Level indices of the most probable of the components' most probable weight vectors, (n_weights,)."""
        modes = np.stack([c.most_probable() for c in self.components])
        return np.asarray(modes[self.log_mass(modes).argmax()])

    def log_mass(self, indices: NDArray[np.uint8]) -> FloatArray:
        """``log q(w)`` of weight vectors given as level indices, (n_samples, n_weights); (n_samples,)."""
        indices = as_level_indices(indices, "indices", *self.component_q.shape[1:])
        masses = _core.component_log_masses(indices, log_table(self.component_q), 1)
        return np.asarray(logsumexp(masses + np.log(self.alpha), axis=1))

    def in_units_of(self, unit: float) -> Self:
        """Return the same posterior with its levels divided by `unit`."""
        return replace(self, levels=self.levels / unit)

    def component_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* in every component for rows of Φ; (n_rows, n_components) each."""
        means, variances = np.empty((2, self.n_components, len(phi)))
        for component, mean, variance in zip(self.components, means, variances, strict=True):
            _core.row_moments(phi, component.mean, component.variance, mean, variance, n_threads)
        return means.T, variances.T

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ, by the law of total variance; (n_rows,) each."""
        means, variances = self.component_moments(phi, n_threads)
        mean = product(means, self.alpha)
        return mean, product(variances + (means - mean[:, None]) ** 2, self.alpha)

    def latent_cumulant(self, phi: FloatArray, order: int) -> FloatArray:
        """Cumulants of f*, order 1 to 4, from the components' moments about the common mean; (n_rows,)."""
        if order > 4:
            raise ValueError(f"order must be 1, 2, 3 or 4, got {order}")
        k1, k2, k3, k4 = (
            np.stack([product(phi**kind, c.cumulant(kind)) for c in self.components], axis=1) for kind in range(1, 5)
        )
        mean = product(k1, self.alpha)
        d = k1 - mean[:, None]
        second = product(k2 + d**2, self.alpha)
        third = product(k3 + 3 * d * k2 + d**3, self.alpha)
        fourth = product(k4 + 3 * k2**2 + 4 * d * k3 + 6 * d**2 * k2 + d**4, self.alpha)
        return (mean, second, third, fourth - 3 * second**2)[order - 1]

    def sample_indices(self, n_samples: int, random_state: RandomState = None) -> NDArray[np.uint8]:
        """Draw level indices, (n_samples, n_weights), independently of each other."""
        rng, n = as_generator(random_state), as_count(n_samples, "n_samples")
        counts = rng.multinomial(n, self.alpha / self.alpha.sum())
        drawn = [c.sample_indices(int(k), rng) for c, k in zip(self.components, counts, strict=True) if k]
        return np.ascontiguousarray(np.concatenate(drawn)[rng.permutation(n)])

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights)."""
        return self.components[0].values(self.sample_indices(n_samples, rng))

    def check(self) -> None:
        """Raise unless the bounds of the entropy are in order."""
        if self.entropy_lower > self.entropy_upper:
            raise ValueError("entropy_lower must be at most entropy_upper")


def as_component_count(n_components: int) -> int:
    """Validate a number of components: 1 to 64."""
    if as_count(n_components, "n_components") > _core.MOST_COMPONENTS:
        raise ValueError(f"n_components must be at most {_core.MOST_COMPONENTS}, got {n_components}")
    return int(n_components)
