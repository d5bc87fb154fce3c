"""`fit_groups`: models of many groups of rows that learn from each other."""

import importlib
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from pydirect import DirectRegressor, Nystroem, fit_groups, load

N_GROUPS = 12


def make_shops(rng, n_rows, n_groups=N_GROUPS):
    """A common function of two inputs, an offset of each group, and noise."""
    offsets = np.random.default_rng(7).standard_normal(n_groups)
    group = np.arange(n_rows) % n_groups
    x = rng.standard_normal((n_rows, 2))
    y = 3.0 + 2 * np.sin(2 * x[:, 0]) + x[:, 1] + offsets[group] + 0.3 * rng.standard_normal(n_rows)
    return x, y, group


@pytest.fixture(scope="module")
def data():
    return make_shops(np.random.default_rng(0), 15 * N_GROUPS)


@pytest.fixture(scope="module")
def model():
    return DirectRegressor(features=Nystroem(length_scale=1.5), n_basis_functions=60, n_threads=1)


@pytest.fixture(scope="module")
def fitted(model, data):
    return fit_groups(model, *data)


def test_is_a_mapping_from_labels_to_models_that_share_features(fitted):
    assert list(fitted) == list(range(N_GROUPS))
    assert len(fitted) == N_GROUPS
    assert all(isinstance(model, DirectRegressor) for model in fitted.values())
    assert {id(model.features_) for model in fitted.values()} == {id(fitted.new_group.features_)}
    assert "12 groups" in repr(fitted)


def test_every_model_is_the_posterior_about_the_common_function(fitted, data):
    x, y, group = data
    common, shared = fitted.new_group, fitted.new_group.features_
    weights = common.coefficients_[:, 0]
    scale = common.posterior_.prior_variance * common.prior_scale_[0] ** 2
    for label in (0, 5):
        model, rows = fitted[label], group == label
        noise = 1 / model.posterior_.noise.precision
        phi, new = shared.transform(x[rows]), shared.transform(x[:20])
        residual = (y[rows] - model.y_mean_) / model.y_scale_ - phi @ weights
        expected = weights + phi.T @ np.linalg.solve(phi @ phi.T + noise / scale * np.eye(rows.sum()), residual)
        np.testing.assert_allclose(model.predict(x[:20]), model.y_mean_ + model.y_scale_ * (new @ expected), rtol=1e-5)


def test_left_out_rows_are_likelier_than_by_separate_fits_and_by_one_fit(model, fitted, data):
    x, y, group = data
    new_x, new_y, new_group = make_shops(np.random.default_rng(1), 40 * N_GROUPS)
    together = fitted.log_predictive_density(new_x, new_y, new_group).mean()
    pooled = model.fit(x, y).log_predictive_density(new_x, new_y).mean()
    apart = np.mean(
        [
            model.fit(x[group == g], y[group == g])
            .log_predictive_density(new_x[new_group == g], new_y[new_group == g])
            .mean()
            for g in range(N_GROUPS)
        ]
    )
    assert together > apart + 0.3
    assert together > pooled + 0.3


def test_a_group_of_three_rows_is_near_the_others_and_unsure(model, data):
    x, y, group = data
    few = group.astype(object)
    kept = np.concatenate([np.flatnonzero(group != 3), np.flatnonzero(group == 3)[:3]])
    found = fit_groups(model, x[kept], y[kept], few[kept])
    _, epistemic, _ = found[3].predict_parts(x)
    _, of_others, _ = found[4].predict_parts(x)
    _, of_new, _ = found.new_group.predict_parts(x)
    assert of_others.mean() < epistemic.mean() < of_new.mean()
    new_x, new_y, new_group = make_shops(np.random.default_rng(2), 200 * N_GROUPS)
    chosen = new_group == 3
    lower, upper = found.predict_interval(new_x[chosen], new_group[chosen], 0.9)
    assert np.mean((lower < new_y[chosen]) & (new_y[chosen] < upper)) > 0.7


def test_predictions_are_those_of_the_groups_models(fitted, data):
    x, y, group = data
    mean, std = fitted.predict(x, group, return_std=True)
    lower, upper = fitted.predict_interval(x, group, level=0.8)
    density = fitted.log_predictive_density(x, y, group)
    np.testing.assert_array_equal(mean, fitted.predict(x, group))
    rows = group == 4
    np.testing.assert_array_equal(np.stack([mean[rows], std[rows]]), fitted[4].predict(x[rows], return_std=True))
    np.testing.assert_array_equal(np.stack([lower[rows], upper[rows]]), fitted[4].predict_interval(x[rows], 0.8))
    np.testing.assert_array_equal(density[rows], fitted[4].log_predictive_density(x[rows], y[rows]))


def test_threads_and_chunks_do_not_change_bits(model, fitted, data, monkeypatch):
    again = fit_groups(clone(model).set_params(n_threads=3), *data)
    for label, own in fitted.items():
        np.testing.assert_array_equal(own.coef_, again[label].coef_)
    monkeypatch.setattr(importlib.import_module("pydirect.estimators.fit_groups"), "CHUNK_ROWS", 20)
    again = fit_groups(model, *data)  # every group by itself
    for label, own in fitted.items():
        np.testing.assert_allclose(own.predict(data[0]), again[label].predict(data[0]), rtol=1e-5)


def test_models_survive_files_and_pickling(fitted, data, tmp_path):
    x, _, group = data
    fitted[2].save(tmp_path / "shop.pydirect")
    again = load(tmp_path / "shop.pydirect")
    np.testing.assert_array_equal(fitted[2].predict(x, return_std=True), again.predict(x, return_std=True))
    assert again.elbo_ == fitted[2].elbo_
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(fitted.predict(x, group), again.predict(x, group))
    fitted.new_group.save(tmp_path / "new.pydirect")
    np.testing.assert_array_equal(load(tmp_path / "new.pydirect").predict(x), fitted.new_group.predict(x))
    assert "fit_groups" in fitted[2].summary()


def test_transformed_targets_and_tables_with_text(data):
    x, y, group = data
    frame = pd.DataFrame({"number": x[:, 0], "kind": np.where(x[:, 1] > 0, "a", "b")})
    labels = pd.Series([f"shop {g}" for g in group])
    found = fit_groups(DirectRegressor("linear", target_transform="log", n_threads=1), frame, np.exp(y / 5), labels)
    assert "shop 3" in found
    lower, upper = found.predict_interval(frame, labels)
    assert (0 < lower).all()
    assert (lower < upper).all()
    model = found["shop 3"]
    rows = (labels == "shop 3").to_numpy()
    jacobian = -(y[rows] / 5).sum()
    plain = fit_groups(DirectRegressor("linear", n_threads=1), frame, y / 5, labels)["shop 3"]
    assert model.elbo_ == pytest.approx(plain.elbo_ + jacobian, rel=1e-6)


def skewed_shops(kind):
    """Noise that is a share of the target, or the same for all shops, whose sizes are skewed."""
    rng = np.random.default_rng(1)
    x, group = rng.standard_normal((600, 2)), np.arange(600) % 20
    f, size, noise = np.sin(x[:, 0]) + 0.3 * x[:, 1], rng.standard_normal(20)[group], 0.3 * rng.standard_normal(600)
    return x, np.exp(3 + f + 0.7 * size + noise) if kind == "percent" else 5 + f + np.exp(size) + noise, group


@pytest.mark.parametrize(("kind", "least_gain"), [("percent", 0.3), ("skewed sizes", -0.05)])
def test_the_scale_is_that_of_noise_within_groups(kind, least_gain):
    x, y, group = skewed_shops(kind)
    train, test = np.arange(600) < 400, np.arange(600) >= 400
    models = [DirectRegressor(n_basis_functions=60, target_transform=choice) for choice in ("auto", None)]
    auto, plain = (fit_groups(model, x[train], y[train], group[train]) for model in models)
    scales = {str(own.target_transform_) for own in (*auto.values(), auto.new_group)}
    assert scales == {"log(y)"} if kind == "percent" else len(scales) == 1
    ours, theirs = (own.log_predictive_density(x[test], y[test], group[test]).mean() for own in (auto, plain))
    assert ours - theirs > least_gain
    evidence = [sum(own.elbo_ for own in fitted.values()) for fitted in (auto, plain)]
    assert evidence[0] >= evidence[1]
    lower, upper = auto.predict_interval(x[test], group[test])
    assert 0.82 < np.mean((lower < y[test]) & (y[test] < upper)) < 0.97


def test_unknown_groups_are_refused(fitted, data):
    with pytest.raises(ValueError, match="groups must have been fitted, got 99"):
        fitted.predict(data[0][:2], [1, 99])
    with pytest.raises(KeyError, match="new_group"):
        fitted[99]


def test_labels_in_a_list_stay_what_they_are(model, data):
    labels = [7, "seven", ("seven", 7)] * 60
    models = fit_groups(model, data[0], data[1], labels)
    assert list(models) == [7, "seven", ("seven", 7)]
    np.testing.assert_array_equal(models.predict(data[0][:1], [7]), models[7].predict(data[0][:1]))


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([1, 2], ValueError, "one label for each of 180 rows"),
        (
            np.where(np.arange(180) == 3, np.nan, 1.0),
            ValueError,
            "groups must have no missing values, got nan in row 3",
        ),
        ([None, *["a"] * 179], ValueError, "groups must have no missing values, got None in row 0"),
        (np.zeros((180, 1)), ValueError, "one label for each of 180 rows"),
        ([{}] * 180, TypeError, "hashable"),
    ],
)
def test_labels_are_checked(model, data, groups, error, message):
    with pytest.raises(error, match=message):
        fit_groups(model, data[0], data[1], groups)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"posterior": "sequential"}, "posterior"), ({"noise": "varying"}, "noise"), ({"local": 8}, "local")],
)
def test_what_needs_rows_is_refused(options, message, data):
    with pytest.raises(ValueError, match=message):
        fit_groups(DirectRegressor(**options), *data)


def test_data_are_checked(model, data):
    x, y, group = data
    with pytest.raises(ValueError, match="one target"):
        fit_groups(model, x, np.column_stack([y, y]), group)
    with pytest.raises(ValueError, match="rows of every group, got none of 4"):
        fit_groups(model, x, y, group, (group != 4).astype(float))
    with pytest.raises(TypeError, match="model"):
        fit_groups("linear", x, y, group)
    with pytest.raises(ValueError, match="earlier rows"):
        fit_groups(model, x, y, group)[0].partial_fit(x, y)
