"""Models of transformed targets answer in the targets' own units, like models of t(y) mapped back by hand."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import PowerTransformer, QuantileTransformer

import pydirect
from pydirect import DirectRegressor, DirectSearchCV, Fourier, Sequential, StreamError, fit_quantized, quantize
from pydirect.explain import LeftOutRows
from pydirect.fitted.predictor import believed
from pydirect.metrics import nlpd, nlpd_scorer
from pydirect.predictive import PredictiveDistribution, TargetScale, TransformedDistribution
from pydirect.quantized import load_quantized

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((150, 3)), RNG.standard_normal((20, 3))
F = np.sin(X[:, 0]) + 0.5 * X[:, 1]
PRICE = np.exp(5 + F + 0.3 * RNG.standard_normal(150))
COUNT = RNG.poisson(np.exp(0.5 + F)).astype(float)
PLAIN = F + 0.2 * RNG.standard_normal(150)
ALL = np.c_[PRICE, COUNT, PLAIN]
TARGETS = {"log": (PRICE, 0.0), "sqrt": (COUNT, 0.5)}


def forward(name, y):
    return np.log(y) if name == "log" else np.sqrt(y + 0.5)


def inverse(name, z):
    return np.exp(z) if name == "log" else np.maximum(np.maximum(z, 0.0) ** 2 - 0.5, 0.0)  # counts end at zero


def fit(name, y=None, **parameters):
    y = TARGETS[name][0] if y is None else y
    return DirectRegressor(n_basis_functions=40, target_transform=name, **parameters).fit(X, y)


# What the model says


@pytest.mark.parametrize("posterior", ["gaussian", "sequential"])
@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_it_is_the_model_of_the_transformed_target_mapped_back(name, posterior):
    y, _ = TARGETS[name]
    model = fit(name, posterior=posterior)
    inner = DirectRegressor(n_basis_functions=40, posterior=posterior).fit(X, forward(name, y))
    assert model.noise_variance_ == inner.noise_variance_
    derivative = 1 / y if name == "log" else 0.5 / np.sqrt(y + 0.5)
    assert model.elbo_ == pytest.approx(inner.elbo_ + np.log(derivative).sum(), rel=1e-12)
    quantiles = np.array([0.05, 0.5, 0.9])
    expected = inverse(name, inner.predict_quantiles(NEW, quantiles))
    np.testing.assert_allclose(model.predict_quantiles(NEW, quantiles), expected, rtol=1e-12)
    for ours, theirs in zip(model.predict_interval(NEW), inner.predict_interval(NEW), strict=True):
        np.testing.assert_allclose(ours, inverse(name, theirs), rtol=1e-12)
    density = inner.log_predictive_density(NEW, forward(name, y[:20])) + np.log(derivative[:20])
    np.testing.assert_allclose(model.log_predictive_density(NEW, y[:20]), density, rtol=1e-10)
    np.testing.assert_allclose(model.sample_y(NEW, 3), inverse(name, inner.sample_y(NEW, 3)), rtol=1e-10)


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_the_mean_is_that_of_the_predictive_distribution(name):
    model = fit(name)
    mean, std = model.predict(NEW, return_std=True)
    distribution = model.predict_distribution(NEW)
    assert isinstance(distribution, TransformedDistribution)
    np.testing.assert_array_equal(model.predict(NEW), mean)
    draws = distribution.sample(40_000, rng=1)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * std / 200)
    assert np.all(mean > model.predict_quantiles(NEW, 0.5)[:, 0])


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_parts_follow_the_law_of_total_variance(name):
    model = fit(name).calibrate(X, TARGETS[name][0])
    mean, epistemic, aleatoric = model.predict_parts(NEW)
    std = model.predict(NEW, return_std=True)[1]
    np.testing.assert_allclose(np.hypot(epistemic, aleatoric), std, rtol=1e-10)
    rng = np.random.default_rng(0)
    location, variance, noise = (part[:, 0] for part in model.model_.variance_parts(NEW))
    scale = model.calibration_scale_ * model.y_scale_[0]
    f = model.y_mean_[0] + model.y_scale_[0] * location + scale * np.sqrt(variance) * rng.standard_normal((4000, 20))
    z = f + scale * np.sqrt(noise) * rng.standard_normal((400, 1, 1))
    given_f = inverse(name, z).mean(axis=0)  # E[y | f], with the same noise for all f
    np.testing.assert_allclose(given_f.std(axis=0), epistemic, rtol=0.15)
    np.testing.assert_array_equal(model.predict(NEW), mean)


def test_predictions_never_fall_below_the_smallest_possible_value():
    model = fit("sqrt")
    far = 100 * NEW
    assert np.all(model.predict_interval(far)[0] >= -0.5)
    assert np.all(fit("log").predict_interval(far, 0.999)[0] > 0)


def test_calibration_is_that_of_the_transformed_target():
    model, inner = fit("log"), DirectRegressor(n_basis_functions=40).fit(X, np.log(PRICE))
    model.calibrate(X[:50], 1.3 * PRICE[:50])
    inner.calibrate(X[:50], np.log(1.3 * PRICE[:50]))
    assert model.calibration_scale_ == pytest.approx(inner.calibration_scale_, rel=1e-12)
    np.testing.assert_allclose(model.predict_interval(NEW)[1], np.exp(inner.predict_interval(NEW)[1]), rtol=1e-12)


def test_noise_that_varies_is_noise_of_the_transformed_target():
    model = fit("sqrt", noise="varying")
    inner = DirectRegressor(n_basis_functions=40, noise="varying").fit(X, forward("sqrt", COUNT))
    expected = inverse("sqrt", inner.predict_quantiles(NEW, 0.9))
    np.testing.assert_allclose(model.predict_quantiles(NEW, 0.9), expected, rtol=1e-10)
    for name, value in inner.noise_choice_.items():
        derivative = -np.log(2 * np.sqrt(COUNT + 0.5)).mean()
        assert model.noise_choice_[name] == pytest.approx(value + derivative, rel=1e-10)


@pytest.mark.parametrize("unit", [1e-9, 1e12])
@pytest.mark.parametrize("name", ["log", "sqrt", "auto"])
def test_units_do_not_matter(name, unit):
    model, other = fit(name, PRICE), fit(name, unit * PRICE)
    np.testing.assert_allclose(other.predict(NEW), unit * model.predict(NEW), rtol=1e-5)
    np.testing.assert_allclose(other.predict_interval(NEW), unit * np.array(model.predict_interval(NEW)), rtol=1e-5)


# Several outputs, and the choice among transforms


def test_every_output_has_its_own():
    model = fit(["log", "sqrt", None], ALL)
    assert str(model.target_transform_) == "log(y), sqrt(y + 0.5), y"
    kinds = [type(d) for d in model.predict_distribution(NEW)]
    assert kinds == [TransformedDistribution, TransformedDistribution, PredictiveDistribution]
    mean, std = model.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (20, 3)
    parts = model.predict_parts(NEW)
    np.testing.assert_allclose(np.hypot(parts[1], parts[2]), std, rtol=1e-10)
    assert model.sample_y(NEW, 5).shape == (20, 3, 5)
    lower, upper = model.predict_interval(NEW)
    assert np.all(lower < mean)
    assert np.all(mean < upper)


def test_auto_takes_the_likeliest_transform_of_every_output():
    square, additive = (3 + 2 * PLAIN - F) ** 2, 20 + PLAIN
    model = fit("auto", np.c_[PRICE, square, PLAIN, additive])
    assert model.target_transform_.names == ("log", "sqrt", "identity", "identity")
    assert "It models log(y), sqrt(y), y, y" in str(model.summary())


def test_scales_that_were_found_are_taken(tmp_path):
    found = fit("auto", PRICE)
    again = fit(found.target_transform_, PRICE)
    np.testing.assert_array_equal(again.predict_interval(NEW), found.predict_interval(NEW))
    again.save(tmp_path / "m")
    assert pydirect.load(tmp_path / "m").get_params()["target_transform"] == found.target_transform_
    with pytest.raises(ValueError, match="target_transform must have one scale per output, 3, got 1"):
        fit(found.target_transform_, ALL)


def test_auto_is_the_model_without_transform_where_none_helps():
    model, plain = fit("auto", PLAIN), fit(None, PLAIN)
    np.testing.assert_array_equal(model.predict(NEW), plain.predict(NEW))
    assert model.elbo_ == plain.elbo_
    assert plain.target_transform_ is None


# Streams and shared work


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_streams_sum_transformed_targets(name, tmp_path):
    y = TARGETS[name][0]
    options = {"features": "linear", "target_transform": name}
    whole = DirectRegressor(**options).fit_features(X, y)
    whole = whole.fit_statistics(whole.new_statistics().update(X, y))
    grown = DirectRegressor(**options).fit_features(X, y)
    for rows in np.array_split(np.arange(150), 3):
        grown.partial_fit(X[rows], y[rows])
    grown.partial_fit(NEW, y[:20]).forget(NEW, y[:20])
    streamed = DirectRegressor(**options).fit_stream(
        [(X[:80], y[:80]), (X[80:], y[80:])], sample_rows=150, checkpoint=tmp_path / "c"
    )
    plain = DirectRegressor(**options).fit(X, y)
    for model in (whole, grown, streamed):
        # Sums believe another range of y than rows, which the lowest counts are the end of.
        medians = (np.maximum(own.predict_quantiles(NEW, 0.5), 0.0) for own in (model, plain))
        np.testing.assert_allclose(*medians, rtol=1e-6)
        assert model.elbo_ == pytest.approx(plain.elbo_, rel=1e-7)
        assert model.target_transform_ == plain.target_transform_
    assert streamed.statistics_.log_derivative == pytest.approx(plain.model_.units.log_derivative)
    again = DirectRegressor(**options).fit_stream([(X[:80], y[:80]), (X[80:], y[80:])], checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(again.predict(NEW), streamed.predict(NEW))


def test_statistics_files_keep_the_derivative(tmp_path):
    model = DirectRegressor("linear", target_transform="log").fit_features(X, PRICE)
    statistics = model.new_statistics().update(X, PRICE)
    statistics.save(tmp_path / "s")
    loaded = pydirect.RunningStatistics.load(tmp_path / "s", model.features_)
    np.testing.assert_allclose(loaded.log_derivative, [-np.log(PRICE).sum()], rtol=1e-13)
    plain = DirectRegressor("linear").fit_features(X, PRICE)
    with pytest.raises(ValueError, match="must have the same feature map"):
        loaded.merge(plain.new_statistics().update(X, PRICE))


@pytest.mark.parametrize("entry", ["fit_features", "partial_fit"])
def test_sums_over_rows_choose_no_scale(entry):
    model = getattr(DirectRegressor(n_basis_functions=40), entry)(X, PRICE)
    model.partial_fit(NEW, PRICE[:20]).partial_fit(NEW, np.full(20, -1.0))
    assert model.target_transform_ is None


def test_a_stream_says_where_a_target_cannot_be_transformed():
    y = np.append(np.tile(PRICE, 20), -1.0)
    with pytest.raises(StreamError, match=r"in the block that ends at row 3000.*: y must be greater than 0 for log"):
        DirectRegressor("linear", target_transform="log").fit_stream(np.resize(X, (3001, 3)), y, sample_rows=50)


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_absolute_error", None])
def test_searches_score_in_units_of_y(scoring):
    def score(model, X, y):
        return float(model.log_predictive_density(X, y).mean())

    grid, cv = {"target_transform": ["log", None]}, KFold(3)
    ours = DirectSearchCV(DirectRegressor("precomputed"), grid, scoring=scoring or score, cv=cv).fit(X, PRICE)
    theirs = GridSearchCV(DirectRegressor("precomputed"), grid, scoring=scoring or score, cv=cv).fit(X, PRICE)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=0.01)
    if scoring is None:
        assert ours.best_params_ == {"target_transform": "log"}
    np.testing.assert_allclose(ours.predict(NEW), theirs.predict(NEW), rtol=1e-4)


def test_searches_by_leaving_one_out_compare_transforms_in_units_of_y():
    grid = {"target_transform": ["log", "sqrt", None]}
    search = DirectSearchCV(DirectRegressor("linear"), grid, cv="loo").fit(X, PRICE)
    assert search.best_params_ == {"target_transform": "log"}
    for name, score in zip(grid["target_transform"], search.cv_results_["mean_test_score"], strict=True):
        alone = DirectRegressor("linear", target_transform=name).fit(X, PRICE)
        assert score == pytest.approx(LeftOutRows(alone, X, PRICE).log_density.mean(), rel=1e-8)
    with pytest.raises(ValueError, match=r"scoring must be pydirect\.metrics\.nlpd_scorer with cv='loo' and a target"):
        DirectSearchCV(DirectRegressor("linear"), grid, cv="loo", scoring="r2").fit(X, PRICE)


@pytest.mark.parametrize("cv", [3, "loo"])
def test_searches_choose_the_scale_by_all_rows(cv):
    x, y = simulated("multiplicative")
    grid = {"noise": ["auto", 4.0], "target_transform": ["auto", None]}
    search = DirectSearchCV(DirectRegressor(n_basis_functions=40), grid, scoring=nlpd_scorer, cv=cv).fit(x, y)
    assert search.best_params_ == {"noise": "auto", "target_transform": "auto"}
    best = search.best_estimator_
    assert best.target_transform_.names == ("log",) and "nats a row" in str(best.summary())
    assert best.partial_fit(x[:20], y[:20]).target_transform_.names == ("log",)
    direct = DirectRegressor(n_basis_functions=40, target_transform="log", noise="constant", local=False).fit(x, y)
    np.testing.assert_allclose(search.predict(x), direct.predict(x), rtol=0.2)


def test_searches_by_squares_of_rows_left_out_keep_y():
    search = DirectSearchCV(DirectRegressor(n_basis_functions=40), {}, scoring="r2", cv="loo")
    assert search.fit(*simulated("multiplicative")).best_estimator_.target_transform_ is None


# scikit-learn, files, devices


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: fit_quantized(m, X, PLAIN), r"y must be greater than 0 for log\(y\), got -"),
        (lambda m: m.calibrate(NEW, 0 * PRICE[:20]), r"y must be greater than 0 for log\(y\), got 0"),
    ],
)
def test_what_has_no_answer_in_units_of_y_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(fit("log"))


@pytest.mark.parametrize("scales", ["log", TargetScale("table", knots=((0.0, 900.0, 1e5), (0.0, 9.0, 20.0))), "all"])
def test_quantised_models_answer_in_units_of_y(scales, tmp_path):
    scales, y = (["log", "sqrt", None], ALL) if scales == "all" else (scales, PRICE)
    options = {"n_basis_functions": 40, "posterior": Sequential(level_scales="shared")}
    model = DirectRegressor(Fourier(rank_inputs=False), target_transform=scales, **options).fit(X, y)
    small = quantize(model, 16, X=X, arithmetic="integer")
    small.save(tmp_path / "m")
    loaded = load_quantized(tmp_path / "m")
    on_scales = replace(small, target=None).predict_distribution(NEW)
    for level in (0.5, 0.9):
        found = np.stack(loaded.predict_interval(NEW, level)).reshape(2, 20, -1)
        for k, base in enumerate(on_scales if y.ndim > 1 else [on_scales]):
            ends = np.array(base.interval(level))
            own, units = model.target_transform_.scales[k], small.target
            if own.name != "identity":
                ends = np.clip(own.inverse(ends), units.lowest[k], units.highest[k])
            np.testing.assert_allclose(found[:, :, k], ends, rtol=1e-12)
    mean, std = loaded.predict(NEW, return_std=True)
    each = loaded.predict_distribution(NEW) if y.ndim > 1 else [loaded.predict_distribution(NEW)]
    assert [type(own) for own in each] == [
        PredictiveDistribution if name == "identity" else TransformedDistribution
        for name in model.target_transform_.names
    ]
    np.testing.assert_array_equal(np.reshape(mean, (20, -1)).T, [own.mean for own in each])
    np.testing.assert_array_equal(np.reshape(std, (20, -1)).T, [own.std for own in each])
    assert np.corrcoef(np.ravel(mean), np.ravel(model.predict(NEW)))[0, 1] > 0.98
    small.to_c(tmp_path / "m.h")
    assert f"Results are of z = {model.target_transform_}" in (tmp_path / "m.h").read_text()


def test_small_models_of_a_named_scale_are_those_of_transformed_targets():
    named, auto = (DirectRegressor(target_transform=choice) for choice in ("log", "auto"))
    assert auto.search_settings().target is None
    small, inner = (
        fit_quantized(model, X[:, :2], y, max_flash=300, n_samples=1)
        for model, y in ((named, PRICE), (auto, np.log(PRICE)))
    )
    assert str(small.target.transform) == "log(y)" and inner.target is None
    np.testing.assert_array_equal(small.functions(NEW[:, :2]), inner.functions(NEW[:, :2]))
    quantiles = small.predict_distribution(NEW[:, :2]).quantile([0.1, 0.5, 0.9])
    np.testing.assert_allclose(
        quantiles, np.exp(inner.predict_distribution(NEW[:, :2]).quantile([0.1, 0.5, 0.9])), rtol=1e-12
    )
    assert small.predict_interval(NEW[:, :2])[0].min() > 0


def test_a_target_that_is_not_possible_has_no_density():
    assert np.all(fit("log").log_predictive_density(NEW, -PRICE[:20]) == -np.inf)


@pytest.mark.parametrize(
    ("parameters", "y", "error", "message"),
    [
        ({"target_transform": "log"}, PLAIN, ValueError, r"y must be greater than 0 for log\(y\), got -"),
        ({"target_transform": "log"}, COUNT, ValueError, r"y must be greater than 0 for log\(y\), got 0"),
        ({"target_transform": "sqrt"}, PLAIN, ValueError, "y must not be negative for target_transform='sqrt'"),
        ({"target_transform": ["log"]}, ALL, ValueError, "target_transform must have one scale per output, 3, got 1"),
        ({"target_transform": "exp"}, PRICE, ValueError, "must be one of 'log', .*, 'auto', got 'exp'"),
        ({"target_transform": ["exp"]}, PRICE, ValueError, r"target_transform\[0\] must be one of 'log', 'sqrt'"),
        ({"target_transform": 2}, PRICE, TypeError, "must be None, a name, a TargetScale, a transformer"),
    ],
)
def test_wrong_parameters_and_targets_are_refused_with_the_reason(parameters, y, error, message):
    with pytest.raises(error, match=message):
        DirectRegressor("linear", **parameters).fit(X, y)


# Scales of all kinds


def test_noise_of_a_given_size_leaves_targets_as_they_are():
    assert DirectRegressor("linear", noise=100.0).fit(X, PRICE).target_transform_ is None


@pytest.mark.parametrize("noise", ["varying", "student_t", "auto"])
def test_noise_of_every_kind_goes_with_a_logarithm(noise):
    model = fit("log", noise=noise)
    mean, std = model.predict(100 * NEW, return_std=True)
    assert np.isfinite([mean, std]).all()
    assert mean.max() < PRICE.max() + 2 * np.ptp(PRICE)
    assert np.isfinite(model.predict_quantiles(100 * NEW, 0.995)).all()


@pytest.mark.parametrize(
    "scale",
    [
        "cbrt",
        "asinh",
        TargetScale("log", 10.0),
        TargetScale("logit", 0.0, 1e4),
        PowerTransformer("yeo-johnson"),
        QuantileTransformer(n_quantiles=30, output_distribution="normal"),
    ],
)
def test_any_increasing_scale_answers_in_units_of_y(scale, tmp_path):
    model = DirectRegressor("linear", target_transform=scale).fit(X, PRICE)
    lower, upper = model.predict_interval(X)
    assert 0.8 < np.mean((lower < PRICE) & (PRICE < upper)) < 0.98
    mean, std = model.predict(X, return_std=True)
    assert np.corrcoef(mean, PRICE)[0, 1] > 0.6 and (std > 0).all()
    np.testing.assert_allclose(model.predict_distribution(X).mean, mean)
    if not hasattr(scale, "fit"):
        model.save(tmp_path / "m")
        np.testing.assert_array_equal(pydirect.load(tmp_path / "m").predict(NEW), model.predict(NEW))
    assert clone(model).fit(X, PRICE).target_transform_ == model.target_transform_


# The choice by default


def simulated(kind, n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    f, e = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1], rng.standard_normal(n)
    return x, {
        "additive": 10 + f + 0.3 * e,
        "both signs": f + 0.3 * e,
        "multiplicative": np.exp(3 + f + 0.3 * e),
        "square": (3 + f + 0.3 * e) ** 2,
        "fraction": 1 / (1 + np.exp(-2 * f - 0.7 * e)),
        "heavy": np.sinh(3 * (f + 0.2 * e)),
        "half zeros": np.maximum(np.exp(f + 0.3 * e) - 1, 0.0),
        "six values": np.clip(np.round(3.5 + 1.5 * (f + 0.5 * e)), 1, 6),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("additive", {None}),
        ("both signs", {None}),
        ("multiplicative", {"log"}),
        ("square", {"sqrt"}),
        ("fraction", {"logit"}),
        ("heavy", {"asinh"}),
        ("half zeros", {None, "sqrt", "cbrt"}),
        ("six values", {None}),
    ],
)
def test_the_scale_of_the_noise_is_found(kind, names):
    model = DirectRegressor(n_basis_functions=60).fit(*simulated(kind))
    found = model.target_transform_
    assert (None if found is None else found.names[0]) in names
    if found is not None:
        words = str(model.summary())
        assert f"It models {found}" in words and "nats a row" in words


def test_few_rows_choose_no_scale():
    assert DirectRegressor().fit(*simulated("multiplicative", 60)).target_transform_ is None


def test_a_chosen_scale_predicts_new_rows_better_and_its_intervals_hold():
    x, y = simulated("multiplicative", 900, seed=1)
    train, test = slice(400), slice(400, None)
    models = [DirectRegressor(n_basis_functions=60, target_transform=t).fit(x[train], y[train]) for t in ("auto", None)]
    ours, plain = (nlpd(y[test], model.predict_distribution(x[test])) for model in models)
    assert ours < plain - 0.1
    lower, upper = models[0].predict_interval(x[test])
    assert 0.86 < np.mean((lower < y[test]) & (y[test] < upper)) < 0.94
    errors = [np.sqrt(np.mean((model.predict(x[test]) - y[test]) ** 2)) for model in models]
    assert errors[0] < 1.02 * errors[1]


@pytest.mark.parametrize("name", ["sqrt", "cbrt"])
def test_roots_take_targets_that_are_all_zero(name):
    x = np.arange(12.0)[:, None]
    model = DirectRegressor("linear", target_transform=name).fit(x, np.zeros(12))
    np.testing.assert_allclose(model.predict(x), 0.0, atol=1e-6)


def test_means_of_targets_that_are_mostly_zero_are_not_too_large():
    """On a root scale their noise varies with heavy tails: rare values have wide distributions, and large means."""
    rng = np.random.default_rng(0)

    def rows(n):
        often, size = rng.random(n) < 0.25, rng.integers(1, 22, n)
        y = np.where(rng.random(n) < np.where(often, 0.5, 0.1), size, 0.0)
        return np.column_stack([often, rng.standard_normal((n, 3))]), y, np.where(often, 5.5, 1.1)

    (X, y, _), (X_new, y_new, mean) = rows(400), rows(2000)
    model = DirectRegressor().fit(X, y)
    assert model.target_transform_ is not None and "varying" in model.model_.noise.choices[0]
    errors = [np.mean((predicted - y_new) ** 2) for predicted in (model.predict(X_new), mean)]
    assert errors[0] < 1.04 * errors[1]


def test_means_of_targets_that_are_mostly_zero_are_as_large_as_the_targets_on_average(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1500, 2))
    y = np.where(rng.random(1500) < 0.9, 0.0, np.exp(x[:, 0] + 0.5 * rng.standard_normal(1500)))
    model = DirectRegressor(n_basis_functions=60).fit(x, y)
    units = model.model_.units
    assert units.factor[0] > 1.1
    assert 0.85 < model.predict(x).mean() / y.mean() < 1.15
    assert "times as far from the lowest value" in model.summary()
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(pydirect.load(tmp_path / "m").predict(x), model.predict(x))


def test_an_end_at_which_targets_pile_up_is_a_bound():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    share = np.clip(0.5 + 0.4 * x[:, 0] + 0.2 * rng.standard_normal(200), 0.0, 1.0)
    model = DirectRegressor(n_basis_functions=60, target_transform="sqrt").fit(x, share)
    lower, upper = model.predict_interval(x)
    assert lower.min() == 0.0 and upper.max() == 1.0
    assert model.sample_y(x, 100).max() == 1.0
    alone = np.where(share < 1.0, share, x[:, 1] ** 2)
    other = DirectRegressor(n_basis_functions=60, target_transform="sqrt").fit(x, alone)
    assert other.model_.units.highest[0] == pytest.approx(3 * alone.max())


def test_an_end_with_few_targets_is_no_bound():
    y = np.exp(np.arange(12.0))[:, None]  # each of a twelfth of them
    low, high = believed(np.vstack([y, y[:1]]), None)
    assert low < y.min() and high > y.max()
    heavy = np.ones(200)
    heavy[0] = 50.0
    low, _ = believed(np.linspace(1.0, 2.0, 200)[:, None], heavy)
    assert low < 0
