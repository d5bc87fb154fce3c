"""What rows did to predictions, their own and others, is what refits without them say; intervals cover."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from pydirect import DirectRegressor, Fourier, Nystroem, Polynomial, Sequential, fit_many
from pydirect.explain import LeftOutRows, RowInfluence, compare_left_out, rows as rows_module
from pydirect.statistics import PrivacyBudget

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


def test_rows_of_sums_are_predicted_as_those_of_a_fit():
    model = DirectRegressor("linear", noise=0.1).fit_stream([(X[:40], Y[:40]), (X[40:], Y[40:])])
    np.testing.assert_allclose(
        LeftOutRows(model, X, Y).residuals, fit(features="linear", noise=0.1).residuals, rtol=1e-6
    )


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


# --- influence

GIVEN = np.random.default_rng(3).integers(0, 4, 60).astype(float)
PLACES = 1.5 * NEW[:8]
OPTIONS = {"features": Nystroem(max_search_rows=60), "n_basis_functions": 24}


def refit(model, rows, weight, targets, k):
    """Mean and deviation of y at PLACES by a refit to some rows, all else held, one output."""
    own = Refit(model, X[rows], targets[rows, k], weight[rows], k)
    mean, variance = own.moments(PLACES)
    std = np.sqrt(variance + model.posteriors_[k].noise.variance)
    return model.y_mean_[k] + model.y_scale_[k] * mean, model.calibration_scale_ * model.y_scale_[k] * std


INFLUENCES = {
    "landmarks": ({}, Y, None),
    "counts": ({"features": Fourier(max_search_rows=60)}, Y, GIVEN),
    "two outputs": ({}, TWO, GIVEN),
    "linear": ({"features": "linear", "noise": 0.1}, Y, None),
    "more functions than rows": ({"features": Polynomial(6)}, Y, None),
}


@pytest.mark.parametrize("case", INFLUENCES, ids=str)
def test_effects_are_those_of_refits_without_the_rows(case):
    parameters, targets, counts = INFLUENCES[case]
    model = DirectRegressor(**{**OPTIONS, **parameters}).fit(X, targets, counts)
    model.calibrate(X, targets)
    weight, columns = np.ones(60) if counts is None else counts, targets.reshape(60, -1)
    influence = RowInfluence(model, X, targets, counts)
    each, everything = influence.leave_one_out(PLACES), np.arange(60)
    groups = {"few": [2, 5, 7], "most": np.arange(50), "mask": everything < 30}
    together = {name: influence.leave_out(rows, PLACES) for name, rows in groups.items()}
    assert each.mean.shape == each.std.shape == (8, 60, *targets.shape[1:])
    assert influence.leverage_.shape == influence.residual_.shape == influence.cooks_distance_.shape == targets.shape
    for k in range(columns.shape[1]):
        unit = 1e-8 * model.y_scale_[k]
        whole = refit(model, everything, weight, columns, k)
        for i in range(0, 60, 6):
            rest = refit(model, everything != i, weight, columns, k)
            for effect, before, after in zip((each.mean, each.std), whole, rest, strict=True):
                np.testing.assert_allclose(effect.reshape(8, 60, -1)[:, i, k], before - after, rtol=0, atol=unit)
        for name, rows in groups.items():
            rest = refit(model, np.delete(everything, rows), weight, columns, k)
            found = together[name].mean, together[name].std
            for effect, before, after in zip(found, whole, rest, strict=True):
                np.testing.assert_allclose(effect.reshape(8, -1)[:, k], before - after, rtol=0, atol=unit)


def test_rows_predict_themselves_as_leave_one_out_residuals_say():
    model = DirectRegressor(**OPTIONS).fit(X, TWO)
    influence = RowInfluence(model, X, TWO)
    own = np.diagonal(influence.leave_one_out(X).mean).T
    np.testing.assert_allclose(influence.residual_ + own, LeftOutRows(model, X, TWO).residuals, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(influence.leverage_ * (influence.residual_ + own), own, rtol=1e-7, atol=1e-9)


def test_an_outlier_has_the_largest_distance_and_a_row_of_weight_zero_none():
    y, weight = X @ [1.0, 2.0, 0.0] + 0.1 * RNG.standard_normal(60), np.ones(60)
    y[17] += 5.0
    weight[3] = 0.0
    influence = RowInfluence(DirectRegressor("linear").fit(X, y, weight), X, y, weight)
    assert influence.cooks_distance_.argmax() == 17
    assert influence.cooks_distance_[3] == 0.0 and not influence.leave_one_out(PLACES).mean[:, 3].any()


def test_of_a_stream_some_rows_are_enough():
    model = DirectRegressor(Fourier(max_search_rows=60), n_basis_functions=24, noise="constant")
    model.fit_stream([(X[:40], Y[:40]), (X[40:], Y[40:])])
    whole, few = RowInfluence(model, X, Y), RowInfluence(model, X[5:9], Y[5:9])
    np.testing.assert_allclose(
        few.leave_one_out(PLACES).mean, whole.leave_one_out(PLACES).mean[:, 5:9], rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(
        few.leave_out([0, 1, 2, 3], PLACES).std, whole.leave_out([5, 6, 7, 8], PLACES).std, rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(few.leverage_, whole.leverage_[5:9], rtol=1e-9)


REFUSED = {
    "posterior='gaussian'": {"posterior": Sequential(n_levels=15)},
    "noise='constant'": {"noise": "varying"},
    "target_transform=None": {"target_transform": "log"},
    "local=False": {"local": 5},
}


@pytest.mark.parametrize("remedy", REFUSED)
def test_models_without_an_exact_form_are_refused(remedy):
    y = np.exp(Y)
    model = DirectRegressor(**OPTIONS, **REFUSED[remedy]).fit(X, y)
    with pytest.raises(ValueError, match=f"^effects of rows have no exact form .*{remedy}"):
        RowInfluence(model, X, y)
    if remedy in ("posterior='gaussian'", "noise='constant'"):
        with pytest.raises(ValueError, match=f"fit with {remedy}"):
            LeftOutRows(model, X, y)


def test_sums_with_noise_tell_nothing_of_rows():
    model = DirectRegressor("linear").fit_features(np.array([[-3.0] * 3, [3.0] * 3]), np.array([-4.0, 4.0]))
    release = model.private_statistics(X, Y, y_bounds=(-4.0, 4.0), budget=PrivacyBudget(10.0, 1e-5), random_state=0)
    with pytest.raises(ValueError, match="where only sums with noise are known: fit to the rows"):
        RowInfluence(model.fit_statistics(release), X, Y)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.arange(0), "rows must be one or more, all different"),
        ([0.5], r"rows must be indices below 60 or a mask of all rows, got \[0.5\]"),
        ([60], r"rows must be indices below 60 or a mask of all rows, got \[60\]"),
        ([3, 3], r"rows must be one or more, all different, got \[3, 3\]"),
        (np.ones(5, dtype=bool), "rows must be indices below 60 or a mask of all rows"),
    ],
)
def test_groups_that_are_none_are_refused(rows, message):
    influence = RowInfluence(DirectRegressor("linear").fit(X, Y), X, Y)
    with pytest.raises(ValueError, match=message):
        influence.leave_out(rows, PLACES)


@pytest.mark.parametrize(("view", "others"), [(LeftOutRows, Y + 1), (RowInfluence, Y[::-1])])
def test_other_rows_are_refused(view, others):
    model = DirectRegressor(n_basis_functions=24).fit(X, Y)
    with pytest.raises(ValueError, match="X must be the rows of the fit, 60 by their weights, got 59"):
        view(model, X[1:], Y[1:])
    with pytest.raises(ValueError, match="X, y and sample_weight must be those of the fit, got others"):
        view(model, X, others)
    with pytest.raises(TypeError, match="model must be a DirectRegressor, got list"):
        view([], X, Y)
