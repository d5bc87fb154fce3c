"""scikit-learn's own contract, for every estimator, and for every kind of features and weights."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pydirect import (
    Columns,
    DirectCensoredRegressor,
    DirectClassifier,
    DirectCountRegressor,
    DirectOrdinalClassifier,
    DirectRegressor,
    DirectStreamRegressor,
    DVIClassifier,
    DVIRegressor,
    Fourier,
    Gaussian,
    MeanField,
    MixturePrior,
    MonteCarloBNNClassifier,
    MonteCarloBNNRegressor,
    Nystroem,
    PooledClassifier,
    PooledRegressor,
    QuadraticBNNRegressor,
    Sequential,
    TrainingSchedule,
)
from pydirect.estimators import pooled


class RoundedCounts(DirectCountRegressor):
    """The same for scikit-learn's checks, whose targets are not whole numbers."""

    def fit(self, X, y, sample_weight=None, exposure=None):
        return super().fit(X, self._rounded(y), sample_weight, exposure)

    def score(self, X, y, **given):
        return super().score(X, self._rounded(y), **given)

    @staticmethod
    def _rounded(y):
        return np.rint(y) if np.asarray(y).dtype.kind == "f" else y


SMALL, FOURIER = Nystroem(max_search_rows=60), Fourier(max_search_rows=60)
FAST = TrainingSchedule(n_steps=60, learning_rate=0.05)
QUADRATIC = {"n_restarts": 1, "n_regrids": 1, "max_iter": 60}
CONFIGURATIONS = [
    DirectRegressor(n_basis_functions=40),
    DirectRegressor(FOURIER, n_basis_functions=40, posterior="sequential"),
    DirectRegressor("linear", posterior=MeanField(prior=MixturePrior.of_scales([0.5, 1.0]))),
    DirectRegressor("linear", target_transform="log"),
    DirectRegressor("polynomial"),
    DirectRegressor("precomputed", posterior=Gaussian(n_noise_levels=1)),
    DirectClassifier(SMALL, n_basis_functions=40),
    DirectClassifier(FOURIER, n_basis_functions=40),
    DirectClassifier("linear", posterior=Sequential(prior="spike_and_slab")),
    DirectClassifier("precomputed", bound="jaakkola"),
    DirectStreamRegressor(half_life=20, n_basis_functions=30, n_first_rows=64),
    DirectStreamRegressor("linear", window=50, n_first_rows=16),
    DirectCensoredRegressor("linear"),
    DirectOrdinalClassifier("linear"),
    RoundedCounts(SMALL, 40),
    PooledClassifier(SMALL, n_basis_functions=40, trees=True),
    PooledRegressor(SMALL, n_basis_functions=40, trees=True),
    DVIRegressor((4,), schedule=TrainingSchedule(n_steps=150)),
    DVIClassifier((4,), schedule=TrainingSchedule(n_steps=100)),
    MonteCarloBNNRegressor((4,), n_draws=2, n_predictive_draws=20, schedule=FAST),
    MonteCarloBNNClassifier((4,), n_draws=2, n_predictive_draws=20, schedule=TrainingSchedule(n_steps=60)),
    Columns(),
    Columns(missing="raise"),
    QuadraticBNNRegressor((3,), **QUADRATIC),
    QuadraticBNNRegressor((8,), **QUADRATIC | {"n_regrids": 0}, prior="spike_and_slab", whiten=False, engine="datum"),
]


def expected_failures(estimator):
    if isinstance(estimator, DirectStreamRegressor):
        return {"check_sample_weight_equivalence_on_dense_data": "rows that are repeated let others fade or leave"}
    positive = getattr(estimator, "target_transform", None) in ("log", "sqrt")
    return {"check_regressor_multioutput": "draws negative targets, whatever the tags say"} if positive else {}


@parametrize_with_checks(CONFIGURATIONS, expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
@pytest.mark.filterwarnings("ignore:.*median absolute deviations")  # of the logarithm of a target near zero
@pytest.mark.filterwarnings("ignore:text labels are taken", "ignore::pydirect.tables.TableWarning")
def test_scikit_learn_accepts_the_estimator(estimator, check, monkeypatch):
    for name in ("CHUNK", "MOST_ROUNDS"):
        monkeypatch.setattr(pooled, name, 3)
    check(estimator)
