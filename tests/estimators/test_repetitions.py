"""Repeated rows and weights: the noise of measurements, and that copies and weights prove nothing about it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone

from pydirect import DirectClassifier, DirectRegressor, DirectSearchCV, Nystroem
from pydirect.explain import LeftOutRows
from pydirect.statistics.gaussian import GaussianStatistics


def answers(n, n_columns=1, seed=0):
    """Answers of 0 and 1 to few questions: rows repeat, and the noise is what each question leaves over."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, n_columns)).astype(float)
    return X, (rng.random(n) < 0.3 + 0.4 * X.mean(axis=1)).astype(float)


@pytest.mark.parametrize("posterior", ["gaussian", "sequential"])
@pytest.mark.parametrize(("n", "n_columns"), [(400, 3), (4100, 1)])
def test_noise_of_repeated_measurements_is_the_mean_squared_residual(posterior, n_columns, n):
    X, y = answers(n, n_columns)
    model = DirectRegressor(posterior=posterior).fit(X, y)
    assert model.noise_variance_ == pytest.approx(np.mean((y - model.predict(X)) ** 2), rel=0.03)
    assert model.posterior_.noise.at_edge() is None
    weighted = clone(model).fit(*counted(X, y))
    np.testing.assert_array_equal(weighted.predict(X[:9]), model.predict(X[:9]))


def counted(X, y):
    rows, weight = np.unique(np.c_[X, y], axis=0, return_counts=True)
    return rows[:, :-1], rows[:, -1], weight.astype(float)


@pytest.mark.parametrize("posterior", ["gaussian", "sequential"])
def test_weights_that_say_nothing_of_precision_leave_the_noise(posterior):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + 0.5 * rng.standard_normal(400)
    model = DirectRegressor(posterior=posterior, noise="constant", n_basis_functions=200)
    even = model.fit(X, y).noise_variance_
    for weight in (rng.choice([1.0, 20.0], 400), np.full(400, 7.0), rng.exponential(size=400)):
        assert model.fit(X, y, weight).noise_variance_ == pytest.approx(even, rel=0.15)
    rare = np.r_[200.0, np.ones(399)]  # a third of all weight on one residual, which is small
    assert model.fit(X, y, rare).noise_variance_ == pytest.approx(even, rel=0.4)


def test_copies_change_nothing():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 2))
    y = X[:, 0] + 0.3 * rng.standard_normal(40)
    once = DirectRegressor().fit(X, y)
    copied = DirectRegressor().fit(np.tile(X, (5, 1)), np.tile(y, 5))
    for mine, other in zip(once.predict(X, return_std=True), copied.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)
    assert copied.elbo_ == pytest.approx(once.elbo_, abs=1e-3)


def test_elbo_of_repeated_measurements_is_the_log_evidence_of_all_rows():
    X, y = answers(300)
    model = DirectRegressor("linear", noise=0.2).fit(X, y)
    phi = model.features_.transform(X)
    covariance = 0.2 * np.eye(300) + (model.y_scale_[0] * model.prior_scale_[0]) ** 2 * phi @ phi.T
    exact = multivariate_normal(np.full(300, model.y_mean_[0]), covariance).logpdf(y)
    assert model.elbo_ == pytest.approx(exact, abs=1e-3)
    rows, targets, weight = counted(X, y)
    merged = GaussianStatistics.from_arrays(model.features_.transform(rows), targets, weight)
    every = GaussianStatistics.from_arrays(phi, y)
    np.testing.assert_allclose(merged.A, every.A, rtol=1e-12, atol=1e-10)
    assert (merged.n_samples, merged.yty[0]) == pytest.approx((every.n_samples, every.yty[0]), rel=1e-12)


@pytest.mark.parametrize("estimator", [DirectRegressor, DirectClassifier])
def test_the_same_rows_and_landmarks_are_drawn_for_weights_and_repeats_of_long_tables(estimator, monkeypatch):
    rng = np.random.default_rng(3)
    X, weight = rng.standard_normal((4300, 2)), rng.integers(1, 3, 4300)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(4300)
    y = y if estimator is DirectRegressor else y > 0
    given = rng.permutation(np.repeat(np.arange(4300), weight))
    model = estimator(Nystroem(max_search_rows=60), 40)
    weighted, repeated = clone(model).fit(X, y, weight.astype(float)), clone(model).fit(X[given], y[given])
    np.testing.assert_array_equal(weighted.features_.map.landmarks, repeated.features_.map.landmarks)
    if estimator is DirectRegressor:
        np.testing.assert_array_equal(weighted.predict(X[:50]), repeated.predict(X[:50]))
    else:
        np.testing.assert_allclose(weighted.predict_proba(X[:50]), repeated.predict_proba(X[:50]), atol=1e-6)


def test_known_noise_counts_every_repetition(tmp_path):
    X, y = answers(60)
    y = y + 0.1 * np.arange(60)  # no two targets are equal: as weights these would be copies
    model = DirectRegressor("linear", noise=0.2).fit(X, y, np.full(60, 3.0))
    assert model.effective_rows_ == model.total_weight_ == 180
    precision = model.prior_scale_[0] ** -2 * np.eye(2)
    phi = model.features_.transform(X)
    covariance = np.linalg.inv(precision + 3 * model.y_scale_[0] ** 2 / 0.2 * phi.T @ phi)
    spread = model.y_scale_[0] * np.sqrt(np.einsum("ij,jk,ik->i", phi, covariance, phi))
    np.testing.assert_allclose(model.predict_parts(X)[1], spread, rtol=1e-3)


def test_search_counts_repetitions_as_fit_does():
    X, y = answers(200, 2)
    search = DirectSearchCV(DirectRegressor("linear"), {"noise": ["auto"]}, cv=2).fit(X, y)
    alone = DirectRegressor("linear").fit(X, y)
    assert search.best_estimator_.noise_variance_ == pytest.approx(alone.noise_variance_, rel=1e-6)
    assert search.best_estimator_.effective_rows_ == alone.effective_rows_ == 200


def test_measurements_are_left_out_one_by_one():
    rng = np.random.default_rng(0)
    share = np.repeat([0.1, 0.4, 0.6, 0.9], 100)
    X, y = np.repeat(np.arange(4.0), 100)[:, None], (rng.random(400) < share).astype(float)
    model = DirectRegressor(noise="constant").fit(X, y)
    row = int(np.flatnonzero(y)[0])
    rest = np.arange(400) != row
    assert model.noise_variance_ == pytest.approx((share * (1 - share)).mean(), rel=0.1)
    left_out = LeftOutRows(model, X, y)
    assert left_out.log_density.mean() == pytest.approx(model.log_predictive_density(X, y).mean(), abs=0.02)
    lower, upper = left_out.predict_interval(X[[0, 399]], level=0.95)
    assert (np.diff([lower, upper], axis=0) < 2).all()
    without = DirectRegressor(noise="constant").fit(X[rest], y[rest]).predict(X[[row]])
    assert y[row] - left_out.residuals[row] == pytest.approx(without[0], abs=0.01)


def test_varying_noise_of_rounded_measurements_is_theirs():
    rng = np.random.default_rng(0)
    deviation = np.repeat([1.0, 2.0, 5.0, 10.0], 300)
    X = np.repeat(np.arange(4.0), 300)[:, None]
    y = np.rint(np.repeat([10.0, 20.0, 30.0, 60.0], 300) + deviation * rng.standard_normal(1200))
    _, std = DirectRegressor(noise="varying").fit(X, y).predict(X[::300], return_std=True)
    np.testing.assert_allclose(std, deviation[::300], rtol=0.3)


def test_unequal_weights_count_for_as_many_rows_from_sums_as_from_rows():
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((300, 3)), rng.lognormal(0.0, 1.2, 300)
    y = np.sin(x[:, 0]) + 0.3 * rng.standard_normal(300)

    def model():
        return DirectRegressor("linear", noise="constant")

    fit = model().fit(x, y, weight)
    assert fit.effective_rows_ == pytest.approx(np.minimum(weight / weight.mean(), 1).sum(), rel=0.05)
    blocks = [(x[:140], y[:140], weight[:140]), (x[140:], y[140:], weight[140:])]
    summed, given = model().fit_stream(blocks), model().fit_features(x, y, weight)
    for k in range(3):
        given.partial_fit(x[k::3], y[k::3], weight[k::3])
    far = given.partial_fit(x[:9], y[:9] + 50, weight[:9]).forget(x[:9], y[:9] + 50, weight[:9])
    for other in (summed, given, far):
        assert other.effective_rows_ == pytest.approx(fit.effective_rows_)
        for found, expected in zip(other.predict(x, return_std=True), fit.predict(x, return_std=True), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
