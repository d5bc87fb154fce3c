"""The decorrelated basis: where mean field becomes exact.

With A = VΛVᵀ the rotated weights Vᵀw no longer interact, so each q_j has its closed form for every noise level and
there are no local optima; an isotropic Gaussian prior does not change. On levels that are the quadrature nodes of each
weight's posterior (`pydirect.linear.tilted`) the ELBO at a fixed noise is the log evidence of continuous weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_number, short_repr
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.noise import NoiseGrid, NoisePosterior, warn_at_edge
from pydirect.distributions.priors import DensityPrior, GaussianPrior
from pydirect.linear.tilted import TiltedPriors, check_level_count, tilt
from pydirect.optimize.outcome import Outcome
from pydirect.persistence.fields import require_array, require_number, require_single
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, as_rotated_target
from pydirect.statistics.rotation import Rotation

# A direction whose data would narrow its prior by less than this fraction of the variance is dropped.
NEGLIGIBLE_INFORMATION = 1e-5
# Number of entries from which the rotation of a fitted model is kept in single precision.
LARGE_ROTATION = 2**18
# Two parameters are found to rounding, so that data that differ by rounding only give models that do.
TO_ROUNDING = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200}
# Posterior standard deviations of log σ² that its grid extends to on either side.
NOISE_REACH = 4.0


@dataclass
class DecorrelatedPosterior(MeanFieldPosterior):
    """A factorised posterior of rotated weights.

    Attributes
    ----------
    weights : FactorizedCategorical
    noise : NoisePosterior
    log_prior : ndarray, (n_weights or 1, n_levels)
    outcome : Outcome
        The last ELBO of its trace is exact; those before are of A in single precision, and may lie above it by as much
        as that rounds.
    rotation : Rotation
        `weights` lives in its columns. Fitted models hold it in single precision where it is large.
    prior_variance : float
        Variance of the directions that were dropped, which stay at their prior.
    """

    rotation: Rotation = field(kw_only=True)
    prior_variance: float = field(kw_only=True)

    __repr__ = short_repr

    @property
    def vectors(self) -> NDArray[Any]:
        """The rotation's columns, (n_weights, n_directions); formed when they are first asked for."""
        return self.rotation.matrix

    @property
    def coefficients(self) -> FloatArray:
        """Posterior mean of the weights of Φ, (n_weights,)."""
        return self.rotation.times(self.mean)

    @property
    def covariance(self) -> FloatArray:
        """Posterior covariance of the weights of Φ, (n_weights, n_weights)."""
        vectors = np.asarray(self.vectors, dtype=np.float64)
        with single_blas_thread():
            inside = (vectors * (self.variance - self.prior_variance)) @ vectors.T
        inside.flat[:: len(inside) + 1] += self.prior_variance
        return inside

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of ``f* = φᵀw`` for rows of Φ; (n_rows,) each.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows,) each.
        """
        return self.moments_of_rotated(*self.rotated(phi), n_threads)

    def rotated(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return Φ in the kept directions, (n_rows, n_directions), and squared lengths of the rest, (n_rows,).

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.

        Returns
        -------
        (ndarray, ndarray)
            The two.
        """
        rotated, outside = phi @ self.vectors, np.zeros(len(phi))
        if rotated.shape[1] < phi.shape[1]:
            # Not as a difference of squared lengths: little may be left of them.
            rest = phi - rotated @ self.vectors.T
            outside = np.einsum("ij,ij->i", rest, rest)
        return rotated, outside

    def moments_of_rotated(
        self, rotated: FloatArray, outside: FloatArray, n_threads: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows as `rotated` returns them; (n_rows,) each.

        Parameters
        ----------
        rotated : ndarray of shape (n_rows, n_directions)
            Φ in the kept directions.
        outside : ndarray of shape (n_rows,)
            Squared lengths of the rest.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        (ndarray, ndarray)
            Means and variances, (n_rows,) each.
        """
        mean, variance = super().latent_moments(rotated, n_threads)
        return mean, variance + self.prior_variance * outside

    def latent_cumulant(self, phi: FloatArray, order: int) -> FloatArray:
        """Cumulants of f*, order 1 to 4; dropped directions count as Gaussian.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        order : int
            Order of the cumulant, 1 to 4.

        Returns
        -------
        ndarray of shape (n_rows,)
            Cumulants.
        """
        rotated, outside = self.rotated(phi)
        cumulant = super().latent_cumulant(rotated, order)
        return cumulant + self.prior_variance * outside if order == 2 else cumulant

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights); dropped directions are drawn from a Gaussian prior.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        rng : Generator
            Source of the random numbers.

        Returns
        -------
        ndarray of shape (n_samples, n_weights)
            Weights.
        """
        drawn = super().sample_weights(n_samples, rng) @ self.vectors.T
        if self.vectors.shape[1] < self.vectors.shape[0]:
            free = np.sqrt(self.prior_variance) * rng.standard_normal(drawn.shape)
            drawn += free - (free @ self.vectors) @ self.vectors.T
        return drawn

    def covariance_root(self) -> FloatArray:
        """Return R with RRᵀ the covariance of the weights of Φ, (n_weights, n_weights).

        Returns
        -------
        ndarray of shape (n_weights, n_weights)
            R.
        """
        deviations = np.sqrt(self.variance)
        if self.vectors.shape[0] == self.vectors.shape[1]:
            return self.vectors * deviations
        outside = np.sqrt(self.prior_variance)  # of directions that were dropped
        root: FloatArray = (self.vectors * (deviations - outside)) @ self.vectors.T
        root[np.diag_indices_from(root)] += outside
        return root

    def check(self, n_weights: int) -> None:
        """Raise unless the posterior is of this number of weights of Φ and its numbers are in their ranges.

        Parameters
        ----------
        n_weights : int
            Number of weights.
        """
        n_directions = self.vectors.shape[-1]
        single = self.vectors.size >= LARGE_ROTATION or self.vectors.dtype == np.float32  # those of many groups are
        require = require_single if single else require_array
        require(self.vectors, "vectors", n_weights, n_directions)
        require_number(self.prior_variance, "prior_variance", above=0.0)
        self._check_factors(n_directions)


def fit_decorrelated(
    rotated: RotatedTarget | RotatedStatistics,
    noise: float,
    *,
    prior: DensityPrior | None = None,
    n_levels: int = 15,
    n_noise_levels: int = 15,
    max_iter: int = 1000,
) -> DecorrelatedPosterior:
    """Fit the posterior in the decorrelated basis, on levels that have the moments of each weight's posterior.

    Parameters
    ----------
    rotated : RotatedStatistics or RotatedTarget
        Of one target; of several, ``rotated.target(k)``.
    noise : float
        Centre of the noise grid, usually from `maximise_evidence`.
    prior : DensityPrior, optional
        Standard Gaussian by default; of each rotated weight.
    n_levels : int, default=15
        At least 2, at most 256, and 64 with a prior that is not Gaussian. Only moments of the weights beyond their
        variance depend on it.
    n_noise_levels : int, default=15
        1 fixes the noise at `noise`.
    max_iter : int, default=1000
        Largest number of iterations.

    Returns
    -------
    DecorrelatedPosterior
        Its means, variances and ELBO are those of continuous weights whatever the number of levels, see
        `pydirect.linear.tilted`: exactly with a Gaussian prior, by quadrature with another. At a fixed noise the
        ELBO is the log evidence of the continuous prior, less at most 5e-6 for each direction that is dropped; with a
        grid it is a lower bound on the log of the evidence's mean over the grid, since weights and noise are
        independent a posteriori.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics, fit_decorrelated
    >>> from pydirect.statistics import decorrelate
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((100, 2))
    >>> y = phi @ [1.0, -1.0] + 0.1 * rng.standard_normal(100)
    >>> rotated = decorrelate(GaussianStatistics.from_arrays(phi, y))
    >>> fit_decorrelated(rotated, noise=0.01).coefficients.round(1).tolist()
    [1.0, -1.0]
    """
    noise = as_number(noise, "noise", above=0.0)
    n_noise_levels, max_iter = as_count(n_noise_levels, "n_noise_levels"), as_count(max_iter, "max_iter")
    prior = GaussianPrior() if prior is None else prior
    if not hasattr(prior, "log_density"):
        raise TypeError(f"prior must have a density, log_density(w), to place levels anywhere, got {prior!r}")
    check_level_count(n_levels, prior)
    target = as_rotated_target(rotated)
    information = prior.variance * target.eigenvalues / noise
    determined = (information / (1 + information)).sum()
    target = _informative(target, prior, noise)
    centre = target.c / target.eigenvalues

    width = np.sqrt(2.0 / max(target.n_samples - determined, 1.0))  # posterior sd of log σ² (Laplace)
    reach = min(NOISE_REACH * width, np.log(30.0))
    noise_levels = noise * np.exp(reach * np.linspace(-1, 1, n_noise_levels))
    grid_of_noise = NoiseGrid.of([noise] if n_noise_levels == 1 else noise_levels)

    def ascend(log_tau: float, near: TiltedPriors | None) -> tuple[TiltedPriors, NoisePosterior, float]:
        """Weights at an expected precision, the noise that is best for them, and the ELBO of both."""
        weights = tilt(prior, centre, np.exp(log_tau) * target.eigenvalues, near)
        error = target.squared_error(weights.mean, weights.variance + weights.mean**2)
        q_noise, share = grid_of_noise.given(error, target.n_samples)
        return weights, grid_of_noise.posterior(q_noise), share - weights.kl

    visited = [float(-np.log(grid_of_noise.levels[n_noise_levels // 2]))]
    weights, noise_posterior, elbo = ascend(visited[0], None)
    trace, converged, interrupted = [elbo], False, False
    while len(trace) < max_iter and not converged:
        visited.append(float(np.log(noise_posterior.precision)))
        # The plain step never lowers the ELBO; where it crawls, Aitken's extrapolation of the last three goes first.
        proposals = [_aitken(*visited[-3:]), visited[-1]] if len(visited) % 3 == 0 else [visited[-1]]
        try:
            for proposal in proposals:
                candidate = ascend(proposal, weights)
                if candidate[2] > trace[-1] or proposal == visited[-1]:
                    break
        except KeyboardInterrupt:
            interrupted = True
            break
        visited[-1] = proposal
        weights, noise_posterior, elbo = candidate
        trace.append(elbo)
        converged = trace[-1] - trace[-2] <= 1e-9 * (abs(trace[-1]) + 1)
    warn_at_edge(noise_posterior)
    levels, log_prior = weights.on_levels(n_levels)
    return DecorrelatedPosterior(
        levels,
        noise_posterior,
        log_prior,
        Outcome(elbo, np.array(trace), len(trace), converged, interrupted),
        rotation=target.rotation,
        prior_variance=prior.variance,
    )


def with_precision(posteriors: Sequence[Any], dtype: DTypeLike, smallest: int = 0) -> list[Any]:
    """Return posteriors whose rotations, of at least so many entries, have this type; outputs share them as before.

    Single precision moves deviations of f by about 1e-9 of those under the prior. Smaller rotations are formed now.
    """
    rotations: dict[int, Rotation] = {}
    found = []
    for posterior in posteriors:
        if isinstance(posterior, DecorrelatedPosterior):
            own = posterior.rotation
            key = id(own.matrix) if own.is_formed else id(own)  # files share matrices
            if key not in rotations:
                rotations[key] = own.astype(dtype) if np.prod(own.shape) >= smallest else own.formed()
            posterior = replace(posterior, rotation=rotations[key])
        found.append(posterior)
    return found


def latent_variances(posteriors: Sequence[Any], scale: FloatArray, phi: FloatArray) -> FloatArray:
    """Variances of functions scale · φᵀw, one per posterior, (n_rows, n_outputs).

    Decorrelated posteriors with the same vectors share the rotation of Φ.
    """
    variances = np.empty((len(phi), len(posteriors)))
    sharing: dict[int, list[int]] = {}
    for k, posterior in enumerate(posteriors):
        if isinstance(posterior, DecorrelatedPosterior):
            sharing.setdefault(id(posterior.vectors), []).append(k)
        else:
            variances[:, k] = posterior.latent_moments(phi)[1]
    for own in sharing.values():
        chosen = [posteriors[k] for k in own]
        variances[:, own] = variances_of_rotated(chosen, *chosen[0].rotated(phi))
    return scale**2 * variances


def variances_of_rotated(
    posteriors: Sequence[DecorrelatedPosterior], rotated: FloatArray, outside: FloatArray
) -> FloatArray:
    """Variances of φᵀw, (n_rows, n_posteriors), of posteriors with the same vectors; rows as `rotated` returns them.

    One product with the variances of all weights, as 100 outputs read their rows a hundred times otherwise.
    """
    if len(posteriors) == 1:
        return posteriors[0].moments_of_rotated(rotated, outside)[1][:, None]
    inside = rotated**2 @ np.stack([posterior.variance for posterior in posteriors], axis=1)
    return inside + np.outer(outside, [posterior.prior_variance for posterior in posteriors])


def moved_to(
    posterior: DecorrelatedPosterior, target: RotatedTarget, prior: DensityPrior, coefficients: FloatArray
) -> DecorrelatedPosterior:
    """Return the posterior with the same spreads about other means, and the ELBO that is left.

    Parameters
    ----------
    posterior : DecorrelatedPosterior
        With a single noise level.
    target : RotatedTarget
        That it was fitted to.
    prior : DensityPrior
    coefficients : ndarray of shape (n_weights,)
        Means of the weights of Φ.
    """
    noise = posterior.noise.levels[:1]
    target = _informative(target, prior, float(noise[0]))
    step = posterior.rotation.transposed_times(coefficients) - posterior.mean
    weights = FactorizedCategorical(posterior.levels + step[:, None], posterior.q)
    # E log p changes as it does for continuous weights.
    change = prior.log_density(weights.levels) - prior.log_density(posterior.levels)
    continuous = tilt(prior, target.c / target.eigenvalues, target.eigenvalues / noise)
    change += (continuous.log_density_change(prior, step) - np.einsum("jk,jk->j", posterior.q, change))[:, None]
    log_prior = posterior.log_prior + change
    error = target.squared_error(weights.mean, weights.second_moment)
    elbo = NoiseGrid.of(noise).given(error, target.n_samples)[1] - weights.kl(log_prior)
    return replace(posterior, weights=weights, log_prior=log_prior, outcome=posterior.outcome.at(float(elbo)))


def _informative(target: RotatedTarget, prior: DensityPrior, noise: float) -> RotatedTarget:
    """Return the statistics in directions whose data narrow the prior; weights of the others stay at their prior.

    So that the ELBO is a bound, ``R = E‖y − Φw‖²`` keeps what their variance adds to it.
    """
    kept = prior.variance * target.eigenvalues / noise > NEGLIGIBLE_INFORMATION
    free = prior.variance * float(target.eigenvalues[~kept].sum())
    return replace(target.keep(kept), yty=target.yty + free)


def _aitken(first: float, second: float, third: float) -> float:
    """Limit of a linearly converging sequence from three of its terms, at most a factor of e³ away in τ."""
    curvature = third - 2 * second + first
    if curvature == 0.0:
        return third
    return third + float(np.clip(-((third - second) ** 2) / curvature, -3.0, 3.0))
