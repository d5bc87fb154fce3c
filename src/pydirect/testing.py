"""Brute-force oracles for tests: posteriors, ELBOs and predictions by enumeration.

Every weight vector of a small hypothesis space is listed and summed over, without the algebra, kernels or optimisers of
the package. Useful in tests of your own priors, features and models.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pydirect._documentation import described_by
from pydirect._validation import FloatArray, as_count, as_float_array, as_float_array_unbounded, as_target

# Bound on weight vectors times noise levels, beyond which an enumeration is refused.
#: Largest number of weight vectors that is enumerated.
MAX_HYPOTHESES = 2_000_000


class _SufficientStatistics(Protocol):
    """Protocol of the parts of `GaussianStatistics` that are used here."""

    @property
    def A(self) -> FloatArray: ...  # pragma: no cover

    c: FloatArray
    yty: FloatArray
    n_samples: float


Data: TypeAlias = _SufficientStatistics | tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True)
class Enumeration:
    """A joint distribution of weights and noise variance, listed in full.

    Attributes
    ----------
    weights : ndarray of shape (n_hypotheses, n_weights)
        All weight vectors, the last weight varying fastest.
    noise_levels : ndarray of shape (n_noise_levels,)
        Noise variances σ².
    probability : ndarray of shape (n_hypotheses, n_noise_levels)
        Probability of each pair; sums to one.
    """

    weights: FloatArray
    noise_levels: FloatArray
    probability: FloatArray

    @property
    def weight_probability(self) -> FloatArray:
        """Probability of each weight vector, marginalised over the noise; (n_hypotheses,)."""
        return np.asarray(self.probability.sum(axis=1))

    @property
    def mean(self) -> FloatArray:
        """Means of the weights, (n_weights,)."""
        return self.weight_probability @ self.weights

    @property
    def covariance(self) -> FloatArray:
        """Covariance of the weights, (n_weights, n_weights)."""
        deviation = self.weights - self.mean
        return (deviation * self.weight_probability[:, None]).T @ deviation


class PredictiveMoments(NamedTuple):
    """Cumulants of predictions, one entry per row of Φ*.

    Parameters
    ----------
    mean : ndarray of shape (n_rows,)
        Means.
    variance : ndarray of shape (n_rows,)
        Variances.
    third_cumulant : ndarray of shape (n_rows,)
        Third cumulants.
    fourth_cumulant : ndarray of shape (n_rows,)
        Fourth cumulants.
    """

    mean: FloatArray
    variance: FloatArray
    third_cumulant: FloatArray
    fourth_cumulant: FloatArray


def enumerate_hypotheses(levels: ArrayLike, n_weights: int | None = None) -> FloatArray:
    """List all weight vectors, the last weight varying fastest.

    Parameters
    ----------
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take.
    n_weights : int, optional
        Required if all weights share one row of levels.

    Returns
    -------
    ndarray of shape (n_levels ** n_weights, n_weights)
        One weight vector per row.

    Examples
    --------
    >>> enumerate_hypotheses([0.0, 1.0], 2).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    return _choices(_levels_of(levels, n_weights))


def enumerate_log_evidence(
    data: Data,
    levels: ArrayLike,
    log_prior: ArrayLike,
    noise_levels: ArrayLike,
    log_noise_prior: ArrayLike | None = None,
    *,
    output: int = 0,
) -> float:
    """Exact log p(y) of the discrete model, summed over all weight vectors and noise levels.

    Parameters
    ----------
    data : tuple (phi, y) or GaussianStatistics
        Design matrix (n_samples, n_weights) with targets (n_samples,) or (n_samples, n_outputs), or their statistics.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take: shared, or of every weight.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels)
        Log probabilities of the levels, not normalised; -inf excludes a level.
    noise_levels : array_like of shape (n_noise_levels,)
        Noise variances.
    log_noise_prior : array_like of shape (n_noise_levels,), optional
        Log probabilities; uniform by default.
    output : int, default=0
        Index of the target.

    Returns
    -------
    float
        In nats, including −(n/2) log 2π.

    Examples
    --------
    One data point, y = w + ε with w = ±1 and σ² = 1: p(y = 1) is the mean of N(0; 0, 1) and N(2; 0, 1).

    >>> import numpy as np
    >>> value = enumerate_log_evidence(([[1.0]], [1.0]), [-1.0, 1.0], np.log([0.5, 0.5]), [1.0])
    >>> bool(np.isclose(np.exp(value), (1 + np.exp(-2)) / 2 / np.sqrt(2 * np.pi)))
    True
    """
    _, _, log_joint = _log_joint(data, levels, log_prior, noise_levels, log_noise_prior, output)
    return float(logsumexp(log_joint))


@described_by(enumerate_log_evidence)
def enumerate_posterior(
    data: Data,
    levels: ArrayLike,
    log_prior: ArrayLike,
    noise_levels: ArrayLike,
    log_noise_prior: ArrayLike | None = None,
    *,
    output: int = 0,
) -> Enumeration:
    """Exact posterior of weights and noise by Bayes' rule.

    Returns
    -------
    Enumeration
        The posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.testing import enumerate_posterior
    >>> posterior = enumerate_posterior(([[1.0]], [1.0]), [0.0, 1.0], np.log([0.5, 0.5]), noise_levels=[1.0])
    >>> posterior.probability.round(3).tolist()
    [[0.378], [0.622]]
    """
    weights, noise, log_joint = _log_joint(data, levels, log_prior, noise_levels, log_noise_prior, output)
    return Enumeration(weights, noise, np.exp(log_joint - logsumexp(log_joint)))


@described_by(enumerate_log_evidence)
def enumerate_factorized(levels: ArrayLike, q: ArrayLike, noise_levels: ArrayLike, q_noise: ArrayLike) -> Enumeration:
    """Enumerate a factorised posterior ``q_σ ∏_j q_j``.

    Parameters
    ----------
    q : array_like of shape (n_weights, n_levels)
        Probabilities of the levels.
    q_noise : array_like of shape (n_noise_levels,)
        Probabilities of the noise levels.

    Returns
    -------
    Enumeration
        The posterior.

    Examples
    --------
    >>> from pydirect.testing import enumerate_factorized
    >>> enumerate_factorized([0.0, 1.0], [[0.5, 0.5], [0.9, 0.1]], [1.0], [1.0]).probability.round(3).tolist()
    [[0.45], [0.05], [0.45], [0.05]]
    """
    q = as_float_array(q, "q", ("n_weights", "n_levels"))
    noise = as_float_array(noise_levels, "noise_levels", ("n_noise_levels",))
    q_noise = as_float_array(q_noise, "q_noise", noise.shape)
    table = _levels_of(levels, q.shape[0])
    # The probability of a weight vector is the product over its weights.
    of_weights = _choices(q, noise.size).prod(axis=1)
    return Enumeration(_choices(table), noise, of_weights[:, None] * q_noise)


@described_by(enumerate_factorized)
def enumerate_mixture(
    levels: ArrayLike, alpha: ArrayLike, q: ArrayLike, noise_levels: ArrayLike, q_noise: ArrayLike
) -> Enumeration:
    """Enumerate a mixture posterior ``q_σ Σ_i α_i ∏_j q_j^(i)``.

    Parameters
    ----------
    alpha : array_like of shape (n_components,)
        Weights of the components.
    q : array_like of shape (n_components, n_weights, n_levels)
        Probabilities of the levels.

    Returns
    -------
    Enumeration
        The posterior.

    Examples
    --------
    >>> from pydirect.testing import enumerate_mixture
    >>> q = [[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]  # both weights are 0, or both are 1
    >>> enumerate_mixture([0.0, 1.0], [0.5, 0.5], q, [1.0], [1.0]).probability.tolist()
    [[0.5], [0.0], [0.0], [0.5]]
    """
    q = as_float_array(q, "q", ("n_components", "n_weights", "n_levels"))
    alpha = as_float_array(alpha, "alpha", q.shape[:1])
    parts = [enumerate_factorized(levels, component, noise_levels, q_noise) for component in q]
    probability = sum(a * part.probability for a, part in zip(alpha, parts, strict=True))
    return Enumeration(parts[0].weights, parts[0].noise_levels, np.asarray(probability))


@described_by(enumerate_log_evidence, enumerate_factorized)
def enumerate_elbo(
    data: Data,
    levels: ArrayLike,
    log_prior: ArrayLike,
    noise_levels: ArrayLike,
    q: ArrayLike,
    q_noise: ArrayLike,
    log_noise_prior: ArrayLike | None = None,
    *,
    output: int = 0,
) -> float:
    """ELBO of a factorised posterior by definition, ``Σ q (log p(y, w, σ²) − log q)`` with 0 log 0 = 0.

    Returns
    -------
    float
        In nats.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.testing import enumerate_elbo
    >>> data, log_prior = ([[1.0]], [1.0]), np.log([0.5, 0.5])
    >>> elbo = enumerate_elbo(data, [0.0, 1.0], log_prior, [1.0], q=[[0.0, 1.0]], q_noise=[1.0])
    >>> bool(np.isclose(elbo, np.log(0.5) - 0.5 * np.log(2 * np.pi)))  # y = φw where w = 1
    True
    """
    _, _, log_joint = _log_joint(data, levels, log_prior, noise_levels, log_noise_prior, output)
    probability = enumerate_factorized(levels, q, noise_levels, q_noise).probability
    used = probability > 0
    return float(np.sum(probability[used] * (log_joint[used] - np.log(probability[used]))))


def enumerate_predictive_moments(
    phi_star: ArrayLike, distribution: Enumeration, *, noise: bool = False
) -> PredictiveMoments:
    """Mean, variance, third and fourth cumulant of predictions.

    Parameters
    ----------
    phi_star : array_like of shape (n_rows, n_weights)
        Rows of Φ to predict at.
    distribution : Enumeration
        Distribution of weights and noise.
    noise : bool, default=False
        Whether to predict y* = f* + ε rather than f* = φᵀw.

    Returns
    -------
    PredictiveMoments
        The moments.

    Examples
    --------
    >>> from pydirect.testing import enumerate_factorized, enumerate_predictive_moments
    >>> either = enumerate_factorized([0.0, 1.0], [[0.5, 0.5]], [1.0], [1.0])
    >>> moments = enumerate_predictive_moments([[2.0]], either)
    >>> moments.mean.tolist(), moments.variance.tolist()
    ([1.0], [1.0])
    """
    phi = as_float_array(phi_star, "phi_star", ("n_rows", distribution.weights.shape[1]))
    p, sigma2 = distribution.probability, distribution.noise_levels * float(noise)
    mean, moments = phi @ distribution.mean, []
    for row, centre in zip(phi, mean, strict=True):
        d = (distribution.weights @ row - centre)[:, None]
        # Moments of d + ε with ε ~ N(0, σ²).
        powers = d**2 + sigma2, d**3 + 3 * d * sigma2, d**4 + 6 * d**2 * sigma2 + 3 * sigma2**2
        moments.append([(p * power).sum() for power in powers])
    second, third, fourth = np.reshape(moments, (-1, 3)).T
    return PredictiveMoments(mean, second, third, fourth - 3 * second**2)


@described_by(enumerate_predictive_moments)
def enumerate_predictive_density(phi_star: ArrayLike, distribution: Enumeration, y: ArrayLike) -> FloatArray:
    """Density of y* = φᵀw + ε, a mixture of one Gaussian per weight vector and noise level.

    Parameters
    ----------
    y : array_like of shape (n_rows,)
        One point per row.

    Returns
    -------
    ndarray of shape (n_rows,)
        Densities.

    Examples
    --------
    >>> from pydirect.testing import enumerate_factorized, enumerate_predictive_density
    >>> certain = enumerate_factorized([0.0, 1.0], [[0.0, 1.0]], [1.0], [1.0])
    >>> enumerate_predictive_density([[2.0]], certain, [2.0]).round(4).tolist()  # N(2; 2, 1)
    [0.3989]
    """
    phi = as_float_array(phi_star, "phi_star", ("n_rows", distribution.weights.shape[1]))
    sigma2 = distribution.noise_levels
    coefficients = distribution.probability / np.sqrt(2 * np.pi * sigma2)
    errors = (
        point - distribution.weights @ row for row, point in zip(phi, as_float_array(y, "y", (len(phi),)), strict=True)
    )
    return np.array([(coefficients * np.exp(-0.5 * error[:, None] ** 2 / sigma2)).sum() for error in errors])


def check_likelihood(
    likelihood: Any, y: ArrayLike, means: ArrayLike = (-1.0, 0.5), deviations: ArrayLike = (0.1, 0.7), tol: float = 1e-5
) -> None:
    """Compare what a likelihood of one latent says about itself with quadrature and differences of its `log_density`.

    Parameters
    ----------
    likelihood : LatentLikelihood
        See `pydirect.logistic.LatentLikelihood`.
    y : array_like of shape (n_rows, n_columns)
        Targets.
    means : array_like of shape (n_means,), default=(-1.0, 0.5)
        Means of f, relative to the values that `guess` returns.
    deviations : array_like of shape (n_deviations,), default=(0.1, 0.7)
        Standard deviations of f.
    tol : float, default=1e-5
        What differences may be, relative to one plus the size of a value.

    Raises
    ------
    AssertionError
        With the name of what differs.

    Examples
    --------
    >>> from pydirect.logistic import IntervalLikelihood
    >>> from pydirect.testing import check_likelihood
    >>> check_likelihood(IntervalLikelihood(0.5), [[0.0, 0.0, 0.0], [1.0, float("inf"), 0.1]])
    """
    targets, z = as_float_array_unbounded(y, "y", ("n_rows", "n_columns")), np.linspace(-10, 10, 4001)
    masses = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()

    for shift, sd in product(as_float_array(means, "means", ("n",)), as_float_array(deviations, "deviations", ("n",))):
        mean, variance, h = likelihood.guess(targets) + shift, np.full(len(targets), sd**2), 1e-3 * sd
        f = mean[:, None] + sd * z
        likelihood.check_log_density(targets, f)
        low, log_density, high = (likelihood.log_density(targets, f + step) for step in (-h, 0.0, h))
        below, at, above = low @ masses, log_density @ masses, high @ masses
        found = likelihood.terms(targets, mean[:, None], variance)
        pairs = {
            "slope(y, f)": (likelihood.slope(targets, f[:, ::400]), (high - low)[:, ::400] / (2 * h)),
            "terms(...).value": (found.value, at),
            "terms(...).residual": (found.residual[:, 0], (above - below) / (2 * h)),
            "terms(...).precision": (found.precision, np.maximum(2 * at - above - below, 0.0) / h**2),
            "log_predictive(y, mean, variance)": (
                likelihood.log_predictive(targets, mean, variance),
                np.log(np.exp(log_density - at[:, None]) @ masses) + at,
            ),
        }
        for name, (value, expected) in pairs.items():
            worst = float(np.max(np.abs(value - expected) / (1 + np.abs(expected))))
            assert worst <= tol, f"{name} differs from quadrature by {worst:.2g} at a deviation of {sd:g}"


def _levels_of(levels: ArrayLike, n_weights: int | None) -> FloatArray:
    """Return levels with one row per weight."""
    raw = np.asarray(levels)
    if raw.ndim == 1 or (raw.ndim == 2 and raw.shape[0] == 1 and n_weights is not None):
        rows = as_count(1 if n_weights is None else n_weights, "n_weights")
        return np.broadcast_to(as_float_array(raw.ravel(), "levels", ("n_levels",)), (rows, raw.size))
    return as_float_array(raw, "levels", ("n_weights" if n_weights is None else n_weights, "n_levels"))


def _choices(table: FloatArray, n_noise: int = 1) -> FloatArray:
    """List all choices of one entry from each row, the last row's varying fastest; refuse if they are too many."""
    n_hypotheses = table.shape[1] ** table.shape[0] * n_noise
    if n_hypotheses > MAX_HYPOTHESES:
        raise ValueError(f"levels must give at most {MAX_HYPOTHESES} hypotheses to enumerate, got {n_hypotheses:.4g}")
    return np.stack([grid.ravel() for grid in np.meshgrid(*table, indexing="ij")], axis=1)


def _log_joint(
    data: Data,
    levels: ArrayLike,
    log_prior: ArrayLike,
    noise_levels: ArrayLike,
    log_noise_prior: ArrayLike | None,
    output: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weight vectors, noise levels, and log p(y, w, σ²) of each pair, (n_hypotheses, n_noise_levels)."""
    noise = as_float_array(noise_levels, "noise_levels", ("n_noise_levels",))
    if not (noise > 0).all():
        raise ValueError(f"noise_levels must be positive, got {noise.min()}")
    log_p_noise = np.full(noise.size, -np.log(noise.size))
    if log_noise_prior is not None:
        log_p_noise = as_float_array_unbounded(log_noise_prior, "log_noise_prior", noise.shape)
    n_weights = np.shape(data[0])[1] if isinstance(data, tuple) else data.c.shape[0]
    table = _levels_of(levels, n_weights)
    masses = np.atleast_2d(as_float_array_unbounded(log_prior, "log_prior", np.shape(log_prior)))
    if masses.shape not in (table.shape, (1, table.shape[1])):
        raise ValueError(f"log_prior must have one entry per level, {table.shape}, got {np.shape(log_prior)}")
    # The log prior of a weight vector is the sum over its weights.
    weights, log_p = _choices(table, noise.size), _choices(np.broadcast_to(masses, table.shape)).sum(axis=1)
    if isinstance(data, tuple):
        phi = as_float_array(data[0], "phi", ("n_samples", "n_weights"))
        y, n_samples, error = as_target(data[1], len(phi))[:, output], float(len(phi)), np.zeros(len(weights))
        for row, target in zip(phi, y, strict=True):
            error += (target - weights @ row) ** 2
    else:
        n_samples = float(data.n_samples)
        error = data.yty[output] - 2 * weights @ data.c[:, output] + ((weights @ data.A) * weights).sum(axis=1)
    log_likelihood = -0.5 * n_samples * np.log(2 * np.pi * noise) - 0.5 * error[:, None] / noise
    return weights, noise, log_likelihood + log_p[:, None] + log_p_noise
