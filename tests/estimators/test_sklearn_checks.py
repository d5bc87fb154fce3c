"""scikit-learn's own contract, for every kind of features and weights."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pydirect import DirectClassifier, DirectRegressor, Fourier, Gaussian, MeanField, MixturePrior, Nystroem, Sequential

CONFIGURATIONS = [
    DirectRegressor(n_basis_functions=40),
    DirectRegressor(Fourier(max_search_rows=60), n_basis_functions=40),
    DirectRegressor(features=Fourier(max_search_rows=60), n_basis_functions=40, posterior="sequential"),
    DirectRegressor(Fourier(max_search_rows=60), n_basis_functions=40, posterior=MeanField(n_components=3)),
    DirectRegressor("linear", posterior=MeanField(prior=MixturePrior.of_scales([0.5, 1.0]))),
    DirectRegressor("linear"),
    DirectRegressor("linear", posterior=Sequential(n_levels=255, keep_factor=True)),
    DirectRegressor("linear", posterior=MeanField(prior="spike_and_slab")),
    DirectRegressor("polynomial"),
    DirectRegressor("precomputed", posterior=Gaussian(n_noise_levels=1)),
    DirectRegressor("linear", target_transform="log"),
    DirectRegressor(features=Nystroem(length_scale=2.0), n_basis_functions=40),
    DirectClassifier(features=Nystroem(max_search_rows=60), n_basis_functions=40),
    DirectClassifier(Fourier(max_search_rows=60), n_basis_functions=40),
    DirectClassifier("linear"),
    DirectClassifier("linear", posterior=Sequential(prior="spike_and_slab")),
    DirectClassifier("polynomial"),
    DirectClassifier("precomputed", bound="jaakkola"),
]


def expected_failures(estimator):
    positive = getattr(estimator, "target_transform", None) in ("log", "sqrt")
    return {"check_regressor_multioutput": "draws negative targets, whatever the tags say"} if positive else {}


@parametrize_with_checks(CONFIGURATIONS, expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
@pytest.mark.filterwarnings("ignore:.*median absolute deviations")  # of the logarithm of a target near zero
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)
