"""Exact variational inference with discrete weights.

The names listed here are the most common ones. Everything else is imported from its room, such as
`pydirect.linear`, and the layers below the estimators are usable alone. All imports happen on first use, so that
``import pydirect`` itself is fast.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "estimators.direct_regressor": "DirectRegressor FeatureMapWarning",
    "estimators.direct_classifier": "DirectClassifier",
    "estimators.pooled": "PooledClassifier PooledRegressor",
    "estimators.direct_count": "DirectCountRegressor",
    "estimators.direct_latent": "DirectCensoredRegressor DirectOrdinalClassifier DirectSurvivalRegressor",
    "estimators.direct_mixed": "DirectMixedRegressor",
    "estimators.direct_stream": "DirectStreamRegressor",
    "estimators.quadratic_bnn": "QuadraticBNNRegressor",
    "estimators.networks": "DVIRegressor DVIClassifier MonteCarloBNNRegressor MonteCarloBNNClassifier",
    "estimators.choices": "Nystroem Fourier Polynomial Gaussian Sequential MeanField",
    "estimators.search": "DirectSearchCV",
    "estimators.fit_groups": "fit_groups",
    "estimators.fit_many": "fit_many",
    "estimators.merging": "merge_models",
    "estimators.saving": "load",
    "metrics": "predict_interval",
    "tables.columns": "Columns",
    "quantized.quantize": "quantize",
    "quantized.fit_quantized": "fit_quantized",
    "statistics.gaussian": "GaussianStatistics collect_statistics",
    "statistics.running": "RunningStatistics",
    "distributions.priors": "GaussianPrior LaplacePrior StudentTPrior SpikeAndSlabPrior TablePrior MixturePrior",
    "distributions.categorical": "evenly_spaced_levels",
    "direct.mean_field": "fit_mean_field",
    "direct.mixture": "fit_mixture",
    "linear.fit": "fit_gaussian",
    "logistic.fit": "fit_logistic",
    "quadratic.training": "fit_quadratic_network",
    "networks.training": "fit_network TrainingSchedule",
    "predictive.gaussian_mixture": "PredictiveDistribution",
    "distributions.noise": "NoiseGridWarning",
    "streams.rows": "StreamError StreamInterrupt",
    "persistence.container": "FileFormatError",
}
_PUBLIC = {name: f"pydirect.{module}" for module, names in _NAMES.items() for name in names.split()}
_ROOMS = [name for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_") and name != "cli"]

__all__ = [*_PUBLIC, *_ROOMS, "__version__", "show_config"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"pydirect.{name}")
    raise AttributeError(f"module 'pydirect' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def show_config() -> None:
    """Print what was compiled in and what is in use: instruction set, threads, compiler, Eigen.

    Examples
    --------
    >>> import pydirect
    >>> pydirect.show_config()  # doctest: +ELLIPSIS
    version: ...
    isa_levels: ...
    """
    from pydirect import _core

    for key, value in _core.build_config().items():
        print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
