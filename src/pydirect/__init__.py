"""Exact variational inference with discrete weights.

The estimators follow scikit-learn's habits; the layers below them are public and usable alone. Everything is imported
on first use, so that ``import pydirect`` costs no more than NumPy and SciPy do.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "DirectRegressor": "pydirect.estimators.regression",
    "DirectClassifier": "pydirect.estimators.classification",
    "QuadraticBNNRegressor": "pydirect.estimators.quadratic_network",
    "DVIClassifier": "pydirect.estimators.deterministic",
    "DVIRegressor": "pydirect.estimators.deterministic",
    "load": "pydirect.estimators._files",
    "FactorizedCategorical": "pydirect.distributions",
    "GaussianPrior": "pydirect.distributions",
    "LaplacePrior": "pydirect.distributions",
    "SpikeAndSlabPrior": "pydirect.distributions",
    "StudentTPrior": "pydirect.distributions",
    "TablePrior": "pydirect.distributions",
    "evenly_spaced_levels": "pydirect.distributions",
    "FourierFeatures": "pydirect.features",
    "LinearFeatures": "pydirect.features",
    "PolynomialFeatures": "pydirect.features",
    "GaussianStatistics": "pydirect.statistics",
    "collect_statistics": "pydirect.statistics",
    "RunningStatistics": "pydirect.running_statistics",
    "FeatureMapWarning": "pydirect.estimators._streaming",
    "ForgottenRowsWarning": "pydirect.estimators._streaming",
    "StreamError": "pydirect.streams",
    "StreamInterrupt": "pydirect.streams",
    "MeanFieldPosterior": "pydirect.models",
    "MeanFieldRegression": "pydirect.models",
    "NetworkCoreset": "pydirect.coreset",
    "NetworkPosterior": "pydirect.quadratic_network",
    "NetworkShape": "pydirect.quadratic_network",
    "QuadraticNetwork": "pydirect.quadratic_network",
    "fit_quadratic_network": "pydirect.quadratic_training",
    "DeterministicPosterior": "pydirect.deterministic_training",
    "TrainingSchedule": "pydirect.deterministic_training",
    "fit_deterministic_network": "pydirect.deterministic_training",
    "NoiseGridWarning": "pydirect.models",
    "NoisePosterior": "pydirect.models",
    "fit_mean_field": "pydirect.models",
    "MixturePrior": "pydirect.mixture_priors",
    "MixturePosterior": "pydirect.mixtures",
    "fit_mixture": "pydirect.mixtures",
    "pairwise_entropy": "pydirect.mixtures",
    "best_level_scale": "pydirect.scales",
    "best_prior_scale": "pydirect.scales",
    "fit_level_scale": "pydirect.scales",
    "DecorrelatedPosterior": "pydirect.decorrelated",
    "RotatedStatistics": "pydirect.decorrelated",
    "decorrelate": "pydirect.decorrelated",
    "fit_decorrelated": "pydirect.decorrelated",
    "log_evidence": "pydirect.decorrelated",
    "maximise_evidence": "pydirect.decorrelated",
    "LabelledRows": "pydirect.logistic",
    "fit_logistic": "pydirect.logistic",
    "fit_logistic_decorrelated": "pydirect.logistic",
    "predictive_probability": "pydirect.logistic",
    "PredictiveDistribution": "pydirect.predictive",
    "Concrete": "pydirect.stochastic",
    "GaussianRegression": "pydirect.stochastic",
    "Reinforce": "pydirect.stochastic",
    "Reparameterization": "pydirect.stochastic",
    "StochasticELBO": "pydirect.stochastic",
    "fit_stochastic": "pydirect.stochastic",
    "fit_within": "pydirect.budget",
    "quantize": "pydirect.quantized",
}
# Modules that public names come from are attributes too, and so are these.
_OTHER_MODULES = (
    "activations",
    "deterministic",
    "hyperparameters",
    "inputs",
    "kron",
    "logistic_hyperparameters",
    "metrics",
    "optimize",
    "persistence",
    "plotting",
    "tables",
    "testing",
)
_MODULES = sorted({*_OTHER_MODULES, *(module.split(".")[1] for module in _PUBLIC.values())})

__all__ = [*_PUBLIC, *_MODULES, "__version__", "show_config"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"pydirect.{name}")
    raise AttributeError(f"module 'pydirect' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def show_config() -> None:
    """Print what was compiled in and what is in use: instruction set, threads, compiler, Eigen."""
    from pydirect import _core

    for key, value in _core.build_config().items():
        print(f"{key}: {', '.join(value) if isinstance(value, list) else value}")
