"""scikit-learn's own contract, for every kind of features and both bases."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pydirect import DirectClassifier, DirectRegressor, MixturePrior, StudentTPrior

CONFIGURATIONS = [
    DirectRegressor(n_basis_functions=40),
    DirectRegressor("fourier", n_basis_functions=40, max_hyperparameter_rows=60),
    DirectRegressor(n_basis_functions=40, basis="raw", max_hyperparameter_rows=60),
    DirectRegressor(
        "fourier", n_basis_functions=40, basis="raw", posterior="mean_field", n_components=3, max_hyperparameter_rows=60
    ),
    DirectRegressor("linear", basis="raw", posterior="mean_field", prior=MixturePrior.of_scales([0.5, 1.0])),
    DirectRegressor("linear"),
    DirectRegressor("linear", basis="raw", n_levels=255, keep_factor=True),
    DirectRegressor("linear", basis="raw", prior="spike_and_slab", posterior="mean_field"),
    DirectRegressor("polynomial", prior=StudentTPrior(4.0)),
    DirectRegressor("precomputed", n_noise_levels=1),
    DirectRegressor("linear", target_transform="log"),
    DirectRegressor(length_scale=2.0, n_basis_functions=40),
    DirectClassifier(n_basis_functions=40, max_hyperparameter_rows=60),
    DirectClassifier("fourier", n_basis_functions=40, max_hyperparameter_rows=60),
    DirectClassifier("linear"),
    DirectClassifier("linear", basis="raw", prior="spike_and_slab"),
    DirectClassifier("polynomial", prior=StudentTPrior(4.0)),
    DirectClassifier("precomputed", bound="exponential"),
]


def expected_failures(estimator):
    positive = getattr(estimator, "target_transform", None)
    return {"check_regressor_multioutput": "draws negative targets, whatever the tags say"} if positive else {}


@parametrize_with_checks(CONFIGURATIONS, expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)
