"""The posterior of weights given sums with noise of known variances: it knows what the noise may have done.

Released are Â = A + E and ĉ = c + e (`pydirect.statistics.NoisyStatistics`), and c = Aw + Φᵀε. Taken for A and c, they
give posteriors that are far too narrow, as noise in Â looks like information. Here

    ĉ − Āw = Φᵀε + e + (A − Ā)w ~ N(0, Ω),   Ω = σ²Ā + s_c²I + Cov[Aw],

where Ā and the covariance are moments of A given Â. With a Gaussian prior w ~ N(0, tI) the posterior has the precision
I/t + ĀΩ⁻¹Ā and the mean that ĀΩ⁻¹ĉ gives: that of ordinary sums A' = σ²ĀΩ⁻¹Ā and c' = σ²ĀΩ⁻¹ĉ, which all inference
takes. Cov[Aw] depends on w, of which it takes the second moments under the posterior, and so does σ²: both are iterated
(Bernstein & Sheldon 2019 sample such a model for a few weights).

**A given Â.** In the basis of eigenvectors of a reference B, Φ's second moment over inputs from anywhere in their
range, entries of A get independent priors A_ij ~ N(α b_i^p δ_ij, κ (b_i b_j)^p (1 + δ_ij)), with α, κ and p where the
likelihood of Â is largest. Directions in which the features hardly vary for any inputs then have no part of Â's noise;
without this knowledge Â has as many large eigenvalues as it has noise. With noise of variance s²/2 off the diagonal and
s² on it, each entry's posterior variance is g_ij times that of its noise, g = prior / (prior + noise), and

    Cov[Aw]_ik = ½ s² (δ_ik Σ_j g_ij E w_j² + g_ik E w_i w_k).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, eigh, solve_triangular
from scipy.optimize import minimize, minimize_scalar

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_float_array, as_instance, as_number, short_repr
from pydirect.optimize.cholesky import ridge_factor
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.noisy import NoisyStatistics

MAX_ITER = 100
# Relative changes of hyperparameters and of second moments that end the iteration.
TOLERANCE = 1e-4
# Of the targets' mean square: the least noise that sums with noise can show.
LEAST_NOISE = 1e-4
# Eigenvalues of the reference below this share of the largest are no different from each other.
LEAST_SHARE = 1e-12
# Of the log of the prior variance: how far from a guess it is looked for, in how many steps, and how far it then moves.
REACH, GRID, STEP = 12.0, 25, 0.5


@dataclass(frozen=True)
class GramPosterior:
    """Moments of A = ΦᵀΦ given A with noise, in the basis `vectors`.

    Parameters
    ----------
    vectors : ndarray of shape (b, b)
        Columns of the basis.
    mean : ndarray of shape (b, b)
        Ā, positive semi-definite.
    uncertain : ndarray of shape (b, b)
        g, posterior over noise variance of each entry.
    noise_variance : float
        s², of the noise on the diagonal.
    """

    vectors: FloatArray
    mean: FloatArray
    uncertain: FloatArray
    noise_variance: float

    __repr__ = short_repr

    @classmethod
    def of(cls, gram: FloatArray, noise_variance: float, reference: FloatArray) -> GramPosterior:
        """Infer A from Â and its noise variance on the diagonal, given a reference B; (b, b) each.

        Parameters
        ----------
        gram : ndarray of shape (b, b)
            Â.
        noise_variance : float
            s², of the noise on the diagonal.
        reference : ndarray of shape (b, b)
            B.
        """
        size, vectors = eigh(reference)
        log_size = np.log(np.maximum(size / size[-1], LEAST_SHARE))
        given = vectors.T @ gram @ vectors
        upper, noise = np.triu_indices(len(size), 1), noise_variance / 2
        squares, log_pairs, diagonal = given[upper] ** 2, (log_size[:, None] + log_size)[upper], given.diagonal()

        def level(log_kappa: float, p: float) -> tuple[FloatArray, float, FloatArray]:
            """Shape of the diagonal's prior mean, its factor α where likeliest, and variances of the diagonal of Â."""
            shape, variance = np.exp(p * log_size), 2 * (np.exp(log_kappa + 2 * p * log_size) + noise)
            return shape, max(float(shape @ (diagonal / variance) / (shape @ (shape / variance))), 0.0), variance

        def surprise(parameters: FloatArray) -> float:
            log_kappa, p = parameters
            variance = np.exp(log_kappa + p * log_pairs) + noise
            shape, alpha, own = level(log_kappa, p)
            beside = np.log(variance).sum() + (squares / variance).sum()
            return float(beside + (np.log(own) + (diagonal - alpha * shape) ** 2 / own).sum()) / 2

        start = np.array([np.log(squares.mean() + noise), 1.0])
        options = {"xatol": 0.02, "fatol": 0.05, "initial_simplex": start + np.array([[0, 0], [1, 0], [0, 0.3]])}
        log_kappa, p = minimize(surprise, start, method="Nelder-Mead", options=options).x
        shape, alpha, _ = level(log_kappa, p)
        prior = np.exp(log_kappa + p * (log_size[:, None] + log_size))
        uncertain = prior / (prior + noise)
        expected = np.diag(alpha * shape)
        return cls(vectors, positive_part(expected + uncertain * (given - expected)), uncertain, noise_variance)

    def product_covariance(self, second_moment: FloatArray) -> FloatArray:
        """Covariance of Aw, given E wwᵀ, (b, b) each, in the basis.

        Parameters
        ----------
        second_moment : ndarray of shape (b, b)
            E wwᵀ.

        Returns
        -------
        ndarray of shape (b, b)
            Covariance.
        """
        own = np.diag(self.uncertain @ second_moment.diagonal())
        return np.asarray(self.noise_variance / 2 * (own + self.uncertain * second_moment))


@dataclass(frozen=True)
class CorrectedSums:
    """Sums whose ordinary posterior, at this noise and prior variance, is that which knows the noise of the release.

    Parameters
    ----------
    statistics : GaussianStatistics
        A', c', yᵀy' and n, of targets in [−1, 1].
    noise_variance : float
        Noise variance σ².
    prior_variance : float
        Prior variance t.
    n_iter : int
        Number of iterations.
    converged : bool
        Whether they converged.
    """

    statistics: GaussianStatistics
    noise_variance: float
    prior_variance: float
    n_iter: int
    converged: bool

    __repr__ = short_repr


@single_blas_thread()
def correct_noisy_sums(
    noisy: NoisyStatistics, reference: FloatArray, noise_variance: float | None = None
) -> CorrectedSums:
    """Return the sums that give the posterior which knows the noise of a release.

    Parameters
    ----------
    noisy : NoisyStatistics
        Sums with noise.
    reference : ndarray of shape (n_weights, n_weights)
        Mean of φφᵀ over inputs of the whole range, whatever the private rows are. The identity says nothing.
    noise_variance : float, optional
        σ², of targets in [−1, 1], where it is known.

    Returns
    -------
    CorrectedSums
        The sums.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.features import LinearFeatures
    >>> from pydirect.linear import correct_noisy_sums
    >>> from pydirect.statistics import NoisyStatistics
    >>> rng = np.random.default_rng(0)
    >>> x, bounds = rng.uniform(-1.0, 1.0, (5000, 1)), (-1.0, 1.0)
    >>> released = NoisyStatistics.release(
    ...     LinearFeatures(1), x, x[:, 0], y_bounds=bounds, norm_bound=1.5, mu=0.5, rng=rng
    ... )
    >>> sums = correct_noisy_sums(released, np.diag([1 / 3, 1.0])).statistics
    >>> slope, _ = np.linalg.solve(sums.gram, sums.c[:, 0])
    >>> round(float(slope), 1)
    1.0
    """
    as_instance(noisy, "noisy", NoisyStatistics)
    b = noisy.n_weights
    reference = as_float_array(reference, "reference", (b, b))
    known = None if noise_variance is None else as_number(noise_variance, "noise_variance", above=0.0)
    gram = GramPosterior.of(noisy.gram, noisy.gram_variance, reference)
    n = max(noisy.n_samples, np.sqrt(noisy.n_variance), 1.0)
    yty = max(noisy.yty, np.sqrt(noisy.yty_variance), np.finfo(float).tiny)
    c = gram.vectors.T @ noisy.c
    noise = 0.5 * yty / n if known is None else known
    start = np.log(0.5 * yty / max(float(np.trace(gram.mean)), np.sqrt(b * noisy.gram_variance)))
    scale = _likeliest_scale(noisy, gram, c, noise, start + np.linspace(-REACH, REACH, GRID))
    second_moment = scale * np.eye(b)
    converged, n_iter = False, 0
    while not converged and n_iter < MAX_ITER:
        n_iter += 1
        omega = noise * gram.mean + noisy.c_variance * np.eye(b) + gram.product_covariance(second_moment)
        root = cholesky(omega, lower=True)
        whitened = solve_triangular(root, gram.mean, lower=True)
        information, pull = whitened.T @ whitened, whitened.T @ solve_triangular(root, c, lower=True)
        precision = ridge_factor(information.copy(), 1 / scale), True
        mean, covariance = cho_solve(precision, pull), cho_solve(precision, np.eye(b))
        step = (np.outer(mean, mean) + covariance - second_moment) / 2  # whole ones may go to and fro
        second_moment = second_moment + step
        before = noise, scale
        if known is None:
            noise = max(_expected_error(noisy, gram, c, root, mean, second_moment, yty) / n, LEAST_NOISE * yty / n)
        scale = _likeliest_scale(noisy, gram, c, noise, np.log(scale) + np.array([-STEP, 0.0, STEP]))
        moved = np.abs(np.log([noise / before[0], scale / before[1]])).max()
        converged = max(moved, np.abs(step).max() / np.abs(second_moment).max()) < TOLERANCE
    turned = gram.vectors @ information @ gram.vectors.T
    corrected, weights = noise * (turned + turned.T) / 2, gram.vectors @ mean
    products = noise * (gram.vectors @ pull)
    # So that the expected squared error of the ordinary posterior is n σ².
    squares = n * noise + (2 * products - corrected @ weights) @ weights - noise * np.sum(information * covariance)
    statistics = GaussianStatistics(products[:, None], np.array([max(squares, noise)]), float(n), gram=corrected)
    return CorrectedSums(statistics, float(noise), float(scale), n_iter, bool(converged))


def _likeliest_scale(
    noisy: NoisyStatistics, gram: GramPosterior, c: FloatArray, noise: float, log_scales: FloatArray
) -> float:
    """Return the prior variance t at which ĉ ~ N(0, tĀ² + Ω), with E wwᵀ = tI, is likeliest, near the best of some."""
    square = gram.mean @ gram.mean + gram.product_covariance(np.eye(len(c)))
    rest = noise * gram.mean + noisy.c_variance * np.eye(len(c))

    def surprise(log_scale: float) -> float:
        root = cholesky(np.exp(log_scale) * square + rest, lower=True)
        return float(2 * np.log(root.diagonal()).sum() + np.square(solve_triangular(root, c, lower=True)).sum())

    best = int(np.argmin([surprise(log_scale) for log_scale in log_scales]))
    near = log_scales[max(best - 1, 0)], log_scales[min(best + 1, len(log_scales) - 1)]
    return float(np.exp(minimize_scalar(surprise, bounds=near, method="bounded", options={"xatol": 1e-6}).x))


def _expected_error(
    noisy: NoisyStatistics,
    gram: GramPosterior,
    c: FloatArray,
    root: FloatArray,
    mean: FloatArray,
    second_moment: FloatArray,
    yty: float,
) -> float:
    """Return E‖y − Φw‖² = yᵀy − 2 E wᵀc + E wᵀAw, where ĉ − Āw tells of the errors of ĉ and of Ā."""
    solved = cho_solve((root, True), np.column_stack([c, gram.mean]))
    cross = mean @ (c - noisy.c_variance * solved[:, 0]) + noisy.c_variance * np.sum(solved[:, 1:] * second_moment)
    residual = solved[:, 0] - solved[:, 1:] @ mean
    square = np.sum(gram.mean * second_moment) + mean @ gram.product_covariance(second_moment) @ residual
    return float(yty - 2 * cross + square)


def positive_part(matrix: FloatArray) -> FloatArray:
    """Return the nearest positive semi-definite matrix to a symmetric one."""
    values, vectors = eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
