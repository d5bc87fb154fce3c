"""The evidence of continuous weights, and the noise and prior scale where it is largest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, as_rotated_target

# Two parameters are found to rounding, so that data that differ by rounding only give models that do.
TO_ROUNDING = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 200}


def log_evidence(rotated: RotatedTarget | RotatedStatistics, noise: float, scale: float) -> tuple[float, FloatArray]:
    """Log marginal likelihood with continuous Gaussian weights, and its gradient.

    ``log N(y; 0, noise I + scale ΦΦᵀ)`` from the eigenvalues λ of ΦᵀΦ and the projections c = VᵀΦᵀy:
    ``−½ [n log 2πσ² + Σ log(1 + tλ/σ²) + (yᵀy − Σ t c²/(σ² + tλ))/σ²]`` with t the prior variance.

    Parameters
    ----------
    rotated : RotatedStatistics or RotatedTarget
        Of one target; of several, ``rotated.target(k)``.
    noise : float
        σ²
    scale : float
        Prior variance t of the weights.

    Returns
    -------
    value : float
        In nats, and its gradient.
    gradient : ndarray of shape (2,)
        In log noise and log scale.
    """
    return _log_evidence(as_rotated_target(rotated), noise, scale)


def _log_evidence(target: RotatedTarget, noise: float, scale: float) -> tuple[float, FloatArray]:
    eigenvalues, c, yty, n = target.eigenvalues, target.c, target.yty, target.n_samples
    total = noise + scale * eigenvalues  # variance of the data along each direction, times nothing else
    fit = scale * c**2 / total
    residual = max(yty - fit.sum(), 0.0) / noise
    value = -0.5 * (n * np.log(2 * np.pi * noise) + np.log1p(scale * eigenvalues / noise).sum() + residual)
    share = scale * eigenvalues / total  # how much of each direction the data determine
    pull = scale * c**2 / total**2
    d_noise = -0.5 * (n - share.sum() - residual + pull.sum())
    d_scale = -0.5 * (share.sum() - pull.sum())
    return float(value), np.array([d_noise, d_scale])


def maximise_evidence(
    rotated: RotatedTarget | RotatedStatistics,
    noise: float,
    scale: float = 1.0,
    *,
    fit_noise: bool = True,
    fit_scale: bool = True,
    prior_sd: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """Noise variance and prior variance that maximise the evidence, from a start.

    Parameters
    ----------
    rotated : RotatedStatistics or RotatedTarget
        Of one target; of several, ``rotated.target(k)``.
    noise : float
        Noise variance to start from.
    scale : float, default=1.0
        Prior variance to start from.
    fit_noise, fit_scale : bool, default=True
        Whether the noise variance and the prior variance are free.
    prior_sd : tuple of float, optional
        Standard deviations of Gaussian priors on log noise and log scale about the start: a start that is an estimate
        from the same data's neighbourhood keeps small data sets from running away.

    Returns
    -------
    noise, scale : float
        Where the evidence is largest.
    """
    target = as_rotated_target(rotated)
    yty, n = target.yty, target.n_samples
    start = np.log([noise, scale])
    begin = start.copy()
    free = np.array([fit_noise, fit_scale])
    tightness = np.zeros(2) if prior_sd is None else np.array(prior_sd) ** -2.0

    def negative(moved: FloatArray) -> tuple[float, FloatArray]:
        theta = start.copy()
        theta[free] = moved
        value, gradient = _log_evidence(target, *np.exp(theta))
        pull = tightness * (theta - start)
        return float(0.5 * pull @ (theta - start) - value) / n, (pull - gradient)[free] / n

    # Noise between a hundred-thousandth and a hundred of the targets' spread.
    middle = np.log(yty / n) if yty > 0 else 0.0
    bounds = np.array([(middle - np.log(1e10), middle + np.log(1e4)), (np.log(1e-12), np.log(1e12))])
    begin[free] = np.clip(start, *bounds.T)[free]
    if free.any():
        with single_blas_thread():
            best = minimize(
                negative, begin[free], jac=True, method="L-BFGS-B", bounds=bounds[free], options=TO_ROUNDING
            )
            begin[free] = _polished(negative, best.x, bounds[free])
    found_noise, found_scale = np.exp(begin)
    return float(found_noise) if fit_noise else noise, float(found_scale) if fit_scale else scale


def _polished(
    objective: Callable[[FloatArray], tuple[float, FloatArray]], theta: FloatArray, bounds: FloatArray
) -> FloatArray:
    """Newton steps from near a minimum, by differences of the gradient.

    Values determine a minimum to the square root of rounding only, gradients to rounding: data that differ by rounding
    then give parameters that do.
    """
    step = 1e-4 * np.eye(len(theta))
    for _ in range(3):
        hessian = np.stack([(objective(theta + e)[1] - objective(theta - e)[1]) / 2e-4 for e in step])
        values, vectors = np.linalg.eigh(hessian + hessian.T)
        if values[0] <= 0:
            break
        move = vectors @ (vectors.T @ objective(theta)[1] * 2 / values)
        if np.abs(move).max() > 1e-3:  # at a bound, or where the evidence says nothing
            break
        theta = np.clip(theta - move, *bounds.T)
    return theta
