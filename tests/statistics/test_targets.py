"""Statistics of one target: a view that shares A."""

import numpy as np
import pytest

from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((50, 6)), rng.standard_normal((50, 2))


def test_the_squared_error_of_a_target_is_its_definition(data):
    phi, y = data
    target = GaussianStatistics.from_arrays(phi, y).target(1)
    rng = np.random.default_rng(0)
    means, variances = rng.standard_normal((3, phi.shape[1])), rng.random((3, phi.shape[1]))
    expected = ((y[:, 1] - means @ phi.T) ** 2).sum(axis=1)
    np.testing.assert_allclose(target.squared_error(means), expected, rtol=1e-10)
    expected += (phi**2).sum(axis=0) @ variances.T
    np.testing.assert_allclose(target.squared_error(means, variances), expected, rtol=1e-10)
    for mean, variance, error in zip(means, variances, expected, strict=True):
        assert target.squared_error(mean, variance) == pytest.approx(error, rel=1e-10)
        value, gradient = target.squared_error_and_gradient(mean, variance)
        assert value == target.squared_error(mean, variance)
        np.testing.assert_allclose(gradient, -2 * phi.T @ (y[:, 1] - phi @ mean), rtol=1e-8, atol=1e-8)


def test_targets_share_the_gram_matrix(data):
    statistics = GaussianStatistics.from_arrays(*data)
    assert statistics.target(0).A is statistics.target(1).A
    assert statistics.outputs(slice(1, 2)).target(0).A is statistics.A
    with pytest.raises(ValueError, match="output must be from 0 to 1, got 2"):
        statistics.target(2)


def test_the_squared_error_of_a_rotated_target_is_that_of_the_target(data):
    statistics = GaussianStatistics.from_arrays(*data)
    rotated, rng = decorrelate(statistics).target(1), np.random.default_rng(0)
    mean, variance = rng.standard_normal(statistics.n_weights), 0.3  # an isotropic variance does not change by rotation
    expected = statistics.target(1).squared_error(mean, np.full(len(mean), variance))
    turned = rotated.rotation.transposed_times(mean)
    assert rotated.squared_error(turned, turned**2 + variance) == pytest.approx(expected, rel=1e-9)
