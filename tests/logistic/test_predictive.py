"""Predictive probabilities of Gaussian logits."""

import numpy as np
import pytest
from scipy.special import expit

from pydirect import GaussianPrior, evenly_spaced_levels, fit_logistic
from pydirect.logistic import predictive, predictive_probability
from pydirect.logistic.discrete import DiscreteLatent
from pydirect.logistic.predictive import averaged_log_odds, averaged_softmax, predictive_log_odds
from pydirect.testing import enumerate_factorized, enumerate_logistic_predictive

LEVELS = evenly_spaced_levels(5, 2.0)


@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0, 1.24, 1.26, 3.0, 10.0, 60.0])
def test_log_odds_are_those_of_the_integral(sd):
    u = np.linspace(-15, 15, 200_001)
    mass = np.exp(-0.5 * u**2) / np.exp(-0.5 * u**2).sum()
    mean = np.array([-30.0, -3.0, -0.1, 0.0, 0.7, 8.0, 25.0])
    exact = [np.log((expit(m + sd * u) @ mass) / (expit(-m - sd * u) @ mass)) for m in mean]
    np.testing.assert_allclose(predictive_log_odds(mean, np.full(7, sd**2)), exact, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(predictive_probability(mean, np.full(7, sd**2)), expit(exact), rtol=1e-8)


def test_log_odds_stay_finite_and_monotone_far_out():
    mean = np.concatenate([-np.geomspace(1e6, 1e-3, 400), np.geomspace(1e-3, 1e6, 400)])
    for sd in (0.0, 1.0, 1.3, 30.0):
        odds = predictive_log_odds(mean, np.full(mean.shape, sd**2))
        assert np.isfinite(odds).all() and (np.diff(odds) > 0).all()


def test_the_gaussian_prediction_agrees_with_enumeration_and_sampling(make_rows):
    rows = make_rows(40, 6, scale=0.6, likelihood="jaakkola")
    levels = evenly_spaced_levels(7, 2.0)
    posterior = fit_logistic(rows, levels, GaussianPrior().log_mass(levels))
    exact = enumerate_logistic_predictive(rows.x, enumerate_factorized(levels, posterior.q, [1.0], [1.0]), rows.offset)
    mean, variance = rows.moments(DiscreteLatent([posterior]))
    np.testing.assert_allclose(predictive_probability(mean[:, 0], variance), exact, atol=2e-3)
    drawn = expit(rows.offset + posterior.sample_weights(4000, np.random.default_rng(0)) @ rows.x.T)
    error = drawn.std(axis=0, ddof=1) / np.sqrt(4000)
    assert (np.abs(drawn.mean(axis=0) - exact) < 4.5 * error).all()


def test_log_odds_of_draws_are_those_of_their_mean_probability():
    draws = np.random.default_rng(0).normal(1.0, 3.0, (5, 64))
    np.testing.assert_allclose(expit(averaged_log_odds(draws)), expit(draws).mean(axis=1), rtol=1e-12)
    variance = np.array([0.0, 0.5, 1.0, 2.0, 9.0])
    blurred = predictive_probability(draws, np.repeat(variance[:, None], 64, axis=1)).mean(axis=1)
    np.testing.assert_allclose(expit(averaged_log_odds(draws, variance)), blurred, rtol=1e-12)
    assert np.isfinite(averaged_log_odds(np.array([[1e5, 2e5], [-1e5, -2e5]]))).all()


def test_draws_without_variance_are_not_blurred(monkeypatch):
    draws = np.random.default_rng(0).normal(1.0, 3.0, (5, 3, 64))
    expected = averaged_log_odds(draws[:, 0]), averaged_softmax(draws)
    for name in ("predictive_log_odds", "softmax_log_probability"):
        monkeypatch.setattr(predictive, name, None)  # quadrature, for every draw of every row
    np.testing.assert_array_equal(averaged_log_odds(draws[:, 0], np.zeros(5)), expected[0])
    np.testing.assert_array_equal(averaged_softmax(draws, np.zeros(5)), expected[1])
