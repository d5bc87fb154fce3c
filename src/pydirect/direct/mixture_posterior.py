"""A mixture of factorised posteriors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pydirect import _core
from pydirect._validation import FloatArray, as_count, as_generator, as_level_indices, short_repr
from pydirect.direct.mixture_entropy import log_table, sample_indices
from pydirect.distributions.categorical import FactorizedCategorical, WeightMarginals
from pydirect.distributions.noise import NoisePosterior
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.persistence.schema import LogMasses, Positive, Probabilities, Shape


@dataclass
class MixturePosterior(WeightMarginals, WithOutcome):
    """A fitted mixture of factorised posteriors, and a factorised posterior of the noise.

    Attributes
    ----------
    levels : ndarray of shape (n_weights or 1, n_levels)
    component_q : ndarray of shape (n_components, n_weights, n_levels)
        Probabilities of the weights in each component.
    alpha : ndarray of shape (n_components,)
        Weights of the components; positive, summing to one.
    noise : NoisePosterior
    log_prior : ndarray of shape (n_components or 1, n_weights or 1, n_levels)
        Under a mixture prior the effective one of each component, not normalised.
    entropy_lower, entropy_upper : float
        Bracket of the entropy of the weights, see `pairwise_entropy`.
    outcome : Outcome
        Its trace has the ELBO under the bound or estimate that each stage ascends; the last is exact, those before are
        of A in single precision, and may lie above it by as much as that rounds. With the stochastic entropy, which
        takes a fixed number of steps, it has converged when the pairwise fit before them has.
    """

    levels: Annotated[FloatArray, Shape("n_weights or 1", "n_levels")]
    component_q: Annotated[FloatArray, Shape("n_components", "n_weights", "n_levels"), Probabilities]
    alpha: Annotated[FloatArray, Shape("n_components"), Probabilities, Positive]
    noise: NoisePosterior
    log_prior: Annotated[FloatArray, Shape("n_components or 1", "n_weights or 1", "n_levels"), LogMasses]
    entropy_lower: float
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

    def expected_sparsity(self) -> float:
        """Return the expected fraction of exact zeros in a sample.

        Returns
        -------
        float
            Between 0 and 1.
        """
        return self.weights.expected_sparsity()

    def most_probable(self) -> NDArray[np.uint8]:
        """Level indices of the most probable of the components' most probable weight vectors, (n_weights,).

        Returns
        -------
        ndarray of uint8 of shape (n_weights,)
            Indices of levels.
        """
        modes = np.stack([c.most_probable() for c in self.components])
        return np.asarray(modes[self.log_mass(modes).argmax()])

    def log_mass(self, indices: NDArray[np.uint8]) -> FloatArray:
        """``log q(w)`` of weight vectors given as level indices, (n_samples, n_weights); (n_samples,).

        Parameters
        ----------
        indices : ndarray of uint8 of shape (n_samples, n_weights)
            Indices of levels.

        Returns
        -------
        ndarray of shape (n_samples,)
            In nats.

        Raises
        ------
        ValueError, TypeError
            When `indices` has another shape or type, or an index no level.
        """
        indices = as_level_indices(indices, "indices", *self.component_q.shape[1:])
        masses = _core.component_log_masses(indices, log_table(self.component_q), 1)
        return np.asarray(logsumexp(masses + np.log(self.alpha), axis=1))

    def in_units_of(self, unit: float) -> Self:
        """Return the same posterior with its levels divided by `unit`.

        Parameters
        ----------
        unit : float
            What the levels are divided by.

        Returns
        -------
        Self
            The posterior.
        """
        return replace(self, levels=self.levels / unit)

    def component_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* in every component for rows of Φ; (n_rows, n_components) each.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows, n_components) each.
        """
        means, variances = np.empty((2, self.n_components, len(phi)))
        for component, mean, variance in zip(self.components, means, variances, strict=True):
            _core.row_moments(phi, component.mean, component.variance, mean, variance, n_threads)
        return means.T, variances.T

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ, by the law of total variance; (n_rows,) each.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows,) each.
        """
        means, variances = self.component_moments(phi, n_threads)
        mean = means @ self.alpha
        return mean, (variances + (means - mean[:, None]) ** 2) @ self.alpha

    def latent_cumulant(self, phi: FloatArray, order: int) -> FloatArray:
        """Cumulants of f*, order 1 to 4, from the components' moments about the common mean; (n_rows,).

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        order : int
            Order of the cumulant, 1 to 4.

        Returns
        -------
        ndarray of shape (n_rows,)
            Cumulants.
        """
        cumulants = [np.stack([phi**k @ c.cumulant(k) for c in self.components]) for k in range(1, order + 1)]
        mean = self.alpha @ cumulants[0]
        if order == 1:
            return np.asarray(mean)
        d = cumulants[0] - mean
        second = self.alpha @ (cumulants[1] + d**2)
        if order == 2:
            return np.asarray(second)
        if order == 3:
            return np.asarray(self.alpha @ (cumulants[2] + 3 * d * cumulants[1] + d**3))
        fourth = cumulants[3] + 3 * cumulants[1] ** 2 + 4 * d * cumulants[2] + 6 * d**2 * cumulants[1] + d**4
        return np.asarray(self.alpha @ fourth - 3 * second**2)

    def sample_indices(
        self, n_samples: int, random_state: np.random.Generator | int | None = None
    ) -> NDArray[np.uint8]:
        """Draw level indices, (n_samples, n_weights), independently of each other.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        random_state : Generator or int, optional
            Source of the random numbers, or its seed.

        Returns
        -------
        ndarray of uint8 of shape (n_samples, n_weights)
            Indices of levels.
        """
        rng = as_generator(random_state)
        return sample_indices(self.alpha, self.component_q, as_count(n_samples, "n_samples"), rng)

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights).

        Parameters
        ----------
        n_samples : int
            Number of draws.
        rng : Generator
            Source of the random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_weights)
            Weights.
        """
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
