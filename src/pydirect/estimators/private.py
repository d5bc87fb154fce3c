"""Private sums: what a release must know of a feature map, and models of sums with noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pydirect._validation import FloatArray
from pydirect.estimators.regression import RegressionPlan, fixed_noise
from pydirect.features.basis import Basis
from pydirect.fitted.latent import Latent
from pydirect.fitted.regression import FittedRegressor
from pydirect.fitted.units import Units
from pydirect.linear.fit import fit_gaussian
from pydirect.linear.noisy_sums import correct_noisy_sums
from pydirect.statistics.noisy import NoisyStatistics
from pydirect.statistics.rotated import decorrelate

# Standardised inputs that stand for any input: all within bounds, where the map was fitted to these.
REFERENCE_ROWS, REFERENCE_REACH = 2000, 1.0


def require_public_map(basis: Basis | None, fitted_to_rows: bool) -> None:
    """Raise unless a feature map is fixed that does not come from private rows."""
    if basis is None:
        raise ValueError(
            "the feature map must be fixed before private rows are summed: call fit_features on rows that are not "
            "private, such as two rows with the bounds of the columns"
        )
    if fitted_to_rows:
        raise ValueError(
            "the feature map must not come from private rows, and this model was fitted to rows: call fit_features "
            "on rows that are not private"
        )
    if basis.target_transform is not None:
        raise ValueError("target_transform must be None for private sums; transform y and its bounds yourself")


def norm_bound_of(basis: Basis) -> float:
    """Bound on the length of Φ(x), where the map has one."""
    if not _has_inputs(basis):
        raise ValueError(
            f"norm_bound must be given for {basis.map.kind} features, whose length nothing bounds: there is no "
            "privacy without bounds"
        )
    ones = np.ones((1, basis.map.n_features_in))
    if basis.map.residual_kernel is not None:
        return float(np.sqrt(basis.map.residual_kernel.diagonal(ones)[0]))
    return float(np.linalg.norm(basis.map.transform(ones)))


def fit_noisy_sums(plan: RegressionPlan, basis: Basis, noisy: NoisyStatistics) -> FittedRegressor:
    """Fit to sums with noise, corrected for it; targets' units are their bounds."""
    low, high = noisy.y_bounds
    units = Units(np.array([(low + high) / 2]), np.array([(high - low) / 2]), True)
    corrected = correct_noisy_sums(noisy, _reference_gram(basis, noisy), fixed_noise(plan.noise, units.scale[0]))
    n_samples, residual = corrected.statistics.n_samples, 0.0
    if basis.map.residual_kernel is not None:  # the rest of k(x, x), which is noise at an average row
        residual = max(noisy.norm_bound**2 - np.trace(noisy.gram) / n_samples, 0.0)
    target = decorrelate(corrected.statistics).target(0).scaled(corrected.prior_variance)
    posterior = fit_gaussian(target, corrected.noise_variance, n_noise_levels=1, max_iter=plan.max_iter)
    outcome = replace(posterior.outcome, converged=posterior.converged and corrected.converged)
    scale = float(np.sqrt(corrected.prior_variance))
    return FittedRegressor(Latent.of(basis, [(replace(posterior, outcome=outcome), scale)], residual), units, n_samples)


def _reference_gram(basis: Basis, noisy: NoisyStatistics) -> FloatArray:
    """Mean ΦᵀΦ of inputs about which nothing is known."""
    if not _has_inputs(basis):
        return noisy.norm_bound**2 / noisy.n_weights * np.eye(noisy.n_weights)
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-REFERENCE_REACH, REFERENCE_REACH, (REFERENCE_ROWS, basis.map.n_features_in))
    phi = basis.map.transform(inputs)
    return np.asarray(phi.T @ phi) / REFERENCE_ROWS


def _has_inputs(basis: Basis) -> bool:
    return basis.map.kind not in ("precomputed", "transformer")
