"""Descriptions of networks: parameters, initial values, validation."""

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import softmax

from pydirect.networks.base import EmpiricalBayes, draw_outputs, normal_points
from pydirect.networks.deterministic import DeterministicNetwork


def test_views_cover_the_parameters():
    network = DeterministicNetwork(3, (4, 2), n_targets=2, likelihood="homoscedastic")
    theta = np.zeros(network.n_parameters)
    for number, view in enumerate((v for layer in network.unpack(theta) for v in layer), start=1):
        view[...] = number
    theta[network.log_noise] = -1
    assert network.layers == ((3, 4), (4, 2), (2, 2)) and network.n_outputs == 2
    assert theta.size == 2 * network.n_weights + 2 and theta.all()
    layer = network.unpack(theta)[1]
    assert [v.shape for v in layer] == [(4, 2), (2,), (4, 2), (2,)]
    assert theta[network.means].max() == 10 and theta[network.log_deviations].min() == 3


def test_initial_parameters_give_activations_of_order_one_and_nearly_constant_noise():
    network = DeterministicNetwork(10, (200,))
    theta = network.initial_parameters(np.random.default_rng(0), std_ratio=0.1)
    first, last = network.unpack(theta)
    assert first.weight_mean.std() == pytest.approx(np.sqrt(0.1), rel=0.05)
    assert first.bias_mean.std() == pytest.approx(0.5, rel=0.1)
    np.testing.assert_allclose(np.exp(first.weight_log_std), 0.1 * np.sqrt(0.1), rtol=1e-14)
    np.testing.assert_array_equal(last.bias_mean, [0.0, -1.0])
    noise = network.moments(theta, np.random.default_rng(1).standard_normal((50, 10)))[0][:, 1]
    assert noise.std() < 0.2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("50", "hidden_layer_sizes must be an integer or a sequence of integers, got '50'"),
        (None, "hidden_layer_sizes must be an integer or a sequence of integers, got None"),
        (((4,),), r"hidden_layer_sizes\[0\] must be an integer, got \(4,\)"),
        ((3, 2.5), r"hidden_layer_sizes\[1\] must be an integer, got 2.5"),
    ],
)
def test_wrong_widths_are_refused(sizes, message):
    with pytest.raises(TypeError, match=message):
        DeterministicNetwork(2, sizes)


PRIORS = {
    "map": EmpiricalBayes(),
    "released code": EmpiricalBayes.released_code(),
    "fixed": 0.3,
    "fixed per set": (0.5, 0.2, 1.5, 0.1),
}


def random_parameters(network):
    rng = np.random.default_rng(0)
    theta = network.initial_parameters(rng, std_ratio=0.3)
    return theta + 0.1 * rng.standard_normal(theta.size)


def split_sets(network, theta):
    """Means and variances of every set of weights."""
    for layer in network.unpack(theta):
        for mean, log_std in ((layer[0], layer[2]), (layer[1], layer[3])):
            yield mean.ravel(), np.exp(2 * log_std.ravel())


def gaussian_kl(mean, variance, prior_variance):
    return 0.5 * np.sum(np.log(prior_variance / variance) - 1 + (variance + mean**2) / prior_variance)


def test_divergence_is_the_gaussians_and_hyperpriors():
    for name, prior in PRIORS.items():
        network = DeterministicNetwork(2, (4,), prior=prior)
        theta = random_parameters(network)
        sets = list(split_sets(network, theta))
        scales = network.prior_variances(theta)
        total = sum(gaussian_kl(m, v, s) for (m, v), s in zip(sets, scales, strict=True))
        if name == "map":
            total -= stats.invgamma.logpdf(scales, prior.alpha, scale=prior.beta).sum()
        elif name.startswith("fixed"):
            np.testing.assert_array_equal(scales, np.broadcast_to(prior, 4))
        assert network.kl(theta)[0] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 10.0), (4.4798, 0.7)])
def test_prior_variance_is_the_best_one(alpha, beta):
    network = DeterministicNetwork(2, (4,), prior=EmpiricalBayes(alpha, beta))
    theta = random_parameters(network)
    for (mean, variance), got in zip(split_sets(network, theta), network.prior_variances(theta), strict=True):

        def slope(log_s, mean=mean, variance=variance):
            """Of −log p(s) + KL in log s."""
            s = np.exp(log_s)
            return 0.5 * (mean.size - np.sum(variance + mean**2) / s) + (alpha + 1) - beta / s

        assert got == pytest.approx(np.exp(optimize.brentq(slope, -20, 20, xtol=1e-14)), rel=1e-8)


def test_quasi_random_probabilities_are_those_of_many_draws():
    rng = np.random.default_rng(0)
    mean, root = rng.standard_normal((4, 3)), rng.standard_normal((4, 3, 3))
    covariance = root @ np.swapaxes(root, 1, 2)
    points = softmax(draw_outputs(mean, covariance, normal_points(256, 3)), axis=0).mean(axis=2).T
    draws = softmax(draw_outputs(mean, covariance, rng.standard_normal((200_000, 3))), axis=0)
    np.testing.assert_allclose(points, draws.mean(axis=2).T, atol=5e-3)
