"""Independent categorical distributions of weights over their levels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import roots_hermitenorm, xlogy

from pydirect import _core, _random
from pydirect._validation import (
    FloatArray,
    RandomState,
    as_count,
    as_float_array,
    as_generator,
    as_log_masses,
    as_number,
    short_repr,
)
from pydirect.persistence.schema import Probabilities, Shape


def evenly_spaced_levels(n_levels: int, reach: float = 3.0) -> FloatArray:
    """Levels from ``-reach`` to ``reach``; an odd number of them has zero among them.

    Parameters
    ----------
    n_levels : int
        At least 2, at most 256.
    reach : float, default=3.0
        Largest level; 3 standard deviations of the prior in the paper (section 5.2).

    Returns
    -------
    ndarray of shape (n_levels,)
        Levels in ascending order.

    Examples
    --------
    >>> from pydirect import evenly_spaced_levels
    >>> evenly_spaced_levels(5, reach=2.0).tolist()
    [-2.0, -1.0, 0.0, 1.0, 2.0]
    """
    n_levels = as_level_count(n_levels)
    reach = as_number(reach, "reach", above=0.0)
    levels = np.linspace(-reach, reach, n_levels)
    return (levels - levels[::-1]) / 2  # exactly symmetric, hence exactly zero in the middle


def shared_levels(levels: ArrayLike | None, n_levels: int, n_weights: int) -> FloatArray:
    """Return the levels that an estimator is given, by default evenly spaced ones."""
    return as_levels(evenly_spaced_levels(n_levels) if levels is None else levels, n_weights)


@lru_cache
def gauss_hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the Gauss quadrature of the standard normal distribution, (n_nodes,) each."""
    nodes, weights = roots_hermitenorm(n_nodes)
    return nodes, weights / weights.sum()


def as_level_count(n_levels: int) -> int:
    """Validate a number of levels: 2 to 256, so that an index fits into a byte."""
    if as_count(n_levels, "n_levels", 2) > 256:
        raise ValueError(f"n_levels must be at most 256, got {n_levels}")
    return int(n_levels)


def as_levels(levels: ArrayLike, n_weights: int | None = None) -> FloatArray:
    """Validate levels, shared (n_levels,), (1, n_levels) or per weight (n_weights, n_levels); returned as a matrix."""
    raw = np.asarray(levels)
    rows: int | str = 1 if raw.ndim == 1 or raw.shape[:-1] == (1,) else (n_weights or "n_weights")
    array = as_float_array(raw[None, :] if raw.ndim == 1 else raw, "levels", (rows, "n_levels"))
    if not 1 <= array.shape[1] <= 256:
        raise ValueError(f"levels must be 1 to 256 per weight, got {array.shape[1]}")
    return array


def padded(table: FloatArray, value: float = 0.0) -> FloatArray:
    """Pad the last axis, that of levels, to the kernels' width."""
    width = [(0, 0)] * (table.ndim - 1) + [(0, -table.shape[-1] % _core.LEVEL_PADDING)]
    return np.ascontiguousarray(np.pad(table, width, constant_values=value))


def pad_levels(levels: FloatArray, log_prior: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pad tables to the kernels' width: extra levels have prior mass zero."""
    return padded(levels), padded(log_prior, -np.inf)


@dataclass(frozen=True)
class FactorizedCategorical:
    """Independent weights on discrete levels, ``q(w) = prod_j q_j(w_j)``."""

    levels: Annotated[FloatArray, Shape("n_factors* or 1", "n_levels")]  # one row is shared by all weights
    q: Annotated[FloatArray, Shape("n_factors*", "n_levels"), Probabilities]

    __repr__ = short_repr

    @classmethod
    def of_gaussians(cls, mean: FloatArray, std: FloatArray, n_levels: int) -> FactorizedCategorical:
        """Return Gauss–Hermite levels, with the moments up to order 2 n_levels − 1 of Gaussians; (n_weights,) each."""
        nodes, q = gauss_hermite(n_levels)
        return cls(mean[:, None] + std[:, None] * nodes, np.tile(q, (len(mean), 1)))

    @classmethod
    def from_logits(cls, levels: ArrayLike, logits: ArrayLike) -> FactorizedCategorical:
        """Build from free parameters: ``q_j = softmax(logits_j)``."""
        logits = as_log_masses(logits, "logits", ("n_weights", "n_levels"))
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
        """``E (w_j - s_j)^order``, (n_weights,)."""
        return np.einsum("jk,jk->j", self.q, (self.levels - self.mean[:, None]) ** order)

    def cumulant(self, order: int) -> FloatArray:
        """Cumulants of order 1 to 4, (n_weights,); those of a sum of independent weights add."""
        if order == 1:
            return self.mean
        if order in (2, 3):
            return self.central_moment(order)
        if order == 4:
            return self.central_moment(4) - 3 * self.variance**2
        raise ValueError(f"order must be 1, 2, 3 or 4, got {order}")

    def kl(self, log_prior: ArrayLike) -> float:
        """``KL(q || p)`` in nats for a prior given as log masses of the levels."""
        log_p = np.broadcast_to(np.asarray(log_prior, dtype=np.float64), self.q.shape)
        used = self.q > 0
        return float((xlogy(self.q, self.q)[used] - self.q[used] * log_p[used]).sum())

    def most_probable(self) -> NDArray[np.uint8]:
        """Return the indices of the most probable levels, (n_weights,)."""
        return self.q.argmax(axis=1).astype(np.uint8)

    def sample_indices(self, n_samples: int, random_state: RandomState = None) -> NDArray[np.uint8]:
        """Draw level indices, (n_samples, n_weights) uint8; the same for any number of threads."""
        generator = as_generator(random_state)
        out = np.empty((as_count(n_samples, "n_samples"), self.n_weights), dtype=np.uint8)
        cumulative = np.cumsum(self.q, axis=1)
        cumulative /= cumulative[:, -1:]
        _random.sample_levels(generator.bit_generator, cumulative, out)
        return out

    def values(self, indices: NDArray[np.uint8]) -> FloatArray:
        """Weights of level indices (..., n_weights)."""
        if self.levels.shape[0] == 1:
            return self.levels[0][indices]
        return self.levels[np.arange(self.n_weights), indices]

    def sample(self, n_samples: int, random_state: RandomState = None) -> FloatArray:
        """Draw weights, (n_samples, n_weights)."""
        return self.values(self.sample_indices(n_samples, random_state))


class WeightMarginals:
    """Marginal moments and probabilities of the weights of a posterior, from `weights`."""

    if TYPE_CHECKING:

        @property
        def weights(self) -> FactorizedCategorical:
            """Marginal distributions of the weights; subclasses provide it."""
            ...

    @property
    def sparsity(self) -> float:
        """Expected fraction of weights that are exactly zero."""
        return float((self.q * (self.weights.levels == 0.0)).sum(axis=1).mean()) if self.q.size else 0.0

    q = property(attrgetter("weights.q"), doc="Marginal probabilities, (n_weights, n_levels).")
    mean = property(attrgetter("weights.mean"), doc="Posterior means of the weights, (n_weights,).")
    variance = property(attrgetter("weights.variance"), doc="Posterior variances of the weights, (n_weights,).")
    std = property(attrgetter("weights.std"), doc="Posterior standard deviations of the weights, (n_weights,).")
    coefficients = property(attrgetter("mean"), doc="Posterior mean of the weights of Φ, (n_weights,).")
