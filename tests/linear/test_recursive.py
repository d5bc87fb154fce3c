"""Recursive least squares against one fit to all rows."""

import numpy as np
import pytest

from pydirect.linear.recursive import BLOCK_ROWS, FEW_ROWS, RecursivePosterior
from pydirect.statistics.gaussian import GaussianStatistics

NOISE, PRIOR = 0.3, 2.0


def rows(n, b=7, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n, b))
    return phi, phi @ rng.standard_normal(b) + np.sqrt(NOISE) * rng.standard_normal(n)


def dense(phi, y, weight=None):
    """Mean and covariance of the weights by an inverse."""
    weight = np.ones(len(phi)) if weight is None else weight
    covariance = np.linalg.inv((phi.T * weight) @ phi / NOISE + np.eye(phi.shape[1]) / PRIOR)
    return covariance @ (phi.T @ (weight * y)) / NOISE, covariance


def assert_is(posterior, mean, covariance):
    np.testing.assert_allclose(posterior.mean, mean, atol=1e-10)
    np.testing.assert_allclose(posterior.covariance, covariance, atol=1e-10)


@pytest.mark.parametrize("n", [3, 90])
def test_posterior_of_statistics_is_that_of_their_rows(n):
    phi, y = rows(n)
    assert_is(RecursivePosterior.of(GaussianStatistics.from_arrays(phi, y), NOISE, PRIOR), *dense(phi, y))


@pytest.mark.parametrize("size", [1, 3, FEW_ROWS + 1])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
def test_rows_that_come_and_go_in_any_order_follow_dense_matrices(size, layout):
    phi, y = rows(160, b=11)
    y = np.c_[y, y][:, 0]  # not contiguous
    weight = np.random.default_rng(1).gamma(2.0, size=160)
    order = np.r_[np.arange(100), np.ravel(np.c_[np.arange(100, 160), np.arange(60)])]  # each new one, then an old one
    signed = np.where(np.arange(220) < 100, 1.0, np.where(np.arange(220) % 2, -1.0, 1.0)) * weight[order]
    posterior, mean, total = RecursivePosterior.prior(11, NOISE, PRIOR), np.zeros(11), np.zeros(160)
    for begin in range(0, 220, size):
        some = order[begin : begin + size]
        found = posterior.predict_then_update(layout(phi[some]), y[some], signed[begin : begin + size])
        for i, f_mean, f_variance, w in zip(some, *found, signed[begin : begin + size], strict=True):
            mean, covariance = dense(phi, y, total)
            np.testing.assert_allclose([f_mean, f_variance], [phi[i] @ mean, phi[i] @ covariance @ phi[i]], rtol=1e-9)
            total[i] += w
    assert_is(posterior, *dense(phi, y, total))
    assert posterior.n_samples == pytest.approx(total.sum())


def test_moments_and_covariances_are_those_of_the_weights():
    phi, y = rows(40)
    posterior, (m, s) = RecursivePosterior.prior(7, NOISE, PRIOR).update(phi[:30], y[:30]), dense(phi[:30], y[:30])
    mean, variance = posterior.moments(phi[30:])
    np.testing.assert_allclose(mean, phi[30:] @ m, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(phi[30:] @ s @ phi[30:].T), atol=1e-10)
    np.testing.assert_allclose(posterior.covariances(phi[30:], phi[:4]), phi[30:] @ s @ phi[:4].T, atol=1e-10)


def test_rows_that_never_came_are_refused_and_nothing_changes():
    phi, y = rows(20)
    posterior = RecursivePosterior.prior(7, NOISE, PRIOR).update(phi, y)
    before = posterior.copy()
    with pytest.raises(ValueError, match="must be among those added"):
        posterior.update(100 * phi[:3], y[:3], -np.ones(3))
    assert_is(posterior, before.mean, before.covariance)


@pytest.mark.parametrize("name", ["noise_variance", "prior_variance"])
def test_variances_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        RecursivePosterior.prior(3, **{"noise_variance": 1.0, "prior_variance": 1.0, name: 0.0})


def test_each_row_is_predicted_from_those_before_it():
    phi, y = rows(BLOCK_ROWS + 20)
    mean, variance = RecursivePosterior.prior(7, NOISE, PRIOR).predict_then_update(phi, y)
    for i in (0, 1, 30, BLOCK_ROWS - 1, BLOCK_ROWS, len(y) - 1):
        m, s = dense(phi[:i], y[:i])
        assert mean[i] == pytest.approx(phi[i] @ m, abs=1e-10)
        assert variance[i] == pytest.approx(phi[i] @ s @ phi[i], abs=1e-10)
