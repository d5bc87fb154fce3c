"""Exact variational inference with discrete weights.

The names listed here are the most common ones. Everything else is imported from its room, such as
`pydirect.linear`, and the layers below the estimators are usable alone. All imports happen on first use, so that
``import pydirect`` itself is fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "DirectRegressor": "pydirect.estimators.direct_regressor",
    "DirectClassifier": "pydirect.estimators.direct_classifier",
    "PooledClassifier": "pydirect.estimators.pooled",
    "PooledRegressor": "pydirect.estimators.pooled",
    "DirectCountRegressor": "pydirect.estimators.direct_count",
    "DirectCensoredRegressor": "pydirect.estimators.direct_latent",
    "DirectMixedRegressor": "pydirect.estimators.direct_mixed",
    "DirectOrdinalClassifier": "pydirect.estimators.direct_latent",
    "DirectSurvivalRegressor": "pydirect.estimators.direct_latent",
    "DirectStreamRegressor": "pydirect.estimators.direct_stream",
    "QuadraticBNNRegressor": "pydirect.estimators.quadratic_bnn",
    "DVIRegressor": "pydirect.estimators.networks",
    "DVIClassifier": "pydirect.estimators.networks",
    "MonteCarloBNNRegressor": "pydirect.estimators.networks",
    "MonteCarloBNNClassifier": "pydirect.estimators.networks",
    "Nystroem": "pydirect.estimators.choices",
    "Fourier": "pydirect.estimators.choices",
    "Polynomial": "pydirect.estimators.choices",
    "Gaussian": "pydirect.estimators.choices",
    "Sequential": "pydirect.estimators.choices",
    "MeanField": "pydirect.estimators.choices",
    "DirectSearchCV": "pydirect.estimators.search",
    "fit_groups": "pydirect.estimators.fit_groups",
    "fit_many": "pydirect.estimators.fit_many",
    "merge_models": "pydirect.estimators.merging",
    "load": "pydirect.estimators.saving",
    "predict_interval": "pydirect.metrics",
    "Columns": "pydirect.tables.columns",
    "quantize": "pydirect.quantized.quantize",
    "fit_quantized": "pydirect.quantized.fit_quantized",
    "GaussianStatistics": "pydirect.statistics.gaussian",
    "RunningStatistics": "pydirect.statistics.running",
    "collect_statistics": "pydirect.statistics.gaussian",
    "GaussianPrior": "pydirect.distributions.priors",
    "LaplacePrior": "pydirect.distributions.priors",
    "StudentTPrior": "pydirect.distributions.priors",
    "SpikeAndSlabPrior": "pydirect.distributions.priors",
    "TablePrior": "pydirect.distributions.priors",
    "MixturePrior": "pydirect.distributions.priors",
    "evenly_spaced_levels": "pydirect.distributions.categorical",
    "fit_mean_field": "pydirect.direct.mean_field",
    "fit_mixture": "pydirect.direct.mixture",
    "fit_gaussian": "pydirect.linear.fit",
    "fit_logistic": "pydirect.logistic.fit",
    "fit_quadratic_network": "pydirect.quadratic.training",
    "fit_network": "pydirect.networks.training",
    "TrainingSchedule": "pydirect.networks.training",
    "PredictiveDistribution": "pydirect.predictive.gaussian_mixture",
    "FeatureMapWarning": "pydirect.estimators.direct_regressor",
    "NoiseGridWarning": "pydirect.distributions.noise",
    "StreamError": "pydirect.streams.rows",
    "StreamInterrupt": "pydirect.streams.rows",
    "FileFormatError": "pydirect.persistence.container",
}
_ROOMS = (
    "adapters",
    "baselines",
    "decisions",
    "direct",
    "distributions",
    "estimators",
    "explain",
    "features",
    "fitted",
    "kron",
    "linear",
    "logistic",
    "metrics",
    "monte_carlo",
    "networks",
    "noise",
    "optimize",
    "persistence",
    "plotting",
    "predictive",
    "quadratic",
    "quantized",
    "statistics",
    "streams",
    "tables",
    "testing",
)

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
    """Print what was compiled in and what is in use: instruction set, threads, compiler, Eigen."""
    from pydirect import _core

    for key, value in _core.build_config().items():
        print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
