"""Layers put together by hand: the network's moments, and the gradient of a loss of them."""

import numpy as np
import pytest

from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.layer_moments import linear_moments, linear_moments_vjp
from pydirect.networks.unit_moments import (
    UnitMoments,
    relu_covariance,
    relu_covariance_vjp,
    relu_moments,
    relu_moments_vjp,
)
from pydirect.testing import finite_difference_gradient

NETWORK = DeterministicNetwork(3, (6, 5))
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))
THETA = NETWORK.initial_parameters(RNG, std_ratio=0.5)
MEAN_BAR, COVARIANCE_BAR = RNG.standard_normal((4, 2)), RNG.standard_normal((4, 2, 2))


def variances(covariance):
    return np.ascontiguousarray(np.einsum("nii->ni", covariance))


def propagate(theta):
    """Arguments and results of every layer."""
    units, c, steps = UnitMoments(X, X**2, np.zeros_like(X)), None, []
    for index, layer in enumerate(NETWORK.unpack(theta)):
        mean, covariance = linear_moments(units, layer, c)
        steps.append((units, layer, c, mean, covariance))
        units = relu_moments(mean, variances(covariance))
        c = relu_covariance(mean, covariance) if index > 0 else None  # the first layer's outputs are independent
    return steps


def loss(theta):
    *_, mean, covariance = propagate(theta)[-1]
    return np.sum(MEAN_BAR * mean) + np.sum(COVARIANCE_BAR * covariance)


def gradient(theta):
    mean_bar, covariance_bar, out = MEAN_BAR, COVARIANCE_BAR, np.zeros_like(theta)
    steps = propagate(theta)
    for index in range(2, -1, -1):
        units, layer, c, *_ = steps[index]
        units_bar, layer_bar, c_bar = linear_moments_vjp(units, layer, mean_bar, covariance_bar, c)
        for view, bar in zip(NETWORK.unpack(out)[index], layer_bar, strict=True):
            view[...] = bar
        if index == 0:
            return out
        *_, mean, covariance = steps[index - 1]
        mean_bar, variance_bar = relu_moments_vjp(mean, variances(covariance), *units_bar)
        covariance_bar = variance_bar[:, :, None] * np.eye(mean.shape[1])
        if c_bar is not None:
            pair_mean_bar, pair_bar = relu_covariance_vjp(mean, covariance, c_bar)
            mean_bar, covariance_bar = mean_bar + pair_mean_bar, covariance_bar + pair_bar


def test_layers_assembled_by_hand_have_the_moments_of_the_network():
    for index, (*_, mean, covariance) in enumerate(propagate(THETA)):
        expected_mean, expected = NETWORK.moments(THETA, X, index)
        np.testing.assert_allclose(mean, expected_mean, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(covariance, expected, rtol=1e-12, atol=1e-12)


def test_adjoints_assembled_by_hand_give_the_gradient():
    expected = finite_difference_gradient(loss, THETA, 1e-3)
    np.testing.assert_allclose(gradient(THETA), expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_wrong_shapes_are_refused():
    units, layer, *_ = propagate(THETA)[0]
    with pytest.raises(ValueError, match="covariance must have shape"):
        linear_moments(units, layer, np.zeros((4, 2, 2)))
    with pytest.raises(ValueError, match="mean_bar must have shape"):
        linear_moments_vjp(units, layer, MEAN_BAR, COVARIANCE_BAR)
    with pytest.raises(ValueError, match=r"layer\.bias_mean must have shape"):
        linear_moments(units, layer._replace(bias_mean=np.zeros(3)))
    with pytest.raises(ValueError, match=r"layer\.weight_mean must have shape \(3, n_out\)"):
        linear_moments(units, layer._replace(weight_mean=np.zeros((2, 6))))
    with pytest.raises(TypeError, match="units must be a UnitMoments, got tuple"):
        linear_moments(tuple(units), layer)


def test_known_weights_add_no_variance():
    units, layer, *_ = propagate(THETA)[0]
    certain = layer._replace(
        weight_log_std=np.full_like(layer.weight_log_std, -np.inf), bias_log_std=np.full(6, -np.inf)
    )
    mean, covariance = linear_moments(units, certain)
    np.testing.assert_allclose(mean, X @ layer.weight_mean + layer.bias_mean, rtol=1e-12)
    assert not covariance.any()
