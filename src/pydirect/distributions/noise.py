"""The noise variance: a grid of variances, and a categorical posterior over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, xlogy

from pydirect._validation import FloatArray, as_float_array, as_log_masses, short_repr
from pydirect._warnings import warn
from pydirect.persistence.schema import Positive, Probabilities, Shape


class NoiseGridWarning(UserWarning):
    """The posterior of the noise variance piles up at an edge of its grid."""


@dataclass(frozen=True)
class NoisePosterior:
    """Categorical posterior of the Gaussian noise variance."""

    levels: Annotated[FloatArray, Shape("n_noise_levels"), Positive]  # variances, ascending
    q: Annotated[FloatArray, Shape("n_noise_levels"), Probabilities]

    __repr__ = short_repr

    @property
    def variance(self) -> float:
        """``E σ²``."""
        return float(self.q @ self.levels)

    @property
    def precision(self) -> float:
        """``τ = E σ⁻²``."""
        return float(self.q @ (1.0 / self.levels))

    def at_edge(self) -> str | None:
        """Name of the edge that holds more than half of the mass of a grid, if one does."""
        if self.levels.size <= 2:  # of two levels both are edges
            return None
        if self.q[0] > 0.5:
            return "lower"
        return "upper" if self.q[-1] > 0.5 else None


@dataclass(frozen=True)
class NoiseGrid:
    """Levels of the noise variance with their prior, and what the noise adds to the ELBO given R = E‖y − f‖²."""

    levels: FloatArray  # (n_noise_levels,): variances σ², positive and ascending
    log_prior: FloatArray  # (n_noise_levels,): log masses

    __repr__ = short_repr

    @classmethod
    def of(cls, levels: ArrayLike, log_prior: ArrayLike | None = None) -> NoiseGrid:
        """Validate `noise_levels` and `log_noise_prior`, which is uniform by default; a number is a grid of one."""
        array = as_float_array(np.atleast_1d(np.asarray(levels)), "noise_levels", ("n_noise_levels",))
        if not (array > 0).all() or not (np.diff(array) > 0).all():
            raise ValueError(f"noise_levels must be positive and ascending, got {array}")
        if log_prior is None:
            log_prior = np.full(array.size, -np.log(array.size))
        return cls(array, as_log_masses(log_prior, "log_noise_prior", array.shape))

    @property
    def n_levels(self) -> int:
        """Number of noise variances."""
        return len(self.levels)

    def precision(self, q: FloatArray) -> float:
        """``τ = E σ⁻²``."""
        return float((q / self.levels).sum())

    def log_joint(self, squared_error: float, n_samples: float) -> FloatArray:
        """``log p(σ²) − (n/2) log σ² − R/(2σ²)``, (n_noise_levels,): the likelihood without its −(n/2) log 2π."""
        return self.log_prior - 0.5 * n_samples * np.log(self.levels) - 0.5 * squared_error / self.levels

    def given(self, squared_error: float, n_samples: float) -> tuple[FloatArray, float]:
        """Best q_σ given R, ``q ∝ p(σ²) exp(−(n/2) log σ² − R/(2σ²))``, and the terms of the ELBO that it enters."""
        log_joint = self.log_joint(squared_error, n_samples)
        highest = log_joint.max()
        with np.errstate(invalid="ignore"):  # an infinite R gives NaN, which training looks for
            mass = np.exp(log_joint - highest)
        total = mass.sum()
        return mass / total, float(highest + np.log(total) - 0.5 * n_samples * np.log(2 * np.pi))

    def share(self, q: FloatArray, squared_error: float, n_samples: float) -> float:
        """``E log N(y; f, σ²) − KL(q_σ ‖ p_σ)``: the terms of the ELBO that any q_σ enters, given R."""
        used = q > 0  # 0 · log 0 = 0
        prior = (q * np.where(used, self.log_prior, 0.0)).sum() - xlogy(q, q).sum()
        likelihood = np.log(2 * np.pi) + (q * np.log(self.levels)).sum()
        return float(prior - 0.5 * n_samples * likelihood - 0.5 * self.precision(q) * squared_error)

    def middle(self) -> FloatArray:
        """Return the q_σ to start from: all mass on the level next to the prior's mean of log σ², (n_noise_levels,)."""
        q = np.zeros(self.n_levels)
        mass = np.exp(self.log_prior - logsumexp(self.log_prior))
        target = np.exp(mass @ np.log(self.levels))
        q[np.argmin(np.where(mass > 0, np.abs(np.log(self.levels / target)), np.inf))] = 1.0
        return q

    def posterior(self, q: FloatArray) -> NoisePosterior:
        """Return probabilities of the levels as a posterior."""
        return NoisePosterior(self.levels, q)


def warn_at_edge(noise: NoisePosterior) -> None:
    """Warn when the posterior piles up at an edge of its grid."""
    if edge := noise.at_edge():
        warn(
            f"the noise posterior piles up at the {edge} edge of its grid ({noise.levels[0]:.3g} to "
            f"{noise.levels[-1]:.3g}): widen noise_levels",
            NoiseGridWarning,
            stacklevel=3,
        )
