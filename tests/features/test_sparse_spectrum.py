import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import random_fourier_features
from pydirect.features.marginal_likelihood import optimised_frequencies, sparse_spectrum_likelihood


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    hyperparameters = KernelHyperparameters(0.1, 1.0, np.array([1.0, 2.0, 0.5]), 0.5, 3.0, 0.3, 3)
    x = rng.standard_normal((40, 3))
    y = np.stack([np.sin(3 * x[:, 0]), np.cos(2 * x[:, 1])], axis=1) + 0.1 * rng.standard_normal((40, 2))
    weight = rng.random(40) + 0.5
    return random_fourier_features(hyperparameters, 5, rng), x, y, weight


def test_the_value_is_the_density_of_the_targets(problem):
    features, x, y, weight = problem
    theta = np.concatenate([features.frequencies.ravel(), [-2.0, 0.3]])
    value, _ = sparse_spectrum_likelihood(theta, *problem)
    phi = features.transform(x)
    covariance = np.exp(-2.0) * np.diag(1 / weight) + np.exp(0.3) * phi @ phi.T
    expected = -multivariate_normal(np.zeros(len(y)), covariance).logpdf(y.T).sum()
    constant = y.shape[1] * (0.5 * len(y) * np.log(2 * np.pi) - 0.5 * np.log(weight).sum())
    np.testing.assert_allclose(value, expected - constant, rtol=1e-10)


def test_the_gradient_is_that_of_finite_differences(problem):
    features = problem[0]

    def objective(theta):
        return sparse_spectrum_likelihood(theta, *problem)

    theta = np.concatenate([features.frequencies.ravel(), [-2.0, 0.3]])
    step = 1e-6 * np.eye(len(theta))
    differences = [(objective(theta + e)[0] - objective(theta - e)[0]) / 2e-6 for e in step]
    np.testing.assert_allclose(objective(theta)[1], differences, rtol=1e-5, atol=1e-6)


def test_moved_frequencies_are_likelier_and_stay_below_their_limit(problem):
    features = problem[0]
    largest = np.array([4.0, 1.0, 5.0])
    moved = optimised_frequencies(features, 0.1, *problem[1:], largest, 30)
    assert (np.abs(moved.frequencies) <= largest[:, None]).all()
    start, end = (
        sparse_spectrum_likelihood(np.concatenate([f.frequencies.ravel(), [np.log(0.1), 0.0]]), *problem)[0]
        for f in (features, moved)
    )
    assert end < start
