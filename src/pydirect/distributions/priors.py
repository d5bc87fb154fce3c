"""Priors of weights, as log masses of their levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from pydirect._validation import FloatArray, as_float_array_unbounded, as_number


class Prior(Protocol):
    """A prior on one weight, given by its density, or by its mass where it has atoms."""

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.
        """
        ...  # pragma: no cover


def _finite_variance(variance: float, converged: bool = True) -> float:
    if not (converged and 0.0 < variance < np.inf):
        raise ValueError(f"prior must have a finite, positive variance for this use, got {variance}")
    return variance


class DensityPrior:
    """A prior with a density: the mass of a level is proportional to the density there.

    Subclass with a method ``log_density(w)`` to make one of your own: positive, continuous, and with its detail near
    zero.
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

    def log_grid_mass(self, levels: FloatArray, spacing: FloatArray) -> FloatArray:
        """Log masses of levels that stand for cells of a width: density × spacing.

        Parameters
        ----------
        levels : ndarray of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.
        spacing : ndarray of the shape of the levels
            Widths of the cells.

        Returns
        -------
        ndarray of the shape of the levels
            In nats.
        """
        return self.log_density(levels) + np.log(spacing)

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis.

        `levels`, (n_levels,) or (n_weights, n_levels).

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.

        Returns
        -------
        ndarray of the shape of the levels
            In nats.
        """
        log_p = self.log_density(np.asarray(levels, dtype=np.float64))
        return log_p - logsumexp(log_p, axis=-1, keepdims=True)


def grid_log_mass(prior: DensityPrior | SpikeAndSlabPrior, levels: FloatArray, spacing: FloatArray) -> FloatArray:
    """Log masses density × spacing of levels, so that an ELBO approximates the continuous evidence; zero keeps a spike.

    Masses that would sum to more than one, at a kink of the density or of levels much further apart than the prior is
    wide, are normalised, so that the ELBO stays a bound.

    `levels`, (n_weights, n_levels). `spacing`, (n_weights, 1) or (n_weights, n_levels).
    """
    log_mass = prior.log_grid_mass(levels, spacing)
    log_mass -= np.maximum(logsumexp(log_mass, axis=1, keepdims=True), 0.0)
    return log_mass


@dataclass(frozen=True)
class GaussianPrior(DensityPrior):
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

    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        """Variance of a weight."""
        return self.scale**2

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise.

        Parameters
        ----------
        w : ndarray
            Values of a weight.

        Returns
        -------
        ndarray of the shape of w
            In nats.
        """
        return -0.5 * (w / self.scale) ** 2 - np.log(self.scale) - 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class LaplacePrior(DensityPrior):
    """The Laplace prior of standard deviation `scale` (diversity ``scale / sqrt(2)``).

    Parameters
    ----------
    scale : float, default=1.0
        Standard deviation.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.scale, "scale", above=0.0)

    @property
    def variance(self) -> float:
        """Variance of a weight."""
        return self.scale**2

    def log_density(self, w: FloatArray) -> FloatArray:
        """Log density at `w`, element-wise.

        Parameters
        ----------
        w : ndarray
            Values of a weight.

        Returns
        -------
        ndarray of the shape of w
            In nats.
        """
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
    """

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
        """Log density at `w`, element-wise.

        Parameters
        ----------
        w : ndarray
            Values of a weight.

        Returns
        -------
        ndarray of the shape of w
            In nats.
        """
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
        """Log masses of levels that stand for cells of a width: (1 − π) × density × spacing, and π more at zero.

        Parameters
        ----------
        levels : ndarray of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.
        spacing : ndarray of the shape of the levels
            Widths of the cells.

        Returns
        -------
        ndarray of the shape of the levels
            In nats.
        """
        slab = np.log1p(-self.zero_probability) + self._density.log_density(levels) + np.log(spacing)
        return np.where(levels == 0.0, np.logaddexp(np.log(self.zero_probability), slab), slab)

    def log_mass(self, levels: ArrayLike) -> FloatArray:
        """Log probabilities of the levels, normalised over the last axis; every weight needs a level at zero.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.

        Returns
        -------
        ndarray of the shape of the levels
            In nats.
        """
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
        """Log probabilities, normalised; the table must fit the levels.

        Parameters
        ----------
        levels : array_like of shape (n_levels,) or (n_weights, n_levels)
            Values that a weight can take.

        Returns
        -------
        ndarray of the shape of the levels
            In nats.
        """
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
    """Return a prior given as itself or by its name, with its default parameters.

    Raises ValueError when the name is unknown or the object has no ``log_mass``.
    """
    if isinstance(prior, str) and prior in PRIORS:
        return PRIORS[prior]()
    if not isinstance(prior, str) and hasattr(prior, "log_mass"):
        return prior
    raise ValueError(f"prior must be one of {', '.join(map(repr, PRIORS))} or have log_mass(levels), got {prior!r}")


def as_log_masses(log_prior: ArrayLike, levels: FloatArray, n_weights: int) -> FloatArray:
    """Validate log masses of levels, shared or per weight; returned as a matrix."""
    raw = np.asarray(log_prior)
    rows = 1 if raw.ndim == 1 or raw.shape[:-1] == (1,) else n_weights
    array = as_float_array_unbounded(raw[None, :] if raw.ndim == 1 else raw, "log_prior", (rows, levels.shape[1]))
    if np.isnan(array).any() or (array == np.inf).any() or not (array.max(axis=1) > -np.inf).all():
        raise ValueError("log_prior must be finite or -inf with at least one finite entry per weight")
    return array
