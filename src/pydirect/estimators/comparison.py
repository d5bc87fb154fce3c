"""Comparing fitted regressors by exact leave-one-out log densities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydirect._validation import FloatArray


def compare_left_out(models: Sequence[Any]) -> dict[str, FloatArray]:
    """Compare models of the same training rows by the log densities of every row without itself.

    The difference of two models is a sum over rows, whose standard error follows from its spread (Vehtari, Gelman &
    Gabry 2017, eq. 24). The feature map and the hyperparameters keep the row that is left out: differences are those of
    new data for models of one feature map, and lean towards the more flexible map otherwise.

    Parameters
    ----------
    models : sequence of DirectRegressor
        Fitted to the same rows in the same order, with ``store_loo=True``, for instance by `fit_many`.

    Returns
    -------
    dict of str to ndarray of shape (n_models,)
        ``"log_density"``, summed over rows and outputs; ``"difference"``, how far it is below the largest; and
        ``"standard_error"`` of the difference.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, fit_many
    >>> from pydirect.estimators import compare_left_out
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = X @ [1.0, 2.0, 0.0] + 0.1 * np.random.default_rng(1).standard_normal(100)
    >>> models = [DirectRegressor("linear", noise=noise, store_loo=True) for noise in (0.01, 1.0)]
    >>> compare_left_out(fit_many(models, X, y))["difference"].round(-1).tolist()
    [0.0, 190.0]
    """
    models = list(models)
    if not models or not all(hasattr(model, "loo_log_density_") for model in models):
        raise ValueError("models must be fitted with store_loo=True")
    shapes = {model.loo_log_density_.shape for model in models}
    if len(shapes) > 1:
        raise ValueError(f"models must be fitted to the same rows and outputs, got shapes {sorted(shapes)}")
    densities = np.stack(
        [model.loo_log_density_.reshape(len(model.loo_log_density_), -1).sum(axis=1) for model in models]
    )
    total = densities.sum(axis=1)
    below = densities[total.argmax()] - densities
    error = np.sqrt(densities.shape[1]) * below.std(axis=1)
    return {"log_density": total, "difference": total.max() - total, "standard_error": error}
