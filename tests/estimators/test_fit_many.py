"""`fit_many`: each model is what its own fit gives."""

import tracemalloc

import numpy as np
import pytest

from pydirect import DirectClassifier, DirectRegressor, Sequential, fit_many, load
from pydirect.estimators import classification, regression

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydirect.NoiseGridWarning", "ignore::pydirect.direct.CoarseLevelsWarning"
)


@pytest.mark.slow
def test_fit_many_is_every_models_own_fit(data):
    x, y = data
    pair = np.c_[y, x[:, 1] ** 2]

    def models():
        return [
            DirectRegressor("linear"),
            DirectRegressor("linear", noise=0.3),
            DirectRegressor("linear", posterior=Sequential(n_levels=7)),
            DirectRegressor("polynomial"),
            DirectRegressor(n_basis_functions=30),
            DirectRegressor(n_basis_functions=30),
        ]

    weight = np.linspace(0.5, 2, len(x))
    targets = [pair, pair[:, 1], y, y, y, y]
    for got, expected, target in zip(fit_many(models(), x, targets, weight), models(), targets, strict=True):
        expected.fit(x, target, weight)
        np.testing.assert_allclose(got.predict(x), expected.predict(x), atol=1e-8)
        assert got.elbo_ == pytest.approx(expected.elbo_, rel=1e-9)
        assert got.converged_ == expected.converged_


def test_classifiers_of_the_same_labels_share_the_search_for_a_kernel(data, monkeypatch):
    x, y = data[0], data[1] > 0
    calls, original = [], classification.fit_label_hyperparameters
    monkeypatch.setattr(
        classification, "fit_label_hyperparameters", lambda *a, **k: calls.append(1) or original(*a, **k)
    )
    given = [{}, {"n_basis_functions": 20}, {"class_weight": "balanced"}]
    models = fit_many([DirectClassifier(**own) for own in given], x, [y, y, y])
    shared, calls[:] = len(calls), []
    for model, own in zip(models, given, strict=True):
        np.testing.assert_array_equal(model.predict_proba(x), DirectClassifier(**own).fit(x, y).predict_proba(x))
    assert len(calls) == 3 * shared


def test_fit_many_takes_one_pass_for_shared_features(data, monkeypatch):
    calls = []
    original = regression.collect_statistics
    monkeypatch.setattr(regression, "collect_statistics", lambda *a, **k: calls.append(1) or original(*a, **k))
    fit_many([DirectRegressor("linear") for n in (5, 7, 9)] + [DirectRegressor("polynomial")], *data)
    assert len(calls) == 2


def test_models_fitted_before_one_that_fails_are_whole(data, tmp_path):
    x, y = data
    models = [DirectRegressor("linear"), DirectRegressor("linear", noise=1e305)]
    with pytest.raises(ValueError, match="noise must be within"):
        fit_many(models, x, y)
    assert not hasattr(models[1], "posterior_")
    models[0].save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(x), models[0].predict(x))


def test_fit_many_converts_a_frame_once(data):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y = data
    frame, y = pandas.DataFrame(np.tile(x, (50, 10)).astype(np.float32)), np.tile(y, 50)
    n_models, peaks = 8, []
    for n in (1, n_models):
        tracemalloc.start()
        fit_many([DirectRegressor("linear", noise=0.1 * (k + 1)) for k in range(n)], frame, y)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (n_models - 1) < 0.3 * 8 * frame.size


def test_fit_many_refuses_what_does_not_fit_together(data):
    x, y = data
    model = DirectRegressor("linear")
    with pytest.raises(ValueError, match="different objects"):
        fit_many([model, model], x, y)
    with pytest.raises(ValueError, match="one per estimator, 2, got 3"):
        fit_many([model, DirectRegressor("linear")], x, [y, y, y])
    with pytest.raises(ValueError, match=r"y\[1\] must have 240 rows, as y\[0\], got 239"):
        fit_many([model, DirectRegressor("linear")], x, [y, y[1:]])
    with pytest.raises(TypeError, match="of DirectRegressor, or of DirectClassifier and PooledClassifier"):
        fit_many(model, x, y)
    with pytest.raises(TypeError, match=r"estimators\[0\]"):
        fit_many(["linear"], x, y)


def test_fit_many_refuses_data_before_a_model_is_touched(data):
    x, y = data
    fitted, other = DirectRegressor("linear").fit(x, y), DirectRegressor("polynomial")
    before = fitted.predict(x)
    for bad in (np.where(y > 1, np.nan, y), 1e100 * y):
        with pytest.raises(ValueError):
            fit_many([fitted, other], x, [2 * y, bad])
    with pytest.raises(ValueError, match="sample_weight"):
        fit_many([fitted, other], x, y, -np.ones(240))
    np.testing.assert_array_equal(fitted.predict(x), before)


def test_scales_of_targets_are_chosen_as_in_fit():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((150, 2))
    y = np.exp(1 + x[:, 0] + 0.3 * rng.standard_normal(150))
    given = [{"n_basis_functions": 40}, {"n_basis_functions": 40, "noise": "constant"}, {"n_basis_functions": 30}]
    models = fit_many([DirectRegressor(**own) for own in given], x, [y, y, x[:, 1]])
    assert [str(model.model_.units.active) for model in models] == ["log(y)", "log(y)", "None"]
    for model, own, target in zip(models, given, [y, y, x[:, 1]], strict=True):
        alone = DirectRegressor(**own).fit(x, target)
        for found, expected in zip(
            model.predict(x[:9], return_std=True), alone.predict(x[:9], return_std=True), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_equal(model.model_.units.gain is None, alone.model_.units.gain is None)
