"""Estimators with scikit-learn's interface, and what is asked of them."""

from pydirect.estimators.choices import Fourier, Gaussian, MeanField, Nystroem, Polynomial, Sequential
from pydirect.estimators.correlated import CorrelatedRegressor
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.estimators.direct_count import DirectCountRegressor
from pydirect.estimators.direct_latent import DirectCensoredRegressor, DirectOrdinalClassifier, DirectSurvivalRegressor
from pydirect.estimators.direct_mixed import DirectMixedRegressor
from pydirect.estimators.direct_regressor import DirectRegressor, FeatureMapWarning
from pydirect.estimators.direct_stream import DirectStreamRegressor
from pydirect.estimators.fit_groups import GroupedRegressor, fit_groups
from pydirect.estimators.fit_many import fit_many
from pydirect.estimators.merging import merge_models
from pydirect.estimators.networks import DVIClassifier, DVIRegressor, MonteCarloBNNClassifier, MonteCarloBNNRegressor
from pydirect.estimators.pooled import PooledClassifier, PooledRegressor
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor
from pydirect.estimators.search import DirectSearchCV
from pydirect.estimators.summary import Summary
from pydirect.fitted.regression import LocalProcessWarning
from pydirect.noise.student_t import TargetWarning

__all__ = [
    "CorrelatedRegressor",
    "DVIClassifier",
    "DVIRegressor",
    "DirectCensoredRegressor",
    "DirectClassifier",
    "DirectCountRegressor",
    "DirectMixedRegressor",
    "DirectOrdinalClassifier",
    "DirectRegressor",
    "DirectSearchCV",
    "DirectStreamRegressor",
    "DirectSurvivalRegressor",
    "FeatureMapWarning",
    "Fourier",
    "Gaussian",
    "GroupedRegressor",
    "LocalProcessWarning",
    "MeanField",
    "MonteCarloBNNClassifier",
    "MonteCarloBNNRegressor",
    "Nystroem",
    "Polynomial",
    "PooledClassifier",
    "PooledRegressor",
    "QuadraticBNNRegressor",
    "Sequential",
    "Summary",
    "TargetWarning",
    "fit_groups",
    "fit_many",
    "merge_models",
]
