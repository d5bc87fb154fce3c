"""Priors that do not factorise: mixtures whose components all weights, or all weights of a group, share.

``p(w) = Π_g Σ_k π_k Π_{j in g} p_j^(k)(w_j)``. Inference sees it through a lower bound of ``E_q log p`` in which
responsibilities of the components make it an ordinary factorised prior (Evans & Nair 2018, Theorem 4, and beyond).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, softmax, xlogy

from pydirect import _core
from pydirect._validation import FloatArray, as_choice, as_float_array, as_level_indices, as_number
from pydirect.distributions.levels import as_levels
from pydirect.distributions.priors import GaussianPrior, Prior, SpikeAndSlabPrior, as_prior

PRIOR_BOUNDS = ("log_sum_exp", "jensen", "stochastic")


@dataclass(frozen=True)
class MixturePrior:
    """A mixture of factorised priors; the weights of a group come from the same component.

    Parameters
    ----------
    components : sequence of Prior
        Each gives any levels their log masses; all must allow the same levels.
    weights : array_like of shape (n_components,), optional
        Probabilities π of the components; equal by default.
    groups : array_like of int, shape (n_weights,), optional
        Weights with equal numbers choose a component together, groups independently of each other. One group of all
        weights by default. `DirectRegressor` with ``features="linear"`` also takes one number per column of X.
    bound : {"log_sum_exp", "jensen", "stochastic"}, default="log_sum_exp"
        Of ``E_q log p``. ``"jensen"``: ``Σ_k π_k Σ_j q_jᵀ log p_j^(k)`` (Theorem 4). ``"log_sum_exp"`` (default):
        ``log Σ_k π_k exp Σ_j q_jᵀ log p_j^(k)``, Jensen's inequality with the best responsibilities instead of π, hence
        never looser. ``"stochastic"``: unbiased gradients from samples, where the entropy is ``"stochastic"`` too and
        the posterior has several components; log-sum-exp elsewhere.

    Examples
    --------
    >>> prior = MixturePrior.of_scales([0.1, 1.0, 3.0])
    >>> prior.log_mass([-1.0, 0.0, 1.0]).round(3).tolist()
    [-1.607, -0.512, -1.607]
    """

    components: Sequence[Prior | str]
    weights: ArrayLike | None = None
    groups: ArrayLike | None = None
    bound: str = "log_sum_exp"

    def __post_init__(self) -> None:
        as_choice(self.bound, "bound", PRIOR_BOUNDS)
        if isinstance(self.components, str) or not isinstance(self.components, Sequence):
            raise TypeError(f"components must be a sequence of priors, got {self.components!r}")
        if len(self.components) == 0:
            raise ValueError("components must be at least one prior, got none")
        object.__setattr__(self, "components", tuple(as_prior(c) for c in self.components))
        if self.weights is not None:
            weights = as_float_array(self.weights, "weights", (len(self.components),))
            if (weights <= 0).any():
                raise ValueError(f"weights must be positive, got {weights.min()}")
            object.__setattr__(self, "weights", tuple(weights.tolist()))
        if self.groups is not None:
            if np.ndim(self.groups) != 1 or np.asarray(self.groups).dtype.kind not in "iu":
                raise ValueError("groups must be a vector of integers, one per weight")
            object.__setattr__(self, "groups", tuple(np.asarray(self.groups).tolist()))

    @classmethod
    def of_scales(
        cls, scales: ArrayLike, weights: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> MixturePrior:
        """Gaussian priors of several standard deviations: which one holds is inferred.

        Parameters
        ----------
        scales : array_like of shape (n_components,)
            Standard deviations.
        weights : array_like of shape (n_components,), optional
            As of `MixturePrior`.
        groups : array_like of int of shape (n_weights,), optional
            As of `MixturePrior`.
        """
        scales = as_float_array(scales, "scales", ("n_components",))
        if (scales <= 0).any():
            raise ValueError(f"scales must be positive, got {scales.min()}")
        return cls(tuple(GaussianPrior(float(s)) for s in scales), weights, groups)

    @classmethod
    def switched(
        cls,
        groups: ArrayLike | None = None,
        zero_probability: float = 0.5,
        slab: Prior | str = "gaussian",
        leak: float = 1e-3,
    ) -> MixturePrior:
        """Switch groups of weights on, to `slab`, or off together: a spike and a slab for each group.

        Parameters
        ----------
        groups : array_like of int, shape (n_weights,), optional
            One group of all weights by default.
        zero_probability : float in (0, 1), default=0.5
            That a group is off.
        slab : Prior, default="gaussian"
            Prior of a weight that is switched on.
        leak : float in (0, 1), default=1e-3
            Probability that a weight of a group that is off is not zero: with none, no step of inference could switch a
            group off.
        """
        zero = as_number(zero_probability, "zero_probability", above=0.0, below=1.0)
        slab = as_prior(slab)
        spike = SpikeAndSlabPrior(1.0 - as_number(leak, "leak", above=0.0, below=1.0), slab)
        return cls((spike, slab), (zero, 1.0 - zero), groups)

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log masses of one weight alone, the components mixed; normalised over the last axis.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.

        Returns
        -------
        ndarray of the shape of the levels
            In nats.
        """
        return _mixed(self._log_masses(levels), np.log(self._weights()))

    def table(self, levels: ArrayLike, n_weights: int) -> MixturePriorTable:
        """Return the prior on given levels of a given number of weights.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.
        n_weights : int
            Number of weights.

        Returns
        -------
        MixturePriorTable
            Log masses of the levels in every component.

        Raises
        ------
        ValueError
            When groups do not fit the weights or a component forbids a level that another allows.
        """
        levels = as_levels(levels, n_weights)
        log_masses = self._log_masses(levels)
        if (np.isfinite(log_masses) != np.isfinite(log_masses[0])).any():
            raise ValueError(
                "components must allow the same levels: a component that forbids one could never be chosen"
            )
        groups = np.zeros(n_weights, dtype=np.intp)
        if self.groups is not None:
            if np.shape(self.groups) != (n_weights,):
                raise ValueError(
                    f"groups must have one number per weight, {n_weights}, got shape {np.shape(self.groups)}"
                )
            groups = np.unique(self.groups, return_inverse=True)[1].astype(np.intp)
        return MixturePriorTable(log_masses, np.log(self._weights()), groups, self.bound)

    def _log_masses(self, levels: ArrayLike) -> FloatArray:
        rows = [as_prior(c).log_mass(levels) for c in self.components]
        return np.stack(np.broadcast_arrays(*rows, np.asarray(levels))[:-1])

    def _weights(self) -> FloatArray:
        k = len(self.components)
        if self.weights is None:
            return np.full(k, 1.0 / k)
        weights = np.asarray(self.weights, dtype=np.float64)
        return weights / weights.sum()


def _mixed(log_masses: FloatArray, log_weights: FloatArray) -> FloatArray:
    """Log masses of a mixture of components along the first axis."""
    columns = log_weights.reshape(-1, *(1,) * (log_masses.ndim - 1))
    return np.asarray(logsumexp(log_masses + columns, axis=0))


@dataclass(frozen=True)
class MixturePriorTable:
    """A mixture prior on the levels of a problem.

    - `log_masses`, (n_components, n_weights or 1, n_levels).
    - `log_weights`, (n_components,).
    - `groups`, (n_weights,): numbers from 0 to n_groups - 1.
    """

    log_masses: FloatArray
    log_weights: FloatArray
    groups: NDArray[np.intp]
    bound: str

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.groups.max()) + 1

    @property
    def marginal(self) -> FloatArray:
        """Log masses of every weight alone, (n_weights or 1, n_levels)."""
        return _mixed(self.log_masses, self.log_weights)

    def scores(self, q: FloatArray) -> FloatArray:
        """``Σ_{j in g} q_jᵀ log p_j^(k)`` for q (n_weights, n_levels); (n_groups, n_components)."""
        shape = (len(self.log_masses), *q.shape)
        finite = np.where(q > 0, np.broadcast_to(self.log_masses, shape), 0.0)  # 0 · log 0 = 0
        scores = np.zeros((self.n_groups, shape[0]))
        np.add.at(scores, self.groups, np.einsum("jl,kjl->jk", q, finite))
        return scores

    def responsibilities(self, q: FloatArray) -> FloatArray:
        """Weights of the components in the bound, (n_groups, n_components): their posterior, or π for Jensen's."""
        if self.bound == "jensen":
            return np.tile(np.exp(self.log_weights), (self.n_groups, 1))
        return np.asarray(softmax(self.log_weights + self.scores(q), axis=1))

    def effective(self, responsibilities: FloatArray) -> FloatArray:
        """``Σ_k ρ_gk log p_j^(k)``: log masses, not normalised, of a factorised prior; (n_weights, n_levels)."""
        rho = responsibilities[self.groups]
        finite = np.where(np.isfinite(self.log_masses), self.log_masses, 0.0)
        mixed = np.einsum("jk,kjl->jl", rho, np.broadcast_to(finite, (rho.shape[1], len(rho), finite.shape[2])))
        return np.where(np.isfinite(self.log_masses[0]), mixed, -np.inf)

    def offset(self, responsibilities: FloatArray) -> float:
        """``Σ_g Σ_k ρ_gk log (π_k / ρ_gk)``: what the bound has beside the expectation of `effective`."""
        return float((responsibilities * self.log_weights).sum() - xlogy(responsibilities, responsibilities).sum())

    def expectation(self, q: FloatArray) -> float:
        """Bound of ``E_q log p`` for a factorised q, (n_weights, n_levels)."""
        scores = self.scores(q)
        if self.bound == "jensen":
            return float((scores @ np.exp(self.log_weights)).sum())
        return float(logsumexp(self.log_weights + scores, axis=1).sum())

    def log_mass_of(self, indices: NDArray[np.uint8], n_threads: int = 1) -> FloatArray:
        """``log p(w)``, exactly, of weight vectors given as level indices (n_samples, n_weights); (n_samples,).

        Raises ValueError, TypeError when `indices` has another shape or type, or an index no level.
        """
        k, _, m = self.log_masses.shape
        indices = as_level_indices(indices, "indices", len(self.groups), m)
        table = np.broadcast_to(self.log_masses, (k, len(self.groups), m)).transpose(1, 2, 0)
        total = np.zeros(len(indices))
        for group in range(self.n_groups):
            members = np.flatnonzero(self.groups == group)
            chosen, masses = np.ascontiguousarray(indices[:, members]), np.ascontiguousarray(table[members])
            sums = _core.component_log_masses(chosen, masses, n_threads)
            total += logsumexp(sums + self.log_weights, axis=1)
        return total
