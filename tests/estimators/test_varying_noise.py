"""Noise that varies from row to row: what is learned, what predictions say, and where it is refused."""

import numpy as np
import pytest

import pydirect
from pydirect import DirectRegressor, DirectSearchCV, Nystroem
from pydirect.noise.fit import NoiseFit

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (240, 1))
SPREAD = 0.05 + 0.15 * (X[:, 0] + 3)
Y = np.sin(2 * X[:, 0]) + SPREAD * RNG.standard_normal(240)
NEW = np.linspace(-2.9, 2.9, 41)[:, None]
NEW_SPREAD = 0.05 + 0.15 * (NEW[:, 0] + 3)


def fitted(X=X, y=Y, weight=None, **parameters):
    return DirectRegressor(n_basis_functions=60, **{"noise": "varying"} | parameters).fit(X, y, weight)


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_spread_grows_where_that_of_the_noise_does(model):
    noise = model.predict_parts(NEW)[2]
    assert np.corrcoef(np.log(noise), np.log(NEW_SPREAD))[0, 1] > 0.9
    assert np.abs(np.log(noise / NEW_SPREAD)).mean() < 0.35
    assert model.noise_model_.choices[0].startswith("varying")
    assert model.noise_choice_["varying"] > model.noise_choice_["constant"] + 0.1


def test_every_output_has_its_own_noise():
    both = fitted(y=np.c_[Y, 100 * np.cos(X[:, 0]) + 5 * RNG.standard_normal(len(X))])
    noise = both.predict_parts(NEW)[2]
    growing, flat = (noise[-8:].mean(axis=0) / noise[:8].mean(axis=0)).tolist()
    assert growing > 4 and 0.5 < flat < 2
    assert both.noise_variance_.shape == (2,) and both.sample_y(NEW, 2).shape == (41, 2, 2)
    np.testing.assert_allclose(both.predict_distribution(NEW)[1].std, both.predict(NEW, True)[1][:, 1], rtol=1e-10)


def test_far_from_all_rows_the_noise_is_finite(model):
    noise = model.predict_parts(np.full((2, X.shape[1]), [[50.0], [1e6]]))[2]
    assert (noise < 1001 * np.std(Y)).all()


def test_a_quantised_model_has_the_mean_noise(model):
    quantised = model.quantize(16)
    parts = quantised.predict(NEW, return_std=True)
    assert np.isfinite(parts[1]).all() and parts[1].min() ** 2 >= 0.9 * model.noise_variance_


@pytest.mark.parametrize("features", ["linear", "fourier"])
def test_any_features_of_the_mean(features):
    y = X[:, 0] + SPREAD * np.random.default_rng(3).standard_normal(len(X))
    spread = fitted(np.c_[X, X**2], y, features=features).predict_parts(np.c_[NEW, NEW**2])[2]
    assert spread[-8:].mean() > 2 * spread[:8].mean()


def test_auto_chooses_varying_noise_where_left_out_rows_gain(model):
    auto = fitted(noise="auto")
    assert auto.noise_model_.choices[0].startswith("varying")
    np.testing.assert_array_equal(auto.predict(NEW, True)[1], model.predict(NEW, True)[1])


def test_auto_chooses_heavy_tails():
    y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(5).standard_t(2, len(X))
    auto = fitted(y=y, noise="auto")
    assert auto.noise_model_.choices[0].endswith("heavy tails")
    assert auto.predict_distribution(NEW[:1]).n_components > 1


def test_discrete_targets_are_likelier_under_noise_of_their_own():
    rng = np.random.default_rng(8)
    x = rng.uniform(-3, 3, (700, 1))
    y = rng.poisson(np.exp(np.where(x[:, 0] > 0, 0.5, -2.5))).astype(float)
    auto, constant = (
        fitted(x[:400], y[:400], noise=noise).log_predictive_density(x[400:], y[400:]).mean()
        for noise in ("auto", "constant")
    )
    assert auto > constant + 0.1


@pytest.mark.parametrize("change", ["gaussian", "few rows", "other features", "statistics", "raw"])
def test_auto_is_constant_noise(change):
    y, rows, parameters = Y, slice(None), {}
    if change == "gaussian":
        y = np.sin(2 * X[:, 0]) + 0.2 * np.random.default_rng(6).standard_normal(len(X))
    elif change == "few rows":
        rows = slice(150)
    elif change == "other features":
        parameters = {"features": "polynomial"}
    elif change == "raw":
        parameters = {"posterior": "sequential"}
    auto = DirectRegressor(n_basis_functions=60, **parameters)
    auto = auto.partial_fit(X, Y) if change == "statistics" else auto.fit(X[rows], y[rows])
    assert auto.noise_model_ is None
    assert np.ptp(auto.predict_parts(NEW)[2]) < 1e-12


def test_a_summary_says_why_no_other_noise_was_compared(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2))
    y = x[:, 0] + 0.1 * rng.standard_normal(300)
    small = {"features": Nystroem(max_search_rows=60), "n_basis_functions": 20}
    for options, rows, reason in (
        ({}, 300, "leave-one-out scores favour no other"),
        ({}, 100, "not compared on fewer than 200 rows. If it varies, noise='varying' with"),
        ({"features": "fourier", "posterior": "sequential"}, 300, "not compared for discrete weights"),
        ({"features": "linear"}, 300, "not compared with these features"),
    ):
        model = DirectRegressor(**small | options).fit(x[:rows], y[:rows])
        assert reason in model.summary()
    sums = DirectRegressor(**small).fit_features(x, y).partial_fit(x, y)
    assert "not compared by partial_fit or from sums over rows" in sums.summary()
    sums.save(tmp_path / "sums")
    assert pydirect.load(tmp_path / "sums").summary() == sums.summary()
    assert "Noise:" not in DirectRegressor(noise="constant", **small).fit(x, y).summary()


@pytest.mark.parametrize("call", ["partial_fit", "fit_statistics", "fit_stream", "search"])
def test_sums_over_rows_are_not_enough(call):
    model = DirectRegressor(n_basis_functions=20, noise="varying").fit_features(X, Y)
    with pytest.raises(ValueError, match="needs the rows again"):
        if call == "partial_fit":
            model.partial_fit(X, Y)
        elif call == "fit_statistics":
            statistics = DirectRegressor(n_basis_functions=20).fit_features(X, Y).new_statistics().update(X, Y)
            model.fit_statistics(statistics)
        elif call == "fit_stream":
            model.fit_stream(X, Y)
        else:
            DirectSearchCV(DirectRegressor(n_basis_functions=20), {"noise": ["constant", "varying"]}).fit(X, Y)


@pytest.mark.parametrize("noise", ["constant", "varying"])
def test_all_rows_are_weighted_only_where_noise_varies(noise, monkeypatch):
    rng = np.random.default_rng(9)
    x = rng.standard_normal((900, 3))
    spread = np.exp(0.7 * x[:, 2]) if noise == "varying" else np.ones(900)
    y = np.sin(x[:, 0]) + 0.3 * spread * rng.standard_normal(900)
    passes = []
    weighted = NoiseFit.weighted
    monkeypatch.setattr(NoiseFit, "weighted", lambda *args: passes.append(1) or weighted(*args))
    monkeypatch.setattr("pydirect.noise.fit.looks_constant", lambda *args: False)
    for limit in ("MAX_COMPARED_ROWS", "FEW_ROWS"):
        monkeypatch.setattr(f"pydirect.noise.fit.{limit}", 600)
    model = fitted(x, y, noise="auto")
    assert bool(passes) == (noise == "varying")
    assert model.noise_model_.choices == (noise,)


def test_targets_that_are_zeros_and_ones_have_plausible_deviations():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((900, 3))
    y = (rng.random(900) < 1 / (1 + np.exp(x[:, 1] - 2 * x[:, 0]))).astype(float)
    std = DirectRegressor(n_basis_functions=100).fit(x[:400], y[:400]).predict(x[400:], return_std=True)[1]
    assert np.mean(std > 1) < 0.02
    assert np.median(std) < 0.5
