"""Estimators with scikit-learn's interface, and what is asked of them."""

from pydirect.estimators.choices import (
    Fourier as Fourier,
    Gaussian as Gaussian,
    MeanField as MeanField,
    Nystroem as Nystroem,
    Polynomial as Polynomial,
    Sequential as Sequential,
)
from pydirect.estimators.correlated import CorrelatedRegressor as CorrelatedRegressor
from pydirect.estimators.direct_classifier import DirectClassifier as DirectClassifier
from pydirect.estimators.direct_count import DirectCountRegressor as DirectCountRegressor
from pydirect.estimators.direct_latent import (
    DirectCensoredRegressor as DirectCensoredRegressor,
    DirectOrdinalClassifier as DirectOrdinalClassifier,
    DirectSurvivalRegressor as DirectSurvivalRegressor,
)
from pydirect.estimators.direct_mixed import DirectMixedRegressor as DirectMixedRegressor
from pydirect.estimators.direct_regressor import (
    DirectRegressor as DirectRegressor,
    FeatureMapWarning as FeatureMapWarning,
)
from pydirect.estimators.direct_stream import DirectStreamRegressor as DirectStreamRegressor
from pydirect.estimators.fit_groups import GroupedRegressor as GroupedRegressor, fit_groups as fit_groups
from pydirect.estimators.fit_many import fit_many as fit_many
from pydirect.estimators.merging import merge_models as merge_models
from pydirect.estimators.networks import (
    DVIClassifier as DVIClassifier,
    DVIRegressor as DVIRegressor,
    MonteCarloBNNClassifier as MonteCarloBNNClassifier,
    MonteCarloBNNRegressor as MonteCarloBNNRegressor,
)
from pydirect.estimators.pooled import PooledClassifier as PooledClassifier, PooledRegressor as PooledRegressor
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor as QuadraticBNNRegressor
from pydirect.estimators.search import DirectSearchCV as DirectSearchCV
from pydirect.estimators.summary import Summary as Summary
from pydirect.fitted.regression import LocalProcessWarning as LocalProcessWarning
from pydirect.noise.student_t import TargetWarning as TargetWarning
