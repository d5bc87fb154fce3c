"""Training of networks without estimators: schedules, batches, bounds."""

import numpy as np
import pytest

from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.sampled import SampledNetwork, SampledPosterior
from pydirect.networks.training import NetworkObjective, OverfittedDrawsWarning, TrainingSchedule, fit_network

RNG = np.random.default_rng(0)
X, Y, TWO = RNG.standard_normal((50, 2)), RNG.standard_normal(50), RNG.standard_normal((50, 2))
WEIGHT = RNG.uniform(0.5, 2.0, 50)


def small(**options):
    return SampledNetwork(2, (3,), 1, likelihood="homoscedastic", **{"prior": 0.7} | options)


def test_every_network_is_trained_by_its_own_inferences():
    assert not issubclass(SampledNetwork, DeterministicNetwork)
    for name in ("moments", "covariance", "kernel"):
        assert not hasattr(small(), name)
    data = X, Y
    with pytest.raises(TypeError, match="network must be a VariationalNetwork, got str"):
        fit_network("dvi", *data)
    with pytest.raises(ValueError, match="inference must be one of 'dvi', 'mcvi', 'rmcvi', 'map', got 'kept'"):
        fit_network(DeterministicNetwork(2, (3,)), *data, inference="kept")
    with pytest.raises(ValueError, match="inference must be one of 'mcvi', 'rmcvi', 'kept', got 'map'"):
        fit_network(small(), *data, inference="map")


def test_the_bound_of_a_sampled_network_is_that_of_fresh_draws():
    data, options = (X, Y), {"sample_weight": WEIGHT, "n_restarts": 2, "random_state": 3}
    fresh = fit_network(small(), *data, schedule=TrainingSchedule(n_steps=150, learning_rate=0.03), **options)
    assert isinstance(fresh, SampledPosterior)
    objective = NetworkObjective(small(), *data, inference="mcvi", n_draws=2000, sample_weight=WEIGHT)
    value, _ = objective(fresh.theta, seed=77)
    assert fresh.elbo == pytest.approx(-WEIGHT.sum() * value, abs=0.05 * WEIGHT.sum())
    net = small(kl_mode="fixed", n_kl_draws=2)
    with pytest.warns(OverfittedDrawsWarning, match="the weights have adapted to their draws"):
        kept = fit_network(net, *data, inference="kept", n_draws=1, schedule=TrainingSchedule("lbfgs"), **options)
    assert kept.elbo < kept.elbo_trace[-1] - WEIGHT.sum()


def test_batches_give_an_unbiased_bound():
    """The mean over the batches of an epoch is the bound of all rows and its gradient, with weights too."""
    network = DeterministicNetwork(2, (4,))
    theta = network.initial_parameters(np.random.default_rng(1))
    objective = NetworkObjective(network, X[:48], Y[:48], sample_weight=WEIGHT[:48])
    whole = objective.bound(theta, 0, 1)
    batches = [objective.bound(theta, 0, 1, np.arange(48)[k::3]) for k in range(3)]
    np.testing.assert_allclose(np.mean([value for value, _ in batches]), whole[0], rtol=1e-10)
    np.testing.assert_allclose(np.mean([gradient for _, gradient in batches], axis=0), whole[1], atol=1e-9)


def test_the_kl_term_counts_after_the_warm_up():
    schedule = TrainingSchedule(kl_warmup=0.25)
    assert [schedule.kl_weight(p) for p in (0.0, 0.24, 0.25, 0.99)] == [0.0, 0.0, 1.0, 1.0]
