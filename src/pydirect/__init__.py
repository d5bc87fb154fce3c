"""Exact variational inference with discrete weights.

The estimators follow scikit-learn's habits; the layers below them are public and usable alone. Everything is imported
on first use, so that ``import pydirect`` costs no more than NumPy and SciPy do.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "DirectRegressor": "pydirect.estimators.direct_regressor",
    "DirectClassifier": "pydirect.estimators.direct_classifier",
    "QuadraticBNNRegressor": "pydirect.estimators.quadratic_bnn",
    "DVIClassifier": "pydirect.estimators.dvi",
    "DVIRegressor": "pydirect.estimators.dvi",
    "MonteCarloBNNClassifier": "pydirect.estimators.monte_carlo_bnn",
    "MonteCarloBNNRegressor": "pydirect.estimators.monte_carlo_bnn",
    "DirectSearchCV": "pydirect.estimators.search",
    "fit_many": "pydirect.estimators.fit_many",
    "load": "pydirect.estimators._saving",
    "FactorizedCategorical": "pydirect.distributions.categorical",
    "GaussianPrior": "pydirect.distributions.priors",
    "LaplacePrior": "pydirect.distributions.priors",
    "SpikeAndSlabPrior": "pydirect.distributions.priors",
    "StudentTPrior": "pydirect.distributions.priors",
    "TablePrior": "pydirect.distributions.priors",
    "evenly_spaced_levels": "pydirect.distributions.levels",
    "FourierFeatures": "pydirect.features.maps",
    "LinearFeatures": "pydirect.features.maps",
    "PolynomialFeatures": "pydirect.features.maps",
    "GaussianStatistics": "pydirect.statistics.gaussian",
    "collect_statistics": "pydirect.statistics.gaussian",
    "RunningStatistics": "pydirect.statistics.running",
    "FeatureMapWarning": "pydirect.estimators._streamed",
    "ForgottenRowsWarning": "pydirect.estimators._growing",
    "StreamError": "pydirect.streams.rows",
    "StreamInterrupt": "pydirect.streams.rows",
    "MeanFieldPosterior": "pydirect.regression.mean_field",
    "MeanFieldRegression": "pydirect.regression.mean_field",
    "NetworkCoreset": "pydirect.quadratic.coreset",
    "NetworkPosterior": "pydirect.quadratic.network",
    "NetworkShape": "pydirect.quadratic.engines",
    "QuadraticNetwork": "pydirect.quadratic.network",
    "fit_quadratic_network": "pydirect.quadratic.training",
    "DeterministicPosterior": "pydirect.networks.deterministic",
    "TrainingSchedule": "pydirect.networks.schedule",
    "fit_network": "pydirect.networks.training",
    "NoiseGridWarning": "pydirect.distributions.noise",
    "NoisePosterior": "pydirect.distributions.noise",
    "fit_mean_field": "pydirect.regression.mean_field",
    "fit_mean_fields": "pydirect.regression.mean_fields",
    "MixturePrior": "pydirect.distributions.mixture_priors",
    "MixturePosterior": "pydirect.regression.mixture_posterior",
    "fit_mixture": "pydirect.regression.mixture",
    "pairwise_entropy": "pydirect.regression.mixture_entropy",
    "best_level_scale": "pydirect.regression.level_scale",
    "best_prior_scale": "pydirect.regression.level_scale",
    "fit_level_scale": "pydirect.regression.level_scale",
    "DecorrelatedPosterior": "pydirect.regression.decorrelated",
    "RotatedStatistics": "pydirect.statistics.rotated",
    "decorrelate": "pydirect.statistics.rotated",
    "fit_decorrelated": "pydirect.regression.decorrelated",
    "log_evidence": "pydirect.regression.evidence",
    "maximise_evidence": "pydirect.regression.evidence",
    "LabelledRows": "pydirect.logistic.rows",
    "fit_logistic": "pydirect.logistic.fit",
    "fit_logistic_decorrelated": "pydirect.logistic.fit",
    "predictive_probability": "pydirect.logistic.predictive",
    "PredictiveDistribution": "pydirect.predictive",
    "Concrete": "pydirect.regression.gradient_estimators",
    "GaussianRegression": "pydirect.regression.gaussian_weights",
    "Reinforce": "pydirect.regression.gradient_estimators",
    "Reparameterization": "pydirect.regression.gradient_estimators",
    "StochasticELBO": "pydirect.regression.stochastic",
    "fit_stochastic": "pydirect.regression.stochastic",
    "fit_within": "pydirect.quantized.budget.fit_within",
    "LinearOutput": "pydirect.monte_carlo.last_layer",
    "MonteCarloDivergence": "pydirect.monte_carlo.divergence",
    "quantize": "pydirect.quantized.quantize",
}
# Modules that public names come from are attributes too, and so are these.
_OTHER_MODULES = (
    "kron",
    "metrics",
    "optimize",
    "persistence",
    "plotting",
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
