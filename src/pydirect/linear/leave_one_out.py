"""What rows say of a regression with continuous Gaussian weights: exact, without a refit.

**Leave-one-out.** With the noise variance, the prior variance and the basis functions held, the prediction of row i
without that row follows from the posterior of all rows: the posterior variance of f there, in units of its noise
variance, is the row's leverage h, and the residual without the row is e/(1 − h) (Rasmussen & Williams 2006, section
5.4.2).

**Influence.** With precisions p = ω/σ² of rows Φ, the posterior of all rows is N(m, S), S⁻¹ = ΦᵀPΦ + I/t. Rows G that
are taken out leave S' = (S⁻¹ − Φ_GᵀP_GΦ_G)⁻¹ and, with their errors e = y_G − Φ_G m, m' = m − S'Φ_GᵀP_G e.

References
----------
Cook & Weisberg (1982), Residuals and Influence in Regression, sections 2.2 and 3.1 to 3.6. Belsley, Kuh & Welsch
(1980), Regression Diagnostics, chapter 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.linear.posterior import FactoredPosterior
from pydirect.statistics.gaussian import TargetStatistics

# A row that determines its own prediction has a leverage of one; what is left of it then is rounding.
SMALLEST_REMAINDER = 1e-14
# Noise variances that are tried, in units of one that is rather too large; below, f may be all that was learned.
NOISE_SCALES = np.geomspace(0.2, 2.0, 30)
SHARES = np.linspace(0.0, 1.0, 11)  # of what else rows may scatter by


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of rows by the model without them; arrays of shape (n_rows, n_outputs) unless said otherwise.

    - `residuals`: y − mean.
    - `variances`: of y: of f, of what the basis functions miss, and of the noise; `latent_variances`: of f alone.
    - `leverages`: h, between 0 and 1.
    - `n_effective`, (n_outputs,): effective number of weights that the data determine, Σh, if every row is left out
      with all its copies.
    """

    residuals: FloatArray
    means: FloatArray
    variances: FloatArray
    latent_variances: FloatArray
    leverages: FloatArray
    n_effective: FloatArray

    @property
    def studentised(self) -> FloatArray:
        """Residuals in standard deviations of their predictions."""
        return self.residuals / np.sqrt(self.variances)

    @property
    def log_density(self) -> FloatArray:
        """Gaussian log density of y without the row, in nats."""
        return -0.5 * (np.log(2 * np.pi * self.variances) + np.square(self.studentised))

    def rows(self, index: NDArray[np.intp]) -> LeaveOneOut:
        """Return the predictions of some rows, or of merged rows for every one of their copies."""
        names = ("residuals", "means", "variances", "latent_variances", "leverages")
        return replace(self, **{name: getattr(self, name)[index] for name in names})


def leave_one_out(
    targets: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    precision: FloatArray,
    noise: FloatArray | None = None,
    missing: FloatArray | None = None,
) -> LeaveOneOut:
    """Predict every row by the model without it.

    Copies of a row are to be merged first, with their precisions added up
    (`pydirect.features.rows.TrainingRows.merged`): leaving out one of them says nothing, as the others are still there.

    Parameters
    ----------
    targets : ndarray of shape (n_rows, n_outputs)
        What the rows are to predict.
    mean, variance : ndarray of shape (n_rows, n_outputs)
        Moments of f given all rows, as of `GaussianPosterior.moments`.
    precision : ndarray of shape (n_outputs,) or (n_rows, n_outputs)
        ω/σ², with which what is left out of each row entered the posterior: one measurement, or all copies together;
        0 for a row that did not enter.
    noise : ndarray of shape (n_outputs,) or (n_rows, n_outputs), optional
        Variance of the noise of one new observation; 1/`precision` by default.
    missing : ndarray of shape (n_rows, n_outputs), optional
        Variance of f that the basis functions miss, which no row can reduce.

    Returns
    -------
    LeaveOneOut
        Predictions of every row.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.linear import leave_one_out
    >>> y = np.array([[1.0], [2.0], [6.0]])  # of one unknown mean with a flat prior, noise variance 1
    >>> left_out = leave_one_out(y, np.full((3, 1), 3.0), np.full((3, 1), 1 / 3), np.array([1.0]))
    >>> left_out.means.round(12).tolist(), left_out.variances.round(12).tolist()
    ([[4.0], [3.5], [1.5]], [[1.5], [1.5], [1.5]])
    """
    leverage = precision * variance
    # No leverage exceeds one but by rounding, so that no remainder is known better than the largest excess.
    lost = np.clip(leverage.max(axis=0, initial=0.0) - 1, SMALLEST_REMAINDER, 1.0)
    leverage = np.clip(leverage, 0.0, 1.0)
    remainder = np.maximum(1 - leverage, lost)
    residuals = (targets - mean) / remainder
    latent = variance / remainder
    total = latent + (1 / precision if noise is None else noise)
    if missing is not None:
        total = total + missing
    return LeaveOneOut(residuals, targets - residuals, total, latent, leverage, leverage.sum(axis=0))


def expected_noise(
    left: LeaveOneOut, more: FloatArray, start: FloatArray, marked: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Return the noise variance that is expected where targets scatter by more than it, and the share of that in rows.

    `left`: by fits whose noise variance is `start`, (n_outputs,). `more`, (n_rows, n_outputs): what else targets have
    beside that of f and of the noise; `marked` rows, (n_rows,), have an unknown share of it. Both results are
    (n_outputs,). Of scales and shares with equal chances, the mean: the likeliest may be near zero where hardly any row
    tells of the noise alone.
    """
    noise, shares = start * NOISE_SCALES[:, None], SHARES if marked.any() else SHARES[-1:]
    known = [left.latent_variances + np.where(marked[:, None], share, 1.0) * more for share in shares]
    squares = left.residuals**2
    loss = np.array([[np.sum(np.log(v + each) + squares / (v + each), axis=0) for each in noise] for v in known])
    chance = np.exp(0.5 * (loss.min(axis=(0, 1)) - loss))
    chance /= chance.sum(axis=(0, 1))
    return (chance * noise).sum(axis=(0, 1)), np.minimum(shares @ chance.sum(axis=1), 1.0)


# --- intervals


def jackknife_plus(
    mean: FloatArray, spread: FloatArray, shares: FloatArray, scores: FloatArray, weights: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Ends (n_new,) of the studentised jackknife+ interval of new rows (Barber, Candès, Ramdas & Tibshirani 2021).

    The ⌊α(n + 1)⌋-th smallest of μ₋ᵢ(x) − s(x)Rᵢ and the ⌈(1 − α)(n + 1)⌉-th smallest of μ₋ᵢ(x) + s(x)Rᵢ, with means
    μ and deviations s, (n_new,), μ₋ᵢ = μ − `shares`, (n_new, n_rows), absolute studentised leave-one-out residuals R,
    (n_rows,), rows that count as many as their `weights`, n together, and `level` 1 − α.
    """
    n = float(weights.sum())
    rank = (1 - level) * (n + 1) * (1 + 1e-12)  # a whole number stays one
    if rank < 1:
        raise ValueError(f"level must be at most {n / (n + 1):.4g}, which {n:.6g} residuals resolve, got {level:g}")
    without, reach = mean[:, None] - shares, spread[:, None] * scores
    return _lowest(without - reach, weights, rank), -_lowest(-without - reach, weights, rank)


def _lowest(values: FloatArray, weights: FloatArray, rank: float) -> FloatArray:
    """Return the last of the smallest values of every row whose weights add up to `rank` at most."""
    if (weights == 1).all():
        return np.partition(values, int(rank) - 1, axis=1)[:, int(rank) - 1]
    order = np.argsort(values, axis=1, kind="stable")
    used = np.maximum((np.cumsum(weights[order], axis=1) <= rank).sum(axis=1), 1)
    return np.take_along_axis(values, np.take_along_axis(order, used[:, None] - 1, axis=1), axis=1)[:, 0]


# --- influence


def influence_of_each(
    posterior: FactoredPosterior,
    at: FloatArray,
    phi: FloatArray,
    errors: FloatArray,
    weight: FloatArray | None = None,
    variances: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return what each of some rows did to mean and variance of f: with all rows, less without this one.

    With the covariance k of f between a place and the row, and the row's leverage h = pv, these are p k e/(1 − h) and
    −p k²/(1 − h).

    Parameters
    ----------
    posterior : FactoredPosterior
        Of one output, given all rows.
    at : ndarray of shape (n_places, n_weights)
        Φ where f is predicted.
    phi : ndarray of shape (n_rows, n_weights)
        Rows of Φ.
    errors : ndarray of shape (n_rows,)
        y − Φm
    weight : ndarray of shape (n_rows,), optional
        ω of the rows.
    variances : ndarray of shape (n_rows,), optional
        Of f at the rows, where they are known.

    Returns
    -------
    mean, variance : ndarray of shape (n_places, n_rows)
        Changes of mean and variance.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import FactoredPosterior, influence_of_each
    >>> phi, y = np.ones((3, 1)), np.array([1.0, 2.0, 6.0])
    >>> posterior = FactoredPosterior.of(GaussianStatistics.from_arrays(phi, y).target(0), 1.0, 1e9)
    >>> mean, variance = influence_of_each(posterior, np.ones((1, 1)), phi, y - phi @ posterior.coefficients)
    >>> mean.round(6).tolist(), variance.round(6).tolist()  # 3 − (2 + 6)/2, …; 1/3 − 1/2
    ([[-1.0, -0.5, 1.5]], [[-0.166667, -0.166667, -0.166667]])
    """
    precision = (1.0 if weight is None else weight) / posterior.noise_variance
    own = posterior.moments(phi)[1] if variances is None else variances
    share = precision / np.maximum(1 - precision * own, SMALLEST_REMAINDER)
    covariance = posterior.covariances(at, phi)
    return covariance * (share * errors), -share * np.square(covariance)


def influence_of_group(
    posterior: FactoredPosterior, at: FloatArray, group: TargetStatistics
) -> tuple[FloatArray, FloatArray]:
    """Return what rows did to mean and variance of f together, (n_places,) each: with all rows, less without these.

    `at`, (n_places, n_weights). `group`: sums over the rows: A = ΦᵀΩΦ, and c = ΦᵀΩe of errors e = y − Φm in place of
    targets. Raises ValueError if the rows cannot be among those of the posterior.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import FactoredPosterior, influence_of_group
    >>> phi, y = np.ones((3, 1)), np.array([1.0, 2.0, 6.0])
    >>> posterior = FactoredPosterior.of(GaussianStatistics.from_arrays(phi, y).target(0), 1.0, 1e9)
    >>> errors = y - phi @ posterior.coefficients
    >>> group = GaussianStatistics.from_arrays(phi[:2], errors[:2]).target(0)
    >>> mean, variance = influence_of_group(posterior, np.ones((1, 1)), group)
    >>> mean.round(6).tolist(), variance.round(6).tolist()  # 3 − 6; 1/3 − 1
    ([-3.0], [-0.666667])
    """
    rest = _rest(posterior.factor @ posterior.factor.T - group.A / posterior.noise_variance)
    with single_blas_thread():
        before, after = posterior.half(at), solve_triangular(rest, at.T, lower=True, check_finite=False)
        pull = solve_triangular(rest, group.c / posterior.noise_variance, lower=True, check_finite=False)
    return after.T @ pull, np.einsum("ij,ij->j", before, before) - np.einsum("ij,ij->j", after, after)


def influence_of_few(
    posterior: FactoredPosterior, at: FloatArray, phi: FloatArray, errors: FloatArray, weight: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return what `influence_of_group` does, of fewer rows than weights: by a factor of I − P^½ΦSΦᵀP^½.

    Arguments as of `influence_of_each`.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import FactoredPosterior, influence_of_few
    >>> phi, y = np.ones((3, 1)), np.array([1.0, 2.0, 6.0])
    >>> posterior = FactoredPosterior.of(GaussianStatistics.from_arrays(phi, y).target(0), 1.0, 1e9)
    >>> errors = y - phi @ posterior.coefficients
    >>> mean, variance = influence_of_few(posterior, np.ones((1, 1)), phi[:2], errors[:2])
    >>> mean.round(6).tolist(), variance.round(6).tolist()  # 3 − 6; 1/3 − 1
    ([-3.0], [-0.666667])
    """
    root = np.sqrt((np.ones(len(phi)) if weight is None else weight) / posterior.noise_variance)
    half = posterior.half(phi) * root
    with single_blas_thread():
        rest = _rest(np.eye(len(phi)) - half.T @ half)
        shares = solve_triangular(rest, half.T @ posterior.half(at), lower=True, check_finite=False)
        pull = solve_triangular(rest, root * errors, lower=True, check_finite=False)
        return shares.T @ pull, -np.einsum("ij,ij->j", shares, shares)


def _rest(precision: FloatArray) -> FloatArray:
    """Return the Cholesky factor of what rows that are taken out leave."""
    try:
        return np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ValueError("rows must be among those that the model was fitted to, got others") from None


def cooks_distance(errors: FloatArray, leverages: FloatArray, precision: FloatArray) -> FloatArray:
    """Return how far each row moved all weights: (m − m')ᵀS⁻¹(m − m') = p e² h/(1 − h)², over Σh; (n_rows,) each.

    With a flat prior this is Cook's distance at the noise variance of the model.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.linear import cooks_distance
    >>> leverages = np.full((2, 1), 0.5)
    >>> cooks_distance(np.array([[1.0], [2.0]]), leverages, np.array([1.0])).tolist()
    [[2.0], [8.0]]
    """
    shift = precision * np.square(errors) * leverages / np.square(np.maximum(1 - leverages, SMALLEST_REMAINDER))
    return np.asarray(shift / leverages.sum())
