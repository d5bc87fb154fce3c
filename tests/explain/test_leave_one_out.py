"""Predictions of training rows without themselves are those of refits; intervals from them cover."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from pydirect import DirectRegressor, Nystroem, fit_many
from pydirect.estimators import LocalProcessWarning
from pydirect.explain import LeftOutRows, compare_left_out
from pydirect.explain import rows as rows_module

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((60, 3)), RNG.standard_normal((25, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.standard_normal(60)
TWO = np.c_[Y, 50 - 10 * X[:, 2] + RNG.standard_normal(60)]
COUNTS = RNG.integers(1, 4, 60).astype(float)


def fit(targets=Y, weight=None, rows=X, **parameters):
    model = DirectRegressor(**{"n_basis_functions": 24, **parameters}).fit(rows, targets, sample_weight=weight)
    return LeftOutRows(model, rows, targets, weight)


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
        latent = self.model.model_.latent
        inputs, phi = latent.phi(x)
        variance = np.sum(phi @ self.covariance * phi, axis=1)
        beyond = latent.beyond(inputs, phi)
        return phi @ self.coefficients, variance + (0.0 if beyond is None else beyond[:, self.k])

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
    left = fit(targets, counts, **parameters)
    model = left.model
    weight = np.ones(60) if counts is None else counts
    columns = targets.reshape(60, -1)
    assert left.residuals.shape == left.log_density.shape == targets.shape
    residuals, densities = (a.reshape(60, -1) for a in (left.residuals, left.log_density))
    for i in range(0, 60, 4):
        rest = np.arange(60) != i
        for k, y in enumerate(columns.T):
            refit = Refit(model, X[rest], y[rest], weight[rest], k)
            mean = model.y_mean_[k] + model.y_scale_[k] * refit.moments(X[[i]])[0]
            np.testing.assert_allclose(residuals[i, k], y[i] - mean[0], rtol=1e-7, atol=1e-9 * model.y_scale_[k])
            np.testing.assert_allclose(densities[i, k], refit.log_density(X[[i]], y[[i]])[0], rtol=1e-7, atol=1e-8)


def test_copies_are_left_out_together():
    copies, features = np.r_[np.arange(60), [3, 3, 7]], Nystroem(length_scale=1.0)
    left = fit(Y[copies], rows=X[copies], features=features)
    counted = fit(weight=np.bincount(copies).astype(float), features=features)
    np.testing.assert_allclose(left.residuals, counted.residuals[copies], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(left.log_density, counted.log_density[copies], rtol=1e-5, atol=1e-7)
    rest = np.arange(60) != 3
    refit = Refit(left.model, X[rest], Y[rest], np.bincount(copies)[rest].astype(float))
    np.testing.assert_allclose(left.log_density[[3, 60, 61]], refit.log_density(X[[3]], Y[[3]])[0], rtol=1e-7)


def test_rows_without_weight_are_predicted_by_the_model():
    weight = np.where(np.arange(60) < 50, 1.0, 0.0)
    left, few = fit(weight=weight), fit(Y[:50], rows=X[:50])
    np.testing.assert_allclose(left.residuals[50:], (Y - left.model.predict(X))[50:], rtol=1e-4)
    for bound, expected in zip(left.predict_interval(NEW), few.predict_interval(NEW), strict=True):
        np.testing.assert_allclose(bound, expected, rtol=1e-4, atol=1e-4)


def test_densities_of_transformed_targets_are_in_their_units():
    left, own = fit(np.exp(Y), target_transform="log"), fit(Y)
    np.testing.assert_allclose(left.residuals, own.residuals, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(left.log_density, own.log_density - Y, rtol=1e-6, atol=1e-6)
    for bound, expected in zip(left.predict_interval(NEW), own.predict_interval(NEW), strict=True):
        np.testing.assert_allclose(bound, np.exp(expected), rtol=1e-6)


@pytest.mark.parametrize("targets", [Y, TWO], ids=["one output", "two outputs"])
@pytest.mark.parametrize("n_basis_functions", [24, 100])
def test_jackknife_plus_is_that_of_refits(targets, n_basis_functions):
    left = fit(targets, COUNTS, n_basis_functions=n_basis_functions)
    model, found = left.model, [bound.reshape(25, -1) for bound in left.predict_interval(NEW, 0.8)]
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
    left = fit(y[:300], rows=x[:300], n_basis_functions=60, noise="constant")
    lower, upper = left.predict_interval(x[300:], 0.9)
    assert 0.86 < np.mean((lower <= y[300:]) & (y[300:] <= upper)) < 0.94
    wide = np.subtract(*left.model.predict_interval(x[300:], 0.9)[::-1])
    assert np.mean(upper - lower) < 0.8 * wide.mean()  # a Gaussian's spread is that of its tails


def test_of_many_rows_a_choice_gives_the_intervals(monkeypatch):
    whole = fit()
    monkeypatch.setattr(rows_module, "MAX_ROWS", 50)
    monkeypatch.setattr(rows_module, "CHOSEN_ROWS", 30)
    few, again = fit(), fit()
    np.testing.assert_array_equal(few.residuals, whole.residuals)
    np.testing.assert_array_equal(few.predict_interval(NEW), again.predict_interval(NEW))
    assert not np.array_equal(few.predict_interval(NEW), whole.predict_interval(NEW))
    with pytest.raises(ValueError, match="which 30 residuals resolve"):
        few.predict_interval(NEW, 0.98)


def test_intervals_do_not_depend_on_the_blocks(monkeypatch):
    left = fit(TWO)
    whole = left.predict_interval(NEW)
    monkeypatch.setattr(rows_module, "COVARIANCE_BYTES", 7 * 8 * 120)
    np.testing.assert_allclose(left.predict_interval(NEW), whole, rtol=1e-9)


def test_models_that_share_their_features_are_as_alone():
    models = [DirectRegressor("linear"), DirectRegressor("linear", noise=0.5)]
    fit_many(models, X, [Y, TWO])
    for model, targets in zip(models, (Y, TWO), strict=True):
        alone = fit(targets, **model.get_params())
        np.testing.assert_allclose(LeftOutRows(model, X, targets).residuals, alone.residuals, rtol=1e-6)


def test_rows_of_sums_are_predicted_as_those_of_a_fit():
    model = DirectRegressor("linear", noise=0.1).fit_stream([(X[:40], Y[:40]), (X[40:], Y[40:])])
    np.testing.assert_allclose(
        LeftOutRows(model, X, Y).residuals, fit(features="linear", noise=0.1).residuals, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"posterior": "sequential"},
            "with posterior='sequential': fit with posterior='gaussian'",
        ),
        ({"noise": "varying"}, "fit with noise='constant'"),
    ],
)
def test_models_without_a_formula_refuse(parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(**parameters)


def test_a_local_process_is_left_out_with_a_warning():
    with pytest.warns(LocalProcessWarning, match="rows without themselves leave out the model's local process"):
        left = fit(local=5, noise="constant")
    np.testing.assert_array_equal(left.residuals, fit(local=False, noise="constant").residuals)


def test_other_rows_are_refused():
    model = DirectRegressor(n_basis_functions=24).fit(X, Y)
    with pytest.raises(ValueError, match="X must be the rows of the fit, 60 by their weights, got 59"):
        LeftOutRows(model, X[1:], Y[1:])
    with pytest.raises(ValueError, match="X, y and sample_weight must be those of the fit"):
        LeftOutRows(model, X, Y + 1)


def test_levels_that_residuals_do_not_resolve_are_refused():
    with pytest.raises(ValueError, match=r"level must be at most 0\.9836, which 60 residuals resolve"):
        fit().predict_interval(NEW, 0.99)


def test_models_are_compared_by_sums_over_rows():
    models = [DirectRegressor("linear", noise=noise) for noise in (0.5, 0.2, 0.05)]
    left = [LeftOutRows(model, X, TWO[:, 0]) for model in fit_many(models, X, TWO[:, 0])]
    found, rows = compare_left_out(left), np.stack([each.log_density for each in left])
    np.testing.assert_allclose(found["log_density"], rows.sum(axis=1))
    best = found["log_density"].argmax()
    np.testing.assert_allclose(found["difference"], (rows[best] - rows).sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(found["standard_error"], np.sqrt(60) * np.std(rows[best] - rows, axis=1))
    assert found["difference"][best] == found["standard_error"][best] == 0.0
    with pytest.raises(TypeError, match="rows must be a LeftOutRows, got DirectRegressor"):
        compare_left_out([*left, models[0]])
    with pytest.raises(ValueError, match="the same rows and outputs"):
        compare_left_out([left[0], fit(TWO)])


def test_number_of_threads_does_not_change_them():
    one, two = (fit(TWO, n_threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one.residuals, two.residuals)
    np.testing.assert_array_equal(one.log_density, two.log_density)
    np.testing.assert_array_equal(one.predict_interval(NEW), two.predict_interval(NEW))
