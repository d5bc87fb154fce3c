"""Frequencies of Fourier features by marginal likelihood: the sparse-spectrum Gaussian process.

Optimised frequencies explain the data better than the same number of random ones (Lázaro-Gredilla, Quiñonero-Candela,
Rasmussen & Figueiras-Vidal 2010). They have no prior: few optimisation steps keep them close to their start.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.maps import FourierFeatures
from pydirect.features.marginal_likelihood import BAD_POINT

SMALLEST_NOISE = 1e-6


class SparseSpectrumLikelihood:
    """−log likelihood of θ = [frequencies (n_inputs · n_frequencies), log noise, log prior variance] on fixed rows.

    ``y ~ N(0, σ² W⁻¹ + v ΦΦᵀ)``. With ``B = 1 + v ΦᵀWΦ/σ²``, by Woodbury's identity, ``−log p = ½ yᵀα + ½ log|B| +
    ½ n log σ²``, ``α = W (y − Φw)/σ²``, w the posterior mean, summed over outputs; W are the rows' weights.
    """

    def __init__(self, features: FourierFeatures, x: FloatArray, y: FloatArray, sample_weight: FloatArray) -> None:
        self.features, self.x, self.y, self.weight = features, x, y, sample_weight

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient, (n_inputs · n_frequencies + 2,)."""
        shape = self.features.frequencies.shape
        frequencies, f = theta[:-2].reshape(shape), shape[1]
        noise, variance = np.exp(theta[-2:])
        phi = replace(self.features, frequencies=np.ascontiguousarray(frequencies)).transform(self.x)
        phi *= np.sqrt(variance)
        weighted = phi * self.weight[:, None]
        b = phi.T @ weighted / noise
        b[np.diag_indices_from(b)] += 1.0
        try:
            factor = cho_factor(b, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:  # frequencies that coincide up to rounding, with large weights: the search steps back
            return BAD_POINT, np.zeros_like(theta)
        inverse = cho_solve(factor, np.eye(len(b)), overwrite_b=True, check_finite=False)
        w = inverse @ (weighted.T @ self.y) / noise
        alpha = self.weight[:, None] * (self.y - phi @ w) / noise
        n, k = self.y.shape
        value = 0.5 * (self.y * alpha).sum() + k * (np.log(factor[0].diagonal()).sum() + 0.5 * n * theta[-2])

        by_phi = k * weighted @ inverse / noise  # ∂/∂Φ of the determinant, then of the quadratic form
        by_phi -= alpha @ w.T
        cosine, sine = slice(0, f), slice(f, 2 * f)
        by_phase = phi[:, cosine] * by_phi[:, sine] - phi[:, sine] * by_phi[:, cosine]
        squares = (alpha**2 / self.weight[:, None]).sum()
        by_noise = 0.5 * k * (n - len(b) + np.trace(inverse)) - 0.5 * noise * squares
        by_variance = 0.5 * np.einsum("ij,ij->", phi, by_phi)
        return float(value), np.concatenate([(self.x.T @ by_phase).ravel(), [by_noise, by_variance]])


def optimised_frequencies(
    features: FourierFeatures,
    noise_variance: float,
    x: FloatArray,
    y: FloatArray,
    sample_weight: FloatArray,
    largest: FloatArray,
    max_iter: int,
) -> FourierFeatures:
    """Optimise the frequencies of Fourier features by `SparseSpectrumLikelihood`.

    `x`, `y`, `sample_weight`: see `SparseSpectrumLikelihood`. `largest`, (n_inputs,): bounds on the
    magnitude of the frequencies.
    """
    objective = SparseSpectrumLikelihood(features, x, y, sample_weight)
    limit = np.repeat(largest, features.n_frequencies)
    theta = np.concatenate([np.clip(features.frequencies.ravel(), -limit, limit), [np.log(noise_variance), 0.0]])
    bounds = [*zip(-limit, limit, strict=True), (np.log(SMALLEST_NOISE), np.log(4.0)), (-12.0, 12.0)]
    with single_blas_thread():
        best = minimize(
            objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_iter, "maxcor": 20}
        )
    return replace(features, frequencies=np.ascontiguousarray(best.x[:-2].reshape(features.frequencies.shape)))
