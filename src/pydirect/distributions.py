"""Discrete weights: levels, priors on them, and factorised categorical distributions.

Notation of Evans & Nair (2018): weight j takes one of ``n_levels`` values ``levels[j]`` with probability ``q[j]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp, xlogy

from pydirect import _core, _random
from pydirect._validation import FloatArray, as_count, as_float_array, as_float_array_unbounded, as_generator, as_number


def evenly_spaced_levels(n_levels: int, reach: float = 3.0) -> FloatArray:
    """Levels from ``-reach`` to ``reach``; an odd number of them has zero among them.

    Parameters
    ----------
    n_levels : int
        At least 2, at most 256.
    reach : float
        Largest level; 3 standard deviations of the prior in the paper (section 5.2).

    Returns
    -------
    ndarray of shape (n_levels,)
    """
    n_levels = as_level_count(n_levels)
    reach = as_number(reach, "reach", above=0.0)
    levels = np.linspace(-reach, reach, n_levels)
    return (levels - levels[::-1]) / 2  # exactly symmetric, hence exactly zero in the middle


def power_of_two_levels(n_levels: int, reach: float = 3.0) -> FloatArray:
    """Levels 0 and ± powers of two times one number, up to `reach`: a product with one is a shift.

    Parameters
    ----------
    n_levels : int
        Odd, at least 3, at most 61.
    reach : float
        Largest level.

    Returns
    -------
    ndarray of shape (n_levels,)
        Ascending.
    """
    if as_level_count(n_levels) % 2 == 0 or n_levels > 61:
        raise ValueError(f"n_levels must be odd and at most 61 for powers of two, got {n_levels}")
    reach = as_number(reach, "reach", above=0.0)
    positive = np.ldexp(reach, np.arange(-(n_levels // 2) + 1, 1))
    return np.concatenate([-positive[::-1], [0.0], positive])


LEVEL_SHAPES = {"even": evenly_spaced_levels, "power_of_two": power_of_two_levels}


def shared_levels(levels: ArrayLike | str | None, n_levels: int, n_weights: int) -> FloatArray:
    """Return the levels that an estimator is given: by name, as they are, or None for evenly spaced ones."""
    if levels is None or isinstance(levels, str):
        levels = LEVEL_SHAPES["even" if levels is None else levels](n_levels)
    return as_levels(levels, n_weights)


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
        raise ValueError(f"levels must be 1 to 256 a weight, got {array.shape[1]}")
    return array


class Prior(Protocol):
    """A prior on one weight, given by its density, or by its mass where it has atoms."""

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis."""
        ...  # pragma: no cover


def _finite_variance(variance: float, converged: bool = True) -> float:
    if not (converged and 0.0 < variance < np.inf):
        raise ValueError(f"prior must have a finite, positive variance for this use, got {variance}")
    return variance


class DensityPrior:
    """A prior with a density: the mass of a level is proportional to the density there.

    Subclass with a method ``log_density(w)`` to make one of your own.
    """

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise."""
        raise NotImplementedError

    @property
    def variance(self) -> float:
        """Variance, by quadrature over many orders of magnitude unless a subclass knows it.

        Raises
        ------
        ValueError
            When it is not finite and positive.
        """
        half = np.exp(np.linspace(-40.0, 40.0, 20_001))
        w = np.concatenate([-half[::-1], half])
        with np.errstate(under="ignore"):
            mass = np.exp(self.log_density(w)) * np.abs(w)  # dw = |w| d log|w|
            variance = float(mass @ w**2 / mass.sum() - (mass @ w / mass.sum()) ** 2)
        return _finite_variance(variance, mass[0] * w[0] ** 2 + mass[-1] * w[-1] ** 2 < 1e-6 * variance * mass.sum())

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)

        Returns
        -------
        ndarray of the same shape
        """
        log_p = self.log_density(np.asarray(levels, dtype=np.float64))
        return log_p - logsumexp(log_p, axis=-1, keepdims=True)


@dataclass(frozen=True)
class GaussianPrior(DensityPrior):
    """The Gaussian prior of standard deviation `scale`, the paper's choice."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        """Variance of a weight."""
        return self.scale**2

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise."""
        return -0.5 * (w / self.scale) ** 2 - np.log(self.scale) - 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class LaplacePrior(DensityPrior):
    """The Laplace prior of standard deviation `scale` (diversity ``scale / sqrt(2)``)."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        """Variance of a weight."""
        return self.scale**2

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise."""
        diversity = self.scale / np.sqrt(2)
        return -np.abs(w) / diversity - np.log(2 * diversity)


@dataclass(frozen=True)
class StudentTPrior(DensityPrior):
    """Student's t prior with the given degrees of freedom and scale parameter."""

    degrees_of_freedom: float = 3.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.degrees_of_freedom, "degrees_of_freedom", above=0.0)
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        """Variance of a weight."""
        return _finite_variance(self.scale**2 * nu / (nu - 2) if (nu := self.degrees_of_freedom) > 2 else np.inf)

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise."""
        nu = self.degrees_of_freedom
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi) - np.log(self.scale)
        return constant - (nu + 1) / 2 * np.log1p((w / self.scale) ** 2 / nu)


@dataclass(frozen=True)
class SpikeAndSlabPrior:
    """Zero with probability `zero_probability`, else the slab restricted to the levels that are not zero.

    Parameters
    ----------
    zero_probability : float in (0, 1)
    slab : Prior, default=GaussianPrior()
        Prior of the weights that are not zero.
    """

    zero_probability: float = 0.9
    slab: Prior = GaussianPrior()

    def __post_init__(self) -> None:
        as_number(self.zero_probability, "zero_probability", above=0.0, below=1.0)

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis; every weight needs a level at zero."""
        levels = np.asarray(levels, dtype=np.float64)
        zero = levels == 0.0
        if not zero.any(axis=-1).all():
            raise ValueError("levels must contain zero for a spike-and-slab prior")
        slab = np.where(zero, -np.inf, self.slab.log_mass(levels))
        slab = slab - logsumexp(slab, axis=-1, keepdims=True) + np.log1p(-self.zero_probability)
        spike = np.log(self.zero_probability) - np.log(zero.sum(axis=-1, keepdims=True))
        return np.where(zero, spike, slab)


@dataclass(frozen=True)
class TablePrior:
    """A prior given as a table of probabilities of the levels themselves.

    Parameters
    ----------
    mass : array_like of shape (n_levels,) or (n_weights, n_levels)
        Non-negative; normalised over the last axis here.
    """

    mass: ArrayLike

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities, normalised; the table must fit the levels."""
        table = np.asarray(self.mass, dtype=np.float64)
        shape = np.shape(levels)
        if table.shape[-1:] != shape[-1:]:
            raise ValueError(f"mass must have {shape[-1]} entries a weight, one a level, got shape {table.shape}")
        if (table < 0).any() or not np.isfinite(table).all() or not (table.sum(axis=-1) > 0).all():
            raise ValueError("mass must be finite and non-negative with a positive sum for every weight")
        with np.errstate(divide="ignore"):
            return np.log(table) - np.log(table.sum(axis=-1, keepdims=True))


PRIORS = {
    "gaussian": GaussianPrior,
    "laplace": LaplacePrior,
    "student_t": StudentTPrior,
    "spike_and_slab": SpikeAndSlabPrior,
}


def as_prior(prior: Prior | str) -> Prior:
    """Return a prior given as itself or by its name, with its default parameters.

    Raises
    ------
    ValueError
        When the name is unknown or the object has no ``log_mass``.
    """
    if isinstance(prior, str) and prior in PRIORS:
        return PRIORS[prior]()
    if not isinstance(prior, str) and hasattr(prior, "log_mass"):
        return prior
    raise ValueError(f"prior must be one of {', '.join(map(repr, PRIORS))} or have log_mass(levels), got {prior!r}")


def pad_levels(levels: FloatArray, log_prior: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pad tables to the kernels' width: extra levels have prior mass zero."""
    extra = -levels.shape[-1] % _core.LEVEL_PADDING
    padding = ((0, 0), (0, extra))
    return np.pad(levels, padding), np.pad(log_prior, padding, constant_values=-np.inf)


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

    @classmethod
    def from_logits(cls, levels: ArrayLike, logits: ArrayLike) -> FactorizedCategorical:
        """Build from free parameters: ``q_j = softmax(logits_j)``.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        logits : array_like of shape (n_weights, n_levels)
            Finite or -inf (probability zero), not all -inf in a row.
        """
        logits = as_float_array_unbounded(logits, "logits", ("n_weights", "n_levels"))
        if np.isnan(logits).any() or (logits == np.inf).any() or not (logits.max(axis=1) > -np.inf).all():
            raise ValueError("logits must be finite or -inf with at least one finite entry a weight")
        levels = as_levels(levels, logits.shape[0])
        if levels.shape[1] != logits.shape[1]:
            raise ValueError(f"logits must have {levels.shape[1]} columns, one a level, got {logits.shape[1]}")
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

    def entropy(self) -> float:
        """``-sum_j q_jᵀ log q_j`` in nats."""
        return -float(xlogy(self.q, self.q).sum())

    def kl(self, log_prior: ArrayLike) -> float:
        """``KL(q || p)`` in nats for a prior given as log masses of the levels."""
        log_p = np.broadcast_to(np.asarray(log_prior, dtype=np.float64), self.q.shape)
        used = self.q > 0
        return float((xlogy(self.q, self.q)[used] - self.q[used] * log_p[used]).sum())

    def expected_sparsity(self) -> float:
        """Return the expected fraction of exact zeros in a sample, ``mean_j q_j(w = 0)``."""
        return float((self.q * (self.levels == 0.0)).sum(axis=1).mean())

    def most_probable(self) -> NDArray[np.uint8]:
        """Return the indices of the most probable levels, (n_weights,)."""
        return self.q.argmax(axis=1).astype(np.uint8)

    def sample_indices(
        self, n_samples: int, random_state: np.random.Generator | int | None = None
    ) -> NDArray[np.uint8]:
        """Draw level indices, (n_samples, n_weights) uint8; the same for any number of threads.

        Parameters
        ----------
        n_samples : int
        random_state : numpy.random.Generator, int or None
        """
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

    def sample(self, n_samples: int, random_state: np.random.Generator | int | None = None) -> FloatArray:
        """Draw weights, (n_samples, n_weights)."""
        return self.values(self.sample_indices(n_samples, random_state))
