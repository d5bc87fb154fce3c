"""Predictions of training rows without themselves are those of refits; intervals from them cover."""

import pickle

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import pydirect
from pydirect import DirectRegressor, fit_many
from pydirect.estimators import _leaving_out, compare_left_out

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((60, 3)), RNG.standard_normal((25, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.standard_normal(60)
TWO = np.c_[Y, 50 - 10 * X[:, 2] + RNG.standard_normal(60)]
COUNTS = RNG.integers(1, 4, 60).astype(float)


def fit(targets=Y, weight=None, rows=X, **parameters):
    return DirectRegressor(n_basis_functions=24, store_loo=True, **parameters).fit(rows, targets, sample_weight=weight)


class Refit:
    """Ridge regression on some rows in the features of a model, at its noise and prior variances, one output."""

    def __init__(self, model, x, y, weight, k=0):
        self.model, self.k = model, k
        phi, weight = model.features_.transform(x), weight / model.repetitions_
        tau, self.t = model.posteriors_[k].noise.precision, model.prior_scale_[k] ** 2
        precision = tau * (phi.T * weight) @ phi + np.eye(phi.shape[1]) / self.t
        self.covariance = np.linalg.inv(precision)
        standardised = (y - model.y_mean_[k]) / model.y_scale_[k]
        self.coefficients = self.covariance @ (tau * phi.T @ (weight * standardised))

    def moments(self, x):
        """Mean, and variance of f with what the features miss, standardised."""
        inputs, phi = self.model._features_of(x)
        variance = np.sum(phi @ self.covariance * phi, axis=1)
        missing = self.model._missing_variance(inputs, phi)
        return phi @ self.coefficients, variance + (0.0 if missing is None else missing[:, self.k])

    def log_density(self, x, y):
        mean, variance = self.moments(x)
        noise, scale = self.model.posteriors_[self.k].noise, self.model.y_scale_[self.k]
        standardised = (y - self.model.y_mean_[self.k]) / scale
        sd = np.sqrt(variance[:, None] + noise.levels)
        return logsumexp(norm.logpdf(standardised[:, None], mean[:, None], sd), b=noise.q, axis=1) - np.log(scale)


CASES = {
    "landmarks": ({}, Y, None),
    "all rows are landmarks": ({"n_basis_functions": 100}, Y, None),
    "counts": ({"features": "fourier"}, Y, COUNTS),
    "two outputs": ({}, TWO, COUNTS),
    "linear": ({"features": "linear", "noise": 0.1}, Y, None),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_predictions_are_those_of_refits_without_the_row(case):
    parameters, targets, counts = CASES[case]
    model = DirectRegressor(**{"n_basis_functions": 24, "store_loo": True, **parameters}).fit(X, targets, counts)
    weight = np.ones(60) if counts is None else counts
    columns = targets.reshape(60, -1)
    assert model.loo_residuals_.shape == model.loo_log_density_.shape == targets.shape
    residuals, densities = (a.reshape(60, -1) for a in (model.loo_residuals_, model.loo_log_density_))
    for i in range(0, 60, 4):
        rest = np.arange(60) != i
        for k, y in enumerate(columns.T):
            refit = Refit(model, X[rest], y[rest], weight[rest], k)
            mean = model.y_mean_[k] + model.y_scale_[k] * refit.moments(X[[i]])[0]
            np.testing.assert_allclose(residuals[i, k], y[i] - mean[0], rtol=1e-7, atol=1e-9 * model.y_scale_[k])
            np.testing.assert_allclose(densities[i, k], refit.log_density(X[[i]], y[[i]])[0], rtol=1e-7, atol=1e-8)


def test_copies_are_left_out_together():
    copies = np.r_[np.arange(60), [3, 3, 7]]
    model = fit(Y[copies], rows=X[copies], length_scale=1.0)
    counted = fit(weight=np.bincount(copies).astype(float), length_scale=1.0)
    np.testing.assert_allclose(model.loo_residuals_, counted.loo_residuals_[copies], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.loo_log_density_, counted.loo_log_density_[copies], rtol=1e-5, atol=1e-7)
    rest = np.arange(60) != 3
    expected = Refit(model, X[rest], Y[rest], np.bincount(copies)[rest].astype(float)).log_density(X[[3]], Y[[3]])
    np.testing.assert_allclose(model.loo_log_density_[[3, 60, 61]], expected[0], rtol=1e-7)


def test_rows_without_weight_are_predicted_by_the_model():
    weight = np.where(np.arange(60) < 50, 1.0, 0.0)
    model = fit(weight=weight)
    np.testing.assert_allclose(model.loo_residuals_[50:], (Y - model.predict(X))[50:], rtol=1e-4)
    assert len(model._jackknife.rows) == 50


@pytest.mark.parametrize("targets", [Y, TWO], ids=["one output", "two outputs"])
@pytest.mark.parametrize("n_basis_functions", [24, 100])
def test_jackknife_plus_is_that_of_refits(targets, n_basis_functions):
    model = DirectRegressor(n_basis_functions=n_basis_functions, store_loo=True).fit(X, targets, COUNTS)
    found = [bound.reshape(25, -1) for bound in model.predict_interval(NEW, 0.8, "jackknife+")]
    for k, y in enumerate(targets.reshape(60, -1).T):
        scale, noise = model.y_scale_[k], model.posteriors_[k].noise.variance
        spread = np.sqrt(Refit(model, X, y, COUNTS, k).moments(NEW)[1] + noise)
        ends = []
        for i in range(60):
            rest = np.arange(60) != i
            refit = Refit(model, X[rest], y[rest], COUNTS[rest], k)
            mean, variance = refit.moments(X[[i]])
            score = np.abs((y[i] - model.y_mean_[k]) / scale - mean) / np.sqrt(variance + noise)
            ends.append(refit.moments(NEW)[0] + np.array([[-1.0], [1.0]]) * score * spread)
        low, high = (model.y_mean_[k] + scale * end for end in np.stack(ends, axis=1))
        np.testing.assert_allclose(found[0][:, k], _weighted_rank(low), rtol=0, atol=1e-4 * scale)
        np.testing.assert_allclose(found[1][:, k], -_weighted_rank(-high), rtol=0, atol=1e-4 * scale)


def _weighted_rank(values):
    """The smallest values of every column whose shares of the counts reach .2·61 of 60; the last of them."""
    order = np.argsort(values, axis=0)
    reached = np.cumsum(COUNTS[order] / COUNTS.mean(), axis=0) <= 0.2 * 61
    return np.take_along_axis(values, order, axis=0)[reached.sum(axis=0) - 1, np.arange(values.shape[1])]


def test_jackknife_plus_covers_where_the_noise_is_not_gaussian():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2300, 2))
    y = np.sin(2 * x[:, 0]) + rng.standard_normal(2300) * np.where(rng.random(2300) < 0.05, 3.0, 0.1)
    model = DirectRegressor(n_basis_functions=60, store_loo=True).fit(x[:300], y[:300])
    lower, upper = model.predict_interval(x[300:], 0.9, method="jackknife+")
    assert 0.86 < np.mean((lower <= y[300:]) & (y[300:] <= upper)) < 0.94
    wide = np.subtract(*model.predict_interval(x[300:], 0.9)[::-1])
    assert np.mean(upper - lower) < 0.8 * wide.mean()  # a Gaussian's spread is that of its tails


def test_of_many_rows_a_choice_gives_the_intervals(monkeypatch):
    monkeypatch.setattr(_leaving_out, "MAX_ROWS", 50)
    monkeypatch.setattr(_leaving_out, "CHOSEN_ROWS", 30)
    model, again = fit(), fit()
    assert len(model._jackknife.rows) == 30 and len(model.loo_residuals_) == 60
    np.testing.assert_array_equal(model._jackknife.rows, again._jackknife.rows)


def test_intervals_do_not_depend_on_the_blocks(monkeypatch):
    model = fit(TWO)
    whole = model.predict_interval(NEW, method="jackknife+")
    monkeypatch.setattr(_leaving_out, "COVARIANCE_BYTES", 7 * 8 * model._jackknife.pulls.size)
    for part, expected in zip(model.predict_interval(NEW, method="jackknife+"), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-9)


def test_saved_and_copied_models_keep_them(tmp_path):
    model = fit(TWO)
    model.save(tmp_path / "model")
    for copy in (pydirect.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.loo_residuals_, model.loo_residuals_)
        np.testing.assert_array_equal(copy.loo_log_density_, model.loo_log_density_)
        intervals = zip(*(m.predict_interval(NEW, method="jackknife+") for m in (copy, model)), strict=True)
        assert all(np.array_equal(found, expected) for found, expected in intervals)


def test_next_fit_forgets_them():
    model = fit()
    model.set_params(store_loo=False).fit(X, Y)
    assert not hasattr(model, "loo_residuals_") and not hasattr(model, "loo_log_density_")
    with pytest.raises(ValueError, match="fit with store_loo=True"):
        model.predict_interval(NEW, method="jackknife+")


def test_models_that_share_their_features_have_their_own():
    models = [DirectRegressor("linear", store_loo=True), DirectRegressor("linear", noise=0.5, store_loo=True)]
    fit_many(models, X, [Y, TWO])
    for model, targets in zip(models, (Y, TWO), strict=True):
        alone = pydirect.DirectRegressor(**model.get_params()).fit(X, targets)
        np.testing.assert_allclose(model.loo_residuals_, alone.loo_residuals_, rtol=1e-6)


def test_storing_them_changes_nothing_else():
    with_them, without = fit(), DirectRegressor(n_basis_functions=24).fit(X, Y)
    for found, expected in zip(
        with_them.predict(NEW, return_std=True), without.predict(NEW, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"basis": "raw"}, "store_loo must be False with basis='raw'"),
        ({"prior": "laplace"}, "store_loo must be False with a prior that is not Gaussian"),
        ({"store_loo": 1}, "store_loo must be True or False"),
    ],
)
def test_models_without_a_formula_refuse(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DirectRegressor(**{"store_loo": True, **parameters}).fit(X, Y)


def test_sums_alone_are_refused():
    model = DirectRegressor("linear", store_loo=True)
    statistics = DirectRegressor("linear").fit_features(X, Y).new_statistics()
    for call in (
        lambda: model.partial_fit(X, Y),
        lambda: model.fit_stream(X, Y),
        lambda: model.fit_features(X, Y).fit_statistics(statistics),
    ):
        with pytest.raises(ValueError, match="store_loo must be False where only sums over rows are kept"):
            call()


def test_levels_that_residuals_do_not_resolve_are_refused():
    with pytest.raises(ValueError, match=r"level must be at most 0\.9836, which 60 residuals resolve"):
        fit().predict_interval(NEW, 0.99, "jackknife+")
    with pytest.raises(ValueError, match="method must be"):
        fit().predict_interval(NEW, method="conformal")


def test_models_are_compared_by_sums_over_rows():
    models = [DirectRegressor("linear", noise=noise, store_loo=True) for noise in (0.5, 0.2, 0.05)]
    fit_many(models, X, TWO[:, 0])
    found = compare_left_out(models)
    rows = np.stack([model.loo_log_density_ for model in models])
    np.testing.assert_allclose(found["log_density"], rows.sum(axis=1))
    best = found["log_density"].argmax()
    np.testing.assert_allclose(found["difference"], (rows[best] - rows).sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(found["standard_error"], np.sqrt(60) * np.std(rows[best] - rows, axis=1))
    assert found["difference"][best] == found["standard_error"][best] == 0.0
    with pytest.raises(ValueError, match="fitted with store_loo=True"):
        compare_left_out([*models, DirectRegressor("linear").fit(X, Y)])
    with pytest.raises(ValueError, match="the same rows and outputs"):
        compare_left_out([models[0], fit(TWO)])


def test_number_of_threads_does_not_change_them():
    one, two = (DirectRegressor(n_basis_functions=24, store_loo=True, n_threads=n).fit(X, TWO) for n in (1, 2))
    np.testing.assert_array_equal(one.loo_residuals_, two.loo_residuals_)
    np.testing.assert_array_equal(one.loo_log_density_, two.loo_log_density_)
    intervals = zip(*(m.predict_interval(NEW, method="jackknife+") for m in (one, two)), strict=True)
    assert all(np.array_equal(found, expected) for found, expected in intervals)
