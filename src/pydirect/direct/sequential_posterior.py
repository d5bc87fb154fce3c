"""Weights drawn one after another, each given those before it (Klein 2000): the sequential posterior.

With H = τA + diag(1/v), m = τH⁻¹c and H = RᵀR, weights in the order of R, the last first:

    c_j = m_j − Σ_{k>j} r_jk (w_k − m_k) / r_jj
    q_j(w | w_{>j}) = p_j(w) exp(w²/2v_j − r_jj² (w − c_j)²/2) / S_j(c_j)

over the levels of weight j. Every draw gives log p(y, w) − log q(w) = constant + Σ_j log S_j(c_j): a term of an
unbiased ELBO, an importance weight and a Metropolis ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pydirect import _core
from pydirect._dense import half_rows, product, squared_norms
from pydirect._validation import FloatArray, RandomState, as_choice, as_count, as_generator, short_repr
from pydirect.distributions.categorical import FactorizedCategorical, WeightMarginals
from pydirect.distributions.noise import NoisePosterior
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.persistence.schema import AtLeast, Between, LogMasses, OneOf, Positive, Shape

DRAW_KINDS = ("stratified", "independent")
# Levels that are up to this number of conditional standard deviations apart lose less than .002 nat per weight.
HARMLESS_COARSENESS = 2.5
# In magnitude, of two, of the scales of levels.
LARGEST_EXPONENT = 30
Codes = NDArray[np.uint8]


class Draws(NamedTuple):
    """Draws from a sequential posterior.

    - `codes`, (n_draws, n_weights): level indices.
    - `log_weights`, (n_draws,): log p(y, w) − log q(w).
    - `log_q`, (n_draws,).
    """

    codes: Codes
    log_weights: FloatArray
    log_q: FloatArray


@dataclass(frozen=True)
class SequentialSampler:
    """What draws weights: the factor, and tables of levels; every weight in units of its own scale.

    Positions of arrays are those of `order`, but for `scale`; position 0 is drawn last.
    """

    # upper R of H in own units, ``diag(scale) H diag(scale)``, rows and columns in `order`
    factor: Annotated[FloatArray, Shape("n_weights", "n_weights")]
    order: Annotated[NDArray[np.int64], Shape("n_weights")]  # weight at each position
    scale: Annotated[FloatArray, Shape("n_weights"), Positive]  # own unit of every weight, in the weights' order
    mean: Annotated[FloatArray, Shape("n_weights")]  # posterior mean m of continuous weights, own units
    levels: Annotated[FloatArray, Shape("n_weights or 1", "n_levels")]  # own units
    tilt: Annotated[FloatArray, Shape("n_weights or 1", "n_levels"), LogMasses]  # ``log p_j(w) + w²/2v_j``
    constant: float  # ``−(n/2) log 2πσ² − (τ/2) yᵀy + (τ²/2) cᵀH⁻¹c``

    __repr__ = short_repr

    def draw(self, n_draws: int, kind: str, seed: int, n_threads: int = 1) -> Draws:
        """Draw from q; `kind` as of `SequentialPosterior.draw`, or "nearest" for the most probable levels in turn."""
        codes, log_normaliser, log_q = _core.sequential_draws(
            self.factor, self.mean, self.levels, self.tilt, self.order, n_draws, seed, kind, n_threads
        )
        return Draws(codes, self.constant + log_normaliser, log_q)

    def continuous_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean φᵀm and variance φᵀH⁻¹φ of f* with continuous weights for rows of Φ; (n_rows,) each."""
        own = (phi * self.scale)[:, self.order]
        return product(own, self.mean), squared_norms(half_rows(self.factor.T, np.ascontiguousarray(own)))

    def by_weight(self, values: FloatArray) -> FloatArray:
        """Values of all positions in the weights' order, (n_weights,)."""
        return np.asarray(values[np.argsort(self.order)])

    def check(self) -> None:
        """Raise unless the factor is one, `order` is a permutation and each weight has a level."""
        if (self.factor.diagonal() <= 0).any():
            raise ValueError("diagonal of factor must be positive")
        if not np.array_equal(np.sort(self.order), np.arange(len(self.order))):
            raise ValueError("order must be a permutation of the weights")
        if not (self.tilt > -np.inf).any(axis=1).all():
            raise ValueError("tilt must have a finite entry per weight")


@dataclass
class SequentialPosterior(WeightMarginals, WithOutcome):
    """Draws of weights on levels, each weight given those drawn before it, at a fixed noise variance."""

    # level indices of the stored draws, two to a byte where levels are 16 or fewer; see `codes`
    packed_codes: Annotated[Codes, Shape("n_draws", "n_bytes")]
    # the same of the vector that takes the most probable level each time; see `most_probable`
    packed_nearest: Annotated[Codes, Shape(1, "n_bytes")]
    # levels in units of ``step · 2**level_exponents``, about `centres`
    unit_levels: Annotated[FloatArray, Shape("n_levels"), Shape("n_weights", "n_levels")]
    level_exponents: Annotated[NDArray[np.int8], Shape("n_weights"), Between(-LARGEST_EXPONENT, LARGEST_EXPONENT)]
    centres: Annotated[FloatArray, Shape("n_weights or 0")]  # middle of every weight's levels; none where it is zero
    step: Annotated[float, Positive]
    # posterior mean of continuous weights in units of `level_scales`, to single precision; see `continuous_mean`
    own_mean: Annotated[NDArray[np.float32], Shape("n_weights")]
    # ρ: largest spacing of a weight's levels in units of its conditional standard deviation 1/r_jj. Up to 2.5 the
    # levels cost nothing.
    coarseness: Annotated[NDArray[np.float32], Shape("n_weights")]
    log_weights: Annotated[FloatArray, Shape("n_draws")]  # log p(y, w) − log q(w) of the stored draws
    # log evidence of continuous weights with a Gaussian prior of the same variance; see `gap`
    log_evidence_continuous: float
    prior_variance: Annotated[float, Positive]  # squared unit of the prior
    has_gaussian_prior: bool  # whether the prior of the weights is that of `log_evidence_continuous`
    draw_kind: Annotated[str, OneOf(*DRAW_KINDS)]  # how the stored draws relate to each other
    noise: NoisePosterior  # of one level
    outcome: Outcome = field(default_factory=Outcome)  # its ELBO is the mean of `log_weights`
    # factor by which the noise variance was raised above that of largest evidence, because levels were too coarse
    noise_factor: Annotated[float, AtLeast(1.0)] = 1.0
    # kept on request: draws as many as are asked for, and gives exact moments of continuous weights
    sampler: SequentialSampler | None = None

    __repr__ = short_repr

    @property
    def n_draws(self) -> int:
        """Number of kept draws."""
        return len(self.log_weights)

    @property
    def n_weights(self) -> int:
        """Number of weights."""
        return len(self.level_exponents)

    @property
    def codes(self) -> Codes:
        """Level indices of the stored draws, (n_draws, n_weights)."""
        return unpack_codes(self.packed_codes, self.n_weights, self.unit_levels.shape[-1])

    def most_probable(self) -> Codes:
        """Level indices of one vector: every weight's most probable level given those before it, (n_weights,)."""
        return unpack_codes(self.packed_nearest, self.n_weights, self.unit_levels.shape[-1])[0]

    @property
    def level_scales(self) -> FloatArray:
        """Unit of every weight's levels, ``step · 2**level_exponents``; (n_weights,)."""
        return np.ldexp(self.step, self.level_exponents.astype(np.int64))

    @property
    def levels(self) -> FloatArray:
        """Levels of every weight, (n_weights, n_levels)."""
        levels = self.level_scales[:, None] * np.atleast_2d(self.unit_levels)
        return levels + self.centres[:, None] if self.centres.size else levels

    @property
    def draws(self) -> FloatArray:
        """Weights of the stored draws, (n_draws, n_weights)."""
        return self.values(self.codes)

    def values(self, codes: Codes) -> FloatArray:
        """Weights of level indices, (n_draws, n_weights)."""
        return self.levels[np.arange(self.n_weights), codes]

    @property
    def weights(self) -> FactorizedCategorical:
        """Marginal frequencies of the weights' levels among the stored draws."""
        codes, n_levels = self.codes, self.unit_levels.shape[-1]
        counts = np.stack([(codes == k).sum(axis=0) for k in range(n_levels)], axis=1)
        return FactorizedCategorical(self.levels, counts / self.n_draws)

    @property
    def coefficients(self) -> FloatArray:
        """Posterior mean of the weights, (n_weights,): of the stored draws, or exactly as `latent_moments` has it."""
        exact = self._exact_sampler()
        return self.mean if exact is None else exact.by_weight(exact.mean) * exact.scale

    @property
    def continuous_mean(self) -> FloatArray:
        """Posterior mean of continuous weights with a Gaussian prior, to single precision; (n_weights,)."""
        return self.own_mean * self.level_scales

    # --- quality

    @property
    def elbo_stderr(self) -> float:
        """Standard error of the ELBO: that of the mean of as many independent draws."""
        return float(self.log_weights.std(ddof=1) / np.sqrt(self.n_draws)) if self.n_draws > 1 else np.nan

    @property
    def gap(self) -> float:
        """Log evidence of continuous weights minus the ELBO, in nats: what four bits and the sampler cost."""
        return self.log_evidence_continuous - self.elbo

    @property
    def log_evidence(self) -> float:
        """Estimate of the log evidence on the levels: importance sampling over the stored draws."""
        return float(logsumexp(self.log_weights) - np.log(self.n_draws))

    @property
    def effective_sample_size(self) -> float:
        """Fraction of the draws that are worth an exact draw of the posterior, (Σω)² / (S Σω²)."""
        logs = 2 * logsumexp(self.log_weights) - logsumexp(2 * self.log_weights)
        return float(np.exp(logs) / self.n_draws)

    def summary(self) -> str:
        """Describe the posterior in a few sentences: its bound, its draws, its levels and its size."""
        n_levels, n_draws = self.unit_levels.shape[-1], self.n_draws
        packed = self.packed_codes.nbytes // n_draws
        worth = f"{n_draws} draws are worth {self.effective_sample_size * n_draws:.0f} exact ones"
        source = f"moments of {n_draws} draws"
        if self._exact_sampler() is not None:
            source = "exact moments of continuous weights"
        about = "about each weight's posterior mean, " if self.centres.size else ""
        exponents = f"{self.level_exponents.min()} to {self.level_exponents.max()}"
        return (
            f"{self.n_weights} weights on {n_levels} levels, each given those drawn before it. The ELBO lies "
            f"{abs(self.gap):.2g} ± {self.elbo_stderr:.2g} nats {'below' if self.gap >= 0 else 'above'} the evidence "
            f"of continuous weights{'' if self.has_gaussian_prior else ' with a Gaussian prior'}. {worth}; "
            f"{self.sparsity:.0%} of their weights are zero. Levels are up to {self.coarseness.max():.2g} conditional "
            f"standard deviations apart, {about}scaled by powers of two with exponents {exponents}. A draw "
            f"takes {packed} bytes, and all of them share {self.n_weights} bytes of exponents. Predictions are "
            f"{source}."
        )

    # --- draws

    def draw(self, n_draws: int, kind: str = "stratified", random_state: RandomState = 0) -> Draws:
        """Draw anew from q, with a kept factor.

        ``"stratified"``: pairs u, 1 − u of uniforms, of which any first 2ᵏ lie one in each of 2ᵏ equal intervals
        (nested uniform scrambling, Owen 1995), at random per weight. So draws, each one exact, cover every weight's
        distribution evenly: the mean of two knows the posterior mean as well as that of ten independent ones or more.
        """
        as_choice(kind, "kind", DRAW_KINDS)
        seed = int(as_generator(random_state).integers(2**63))
        if self.sampler is None:
            raise ValueError("the factor must be kept for new draws: fit with keep_factor=True")
        return self.sampler.draw(as_count(n_draws, "n_draws"), kind, seed)

    def metropolis(self, n_draws: int, random_state: RandomState = 0) -> tuple[Codes, float]:
        """Draw from the posterior itself by a chain of independent Metropolis steps with q as their proposal."""
        rng = as_generator(random_state)
        proposals = self.draw(n_draws, "independent", rng)
        thresholds = np.log(rng.random(n_draws))
        state, accepted, chain = 0, 0, np.zeros(n_draws, dtype=np.intp)
        for i in range(1, n_draws):
            if thresholds[i] < proposals.log_weights[i] - proposals.log_weights[state]:
                state, accepted = i, accepted + 1
            chain[i] = state
        return proposals.codes[chain], accepted / max(n_draws - 1, 1)

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights): of the stored draws at random, or anew with a kept factor."""
        if self.sampler is not None:
            return self.values(self.draw(n_samples, "independent", rng).codes)
        if n_samples > self.n_draws:
            raise ValueError(f"n_samples must be at most {self.n_draws}, the fit's n_draws, got {n_samples}")
        return self.draws[rng.permutation(self.n_draws)[:n_samples]]

    def _exact_sampler(self) -> SequentialSampler | None:
        """Return what has the exact moments of continuous weights: those of a Gaussian prior, by the kept factor."""
        return self.sampler if self.has_gaussian_prior else None

    # --- predictions

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ; (n_rows,) each.

        Of the stored draws; exact ones of continuous weights where the factor was kept and the prior is Gaussian.
        """
        exact = self._exact_sampler()
        return self.moments_of_draws(phi) if exact is None else exact.continuous_moments(phi)

    def moments_of_draws(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* over the stored draws for rows of Φ; (n_rows,) each.

        The mean of stratified draws has next to no error, so their variance is about it as it is; that of independent
        ones is unbiased, and includes that of their mean.
        """
        values = product(phi, self.draws.T)
        mean, s = values.mean(axis=1), self.n_draws
        variance = np.square(values - mean[:, None]).mean(axis=1)
        return mean, variance * (s + 1) / (s - 1) if self.draw_kind == "independent" and s > 1 else variance

    # --- units and files

    def in_units_of(self, unit: float) -> SequentialPosterior:
        """Return the same posterior of weights divided by `unit`."""
        sampler = self.sampler
        return replace(
            self,
            centres=self.centres / unit,
            step=self.step / unit,
            prior_variance=self.prior_variance / unit**2,
            sampler=None if sampler is None else replace(sampler, scale=sampler.scale / unit),
        )

    def check(self) -> None:
        """Raise unless the codes are indices of levels."""
        n_weights, n_levels = len(self.own_mean), self.unit_levels.shape[-1]
        for name in ("packed_codes", "packed_nearest"):
            packed = getattr(self, name)
            if packed.shape[1] != packed_width(n_weights, n_levels):
                raise ValueError(f"{name} must have {packed_width(n_weights, n_levels)} bytes per draw")
            if unpack_codes(packed, n_weights, n_levels).max(initial=0) >= n_levels:
                raise ValueError(f"{name} must be indices of {n_levels} levels")


def packed_width(n_weights: int, n_levels: int) -> int:
    """Bytes of one draw's level indices: two indices to a byte where 4 bits hold one."""
    return (n_weights + 1) // 2 if n_levels <= 16 else n_weights


def pack_codes(codes: Codes, n_levels: int) -> Codes:
    """Pack level indices (n_draws, n_weights), the even ones into the low halves of bytes; see `packed_width`."""
    if n_levels > 16:
        return codes
    packed = np.zeros((len(codes), packed_width(codes.shape[1], n_levels)), dtype=np.uint8)
    packed |= codes[:, ::2]
    packed[:, : codes.shape[1] // 2] |= codes[:, 1::2] << 4
    return packed


def unpack_codes(packed: Codes, n_weights: int, n_levels: int) -> Codes:
    """Inverse of `pack_codes`."""
    if n_levels > 16:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)[:, :n_weights]
