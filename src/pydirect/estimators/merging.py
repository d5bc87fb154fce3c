"""Models of sums: those of several sites added, and private ones with noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pydirect._validation import FloatArray
from pydirect.estimators.choices import RegressionPlan
from pydirect.estimators.regression import fixed_noise
from pydirect.features.basis import Basis
from pydirect.fitted.predictor import Units
from pydirect.fitted.regression import FittedRegressor, Latent
from pydirect.linear.fit import fit_gaussian
from pydirect.linear.noisy_sums import correct_noisy_sums
from pydirect.statistics.noisy import NoisyStatistics
from pydirect.statistics.rotated import decorrelate


def merge_models(models: Sequence[Any]) -> Any:
    """Return the model of all rows that several models were fitted to, from their sums (federated learning).

    It is the model that one `partial_fit` with all rows, in blocks, would have given, to rounding. The models must have
    one feature map: fix it by ``fit_features`` on rows that all may see, and give copies, or the file of a model that
    was fitted with it, to whoever has rows.

    Parameters
    ----------
    models : sequence of DirectRegressor
        Fitted by `partial_fit`, `fit_stream` or `fit_statistics`, or read from the files of such models. They stay as
        they are.

    Returns
    -------
    DirectRegressor
        With the parameters of the first model.

    Raises
    ------
    ValueError
        If models have different feature maps or hold no sums.
    TypeError
        If one of them is no regressor on sums.

    Examples
    --------
    >>> import copy
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, Fourier, merge_models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 2))
    >>> y = np.sin(3 * X[:, 0]) + X[:, 1]
    >>> shared = DirectRegressor(Fourier(length_scale=1.0), 50).fit_features([[-1, -1], [1, 1]])
    >>> sites = [copy.deepcopy(shared).partial_fit(X[k::3], y[k::3]) for k in range(3)]
    >>> merge_models(sites).total_weight_
    300.0
    """
    models = list(models)
    if not models:
        raise ValueError("models must be at least one, got none")
    for model in models:
        if not hasattr(model, "_of_sums"):
            raise TypeError(f"models must keep sums over rows, as DirectRegressor does, got {type(model).__name__}")
        check_is_fitted(model)
        if hasattr(model, "buffered_rows_"):
            raise ValueError("models must have a fixed feature map: call fit_features before partial_fit")
        if not hasattr(model, "statistics_"):
            raise ValueError("models must keep sums over rows: use partial_fit after fit_features, or fit_stream")
    first = models[0]
    total = first.statistics_.emptied()
    for number, model in enumerate(models):
        if model.features_ != first.features_:
            raise ValueError(f"models must have one feature map, of one fit_features, but model {number} has another")
        total.merge(model.statistics_)
    return first._of_sums(total)


# Standardised inputs that stand for any input: all within bounds, where the map was fitted to these.
REFERENCE_ROWS, REFERENCE_REACH = 2000, 1.0


def require_public_map(basis: Basis | None, fitted_to_rows: bool) -> None:
    """Raise unless a feature map is fixed that does not come from private rows."""
    if basis is None:
        raise ValueError("the feature map must be fixed first: call fit_features on rows that are not private")
    if fitted_to_rows:
        raise ValueError("the feature map must not come from private rows: call fit_features on others")
    if basis.target_transform is not None:
        raise ValueError("target_transform must be None for private sums; transform y and its bounds yourself")


def norm_bound_of(basis: Basis) -> float:
    """Bound on the length of Φ(x), where the map has one."""
    if not _has_inputs(basis):
        raise ValueError(f"norm_bound must be given for {basis.map.kind} features, whose length nothing bounds")
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
