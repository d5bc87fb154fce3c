"""Sums over private rows, released with Gaussian noise: what each site of a federation may send.

A row gives φ, clipped to length C as by a weight ω = min(1, C²/‖φ‖²), which biases no coefficient, and a target clipped
to its bounds and mapped to v in [−1, 1]. Its share of the sums, with svec the upper triangle whose entries off the
diagonal are multiplied by √2,

    u = (svec(ωφφᵀ)/C², ωφv/C, ½ωv², ¼ω),   ‖u‖² ≤ 1 + 1 + 1/4 + 1/16 = Δ²,

moves the vector of all sums by at most Δ. Independent noise of deviation σ = Δ/μ on each entry is as private as one
Gaussian of sensitivity μ; in units of the sums that is σC² on the diagonal of A, σC²/√2 off it, σC on c, 2σ on the
squares of the targets and 4σ on the number of rows.

Gaussian noise of deviation σ on sums that a row moves by at most Δ, in Euclidean length, is (ε, δ)-private exactly
where ``Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) ≤ δ`` (Balle & Wang 2018, theorem 8). Only μ = Δ/σ matters, and releases
about the same rows are together as one with μ² = Σμᵢ² (Dong, Roth & Su 2022, corollary 3.3).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr

from pydirect._dense import add_gram, mirrored
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_float_array, as_number, short_repr
from pydirect.persistence.container import read, sound_contents, write
from pydirect.persistence.schema import AnyFinite, Positive, Shape, pack, unpack
from pydirect.statistics.gaussian import RowFeatures, block_rows, fingerprint, row_blocks

# Of log μ: noise a million times the sensitivity, or a thousandth of it.
_LOG_MU = (-14.0, 7.0)
# A share of the budget that is rounding.
ROUNDING = 1e-9
# Two releases at a time must not both see the same rest of a budget.
_SPENDING = threading.Lock()


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ at which Gaussian noise is (ε, δ)-differentially private.

    Examples
    --------
    >>> from pydirect.statistics import gaussian_delta
    >>> round(gaussian_delta(mu=0.5, epsilon=1.0), 4)
    0.0068
    """
    mu, epsilon = as_number(mu, "mu", above=0.0), as_number(epsilon, "epsilon", at_least=0.0)
    first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return float(np.exp(first) * -np.expm1(min(epsilon + second - first, 0.0)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ, sensitivity over the noise's deviation, that is (ε, δ)-differentially private.

    Examples
    --------
    >>> from pydirect.statistics import gaussian_epsilon, gaussian_mu
    >>> mu = gaussian_mu(epsilon=1.0, delta=1e-5)
    >>> round(mu, 2), round(gaussian_epsilon(mu, delta=1e-5), 6)
    (0.27, 1.0)
    """
    epsilon = as_number(epsilon, "epsilon", above=0.0)
    delta = as_number(delta, "delta", above=0.0, below=1.0)
    below, above = np.exp(_LOG_MU)
    if not gaussian_delta(below, epsilon) < delta < gaussian_delta(above, epsilon):
        raise ValueError(f"epsilon and delta must be of a practical size, got {epsilon:g} and {delta:g}")
    log_mu = brentq(lambda log_mu: gaussian_delta(np.exp(log_mu), epsilon) - delta, *_LOG_MU, xtol=1e-12)
    return float(np.exp(log_mu)) * (1 - 1e-11)  # on the private side of rounding


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε at which Gaussian noise is (ε, δ)-differentially private.

    Examples
    --------
    >>> from pydirect.statistics import gaussian_epsilon
    >>> round(gaussian_epsilon(mu=0.5, delta=1e-5), 2)
    1.99
    """
    mu, delta = as_number(mu, "mu", above=0.0), as_number(delta, "delta", above=0.0, below=1.0)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    above = mu**2 / 2 + mu * np.sqrt(2 * np.log(1 / delta)) + 1.0  # the tail bound of zero-concentrated privacy, and 1
    return float(brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, above, xtol=1e-12))


@dataclass
class PrivacyBudget:
    """What all releases about the same rows may tell together: (ε, δ)-differential privacy of adding or removing a row.

    `epsilon` of 1 is a common choice, 10 protects little; `delta` is well below one over the number of rows; `spent` is
    the sum of μ² of all releases so far. Sites with rows of different people have a budget each.
    """

    epsilon: float
    delta: float
    spent: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.spent = as_number(self.spent, "spent", at_least=0.0)
        if self.spent > self._allowed * (1 + ROUNDING):
            raise ValueError(f"spent must be at most {self._allowed:g}, got {self.spent:g}")

    @property
    def _allowed(self) -> float:
        return gaussian_mu(self.epsilon, self.delta) ** 2

    @property
    def remaining(self) -> float:
        """Budget ε that one more release may have, at the same δ; releases add to less than the sum of their ε."""
        left = self._allowed - self.spent
        return gaussian_epsilon(np.sqrt(left), self.delta) if left > ROUNDING * self._allowed else 0.0

    def spend(self, epsilon: float | None = None) -> float:
        """Count a release, before it is made, and return its μ: sensitivity over the noise's standard deviation."""
        allowed = self._allowed
        wanted = None if epsilon is None else gaussian_mu(epsilon, self.delta) ** 2
        with _SPENDING:
            left = allowed - self.spent
            wanted = left if wanted is None else wanted
            if left <= ROUNDING * allowed or wanted > left + ROUNDING * allowed:
                asked = "" if epsilon is None else f", got {epsilon:g}"
                raise ValueError(f"epsilon must be at most what is left of the budget, {self.remaining:.4g}{asked}")
            self.spent = min(self.spent + wanted, allowed)
        return float(np.sqrt(wanted))


KIND = "pydirect.noisy_statistics"
# Weights of c, of the targets' squares and of the number of rows, beside A's 1. Squares and the number only tell of the
# noise, and are sums of many equal signs: they can have more noise.
WEIGHTS = (1.0, 0.5, 0.25)
SENSITIVITY = float(np.sqrt(1 + np.square(WEIGHTS).sum()))
_SUMS = ("gram", "c", "yty", "n_samples")
_VARIANCES = ("gram_variance", "c_variance", "yty_variance", "n_variance")


@dataclass(frozen=True)
class NoisyStatistics:
    """Sums over rows with Gaussian noise of known variances, differentially private; ``+`` adds those of sites.

    `gram` A = Σωφφᵀ (n_weights, n_weights) need not be positive; `c` is Σωφv of targets mapped from `y_bounds` to
    [−1, 1]; `gram_variance` is that of the diagonal, half of it off it; `mu` is the largest sensitivity of any site.
    """

    gram: Annotated[FloatArray, Shape("n_weights", "n_weights"), AnyFinite]
    c: Annotated[FloatArray, Shape("n_weights"), AnyFinite]
    yty: float
    n_samples: float
    gram_variance: Annotated[float, Positive]
    c_variance: Annotated[float, Positive]
    yty_variance: Annotated[float, Positive]
    n_variance: Annotated[float, Positive]
    norm_bound: Annotated[float, Positive]
    y_bounds: tuple[float, float]
    fingerprint: str
    mu: Annotated[float, Positive]

    __repr__ = short_repr

    @property
    def n_weights(self) -> int:
        """Number of basis functions b."""
        return len(self.c)

    @classmethod
    def release(
        cls,
        features: RowFeatures,
        x: ArrayLike,
        y: ArrayLike,
        *,
        y_bounds: tuple[float, float],
        norm_bound: float,
        mu: float,
        rng: np.random.Generator,
    ) -> Self:
        """Sum over private rows and add noise."""
        low, high = as_bounds(y_bounds, "y_bounds")
        bound = as_number(norm_bound, "norm_bound", above=0.0)
        mu = as_number(mu, "mu", above=0.0)
        x = as_float_array(x, "x", ("n_samples", "n_features_in"))
        targets = as_float_array(y, "y", (len(x),))
        v = (2 * np.clip(targets, low, high) - (low + high)) / (high - low)
        sums = clipped_sums(features, x, v, bound)
        deviations = (SENSITIVITY / mu * np.array([bound**2, bound, 1, 1]) / np.array([1, *WEIGHTS])).tolist()
        of_gram, noise = symmetric_noise(len(sums[1]), 1.0, rng), rng.standard_normal(len(sums[1]))
        units = (of_gram, noise, rng.standard_normal(), rng.standard_normal())
        parts = zip(_SUMS, sums, deviations, units, strict=True)
        released: dict[str, Any] = {name: own + size * unit for name, own, size, unit in parts}
        released |= {name: size**2 for name, size in zip(_VARIANCES, deviations, strict=True)}
        return cls(**released, norm_bound=bound, y_bounds=(low, high), fingerprint=fingerprint(features), mu=mu)

    def __add__(self, other: NoisyStatistics) -> Self:
        """Return the sums over the rows of both, which are different rows; variances of the noise add."""
        if not isinstance(other, NoisyStatistics):
            return NotImplemented
        for name in ("fingerprint", "norm_bound", "y_bounds"):
            own, others = getattr(self, name), getattr(other, name)
            if own != others:
                raise ValueError(f"noisy statistics must have the same {name}, got {own} and {others}")
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in (*_SUMS, *_VARIANCES)}
        return replace(self, **sums, mu=max(self.mu, other.mu))

    def __radd__(self, other: object) -> Self:
        """Return these for 0, with which ``sum`` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    # --- files

    def save(self, path: str | Path) -> None:
        """Write one file, arrays and a versioned header, under a temporary name and renamed."""
        header, arrays = pack(self, "noisy")
        write(path, KIND, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        document = read(path, KIND)
        with sound_contents(path, "noisy statistics"):
            return unpack(cls, document.header, document.arrays, "noisy")

    def check(self) -> None:
        """Raise unless `gram` is symmetric and the bounds are in order."""
        if not np.array_equal(self.gram, self.gram.T):
            raise ValueError("gram must be symmetric")
        as_bounds(self.y_bounds, "y_bounds")


def as_bounds(value: Any, name: str) -> tuple[float, float]:
    """Return a lower and a larger upper bound."""
    bounds = as_float_array(value, name, (2,))
    if not bounds[0] < bounds[1]:
        raise ValueError(f"{name} must be a smaller and a larger number, got {bounds[0]:g} and {bounds[1]:g}")
    return float(bounds[0]), float(bounds[1])


def clipped_sums(
    features: RowFeatures, x: FloatArray, v: FloatArray, norm_bound: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Return A, c, Σωv² and Σω over rows whose features are clipped to a length.

    `x`, (n_rows, n_features_in). `v`, (n_rows,).
    """
    b = features.n_weights
    gram, c, yty, n_samples = np.zeros((b, b)), np.zeros(b), 0.0, 0.0
    with single_blas_thread():
        for begin, end in row_blocks(len(x), block_rows(b, np.float64)):
            phi, own = np.array(features.transform(x[begin:end])), v[begin:end]
            # Rounding must not let a row of large features count for more than its share.
            length = np.sqrt(np.einsum("ij,ij->i", phi, phi))
            root = np.minimum(1.0, norm_bound / np.maximum(length, norm_bound))
            phi *= root[:, None]
            add_gram(phi, gram)
            c += phi.T @ (root * own)
            yty += float(np.square(root * own).sum())
            n_samples += float(np.square(root).sum())
    return mirrored(gram), c, yty, n_samples


def symmetric_noise(b: int, deviation: float, rng: np.random.Generator) -> FloatArray:
    """Return a symmetric matrix of noise, of this deviation on the diagonal and 1/√2 of it elsewhere; (b, b)."""
    square = rng.standard_normal((b, b)) * (deviation / 2)
    return np.asarray(square + square.T)
