"""Priors of weights, as log masses of their levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp, softmax, xlogy

from pydirect._validation import FloatArray, as_choice, as_float_array, as_log_masses, as_number
from pydirect.distributions.categorical import as_levels


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
    """A prior with a density, to which level masses are proportional; subclass with ``log_density(w)`` for your own."""

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise."""
        raise NotImplementedError

    @property
    def variance(self) -> float:
        """Variance, by quadrature over many orders of magnitude unless a subclass knows it."""
        half = np.exp(np.linspace(-40.0, 40.0, 20_001))
        w = np.concatenate([-half[::-1], half])
        with np.errstate(under="ignore"):
            mass = np.exp(self.log_density(w)) * np.abs(w)  # dw = |w| d log|w|
            variance = float(mass @ w**2 / mass.sum() - (mass @ w / mass.sum()) ** 2)
        return _finite_variance(variance, mass[0] * w[0] ** 2 + mass[-1] * w[-1] ** 2 < 1e-6 * variance * mass.sum())

    def log_grid_mass(self, levels: FloatArray, spacing: FloatArray) -> FloatArray:
        """Log masses of levels that stand for cells of a width: density × spacing."""
        return self.log_density(levels) + np.log(spacing)

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis.

        `levels`, (n_levels,) or (n_weights, n_levels).
        """
        log_p = self.log_density(np.asarray(levels, dtype=np.float64))
        return log_p - logsumexp(log_p, axis=-1, keepdims=True)


def grid_log_mass(prior: DensityPrior | SpikeAndSlabPrior, levels: FloatArray, spacing: FloatArray) -> FloatArray:
    """Log masses density × spacing of levels (n_weights, n_levels); zero keeps the mass of a spike.

    An ELBO then approximates the continuous evidence. Masses that would sum to more than one are normalised, so that it
    stays a bound.
    """
    log_mass = prior.log_grid_mass(levels, spacing)
    log_mass -= np.maximum(logsumexp(log_mass, axis=1, keepdims=True), 0.0)
    return log_mass


@dataclass(frozen=True)
class _OfDeviation(DensityPrior):
    """A density of a given standard deviation."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        """Variance."""
        return self.scale**2


@dataclass(frozen=True)
class GaussianPrior(_OfDeviation):
    """The Gaussian prior of standard deviation `scale`, the paper's choice.

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior
    >>> np.exp(GaussianPrior().log_mass([-1.0, 0.0, 1.0])).round(3).tolist()
    [0.274, 0.452, 0.274]
    """

    def log_density(self, w: FloatArray) -> FloatArray:
        return -0.5 * (w / self.scale) ** 2 - np.log(self.scale) - 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class LaplacePrior(_OfDeviation):
    """The Laplace prior of standard deviation `scale` (diversity ``scale / sqrt(2)``).

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import LaplacePrior
    >>> np.exp(LaplacePrior().log_mass([-1.0, 0.0, 1.0])).round(3)
    array([0.164, 0.673, 0.164])
    """

    def log_density(self, w: FloatArray) -> FloatArray:
        diversity = self.scale / np.sqrt(2)
        return -np.abs(w) / diversity - np.log(2 * diversity)


@dataclass(frozen=True)
class StudentTPrior(DensityPrior):
    """Student's t prior with the given degrees of freedom and scale parameter.

    Parameters
    ----------
    degrees_of_freedom : float, default=3.0
        Degrees of freedom.
    scale : float, default=1.0
        Scale parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import StudentTPrior
    >>> np.exp(StudentTPrior(degrees_of_freedom=4.0).log_mass([-1.0, 0.0, 1.0])).round(3)
    array([0.267, 0.466, 0.267])
    """

    degrees_of_freedom: float = 3.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.degrees_of_freedom, "degrees_of_freedom", above=0.0)
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        return _finite_variance(self.scale**2 * nu / (nu - 2) if (nu := self.degrees_of_freedom) > 2 else np.inf)

    def log_density(self, w: FloatArray) -> FloatArray:
        nu = self.degrees_of_freedom
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi) - np.log(self.scale)
        return constant - (nu + 1) / 2 * np.log1p((w / self.scale) ** 2 / nu)


@dataclass(frozen=True)
class SpikeAndSlabPrior:
    """Zero with probability `zero_probability`, else the slab restricted to the levels that are not zero.

    Parameters
    ----------
    zero_probability : float in (0, 1), default=0.9
        Prior probability of zero.
    slab : Prior, default=GaussianPrior()
        Prior of the weights that are not zero.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import SpikeAndSlabPrior
    >>> np.exp(SpikeAndSlabPrior(0.8).log_mass([-1.0, 0.0, 1.0])).round(3).tolist()
    [0.1, 0.8, 0.1]
    """

    zero_probability: float = 0.9
    slab: Prior = GaussianPrior()

    def __post_init__(self) -> None:
        as_number(self.zero_probability, "zero_probability", above=0.0, below=1.0)

    @property
    def variance(self) -> float:
        """Variance of a weight: (1 − π) times the slab's, which must have a density."""
        return (1 - self.zero_probability) * self._density.variance

    @property
    def _density(self) -> DensityPrior:
        if not isinstance(self.slab, DensityPrior):
            raise ValueError(f"slab must have a density for this use, got {self.slab!r}")
        return self.slab

    def log_grid_mass(self, levels: FloatArray, spacing: FloatArray) -> FloatArray:
        """Log masses of levels that stand for cells of a width: (1 − π) × density × spacing, and π more at zero."""
        slab = np.log1p(-self.zero_probability) + self._density.log_density(levels) + np.log(spacing)
        return np.where(levels == 0.0, np.logaddexp(np.log(self.zero_probability), slab), slab)

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

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import TablePrior
    >>> np.exp(TablePrior([1.0, 2.0, 1.0]).log_mass([-1.0, 0.0, 1.0]))
    array([0.25, 0.5 , 0.25])
    """

    mass: ArrayLike

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities, normalised; the table must fit the levels."""
        table = np.asarray(self.mass, dtype=np.float64)
        shape = np.shape(levels)
        if table.shape[-1:] != shape[-1:]:
            raise ValueError(f"mass must have {shape[-1]} entries per weight, one per level, got shape {table.shape}")
        if (table < 0).any() or not np.isfinite(table).all() or not (table.sum(axis=-1) > 0).all():
            raise ValueError("mass must be finite and non-negative with a positive sum for every weight")
        with np.errstate(divide="ignore"):
            return np.log(table) - np.log(table.sum(axis=-1, keepdims=True))


def variance_of(prior: Prior) -> float:
    """Variance of a weight, in the prior's units; 1 for a prior that has none that is finite, or is a table."""
    try:
        return float(getattr(prior, "variance", 1.0))
    except ValueError:
        return 1.0


PRIORS = {
    "gaussian": GaussianPrior,
    "laplace": LaplacePrior,
    "student_t": StudentTPrior,
    "spike_and_slab": SpikeAndSlabPrior,
}


def as_prior(prior: Prior | str) -> Prior:
    """Return a prior given as itself or by its name, with its default parameters."""
    if isinstance(prior, str) and prior in PRIORS:
        return PRIORS[prior]()
    if not isinstance(prior, str) and hasattr(prior, "log_mass"):
        return prior
    raise ValueError(f"prior must be one of {', '.join(map(repr, PRIORS))} or have log_mass(levels), got {prior!r}")


def as_log_prior(log_prior: ArrayLike, levels: FloatArray, n_weights: int) -> FloatArray:
    """Validate log masses of levels, shared or per weight; returned as a matrix."""
    raw = np.asarray(log_prior)
    rows = 1 if raw.ndim == 1 or raw.shape[:-1] == (1,) else n_weights
    return as_log_masses(raw[None, :] if raw.ndim == 1 else raw, "log_prior", (rows, levels.shape[1]))


PRIOR_BOUNDS = ("log_sum_exp", "jensen")


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
    bound : {"log_sum_exp", "jensen"}, default="log_sum_exp"
        Of ``E_q log p``. ``"jensen"``: ``Σ_k π_k Σ_j q_jᵀ log p_j^(k)`` (Theorem 4). ``"log_sum_exp"`` (default):
        ``log Σ_k π_k exp Σ_j q_jᵀ log p_j^(k)``, Jensen's inequality with the best responsibilities instead of π, hence
        never looser.

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
        """Gaussian priors of several standard deviations: which one holds is inferred."""
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
        """Switch groups of weights on, to `slab`, or off together: a spike and a slab for each group."""
        zero = as_number(zero_probability, "zero_probability", above=0.0, below=1.0)
        slab = as_prior(slab)
        spike = SpikeAndSlabPrior(1.0 - as_number(leak, "leak", above=0.0, below=1.0), slab)
        return cls((spike, slab), (zero, 1.0 - zero), groups)

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log masses of one weight alone, the components mixed; normalised over the last axis."""
        return _mixed(self._log_masses(levels), np.log(self._weights()))

    def table(self, levels: ArrayLike, n_weights: int) -> MixturePriorTable:
        """Return the prior on given levels of a given number of weights."""
        levels = as_levels(levels, n_weights)
        log_masses = self._log_masses(levels)
        if (np.isfinite(log_masses) != np.isfinite(log_masses[0])).any():
            raise ValueError("components must allow the same levels: one that forbids a level is never chosen")
        groups = np.zeros(n_weights, dtype=np.intp)
        if self.groups is not None:
            if np.shape(self.groups) != (n_weights,):
                raise ValueError(f"groups must have one number per weight, {n_weights}, got {np.shape(self.groups)}")
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
    """A mixture prior on the levels of a problem."""

    log_masses: FloatArray  # (n_components, n_weights or 1, n_levels)
    log_weights: FloatArray  # (n_components,)
    groups: NDArray[np.intp]  # (n_weights,): numbers from 0 to n_groups - 1
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
