"""`DirectCountRegressor`: what it predicts and refuses, and that files, weights and exposure mean what they say."""

import warnings

import numpy as np
import pytest
import sklearn
from scipy import stats
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import cross_val_score

from pydirect import DirectCountRegressor, Nystroem, load
from pydirect.estimators import TargetWarning
from pydirect.logistic.count_likelihood import CountLikelihood, likeliest_dispersion

SMALL = {"features": Nystroem(max_search_rows=150), "n_basis_functions": 60}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 2))
    exposure = rng.uniform(0.5, 6.0, 300)
    return x, exposure, exposure * np.exp(np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])


@pytest.fixture(scope="module")
def poisson(data):
    x, exposure, mean = data
    y = np.random.default_rng(1).poisson(mean)
    return DirectCountRegressor(**SMALL).fit(x, y, exposure=exposure), y


@pytest.fixture(scope="module")
def overdispersed(data):
    x, exposure, mean = data
    rng = np.random.default_rng(2)
    y = rng.poisson(rng.gamma(2.0, mean / 2.0))
    return DirectCountRegressor(**SMALL).fit(x, y, exposure=exposure), y


def fresh(rng, n=2000):
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.exp(np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])


def test_the_family_is_recognised(poisson, overdispersed):
    assert poisson[0].dispersion_ < 0.02 and poisson[0].converged_
    assert 0.25 < overdispersed[0].dispersion_ < 0.9  # 0.5
    assert "negative binomial" in overdispersed[0].summary()


def test_a_family_can_be_demanded(data, overdispersed):
    x, exposure, _ = data
    model = DirectCountRegressor(family="poisson", **SMALL).fit(x, overdispersed[1], exposure=exposure)
    assert model.dispersion_ == 0
    assert "Poisson" in model.summary()
    assert model.left_out_log_loss_ > overdispersed[0].left_out_log_loss_


def test_rates_are_found(poisson):
    x, mean = fresh(np.random.default_rng(3))
    log_rate, std = poisson[0].predict_log_rate(x, return_std=True)
    z = (log_rate - np.log(mean)) / std
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.4
    assert np.corrcoef(log_rate, np.log(mean))[0, 1] > 0.97


def test_intervals_contain_new_counts(overdispersed):
    rng = np.random.default_rng(4)
    x, mean = fresh(rng)
    y = rng.poisson(rng.gamma(2.0, mean / 2.0))
    lower, upper = overdispersed[0].predict_interval(x, 0.9, exposure=1)
    assert 0.88 < np.mean((lower <= y) & (y <= upper)) < 0.985
    pit = overdispersed[0].predict_distribution(x, exposure=1).randomised_pit(y)
    assert stats.kstest(pit, "uniform").statistic < 0.06


def test_predictions_are_moments_of_the_distribution(poisson, data):
    x, exposure, _ = data
    model, y = poisson
    distribution = model.predict_distribution(x, exposure=exposure)
    log_probability = model.log_predictive_probability(x, y, exposure=exposure)
    np.testing.assert_array_equal(log_probability, distribution.log_probability(y))
    mean, std = model.predict(x, return_std=True, exposure=exposure)
    np.testing.assert_array_equal(mean, distribution.mean)
    np.testing.assert_array_equal(std, distribution.std)
    np.testing.assert_array_equal(model.predict(x, exposure=exposure), mean)
    np.testing.assert_allclose(model.predict(x, exposure=1) * exposure, mean, rtol=1e-12)
    np.testing.assert_array_equal(distribution.cdf(3), distribution.cdf(np.full(len(x), 3)))
    np.testing.assert_array_equal(distribution.log_probability(0), distribution.log_probability(0 * y))


def test_draws_have_the_predictive_moments(poisson, data):
    x, exposure, _ = data
    model, _ = poisson
    draws = model.sample_y(x[:20], 4000, random_state=5, exposure=exposure[:20])
    mean, std = model.predict(x[:20], return_std=True, exposure=exposure[:20])
    assert draws.shape == (20, 4000)
    assert (np.abs(draws.mean(axis=1) - mean) < 4.5 * std / np.sqrt(4000)).all()


def test_exposure_is_a_factor_of_the_mean(data):
    """The same counts from ten times the exposure are a tenth of the rate."""
    x, exposure, mean = data
    y = np.random.default_rng(6).poisson(mean)
    one, ten = (DirectCountRegressor(**SMALL).fit(x, y, exposure=k * exposure) for k in (1.0, 10.0))
    np.testing.assert_allclose(one.predict_log_rate(x) - np.log(10), ten.predict_log_rate(x), atol=1e-6)


def test_prior_rates_are_counts_per_exposure_whatever_the_weights(data):
    x, exposure, mean = data
    y = np.random.default_rng(10).poisson(mean)
    model = DirectCountRegressor("linear").fit(x, y, np.full(len(x), 1e-6), exposure)
    assert model.intercept_ == pytest.approx(np.log(y.sum() / exposure.sum()))
    assert np.isfinite(DirectCountRegressor("linear").fit(x, np.zeros(len(x))).intercept_)


def test_the_score_is_the_deviance_explained(poisson, data):
    x, exposure, _ = data
    model, y = poisson
    expected = d2_tweedie_score(y, model.predict(x, exposure=1), power=1)
    assert model.score(x, y, exposure=1) == pytest.approx(expected)
    assert model.score(x, y, exposure=exposure) > 0.6
    constant = DirectCountRegressor("linear").fit(x, np.zeros(len(x)))
    assert (constant.predict(x) < 0.1).all()


def heavy_tailed(kind):
    if kind == "zipf":
        rng = np.random.default_rng(0)
        return rng.standard_normal((400, 3)), np.minimum(rng.zipf(1.5, 400), 10**9)
    rng = np.random.default_rng(kind)
    x, y = rng.standard_normal((300, 3)), rng.poisson(2.0, 300)
    y[0] = 10**7
    return x, y


@pytest.mark.parametrize("kind", ["zipf", 2, 9])
def test_heavy_tailed_counts_do_not_make_rates_run_away(kind):
    x, y = heavy_tailed(kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DirectCountRegressor().fit(x, y)
    is_constant = any("heavy-tailed" in str(w.message) for w in caught)
    assert not is_constant or kind == "zipf"
    dispersion = likeliest_dispersion(y.astype(float), np.full(len(y), np.log(y.mean())), np.ones(len(y)))
    constant = CountLikelihood(dispersion).log_density(y.astype(float), np.log(y.mean())).mean()
    assert model.left_out_log_loss_ <= -constant + 1e-6
    assert model.predict(x).sum() <= 10 * y.sum()
    if is_constant:
        np.testing.assert_allclose(model.predict(x), y.mean(), rtol=1e-6)
    else:
        assert np.median(model.predict(x)) < (y.mean() if kind == "zipf" else 5)  # of which rounding picks an optimum
    assert (model.predict_interval(x)[1] < 2**50).all()


def test_a_forgotten_exposure_is_told(data, poisson, tmp_path):
    x, exposure, _ = data
    model, y = poisson
    model.save(tmp_path / "model")
    calls = [
        lambda m, **e: m.predict(x, **e),
        lambda m, **e: m.predict_interval(x, 0.9, **e),
        lambda m, **e: m.predict_distribution(x, **e),
        lambda m, **e: m.sample_y(x, 2, **e),
        lambda m, **e: m.log_predictive_probability(x, y, **e),
        lambda m, **e: m.score(x, y, **e),
    ]
    for own in (model, load(tmp_path / "model")):
        for call in calls:
            with pytest.warns(UserWarning, match="fitted with exposure and predicts without") as caught:
                call(own)
            assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call in calls:
            call(model, exposure=exposure)
            call(model, exposure=1)
        DirectCountRegressor("linear").fit(x, y).predict(x)
    with pytest.warns(UserWarning, match="predicts without"):
        cross_val_score(DirectCountRegressor("linear"), x, y, params={"exposure": exposure}, cv=2)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        routed = DirectCountRegressor(**SMALL).set_fit_request(exposure=True).set_score_request(exposure=True)
        scores = cross_val_score(routed, x, y, params={"exposure": exposure}, cv=2)
    assert scores.min() > 0.4
    with pytest.raises(TypeError, match="give exposure by name"):
        model.predict(x, exposure)


@pytest.mark.parametrize("outlier", [1e5, 1e7])
def test_one_gross_count_is_warned_of_and_hardly_moves_rates(outlier):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3))
    counts = rng.poisson(np.exp(np.sin(x[:, 0])))
    clean = DirectCountRegressor().fit(x, counts).predict_log_rate(x)
    counts[3] = outlier
    with pytest.warns(TargetWarning, match="1 of 200 targets"):
        spoiled = DirectCountRegressor().fit(x, counts).predict_log_rate(x)
    assert np.median(np.abs(spoiled - clean)) < 0.2


def test_rates_are_believed_up_to_some_multiple_of_the_largest():
    r = np.random.default_rng(1)
    x = r.normal(size=(620, 3))
    counts = r.poisson(np.exp(np.sin(x[:, 0]))) * 10_000
    model = DirectCountRegressor().fit(x[:120], counts[:120])
    largest = 21 * (counts[:120].max() + 1)
    assert model.predict(x[120:]).max() <= largest
    assert np.exp(model.predict_log_rate(x[120:])).max() <= largest
    assert model.predict_distribution(x[120:]).quantile(0.5).max() <= largest
