"""The bound of the expected log-softmax: below the truth, tight for small variances, with an exact gradient."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.objective import NetworkObjective

RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 3))


def network_and_theta(n_classes=4, spread=0.7, **options):
    network = DeterministicNetwork(3, (5,), n_classes, likelihood="tilted_classification", **options)
    theta = network.initial_parameters(np.random.default_rng(1), std_ratio=spread)
    return network, theta, RNG.integers(0, n_classes, len(X)).astype(float)


def expected_log_likelihood(network, theta, y):
    """What the objective takes for the mean of E log p(y | x)."""
    return -NetworkObjective(network, X, y)(theta, kl_weight=0.0)[0]


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gradient_is_that_of_finite_differences(n_classes, covariance):
    network, theta, y = network_and_theta(n_classes, covariance=covariance)
    objective = NetworkObjective(network, X, y)
    gradient, h = objective(theta)[1], 1e-6
    slopes = [objective(theta + s)[0] - objective(theta - s)[0] for s in h * np.eye(len(theta))]
    np.testing.assert_allclose(gradient, np.array(slopes) / (2 * h), atol=1e-7)


@pytest.mark.parametrize("spread", [0.05, 0.7, 3.0])
def test_it_bounds_the_expectation_and_is_tight_where_variances_are_small(spread):
    network, theta, y = network_and_theta(spread=spread)
    mean, covariance = network.moments(theta, X)
    z = np.random.default_rng(0).standard_normal((100_000, 4))
    logits = mean[:, None] + z @ np.swapaxes(np.linalg.cholesky(covariance), 1, 2)
    drawn = np.take(mean, y.astype(int) + 4 * np.arange(len(X))) - logsumexp(logits, axis=2).mean(axis=1)
    error = np.sqrt(np.mean(logsumexp(logits, axis=2).var(axis=1)) / 100_000)
    bound = expected_log_likelihood(network, theta, y)
    assert bound <= drawn.mean() + 4.5 * error
    if spread == 0.05:
        assert bound == pytest.approx(drawn.mean(), abs=2e-3 + 4.5 * error)


def test_no_tilt_gives_a_better_bound():
    network, theta, y = network_and_theta()
    mean, covariance = network.moments(theta, X)
    best = []
    for m, s, label in zip(mean, covariance, y.astype(int), strict=True):

        def upper(t, m=m, s=s):
            return 0.5 * t @ s @ t + logsumexp(m + 0.5 * np.diag(s) - s @ t)

        best.append(m[label] - minimize(upper, np.full(4, 0.25), tol=1e-12).fun)
    assert expected_log_likelihood(network, theta, y) == pytest.approx(np.mean(best), abs=1e-8)


def test_large_variances_are_not_rewarded():
    network, theta, y = network_and_theta()
    wide = theta.copy()
    wide[network.log_deviations] += 3.0
    assert expected_log_likelihood(network, wide, y) < expected_log_likelihood(network, theta, y) - 10


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_an_infinite_variance_ends_the_search_for_a_tilt(covariance):
    network, theta, y = network_and_theta(covariance=covariance)
    theta[network.log_deviations] = 400.0
    value, gradient = NetworkObjective(network, X, y)(theta, kl_weight=0.0)
    assert value == np.inf
    assert not gradient.any()


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("variance", [1.0, 1e2, 1e4, 1e6])
def test_the_tilt_is_the_best_one_for_any_variance(variance, covariance):
    """At the optimum t is the softmax u, and the adjoints of one row's biases tell both."""
    rng = np.random.default_rng(2)
    for n_classes in (2, 3, 7, 40):
        network, theta, _ = network_and_theta(n_classes, covariance=covariance)
        for _ in range(5):
            layer = network.unpack(theta)[-1]
            spread = np.sqrt(variance) * rng.lognormal(size=n_classes)
            layer.weight_log_std[:] = layer.bias_log_std[:] = np.log(spread)
            layer.weight_mean[:] = variance**0.25 * rng.standard_normal(layer.weight_mean.shape)
            gradient = NetworkObjective(network, rng.standard_normal((1, 3)), np.zeros(1))(theta, kl_weight=0.0)[1]
            adjoint = network.unpack(gradient)[-1]
            u = adjoint.bias_mean + np.eye(n_classes)[0]
            # −2 dELL/d variance = u − 2ut + t², which is u − u² for t = u.
            np.testing.assert_allclose(adjoint.bias_log_std / spread**2, u - u**2, atol=1e-12)
