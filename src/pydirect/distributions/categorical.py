"""Independent categorical distributions of weights over their levels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from pydirect import _random
from pydirect._validation import FloatArray, as_count, as_float_array_unbounded, as_generator, short_repr
from pydirect.distributions.levels import as_levels


@dataclass(frozen=True)
class FactorizedCategorical:
    """Independent weights on discrete levels, ``q(w) = prod_j q_j(w_j)``.

    Parameters
    ----------
    levels : ndarray of shape (n_weights, n_levels) or (1, n_levels)
        Support; one row is shared by all weights.
    q : ndarray of shape (n_weights, n_levels)
        Probabilities, rows sum to one.
    """

    levels: FloatArray
    q: FloatArray

    __repr__ = short_repr

    @classmethod
    def from_logits(cls, levels: ArrayLike, logits: ArrayLike) -> FactorizedCategorical:
        """Build from free parameters: ``q_j = softmax(logits_j)``.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.
        logits : array_like of shape (n_weights, n_levels)
            Finite or -inf (probability zero), not all -inf in a row.
        """
        logits = as_float_array_unbounded(logits, "logits", ("n_weights", "n_levels"))
        if np.isnan(logits).any() or (logits == np.inf).any() or not (logits.max(axis=1) > -np.inf).all():
            raise ValueError("logits must be finite or -inf with at least one finite entry per weight")
        levels = as_levels(levels, logits.shape[0])
        if levels.shape[1] != logits.shape[1]:
            raise ValueError(f"logits must have {levels.shape[1]} columns, one per level, got {logits.shape[1]}")
        q = np.exp(logits - logits.max(axis=1, keepdims=True))
        return cls(levels, q / q.sum(axis=1, keepdims=True))

    @property
    def n_weights(self) -> int:
        """Number of weights b."""
        return self.q.shape[0]

    @property
    def n_levels(self) -> int:
        """Number of values that a weight can take."""
        return self.q.shape[1]

    @property
    def logits(self) -> FloatArray:
        """Log probabilities, one choice of the free parameters; (n_weights, n_levels)."""
        with np.errstate(divide="ignore"):
            return np.log(self.q)

    @cached_property
    def mean(self) -> FloatArray:
        """``s_j = E w_j``, (n_weights,)."""
        return np.einsum("jk,jk->j", self.q, np.broadcast_to(self.levels, self.q.shape))

    @cached_property
    def variance(self) -> FloatArray:
        """``E (w_j - s_j)²``, (n_weights,): a sum of squares, never negative."""
        return self.central_moment(2)

    @property
    def std(self) -> FloatArray:
        """Standard deviations, (n_weights,)."""
        return np.sqrt(self.variance)

    @property
    def second_moment(self) -> FloatArray:
        """``v_j = E w_j²``, (n_weights,)."""
        return np.einsum("jk,jk->j", self.q, np.broadcast_to(self.levels, self.q.shape) ** 2)

    def central_moment(self, order: int) -> FloatArray:
        """``E (w_j - s_j)^order``, (n_weights,).

        Parameters
        ----------
        order : int
            Order of the moment.

        Returns
        -------
        ndarray of shape (n_weights,)
            Central moments.
        """
        return np.einsum("jk,jk->j", self.q, (self.levels - self.mean[:, None]) ** order)

    def cumulant(self, order: int) -> FloatArray:
        """Cumulants of order 1 to 4, (n_weights,); those of a sum of independent weights add.

        Parameters
        ----------
        order : int
            Order of the cumulant.

        Returns
        -------
        ndarray of shape (n_weights,)
            Cumulants.
        """
        if order == 1:
            return self.mean
        if order in (2, 3):
            return self.central_moment(order)
        if order == 4:
            return self.central_moment(4) - 3 * self.variance**2
        raise ValueError(f"order must be 1, 2, 3 or 4, got {order}")

    def entropy(self) -> float:
        """``-sum_j q_jᵀ log q_j`` in nats.

        Returns
        -------
        float
            Entropy.
        """
        return -float(xlogy(self.q, self.q).sum())

    def kl(self, log_prior: ArrayLike) -> float:
        """``KL(q || p)`` in nats for a prior given as log masses of the levels.

        Parameters
        ----------
        log_prior : array_like of shape (n_weights or 1, n_levels)
            Log masses of the prior on the levels.

        Returns
        -------
        float
            Divergence.
        """
        log_p = np.broadcast_to(np.asarray(log_prior, dtype=np.float64), self.q.shape)
        used = self.q > 0
        return float((xlogy(self.q, self.q)[used] - self.q[used] * log_p[used]).sum())

    def expected_sparsity(self) -> float:
        """Return the expected fraction of exact zeros in a sample, ``mean_j q_j(w = 0)``.

        Returns
        -------
        float
            Between 0 and 1.
        """
        return float((self.q * (self.levels == 0.0)).sum(axis=1).mean())

    def most_probable(self) -> NDArray[np.uint8]:
        """Return the indices of the most probable levels, (n_weights,).

        Returns
        -------
        ndarray of uint8 of shape (n_weights,)
            Indices of levels.
        """
        return self.q.argmax(axis=1).astype(np.uint8)

    def sample_indices(
        self, n_samples: int, random_state: np.random.Generator | int | None = None
    ) -> NDArray[np.uint8]:
        """Draw level indices, (n_samples, n_weights) uint8; the same for any number of threads.

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
        generator = as_generator(random_state)
        out = np.empty((as_count(n_samples, "n_samples"), self.n_weights), dtype=np.uint8)
        cumulative = np.cumsum(self.q, axis=1)
        cumulative /= cumulative[:, -1:]
        _random.sample_levels(generator.bit_generator, cumulative, out)
        return out

    def values(self, indices: NDArray[np.uint8]) -> FloatArray:
        """Weights of level indices (..., n_weights).

        Parameters
        ----------
        indices : ndarray of uint8 of shape (..., n_weights)
            Indices of levels.

        Returns
        -------
        ndarray of shape (..., n_weights)
            Weights.
        """
        if self.levels.shape[0] == 1:
            return self.levels[0][indices]
        return self.levels[np.arange(self.n_weights), indices]

    def sample(self, n_samples: int, random_state: np.random.Generator | int | None = None) -> FloatArray:
        """Draw weights, (n_samples, n_weights).

        Parameters
        ----------
        n_samples : int
            Number of draws.
        random_state : Generator or int, optional
            Source of the random numbers, or its seed.

        Returns
        -------
        ndarray of shape (n_samples, n_weights)
            Weights.
        """
        return self.values(self.sample_indices(n_samples, random_state))
