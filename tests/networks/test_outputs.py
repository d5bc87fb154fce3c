import numpy as np
from scipy.special import softmax

from pydirect.networks.outputs import delta_log_probabilities, draw_outputs, normal_points


def test_quasi_random_probabilities_are_those_of_many_draws():
    rng = np.random.default_rng(0)
    mean, root = rng.standard_normal((4, 3)), rng.standard_normal((4, 3, 3))
    covariance = root @ np.swapaxes(root, 1, 2)
    points = softmax(draw_outputs(mean, covariance, normal_points(256, 3)), axis=0).mean(axis=2).T
    draws = softmax(draw_outputs(mean, covariance, rng.standard_normal((200_000, 3))), axis=0)
    np.testing.assert_allclose(points, draws.mean(axis=2).T, atol=5e-3)
    small = 0.01 * covariance
    delta = np.exp(delta_log_probabilities(mean, small))
    exact = softmax(draw_outputs(mean, small, normal_points(4096, 3)), axis=0).mean(axis=2).T
    np.testing.assert_allclose(delta, exact, atol=1e-3)
    for scale in (100.0, 1e18):
        wild = np.exp(delta_log_probabilities(mean, scale * covariance))
        np.testing.assert_allclose(wild.sum(axis=1), 1.0)
        assert (wild >= 0).all()
    certain = np.array([[3e9, 0.0, -1e9]])  # by three deviations that are common to all, and more
    proba = np.exp(delta_log_probabilities(certain, 1e18 * (1 + np.eye(3))[None]))
    np.testing.assert_allclose(proba, [[1.0, 0.0, 0.0]], atol=1e-300)
