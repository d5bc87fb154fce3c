"""Scores of predictions: against their definitions, in searches, and for wrong arguments."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pydirect import DirectRegressor, metrics, predict_interval
from pydirect.predictive import PredictiveDistribution


@pytest.fixture
def gaussians():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=200), rng.gamma(2.0, size=200)
    return rng.normal(mean, std), mean, std


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    return X, X @ [1.0, -2.0, 0.0] + 0.5 * rng.normal(size=80)


def outputs(mean, std, k):
    """The same predictions for k outputs, as arrays and as distributions."""
    arrays = np.column_stack([mean] * k), np.column_stack([std] * k)
    return arrays, [PredictiveDistribution.gaussian(mean, std**2)] * k


# Scores against their definitions


def test_nlpd_is_minus_the_mean_log_density(gaussians):
    y, mean, std = gaussians
    assert metrics.nlpd(y, (mean, std)) == pytest.approx(-norm(mean, std).logpdf(y).mean())
    assert metrics.nlpd([1.0], ([0.0], [2.0])) == pytest.approx(0.5 * np.log(2 * np.pi) + np.log(2.0) + 0.125)


def test_crps_by_hand():
    # At the mean of a Gaussian: std * (sqrt(2) - 1) / sqrt(pi).
    assert metrics.crps([5.0], ([5.0], [3.0])) == pytest.approx(3.0 * (np.sqrt(2.0) - 1.0) / np.sqrt(np.pi))
    assert metrics.crps([1.0, -2.0], ([0.0, 0.0], [0.0, 0.0])) == pytest.approx(1.5)


@pytest.mark.parametrize("score", [metrics.nlpd, metrics.crps, metrics.calibration_error])
def test_every_form_of_prediction_scores_the_same(score, gaussians):
    y, mean, std = gaussians
    single = score(y, (mean, std))
    arrays, distributions = outputs(mean, std, 2)
    assert score(y, PredictiveDistribution.gaussian(mean, std**2)) == pytest.approx(single, rel=1e-12)
    assert score(y[:, None], (mean, std)) == pytest.approx(single, rel=1e-12)
    for several in (arrays, distributions, tuple(distributions)):
        assert score(np.column_stack([y, y]), several) == pytest.approx(single, rel=1e-12)


def test_interval_score_by_hand():
    # Inside: the width. Below by 1 and above by 2 at level 0.8: the width plus 10 and 20.
    assert metrics.interval_score([0.5], [0.0], [2.0], level=0.8) == pytest.approx(2.0)
    assert metrics.interval_score([-1.0], [0.0], [2.0], level=0.8) == pytest.approx(12.0)
    assert metrics.interval_score([4.0], [0.0], [2.0], level=0.8) == pytest.approx(22.0)


def test_coverage_counts_the_ends():
    assert metrics.coverage([0.0, 1.0, 2.0, 3.0], [0.0] * 4, [2.0] * 4) == pytest.approx(0.75)
    assert metrics.coverage([0.0, 3.0], [0.0] * 2, [2.0] * 2, sample_weight=[3.0, 1.0]) == pytest.approx(0.75)


def test_pit_is_the_cdf_in_the_shape_of_the_observations(gaussians):
    y, mean, std = gaussians
    np.testing.assert_allclose(metrics.pit(y, (mean, std)), norm(mean, std).cdf(y))
    assert metrics.pit(np.column_stack([y, y]), outputs(mean, std, 2)[1]).shape == (200, 2)
    assert metrics.pit(y[:, None], (mean, std)).shape == (200, 1)


def test_msll_is_zero_for_the_trivial_model_in_any_units(gaussians):
    y, mean, std = gaussians
    trivial = np.full(200, y.mean()), np.full(200, y.std())
    assert metrics.msll(y, trivial, y) == pytest.approx(0.0, abs=1e-12)
    value = metrics.msll(y, (mean, std), y)
    assert metrics.msll(10.0 * y + 3.0, (10.0 * mean + 3.0, 10.0 * std), 10.0 * y + 3.0) == pytest.approx(value)
    expected = norm(y.mean(), y.std()).logpdf(y).mean() - norm(mean, std).logpdf(y).mean()
    assert value == pytest.approx(expected)


def test_coverage_curve_counts_what_the_intervals_cover(gaussians):
    y, mean, std = gaussians
    d = PredictiveDistribution.gaussian(mean, std**2)
    levels = [0.1, 0.5, 0.9]
    expected = [metrics.coverage(y, *d.interval(level)) for level in levels]
    np.testing.assert_allclose(metrics.coverage_curve(y, d, levels), expected)


def test_calibration_error_by_hand():
    # PIT of 0.5 is in every central interval, PIT of 0.975 in those above 0.95 only.
    y, predicted = norm.ppf([0.5, 0.975]), (np.zeros(2), np.ones(2))
    levels = [0.2, 0.6, 0.98]
    assert metrics.calibration_error(y, predicted, levels=levels) == pytest.approx((0.3 + 0.1 + 0.02) / 3)
    assert metrics.calibration_error(y, predicted, levels=levels, norm="max") == pytest.approx(0.3)


def test_calibration_error_is_small_only_for_the_right_spread():
    rng = np.random.default_rng(5)
    y, zero, one = rng.normal(size=20_000), np.zeros(20_000), np.ones(20_000)
    assert metrics.calibration_error(y, (zero, one), norm="max") < 4.5 * 0.5 / np.sqrt(20_000)
    assert metrics.calibration_error(y, (zero, 0.5 * one)) > 0.15
    assert metrics.calibration_error(y, (zero, 2.0 * one)) > 0.15


@pytest.mark.parametrize(
    "score",
    [
        lambda y, m, s, w: metrics.nlpd(y, (m, s), sample_weight=w),
        lambda y, m, s, w: metrics.crps(y, (m, s), sample_weight=w),
        lambda y, m, s, w: metrics.interval_score(y, m - s, m + s, sample_weight=w),
        lambda y, m, s, w: metrics.coverage(y, m - s, m + s, sample_weight=w),
        lambda y, m, s, w: metrics.calibration_error(y, (m, s), sample_weight=w),
        lambda y, m, s, w: metrics.msll(y, (m, s), [0.0, 1.0], sample_weight=w),
    ],
)
def test_weights_count_repetitions(score, gaussians):
    y, mean, std = gaussians
    weight = np.random.default_rng(6).integers(0, 4, size=200)
    repeated = [np.repeat(a, weight) for a in (y, mean, std)]
    assert score(y, mean, std, weight) == pytest.approx(score(*repeated, None), rel=1e-12)


# Reliability


def test_the_reliability_curve_averages_over_bins():
    p = np.array([0.05, 0.08, 0.52, 0.58, 1.0])
    predicted, observed, weight = metrics.reliability_curve([0, 1, 1, 1, 1], p, sample_weight=[1.0, 3.0, 1.0, 1.0, 2.0])
    np.testing.assert_allclose(predicted, [(0.05 + 3 * 0.08) / 4, 0.55, 1.0])
    np.testing.assert_allclose(observed, [0.75, 1.0, 1.0])
    np.testing.assert_array_equal(weight, [4.0, 2.0, 2.0])
    expected = (4 * abs(observed[0] - predicted[0]) + 2 * 0.45) / 8
    assert metrics.expected_calibration_error([0, 1, 1, 1, 1], p, sample_weight=[1, 3, 1, 1, 2]) == pytest.approx(
        expected
    )
    for bad in ([0.5, 1.5], [0.5]):
        with pytest.raises(ValueError, match="probability must hold values between 0 and 1"):
            metrics.reliability_curve([0, 1], bad)
    with pytest.raises(ValueError, match="y_true must hold booleans"):
        metrics.reliability_curve([0, 2], [0.1, 0.2])


# Scorers


@pytest.mark.parametrize("scorer", [metrics.nlpd_scorer, metrics.crps_scorer])
def test_scorers_rank_models_in_a_grid_search(scorer, regression):
    X, y = regression
    pipeline = make_pipeline(StandardScaler(), BayesianRidge())
    grid = {"bayesianridge__alpha_1": [1e-6, 1e6]}  # the second forces the noise towards zero
    search = GridSearchCV(pipeline, grid, scoring=scorer, cv=3).fit(X, y)
    assert search.best_params_ == {"bayesianridge__alpha_1": 1e-6}
    assert search.best_score_ < 0.0
    np.testing.assert_allclose(scorer(search, X, y), scorer(search.best_estimator_, X, y))


class SkewedRegressor(RegressorMixin, BaseEstimator):
    """Predicts a mixture, whose mean and standard deviation alone would score differently."""

    def __init__(self, n_outputs=1, steps=10):
        self.n_outputs = n_outputs
        self.steps = steps  # not a pipeline's list, though it has the same name

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict_distribution(self, X):
        n = len(X)
        one = PredictiveDistribution([0.9, 0.1], np.tile([0.0, 4.0], (n, 1)), np.ones((n, 2)))
        return one if self.n_outputs == 1 else [one] * self.n_outputs

    def predict(self, X, return_std=False):
        raise AssertionError("the distribution is there to be used")


@pytest.mark.parametrize("wrap", [lambda m: m, make_pipeline, lambda m: make_pipeline(StandardScaler(), m)])
def test_the_distribution_is_preferred_even_inside_a_pipeline(wrap, regression):
    X, y = regression
    for k, targets in ((1, y), (2, np.column_stack([y, y]))):
        model = wrap(SkewedRegressor(n_outputs=k)).fit(X, targets)
        expected = -metrics.nlpd(y, SkewedRegressor().predict_distribution(X))
        assert metrics.nlpd_scorer(model, X, targets) == pytest.approx(expected)


# Validation

ZERO, ONE = np.zeros(3), np.ones(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.nlpd(ZERO, (ZERO, -ONE)), "std must be non-negative .* minimum -1"),
        (
            lambda: metrics.nlpd(ZERO, (ZERO, ONE[:2])),
            r"std must be .* of the shape of mean, \(3, 1\), got shape \(2, 1\)",
        ),
        (
            lambda: metrics.nlpd(ZERO[:2], (ZERO, ONE)),
            r"y_true must have as many rows and outputs as predicted, \(3, 1\)",
        ),
        (lambda: metrics.nlpd(ZERO, ZERO), "predicted must be a PredictiveDistribution, .* got ndarray"),
        (lambda: metrics.nlpd(ZERO, (ZERO, ONE, ONE)), "predicted must be a pair .* got 3 items"),
        (lambda: metrics.nlpd([np.nan] * 3, (ZERO, ONE)), "y_true must be finite"),
        (lambda: metrics.nlpd(0.0, (ZERO, ONE)), r"y_true must have shape \(n,\) or \(n, k\), got \(\)"),
        (lambda: metrics.nlpd([], ([], [])), "y_true must have at least one row, got none"),
        (
            lambda: metrics.crps(ZERO, (ZERO, ONE), sample_weight=[1.0, -1.0, 1.0]),
            "sample_weight must not be negative, got -1",
        ),
        (lambda: metrics.crps(ZERO, (ZERO, ONE), sample_weight=ZERO), "sample_weight must have at least one positive"),
        (lambda: metrics.interval_score(ZERO, ZERO, ONE, level=1.0), "level must be strictly between 0 and 1"),
        (lambda: metrics.coverage(ZERO, ZERO, ONE[:2]), "lower and upper must have the shape of y_true"),
        (lambda: metrics.msll(ZERO, (ZERO, ONE), [2.0, 2.0]), "y_train must vary in every output, got a constant"),
        (lambda: metrics.msll(ZERO, (ZERO, ONE), np.eye(2)), "y_train must have rows and 1 output"),
        (lambda: metrics.coverage_curve(ZERO, (ZERO, ONE), [0.5, 1.5]), "levels must be strictly between 0 and 1"),
        (
            lambda: metrics.calibration_error(ZERO, (ZERO, ONE), norm="l2"),
            "norm must be one of 'mean', 'max', got 'l2'",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_crossed_quantiles_count_as_given_with_one_warning():
    y, low, high = np.array([0.0, 0.5, 2.0]), np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
    with pytest.warns(UserWarning, match="2 of 3 intervals contain nothing") as caught:
        assert metrics.coverage(y, low, high) == 0.0
    assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.warns(UserWarning, match="2 of 3"):
        score = metrics.interval_score(y, low, high, 0.8)
    pinball = [np.maximum(t * (y - q), (t - 1) * (y - q)).mean() for t, q in ((0.1, low), (0.9, high))]
    assert score == pytest.approx(2 / 0.2 * sum(pinball))


def test_intervals_of_pipelines_searches_and_other_packages():
    rng = np.random.default_rng(0)
    X = 5 + 3 * rng.standard_normal((60, 2))
    Y = X @ [1.0, 2.0] + 0.3 * rng.standard_normal(60)
    alone = DirectRegressor("linear").fit(StandardScaler().fit_transform(X), Y)
    pipeline = make_pipeline(StandardScaler(), DirectRegressor("linear")).fit(X, Y)
    search = GridSearchCV(pipeline, {"directregressor__noise": ["auto"]}, cv=2).fit(X, Y)
    expected = alone.predict_interval(StandardScaler().fit_transform(X), 0.8)
    for model in (pipeline, search):
        np.testing.assert_allclose(predict_interval(model, X, 0.8), expected)
    ridge = BayesianRidge().fit(X, Y)
    mean, std = ridge.predict(X, return_std=True)
    lower, upper = predict_interval(ridge, X)
    np.testing.assert_allclose([lower, upper], [mean - 1.6448536 * std, mean + 1.6448536 * std])
    with pytest.raises(TypeError, match="estimator must have predict_distribution"):
        predict_interval(StandardScaler(), X)


def test_concordance_counts_pairs_of_known_order():
    rng = np.random.default_rng(2)
    time, event, predicted = rng.integers(1, 8, 40).astype(float), rng.random(40) < 0.6, rng.integers(0, 9, 40) * 1.0
    weight = rng.integers(0, 3, 40)
    right = pairs = 0.0
    for i in range(40):
        for j in range(40):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                pairs += weight[i] * weight[j]
                right += weight[i] * weight[j] * (0.5 * (predicted[i] == predicted[j]) + (predicted[i] < predicted[j]))
    found = metrics.concordance_index(time, event, predicted, sample_weight=weight)
    assert found == pytest.approx(right / pairs, rel=1e-12)
    with pytest.raises(ValueError, match="whose order is known"):
        metrics.concordance_index(time, np.zeros(40, bool), predicted)
    with pytest.raises(ValueError, match="vectors of one length"):
        metrics.concordance_index(time, event, predicted[:-1])


def test_brier_scores_of_survival_curves():
    time, at = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), np.array([1.5, 2.5, 4.5])
    everyone = metrics.integrated_brier_score(time, np.ones(6, bool), (time[:, None] > at) * 1.0, at)
    assert everyone == 0.0
    half = metrics.integrated_brier_score(time, np.ones(6, bool), np.full((6, 3), 0.5), at)
    assert half == pytest.approx(0.25)
    # One of six censored at 3: of four at risk there (3 included), a share of 3/4 stays uncensored.
    event, curve = time != 3.0, np.full((6, 3), 0.4)
    by_hand = [(0.16 + 5 * 0.36) / 6, (2 * 0.16 + 4 * 0.36) / 6, (2 * 0.16 + (0.16 + 2 * 0.36) / 0.75) / 6]
    expected = np.trapezoid(by_hand, at) / 3.0
    assert metrics.integrated_brier_score(time, event, curve, at) == pytest.approx(expected)
    with pytest.raises(ValueError, match="ascending times before the last"):
        metrics.integrated_brier_score(time, event, curve, [1.0, 2.0, 6.0])
