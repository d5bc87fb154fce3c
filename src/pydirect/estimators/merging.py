"""Models of rows at several sites: their sums added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pydirect._validation import as_float_array
from pydirect.features.basis import Basis
from pydirect.statistics.running import RunningStatistics


class SummedModel(Protocol):
    """A model of sums over rows."""

    features_: Basis
    statistics_: RunningStatistics

    def _of_sums(self, statistics: RunningStatistics) -> Any: ...  # pragma: no cover


def merge_models(models: Sequence[Any], weights: ArrayLike | None = None) -> Any:
    """Return the model of all rows that several models were fitted to, from their sums (federated learning).

    It is the model that one `partial_fit` with all rows, in blocks, would have given, to rounding. The models must have
    one feature map: fix it by ``fit_features`` on rows that all may see, and give copies, or the file of a model that
    was fitted with it, to whoever has rows. ``first + second`` and ``sum(models)`` are the same, but infer the
    posterior at every addition.

    Parameters
    ----------
    models : sequence of DirectRegressor
        Fitted by `partial_fit`, `fit_stream` or `fit_statistics`, or read from the files of such models. They stay as
        they are.
    weights : array_like of shape (n_models,), optional
        How many times the rows of each model count; positive.

    Returns
    -------
    DirectRegressor
        With the parameters of the first model.

    Raises
    ------
    ValueError
        If models have different feature maps, hold no sums, or weights are not as described.
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
    >>> merge_models(sites).n_samples_
    300.0
    """
    models = list(models)
    total = merged_statistics(models, weights)
    return models[0]._of_sums(total)


def merged_statistics(models: Sequence[Any], weights: ArrayLike | None = None) -> RunningStatistics:
    """Add up the sums of models of one feature map, each times its weight."""
    models = list(models)
    if not models:
        raise ValueError("models must be at least one, got none")
    for model in models:
        if not hasattr(model, "_of_sums"):
            raise TypeError(
                f"models must be regressors that keep sums over rows, as DirectRegressor, got {type(model).__name__}"
            )
        check_is_fitted(model)
        _require_sums(model)
    first = models[0]
    total = first.statistics_.emptied()
    factors = [1.0] * len(models) if weights is None else _as_weights(weights, len(models))
    for number, (model, factor) in enumerate(zip(models, factors, strict=True)):
        if model.features_ != first.features_:
            raise ValueError(
                f"models must have one feature map, but that of model {number} differs from that of model 0: fix it "
                "once, by fit_features, and give copies to all"
            )
        total.merge(model.statistics_ if factor == 1.0 else model.statistics_.scaled(factor))
    return total


def _require_sums(model: SummedModel) -> None:
    if hasattr(model, "buffered_rows_"):
        raise ValueError(
            "models must have a feature map that is fixed, got one that buffers its rows while they are few and "
            "follows them: fix it by fit_features before partial_fit, or give the rows of both to one model"
        )
    if not hasattr(model, "statistics_"):
        raise ValueError(
            "models must keep sums over their rows, which those of fit do not: use partial_fit after fit_features, or "
            "fit_stream"
        )


def _as_weights(weights: ArrayLike, n_models: int) -> list[float]:
    values = as_float_array(weights, "weights", (n_models,))
    if not (values > 0).all():
        raise ValueError(f"weights must be positive, got {values.min():g}")
    return [float(value) for value in values]
