"""Rewards of arms as linear-Gaussian models: sums over what was learned, and the posteriors that follow from them.

Arm a has weights w_a of its own, and a reward at φ is β + φᵀw_a + ε. Nothing has a unit of its own:

    ε ~ N(0, σ²),   w_a ~ N(0, σ²/λ I),   S_a = (A_a + λI)⁻¹,   m_a = S_a (c_a − β Φ_aᵀ1),

β is the mean of all rewards, σ² the residual sum of squares ‖y − β‖² − Σ_a m_aᵀ(c_a − β Φ_aᵀ1) over their number, and
λ that of largest evidence for all arms together: γ σ² / Σ_a m_aᵀm_a, γ = Σ_a (b − λ tr S_a) (MacKay 1992, *Bayesian
interpolation*). Posteriors follow every reward by an update of rank one; β and λ are found again, and posteriors anew
from the sums, whenever the number of rewards has doubled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect.linear.recursive import RecursivePosterior
from pydirect.persistence.schema import AtLeast, Positive, Shape
from pydirect.statistics.gaussian import TargetStatistics

# Residuals below this fraction of the squares are rounding.
ROUNDING = 1e-14
# Number of weights of size σ that count as seen before the first reward: λ begins at 1.
PRIOR_COUNT = 1.0
# Steps of the fixed point of λ at a refresh; it is found again at the next one.
PRECISION_STEPS = 2
# Refreshes per half-life: between them rewards have their weights relative to each other only.
REFRESHES_PER_HALF_LIFE = 8


@dataclass(eq=False)
class RewardPosteriors:
    """Posteriors of the weights of all arms, changed in place.

    With forgetting, a reward that i others have followed counts 2^(−i / half-life): relative to the others always, and
    absolutely after a refresh; until then all of them together count for up to 9 % too much. `gram` is A, `cross` c,
    `sums` Φᵀ1, `totals` (n_arms, 3) numbers of rewards, their sums and sums of squares, `means` m, `covariances` S,
    `baseline` β, `prior_precision` λ, and `growth` the weight of the next reward, until a refresh divides by it.
    """

    gram: Annotated[FloatArray, Shape("n_arms", "n_weights", "n_weights")]
    cross: Annotated[FloatArray, Shape("n_arms", "n_weights")]
    sums: Annotated[FloatArray, Shape("n_arms", "n_weights")]
    totals: Annotated[FloatArray, Shape("n_arms", 3)]
    means: Annotated[FloatArray, Shape("n_arms", "n_weights")]
    covariances: Annotated[FloatArray, Shape("n_arms", "n_weights", "n_weights")]
    baseline: float = 0.0
    prior_precision: Annotated[float, Positive] = 1.0
    growth: Annotated[float, AtLeast(1.0)] = 1.0
    n_learned: Annotated[int, AtLeast(0)] = 0
    next_refresh: int = 1

    __repr__ = short_repr

    @classmethod
    def prior(cls, n_arms: int, n_weights: int) -> Self:
        """Return the prior: no rewards yet."""
        square, flat = (n_arms, n_weights, n_weights), (n_arms, n_weights)
        covariances = np.broadcast_to(np.eye(n_weights), square).copy()
        return cls(np.zeros(square), np.zeros(flat), np.zeros(flat), np.zeros((n_arms, 3)), np.zeros(flat), covariances)

    def add_arm(self) -> None:
        """Add an arm without rewards."""
        new = self.prior(1, self.means.shape[1])
        new.covariances /= self.prior_precision
        for name in ("gram", "cross", "sums", "totals", "means", "covariances"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(new, name)]))

    def check(self) -> None:
        """Raise unless the next refresh is to come."""
        if self.next_refresh <= self.n_learned:
            raise ValueError("next_refresh must be above n_learned")

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.means)

    @property
    def noise_variance(self) -> float:
        """Variance σ² of the noise; 1 before there are rewards that differ."""
        n, total, squares = self.totals.sum(axis=0)
        residual = squares - self.baseline * (2 * total - n * self.baseline)
        residual -= np.einsum("ij,ij->", self.means, self.cross - self.baseline * self.sums)
        return float(residual / n) if n and residual > ROUNDING * squares else 1.0

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the expected reward of every arm at rows of Φ, (n_rows, n_arms) each."""
        n_arms, b = self.means.shape
        with single_blas_thread():
            images = (self.covariances.reshape(-1, b) @ phi.T).reshape(n_arms, b, len(phi))
            variance = np.einsum("aji,ij->ia", images, phi)
            return self.baseline + phi @ self.means.T, self.noise_variance * np.maximum(variance, 0.0)

    def learn(self, phi: FloatArray, arms: NDArray[np.intp], rewards: FloatArray, half_life: float | None) -> None:
        """Add rewards of arms.

        - `half_life`: Rewards after which a weight halves; None if all count alike.
        """
        begin = 0
        while begin < len(phi):
            end = min(len(phi), begin + self.next_refresh - self.n_learned)
            chunk = slice(begin, end)
            with single_blas_thread():
                self._add(phi[chunk], arms[chunk], rewards[chunk], half_life)
                if self.n_learned == self.next_refresh:
                    self._refresh(half_life)
            begin = end

    def _add(self, phi: FloatArray, arms: NDArray[np.intp], rewards: FloatArray, half_life: float | None) -> None:
        weight = np.full(len(phi), self.growth)
        if half_life is not None:
            weight *= 2.0 ** (np.arange(1, len(phi) + 1) / half_life)
            self.growth = float(weight[-1])
        for arm in np.unique(arms) if len(arms) > 1 else arms:
            own = arms == arm
            x, y, w = phi[own], rewards[own], weight[own]
            weighted = x * w[:, None]
            self.cross[arm] += y @ weighted
            self.sums[arm] += weighted.sum(axis=0)
            self.totals[arm] += w.sum(), w @ y, w @ y**2
            if len(x) == 1:  # as most come: the same in a fraction of the time
                _add_square(self.gram[arm], np.sqrt(w[0]) * x[0], 1.0)
                self._follow(arm, x[0], y[0] - self.baseline, w[0])
            else:
                self.gram[arm] += weighted.T @ x
                posterior = RecursivePosterior(self.means[arm], self.covariances[arm], 1.0, 1 / self.prior_precision)
                self.covariances[arm] = posterior.update(x, y - self.baseline, w).covariance
        self.n_learned += len(phi)

    def _follow(self, arm: int, phi: FloatArray, y: float, weight: float) -> None:
        """Update the posterior of an arm by one reward."""
        image = self.covariances[arm] @ phi
        deviation = np.sqrt(1 / weight + phi @ image)
        direction = image / deviation
        self.means[arm] += direction * ((y - phi @ self.means[arm]) / deviation)
        _add_square(self.covariances[arm], direction, -1.0)

    def _refresh(self, half_life: float | None) -> None:
        """Find the baseline and the prior's precision, and the posteriors from the sums."""
        for values in (self.gram, self.cross, self.sums, self.totals):
            values /= self.growth
        self.growth = 1.0
        steps = self.n_learned if half_life is None else min(self.n_learned, half_life / REFRESHES_PER_HALF_LIFE)
        self.next_refresh = self.n_learned + max(1, int(steps))
        n, total, _ = self.totals.sum(axis=0)
        self.baseline = float(total / n)
        for _ in range(PRECISION_STEPS):
            self._condition()
            self.prior_precision = self._likeliest_precision()
        self._condition()

    def _condition(self) -> None:
        """Find the posteriors at the sums, the baseline and the prior's precision."""
        for arm, (n, *_) in enumerate(self.totals):
            centred = self.cross[arm] - self.baseline * self.sums[arm]
            statistics = TargetStatistics(self.gram[arm], centred, 0.0, n)
            posterior = RecursivePosterior.of(statistics, 1.0, 1 / self.prior_precision)
            self.means[arm], self.covariances[arm] = posterior.mean, posterior.covariance

    def _likeliest_precision(self) -> float:
        size = np.einsum("ij,ij->", self.means, self.means) / self.noise_variance
        traces = np.einsum("ijj->i", self.covariances)
        determined = (self.means.shape[1] - self.prior_precision * traces).sum()
        return float((determined + PRIOR_COUNT) / (size + PRIOR_COUNT))


def _add_square(matrix: FloatArray, vector: FloatArray, factor: float) -> None:
    """Add factor · vvᵀ to a C-ordered matrix, in place and without a matrix in between."""
    blas.dger(factor, vector, vector, a=matrix.T, overwrite_a=1)
