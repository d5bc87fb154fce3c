"""What users call: predictions in every form, calibration, scikit-learn's tools around it, interruption."""

import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pydirect import DirectRegressor, Sequential
from pydirect._progress import Progress
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.features.maps import NystroemFeatures
from pydirect.linear.posterior import GaussianPosterior


def make_data(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, 5 + 2 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return DirectRegressor(n_basis_functions=25).fit(X, y)


@pytest.fixture(scope="module")
def two_outputs(data):
    X, y = data
    return DirectRegressor(n_basis_functions=25).fit(X, np.c_[y, 100 * X[:, 2] ** 2])


NEW = np.random.default_rng(9).standard_normal((30, 3)) * 1.5


# ---------------------------------------- forms of prediction


def test_no_variance_is_computed_unless_asked(fitted, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("variance computed")

    monkeypatch.setattr(NystroemFeatures, "residual_variance", refuse)
    for posterior in (MeanFieldPosterior, GaussianPosterior):
        monkeypatch.setattr(posterior, "latent_moments", refuse)
    fitted.predict(NEW)
    with pytest.raises(AssertionError, match="variance computed"):
        fitted.predict(NEW, return_std=True)


# ---------------------------------------- samples


def test_samples_are_functions(fitted):
    """A draw takes one value at a row, wherever the row stands, and differs between draws."""
    rows = np.r_[NEW, NEW[:5], [[9.0, 9, 9], [9, 9, 9]]]
    draws = fitted.sample_y(rows, 4, random_state=1, noise=False)
    np.testing.assert_allclose(draws[30:35], draws[:5], rtol=1e-9)
    np.testing.assert_allclose(draws[-1], draws[-2], rtol=1e-9)
    np.testing.assert_allclose(fitted.sample_y(NEW[:5], 4, random_state=1, noise=False), draws[:5], rtol=1e-9)
    assert np.ptp(draws[0]) > 0
    np.testing.assert_array_equal(fitted.sample_y(NEW, 2), fitted.sample_y(NEW, 2, random_state=0))
    assert not np.array_equal(fitted.sample_y(NEW, 2, random_state=None), fitted.sample_y(NEW, 2, random_state=None))


# ---------------------------------------- calibration


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_calibration_learns_the_scale_that_a_wrong_noise_lacks(factor):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((900, 2))
    y = X[:, 0] + rng.standard_normal(900)
    model = DirectRegressor("linear", noise=1 / factor**2).fit(X[:300], y[:300])
    assert model.calibrate(X[300:], y[300:]) is model
    assert model.calibration_scale_ == pytest.approx(factor, rel=0.08)
    lower, upper = model.predict_interval(X[300:])
    assert np.mean((lower < y[300:]) & (y[300:] < upper)) == pytest.approx(0.9, abs=0.03)
    once = model.calibration_scale_
    assert model.calibrate(X[300:], y[300:]).calibration_scale_ == pytest.approx(once, rel=1e-12)
    heavy = np.repeat(X[300:330], 3, axis=0), np.repeat(y[300:330], 3)
    weighted = model.calibrate(X[300:330], y[300:330], np.full(30, 3.0)).calibration_scale_
    assert model.calibrate(*heavy).calibration_scale_ == pytest.approx(weighted)
    mean, std = model.predict(X, return_std=True)
    assert model.fit(X[:300], y[:300]).calibration_scale_ == 1.0
    np.testing.assert_allclose(mean, model.predict(X))
    np.testing.assert_allclose(std, weighted * model.predict(X, return_std=True)[1])


def test_calibration_on_perfect_predictions_changes_nothing():
    X, _ = make_data()
    model = DirectRegressor("linear").fit(X, np.full(60, 3.0)).calibrate(X, np.full(60, 3.0))
    assert model.calibration_scale_ == 1.0
    with pytest.warns(UserWarning, match="calibrate should be given at least 20 rows, got 1"):
        model.calibrate(X[:1], [3.0])


# ---------------------------------------- scikit-learn's tools


def test_pipelines_pass_the_standard_deviation_on(data):
    X, y = data
    pipeline = make_pipeline(
        StandardScaler().set_output(transform="pandas"), DirectRegressor(n_basis_functions=80)
    ).fit(X, y)
    mean, std = pipeline.predict(NEW, return_std=True)
    expected, expected_std = DirectRegressor(n_basis_functions=80).fit(X, y).predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-3)
    np.testing.assert_allclose(std, expected_std, rtol=1e-3)
    assert pipeline[-1].feature_names_in_.tolist() == ["x0", "x1", "x2"]


def test_the_result_says_how_the_fit_went(fitted, two_outputs, data):
    assert fitted.converged_ and not fitted.interrupted_
    assert fitted.n_iter_ == len(fitted.elbo_trace_)
    assert fitted.elbo_ == pytest.approx(fitted.elbo_trace_[-1])
    assert (np.diff(fitted.elbo_trace_) >= -1e-9).all()
    assert set(fitted.fit_seconds_) == {"features", "statistics", "inference"}
    assert fitted.total_weight_ == 60
    assert len(two_outputs.elbo_trace_) == len(two_outputs.posterior_) == 2
    assert two_outputs.coef_.shape == (2, 25)
    assert two_outputs.elbo_ == pytest.approx(sum(t[-1] for t in two_outputs.elbo_trace_))


def test_stages_are_reported_when_asked_and_only_then(data, capsys):
    DirectRegressor("linear").fit(*data)
    assert capsys.readouterr() == ("", "")
    DirectRegressor("linear", verbose=1).fit(*data)
    out, err = capsys.readouterr()
    assert out == "" and [line.split()[0] for line in err.splitlines()] == ["features", "statistics", "inference"]


def test_long_stages_say_that_they_go_on_and_what_is_done(data, capsys, monkeypatch):
    monkeypatch.setattr("pydirect._progress.SECONDS_BETWEEN_REPORTS", 0.01)
    progress = Progress(1)
    with progress.stage("statistics"), progress.rows(200) as note:
        note(50, 200)
        time.sleep(0.2)
    progress.finish()
    *going_on, last = capsys.readouterr().err.splitlines()
    assert 2 <= len(going_on) <= 5  # ever less often, where lines stay
    assert all(" s so far, 25% of 200 rows" in line for line in going_on) and "so far" not in last
    with Progress(0).stage("statistics"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


# ---------------------------------------- unfinished and interrupted


@pytest.mark.parametrize(
    "parameters",
    [{"posterior": "mean_field", "n_basis_functions": 60}, {"n_basis_functions": 40}, {"features": "linear"}],
    ids=str,
)
def test_a_fit_cut_short_warns_and_is_usable(data, parameters):
    X, y = data
    model = DirectRegressor(**parameters, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="not converged after"):
        model.fit(X, y)
    assert not model.converged_ and not model.interrupted_
    assert model.score(X, y) > 0.3
    assert np.isfinite(model.predict(NEW, return_std=True)).all()


@pytest.mark.parametrize("noise", ["auto", "grid"])
def test_a_keyboard_interrupt_leaves_a_flagged_model_and_ends_the_work(data, monkeypatch, noise):
    X, y = data
    calls = []

    def interrupted(solver, problem, **_):
        calls.append(problem.max_iter)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return solver.coordinate_ascent(1, 1e-3, 1e-7, False)

    monkeypatch.setattr("pydirect.optimize.quadratic._newton", interrupted)
    model = DirectRegressor("linear", posterior="mean_field", noise=noise)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(X, np.c_[y, -y, y**2])
    assert model.interrupted_ and not model.converged_
    assert all(n == 1 for n in calls[1:])
    assert model.predict(NEW).shape == (30, 3)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        calls.clear()
        model.fit(X, y)
    assert model.score(X, y) > 0.2


def test_an_interrupt_before_there_is_a_posterior_leaves_the_model_as_it_was(data, monkeypatch):
    X, y = data
    model, fresh = DirectRegressor(n_basis_functions=20).fit(X, y), DirectRegressor(n_basis_functions=20)
    before = model.predict(X)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pydirect.estimators.regression.search_kernel", interrupted)
    for each in (model, fresh):
        with pytest.raises(KeyboardInterrupt):
            each.fit(X, -y)
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_a_summary_tells_in_words_what_was_fitted(data):
    X, y = data
    model = DirectRegressor("linear", posterior=Sequential(n_levels=255)).fit(X, np.c_[y, -y])
    header, *outputs, noise = model.summary().splitlines()
    assert noise.startswith("Noise: one variance for all rows; others are not compared for discrete weights.")
    size = f"{X.shape[1] + 1} linear basis functions, fitted to {len(X)} rows, {X.shape[1]} columns"
    assert header.startswith(f"DirectRegressor on {size}: ELBO ")
    assert len(outputs) == 2 and all("weights on 255 levels" in line for line in outputs)
    assert outputs[0].startswith("Output 0: ") and "Predictions are moments of 64 draws." in outputs[0]
    kept = DirectRegressor("linear", posterior=Sequential(n_levels=255, keep_factor=True)).fit(X, y)
    assert "Predictions are exact moments of continuous weights." in kept.summary()
    assert "converged after" in DirectRegressor("linear").fit(X, y).summary()
    with pytest.raises(NotFittedError):
        DirectRegressor().summary()
