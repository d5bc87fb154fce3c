"""Local detail of `DirectRegressor`: on where left-out rows gain, coherent in all predictions, in files."""

import numpy as np
import pytest

import pydirect
from pydirect import DirectRegressor, DirectSearchCV, Nystroem
from pydirect.fitted.regression import LocalProcessWarning

RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-3, 3, (1200, 2)), RNG.uniform(-3, 3, (300, 2))


def wiggly(x):
    """More detail than a few landmarks resolve, and a smooth trend."""
    return np.sin(4 * x[:, 0]) * np.cos(4 * x[:, 1]) + x[:, 0]


Y = wiggly(X) + 0.1 * RNG.standard_normal(len(X))
NOISE = RNG.standard_normal(len(X))
SMALL = {"features": Nystroem(max_search_rows=300), "n_basis_functions": 40}


@pytest.fixture(scope="module")
def model():
    return DirectRegressor(**SMALL).fit(X, Y)


def rmse(model, y=None):
    return np.sqrt(np.mean((model.predict(NEW) - (wiggly(NEW) if y is None else y)) ** 2))


@pytest.mark.slow
def test_detail_between_landmarks_is_found(model):
    off = DirectRegressor(local=False, **SMALL).fit(X, Y)
    assert model.local_.k == 32 and model.local_.gain[0] > 0.1
    assert off.local_ is None
    assert rmse(model) < 0.7 * rmse(off)
    assert model.log_predictive_density(X, Y).mean() > off.log_predictive_density(X, Y).mean() + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("y", [NOISE, X @ [1.0, -2.0] + NOISE, np.ones(len(X))], ids=["noise", "linear", "constant"])
def test_it_stays_off_where_there_is_none(y):
    found, off = (DirectRegressor(local=local, **SMALL).fit(X, y) for local in ("auto", False))
    assert found.local_ is None
    np.testing.assert_array_equal(found.predict(NEW, return_std=True), off.predict(NEW, return_std=True))


def test_a_number_of_neighbours_is_always_used():
    model = DirectRegressor(local=8, **SMALL).fit(X[:100], NOISE[:100])
    assert model.local_.k == 8 and len(model.local_.u) == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters", [{"posterior": "sequential"}, {"features": "linear"}, {"noise": 0.1}, {"noise": "varying"}]
)
def test_what_rules_it_out_is_named(parameters):
    (name,) = parameters
    with pytest.raises(ValueError, match=f"local must be 'auto' or False with .*{name.replace('_', '.')}"):
        DirectRegressor(local=8, **parameters).fit(X, Y)
    assert DirectRegressor(**{**SMALL, **parameters}).fit(X, Y).local_ is None


@pytest.mark.slow
def test_several_outputs_have_processes_of_their_own():
    both = DirectRegressor(**SMALL).fit(X, np.c_[Y, 100 * NOISE])
    assert both.local_.gain.shape == (2,) and both.local_.gain[0] > both.local_.gain[1]
    mean, std = both.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (300, 2)
    np.testing.assert_allclose([d.std for d in both.predict_distribution(NEW)], std.T, rtol=1e-12)


def test_repeated_rows_and_rows_without_weight_count_as_in_the_fit(model):
    parameters = {"features": Nystroem(length_scale=1.0), "n_basis_functions": 40, "local": 16}
    weighted = DirectRegressor(**parameters).fit(X, Y, sample_weight=np.where(np.arange(len(X)) < 800, 2.0, 0.0))
    assert len(weighted.local_.u) == 800
    assert len(DirectRegressor(**parameters).fit(np.tile(X[:800], (2, 1)), np.tile(Y[:800], 2)).local_.u) == 800


@pytest.mark.slow
def test_leverages_by_random_signs_are_nearly_exact(monkeypatch, model):
    monkeypatch.setattr("pydirect.noise.fit.LARGEST_SKETCHED", 0.0)
    exact = DirectRegressor(**SMALL).fit(X, Y)
    np.testing.assert_allclose(model.local_.r, exact.local_.r, rtol=0.1, atol=1e-6)
    assert np.corrcoef(model.predict(NEW), exact.predict(NEW))[0, 1] > 0.9999


@pytest.mark.slow
def test_sums_over_rows_have_none():
    statistics = DirectRegressor(**SMALL).fit_features(X, Y).partial_fit(X, Y)
    assert statistics.local_ is None
    with pytest.raises(ValueError, match="local must be 'auto' or False for sums"):
        DirectRegressor(local=8, **SMALL).partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"local must be .* for sums over rows"):
        DirectSearchCV(DirectRegressor(local=8, **SMALL), {"max_iter": [500, 1000]}, cv=2).fit(X, Y)
    search = DirectSearchCV(DirectRegressor(**SMALL), {"max_iter": [500, 1000]}, cv=2).fit(X, Y)
    assert search.best_estimator_.local_ is None


def test_functions_and_integers_are_of_the_model_without_it(model):
    off = DirectRegressor(local=False, **SMALL).fit(X, Y)
    with pytest.warns(LocalProcessWarning, match="draws of functions.*local=False"):
        drawn = model.sample_y(NEW, 5)
    np.testing.assert_array_equal(drawn, off.sample_y(NEW, 5))
    assert model.local_ is not None
    with pytest.warns(LocalProcessWarning, match="quantised models.*local=False"):
        quantised = model.quantize(2)
    np.testing.assert_array_equal(quantised.predict(NEW), off.quantize(2).predict(NEW))


@pytest.mark.slow
def test_the_summary_says_what_leave_one_out_scores_gained(model, tmp_path):
    gain = f"{model.local_.gain[0]:.3g} nats a row"
    assert model.summary().splitlines()[-1].startswith("Local process on the residuals of 32 neighbours, with ")
    assert model.summary().endswith(f"leave-one-out scores gained {gain}.")
    model.save(tmp_path / "model")
    assert pydirect.load(tmp_path / "model").summary() == model.summary()
    off = DirectRegressor(**SMALL).fit(X, NOISE)
    assert "Local process: off; leave-one-out scores would have lost " in off.summary()
    assert "Local process" not in DirectRegressor(local=False, **SMALL).fit(X, NOISE).summary()


@pytest.mark.slow
def test_noise_that_varies_is_chosen_where_left_out_rows_gain_more_by_it():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1500, 3))
    y = x[:, 0] + np.exp(x[:, 1]) * rng.standard_t(3, len(x))
    model = DirectRegressor(n_basis_functions=100).fit(x, y)
    assert model.local_ is None and model.noise_model_ is not None
    assert "heavy tails" in model.summary()


def test_a_process_that_gains_density_but_not_accuracy_stays_off():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (2200, 2))
    y = np.sin(x[:, 0]) + (0.1 + np.abs(x[:, 1])) * rng.standard_normal(len(x))
    model = DirectRegressor(n_basis_functions=200, noise="constant").fit(x, y)
    assert model.local_ is None
    assert "would have gained" in model.summary() and model.summary().endswith("by it, with larger errors.")
    forced = DirectRegressor(n_basis_functions=200, noise="constant", local=32).fit(x, y).local_
    assert forced.gain[0] > 0.1 and forced.squared_error[0] > 1.01
