"""scikit-learn estimators: the only room that imports scikit-learn."""

from pydirect.estimators._local import LocalProcessWarning
from pydirect.estimators._saving import load
from pydirect.estimators._streamed import FeatureMapWarning
from pydirect.estimators.comparison import compare_left_out
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.estimators.direct_count import DirectCountRegressor
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.direct_stream import DirectStreamRegressor
from pydirect.estimators.dvi import DVIClassifier, DVIRegressor
from pydirect.estimators.fit_groups import GroupedRegressor, fit_groups
from pydirect.estimators.fit_many import fit_many
from pydirect.estimators.merging import merge_models
from pydirect.estimators.monte_carlo_bnn import MonteCarloBNNClassifier, MonteCarloBNNRegressor
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor
from pydirect.estimators.search import DirectSearchCV

__all__ = [
    "DVIClassifier",
    "DVIRegressor",
    "DirectClassifier",
    "DirectCountRegressor",
    "DirectRegressor",
    "DirectSearchCV",
    "DirectStreamRegressor",
    "FeatureMapWarning",
    "GroupedRegressor",
    "LocalProcessWarning",
    "MonteCarloBNNClassifier",
    "MonteCarloBNNRegressor",
    "QuadraticBNNRegressor",
    "compare_left_out",
    "fit_groups",
    "fit_many",
    "load",
    "merge_models",
]
