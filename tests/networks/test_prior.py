"""Priors of networks: divergences, and the optimal variances of empirical Bayes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.prior import EmpiricalBayes

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


def test_the_released_codes_hyperprior_has_its_mode_at_the_initial_variance():
    objective, _, alpha, beta = EmpiricalBayes.released_code().key(7)
    assert (objective, alpha) == ("code", 4.4798)
    assert beta / (alpha + 1) == pytest.approx(5 / 7, rel=1e-14)
