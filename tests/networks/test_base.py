"""Descriptions of networks: parameters, initial values, validation."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pydirect.networks.base import VariationalNetwork
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


def test_networks_are_values():
    network = DeterministicNetwork(2, [4], prior=[0.1, 0.2, 0.3, 0.4])
    theta = network.initial_parameters(np.random.default_rng(0))
    kl = network.kl(theta)[0]
    copy = pickle.loads(pickle.dumps(network))
    assert copy == network and hash(copy) == hash(network)
    assert copy.kl(theta)[0] == kl
    with pytest.raises(AttributeError):
        network.skip = True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes must hold at least one width"),
        ({"hidden_layer_sizes": (3, 0)}, r"hidden_layer_sizes\[1\] must be at least 1, got 0"),
        ({"likelihood": "poisson"}, "likelihood must be one of"),
        ({"likelihood": "classification"}, "n_targets must be at least 2, got 1"),
        ({"kernel": "rbf"}, "kernel must be one of"),
        ({"prior": (1.0, 2.0)}, r"prior must have shape \(4,\), got \(2,\)"),
        ({"prior": -1.0}, "prior must hold variances from 1e-100 to"),
    ],
)
def test_wrong_descriptions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DeterministicNetwork(**{"n_inputs": 2, "hidden_layer_sizes": (3,), **options})


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


@pytest.mark.parametrize("sizes", [5, np.int32(5), np.array(5), [5], np.array([5])])
def test_one_width_may_be_a_number_or_a_sequence(sizes):
    assert DeterministicNetwork(2, sizes).hidden_layer_sizes == (5,)


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        VariationalNetwork(3, (4,))
