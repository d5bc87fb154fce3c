"""The Gaussian posterior of weights, N(m, S) with S = (A/σ² + I/t)⁻¹: in eigenvectors of A, or by a Cholesky factor.

With A = VΛVᵀ the rotated weights Vᵀw are independent, of precisions λ/σ² + 1/t, whatever the noise and prior variance;
directions outside of V keep the prior variance t. With LLᵀ = A/σ² + I/t nothing is diagonalised, and the variance at a
row φ is ‖L⁻¹φ‖².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from pydirect import _core
from pydirect._dense import half_rows, product, solve_factored, solve_lower, solve_upper, squared_norms
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect.distributions.noise import NoisePosterior
from pydirect.optimize.cholesky import ridge_factor
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.persistence.schema import As, AtLeast, Positive, Shape
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, Rotation

# Of more outputs one product with eigenvectors is less work than a triangular one for each.
MOST_FACTORED = 2

_PriorVariance = Annotated[float, Positive] | Annotated[FloatArray, Shape("n_outputs"), Positive]


@dataclass
class GaussianPosterior(WithOutcome):
    """Gaussian posterior of the weights of Φ, of one output or of several with the same directions.

    Attributes
    ----------
    rotation : Rotation
        To orthonormal directions V, (n_weights, n_directions); the others stay at their prior. Fitted models hold it in
        single precision where it is large.
    mean, variance : ndarray of shape (n_directions,) or (n_directions, n_outputs)
        Of the rotated weights Vᵀw, which are independent.
    prior_variance : float or ndarray of shape (n_outputs,)
        Prior variance t of the weights.
    noise : NoisePosterior, optional
        Posterior of the noise variance, independent of the weights.
    outcome : Outcome, optional
        ELBO of weights and noise: at a fixed noise the log evidence.
    """

    rotation: Rotation
    mean: Annotated[FloatArray, Shape("n_directions*"), Shape("n_directions*", "n_outputs")]
    variance: Annotated[FloatArray, Shape("n_directions*"), Shape("n_directions*", "n_outputs"), AtLeast(0.0)]
    prior_variance: Annotated[Any, As(_PriorVariance)]
    noise: Annotated[Any, As(NoisePosterior | None)] = None  # as the next, None where weights alone are wanted
    outcome: Annotated[Any, As(Outcome | None)] = None

    __repr__ = short_repr

    @classmethod
    def of(
        cls,
        rotated: RotatedStatistics | RotatedTarget,
        precision: FloatArray | float,
        prior_variance: FloatArray | float,
    ) -> Self:
        """Return the posterior at noise precisions τ and prior variances t, (n_outputs,) each."""
        variance = 1 / (np.multiply.outer(rotated.eigenvalues, precision) + 1 / prior_variance)
        return cls(rotated.rotation, variance * precision * rotated.c, variance, prior_variance)

    # --- weights

    @property
    def vectors(self) -> NDArray[Any]:
        """The rotation's columns V, (n_weights, n_directions); formed when they are first asked for."""
        return self.rotation.matrix

    @property
    def coefficients(self) -> FloatArray:
        """Posterior mean of the weights of Φ, (n_weights,) or (n_weights, n_outputs)."""
        return self.rotation.times(self.mean)

    @property
    def std(self) -> FloatArray:
        """Posterior standard deviations of the rotated weights, of the shape of `variance`."""
        return np.asarray(np.sqrt(self.variance))

    @property
    def sparsity(self) -> float:
        """Fraction of weights that are exactly zero: none."""
        return 0.0

    @property
    def covariance(self) -> FloatArray:
        """Posterior covariance of the weights of Φ, (n_weights, n_weights), of one output."""
        vectors = np.asarray(self.vectors, dtype=np.float64)
        with single_blas_thread():
            inside: FloatArray = (vectors * (self.variance - self.prior_variance)) @ vectors.T
        inside.flat[:: len(inside) + 1] += self.prior_variance
        return inside

    def covariance_root(self) -> FloatArray:
        """Return R with RRᵀ the covariance, (n_weights, n_weights), of one output."""
        if self._is_complete:
            return np.asarray(self.vectors * self.std)
        outside = np.sqrt(self.prior_variance)
        root: FloatArray = (self.vectors * (self.std - outside)) @ self.vectors.T
        root[np.diag_indices_from(root)] += outside
        return root

    @property
    def kl(self) -> float:
        """``KL(q ‖ p)`` from the prior N(0, tI), of one output."""
        excess = self.variance / self.prior_variance - 1
        return float(0.5 * (excess - np.log1p(excess) + self.mean**2 / self.prior_variance).sum())

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights), of one output."""
        drawn = self.mean + self.std * rng.standard_normal((n_samples, len(self.mean)))
        weights: FloatArray = drawn @ self.vectors.T
        if not self._is_complete:
            free = np.sqrt(self.prior_variance) * rng.standard_normal(weights.shape)
            weights += free - (free @ self.vectors) @ self.vectors.T
        return weights

    def sketch(self, rng: np.random.Generator, n_signs: int = 128) -> FloatArray:
        """Return S, (n_outputs, n_weights, n_signs), with E‖Sᵀφ‖² the variance of f, to a relative √(2/n_signs).

        The symmetric root of the covariance times random signs (Hutchinson's estimator); projections onto it cost a
        fraction of `moments` where there are many weights.
        """
        signs = random_signs(rng, self.rotation.shape[0], n_signs)
        turned = self.rotation.transposed_times(signs)
        outside = np.sqrt(np.atleast_1d(self.prior_variance))
        parts = zip(outside, np.atleast_2d(self.std.T), strict=True)
        return np.stack([s * signs + self.rotation.times((std - s)[:, None] * turned) for s, std in parts])

    # --- functions

    def moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f at rows of Φ, (n_rows,) or (n_rows, n_outputs) each."""
        return self.moments_of_rotated(*self.rotated(phi), n_threads)

    latent_moments = moments

    def rotated(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ΦV, (n_rows, n_directions), and squared lengths of what is outside of V, (n_rows,)."""
        rotated, outside = product(phi, self.vectors), np.zeros(len(phi))
        if not self._is_complete:
            # Not as a difference of squared lengths: little may be left of them.
            rest = phi - product(rotated, self.vectors.T)
            outside = squared_norms(rest)
        return rotated, outside

    def moments_of_rotated(
        self, rotated: FloatArray, outside: FloatArray, n_threads: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f for rows as `rotated` returns them."""
        if self.mean.ndim == 1:
            mean, variance = np.empty(len(rotated)), np.empty(len(rotated))
            _core.row_moments(rotated, self.mean, self.variance, mean, variance, n_threads)
        else:
            mean, variance = product(rotated, self.mean), product(np.square(rotated), self.variance)
        return mean, variance + np.multiply.outer(outside, self.prior_variance)

    def covariances(self, phi: FloatArray, other: FloatArray) -> FloatArray:
        """Covariances of f at rows of Φ with f at others, (n_rows, n_other), of one output."""
        outside = 0.0 if self._is_complete else self.prior_variance
        inside = product(product(phi, self.vectors) * (self.variance - outside), self.vectors.T)
        return np.asarray(product(inside + outside * phi, other.T))

    # --- files

    def check(self) -> None:
        """Raise unless mean, variance and prior variance are all of one output or all of several."""
        if not self.mean.ndim == self.variance.ndim == 1 + np.ndim(self.prior_variance):
            raise ValueError("variance and prior_variance must be of the outputs of mean")

    @property
    def _is_complete(self) -> bool:
        """Whether there are no directions outside of V."""
        return self.rotation.shape[0] == self.rotation.shape[1]


@dataclass
class FactoredPosterior:
    """The same posterior by Cholesky factors of its precision.

    A triangular product per row and output: half the work of a product with eigenvectors, which need not be known.

    - `coefficients`, (n_weights,) or (n_weights, n_outputs): posterior means m.
    - `factors`: L with LLᵀ = A/σ² + I/t, (n_weights, n_weights), of every output.
    - `noise_variance`, `prior_variance`: float, or (n_outputs,).
    """

    coefficients: FloatArray
    factors: tuple[FloatArray, ...]
    noise_variance: Any
    prior_variance: Any

    __repr__ = short_repr

    @classmethod
    def of(
        cls,
        sums: TargetStatistics | GaussianStatistics,
        noise_variance: FloatArray | float,
        prior_variance: FloatArray | float,
    ) -> Self:
        """Return the posterior of the rows of sums at noise variances σ² and prior variances t, (n_outputs,) each."""
        a, noise = sums.A, np.broadcast_to(noise_variance, sums.c.shape[1:])
        prior = np.broadcast_to(prior_variance, noise.shape)
        factors = tuple(ridge_factor(a / own, 1 / t) for own, t in zip(noise.flat, prior.flat, strict=True))
        columns = zip(factors, np.atleast_2d((sums.c / noise).T), strict=True)
        means = [solve_factored(factor, column) for factor, column in columns]
        return cls(np.stack(means, axis=-1).reshape(sums.c.shape), factors, noise_variance, prior_variance)

    @property
    def factor(self) -> FloatArray:
        """L of the only output."""
        [factor] = self.factors
        return factor

    @property
    def covariance(self) -> FloatArray:
        """Posterior covariance of the weights, (n_weights, n_weights), of one output."""
        with single_blas_thread():
            inverse, info = lapack.dpotri(self.factor, lower=1)
        assert info == 0
        covariance: FloatArray = inverse.T
        _core.mirror_upper_triangle(covariance, 1)
        return covariance

    def half(self, phi: FloatArray) -> FloatArray:
        """Return L⁻¹Φᵀ, (n_weights, n_rows): products of its columns are covariances of f."""
        return solve_lower(self.factor, phi.T)

    def moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f at rows of Φ, (n_rows,) or (n_rows, n_outputs) each."""
        mean, variance = product(phi, self.coefficients, n_threads), np.empty((len(phi), len(self.factors)))
        for k, factor in enumerate(self.factors):
            variance[:, k] = squared_norms(half_rows(factor, phi.copy(), n_threads), n_threads)
        return mean, variance.reshape(mean.shape)

    latent_moments = moments

    def covariances(self, phi: FloatArray, other: FloatArray) -> FloatArray:
        """Covariances of f at rows of Φ with f at others, (n_rows, n_other), of one output."""
        return np.asarray(product(solve_factored(self.factor, phi.T).T, other.T))

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights, (n_samples, n_weights), of one output."""
        normal = rng.standard_normal((len(self.coefficients), n_samples))
        drawn = solve_upper(self.factor.T, normal).T
        return np.asarray(self.coefficients + drawn)

    def sketch(self, rng: np.random.Generator, n_signs: int = 128) -> FloatArray:
        """Return what `GaussianPosterior.sketch` does, of another square root of the covariance."""
        signs = random_signs(rng, len(self.coefficients), n_signs)
        return np.stack([solve_upper(f.T, signs) for f in self.factors])


def posterior_for_rows(
    rotated: RotatedStatistics, precision: FloatArray, prior_variance: FloatArray
) -> GaussianPosterior | FactoredPosterior:
    """Return the posterior of `GaussianPosterior.of` in the form that gives moments at the statistics' rows sooner.

    Factors of few outputs, of a matrix of full rank; where rounding lets a factorisation fail, none.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import posterior_for_rows
    >>> from pydirect.statistics import decorrelate
    >>> rotated = decorrelate(GaussianStatistics.from_arrays(np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0]))
    >>> mean, variance = posterior_for_rows(rotated, np.ones(1), np.ones(1)).moments(np.ones((1, 1)))
    >>> round(float(mean[0, 0]), 6), round(float(variance[0, 0]), 6)
    (2.0, 0.2)
    """
    posterior = GaussianPosterior.of(rotated, precision, prior_variance)
    n_weights, n_directions = rotated.rotation.shape
    if rotated.gram is None or n_directions < n_weights or len(prior_variance) > MOST_FACTORED:
        return posterior
    try:
        pairs = zip(precision, prior_variance, strict=True)
        factors = tuple(ridge_factor(rotated.gram * tau, 1 / t) for tau, t in pairs)
    except np.linalg.LinAlgError:
        return posterior
    return FactoredPosterior(posterior.coefficients, factors, 1 / precision, prior_variance)


def random_signs(rng: np.random.Generator, n_weights: int, n_signs: int) -> FloatArray:
    """Return ±1/√n_signs, (n_weights, n_signs)."""
    return rng.choice([-1.0, 1.0], (n_weights, n_signs)) / np.sqrt(n_signs)
