"""Pools of kernel models and trees: weights by rows left out, parts that agree with their library, files, tables."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from pydirect import DirectClassifier, DirectRegressor, Nystroem, PooledClassifier, PooledRegressor
from pydirect.estimators import pooled
from pydirect.fitted.pooled import Trees
from pydirect.logistic.pool import LEAST_LOG_PROBABILITY, pool_weights, pooled_log_probability


def boxes(n, rng, n_classes=2):
    """Labels that jump: kernels need more rows for them than trees."""
    x = rng.uniform(-1, 1, (n, 4))
    inside = (np.abs(x[:, 0]) < 0.5) & (x[:, 1] > -0.3)
    label = np.where(inside, n_classes - 1, (x[:, 2] > 0.4) * (n_classes > 2))
    noise = rng.random(n) < 0.03
    return x, np.where(noise, rng.integers(0, n_classes, n), label)


@pytest.fixture(autouse=True, scope="module")
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CHUNK": 10, "MOST_ROUNDS": 30}.items():
            patch.setattr(pooled, name, value)
        yield


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return {k: (*boxes(240, rng, k), *boxes(600, rng, k)) for k in (2, 3)}


@pytest.fixture(scope="module")
def pools(rows):
    return {k: PooledClassifier().fit(*own[:2]) for k, own in rows.items()}


def targets(n, rng):
    x = rng.uniform(-1, 1, (n, 3))
    inside = (np.abs(x[:, 0]) < 0.5) & (np.abs(x[:, 1]) < 0.6)
    return x, 3.0 * inside - 2.0 * (inside & (x[:, 2] > 0.2)) + 0.2 * rng.standard_normal(n)


# --- trees as arrays


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_as_arrays_are_those_of_scikit_learn(n_classes):
    x, y = boxes(300, np.random.default_rng(1), n_classes)
    boosted = HistGradientBoostingClassifier(max_iter=12, early_stopping=False).fit(x, y)
    n_outputs = 1 if n_classes == 2 else n_classes
    trees = Trees.boosted(boosted._predictors, boosted._baseline_prediction.ravel(), 4)
    trees.check()
    assert trees.values(x).shape == (300, 12, n_outputs)
    np.testing.assert_allclose(trees(x).squeeze(), boosted.decision_function(x), rtol=1e-12, atol=1e-12)


def test_trees_that_lead_backwards_are_refused():
    x, y = boxes(100, np.random.default_rng(1))
    boosted = HistGradientBoostingClassifier(max_iter=1, early_stopping=False).fit(x, y)
    trees = Trees.boosted(boosted._predictors, boosted._baseline_prediction.ravel(), 4)
    left = trees.left.copy()
    left[1] = 0
    with pytest.raises(ValueError, match="later ones"):
        Trees(**{**vars(trees), "left": left}).check()


# --- weights


def test_weights_maximise_the_penalised_likelihood_of_left_out_labels():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 3)) * 2
    index = np.array([rng.choice(3, p=softmax(z)) for z in truth])
    log_p = np.stack([np.log(softmax(s * truth + rng.normal(size=truth.shape), axis=1)) for s in (0.5, 2.0)])
    weight = np.ones(400)
    found = pool_weights(log_p, index, weight)

    def value(w):
        own = pooled_log_probability(np.asarray(w), log_p)[np.arange(400), index].sum()
        return own - 0.5 * 10.0 * ((np.asarray(w) - 0.5) ** 2).sum()

    for step in 0.01 * np.vstack([np.eye(2), -np.eye(2)]):
        assert value(found) >= value(np.clip(found + step, 0, 2))
    assert np.exp(pooled_log_probability(found, log_p)).sum(axis=1) == pytest.approx(np.ones(400))


def test_a_part_that_knows_nothing_leaves_the_first_alone():
    index = np.arange(60) % 2
    certain = np.where(index[:, None] == [0, 1], np.log(1 - 1e-4), LEAST_LOG_PROBABILITY)
    assert pool_weights(np.stack([certain, np.roll(certain, 1, axis=0)]), index, np.ones(60)).tolist() == [1.0, 0.0]


# --- classes


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_pool_is_better_than_the_kernel_where_labels_jump(n_classes, rows, pools):
    x, y, x_new, y_new = rows[n_classes]
    alone = log_loss(y_new, DirectClassifier().fit(x, y).predict_proba(x_new))
    pooled = log_loss(y_new, pools[n_classes].predict_proba(x_new))
    assert pooled < alone - 0.005
    losses = pools[n_classes].left_out_log_loss_
    assert losses["pool"] < losses["kernel"] and abs(losses["pool"] - pooled) < 0.15
    assert list(losses) == ["kernel", "boosted trees", "pool"]


def test_without_trees_it_is_the_kernel_model(rows):
    x, y, x_new, _ = rows[3]
    alone = DirectClassifier().fit(x, y).predict_log_proba(x_new)
    for model in (PooledClassifier(trees=False).fit(x, y), PooledClassifier().fit(x[:99], y[:99])):
        assert model.weights_ == {"kernel": 1.0} and not model.left_out_log_loss_
        assert "the kernel model alone" in model.summary()
    np.testing.assert_array_equal(PooledClassifier(trees=False).fit(x, y).predict_log_proba(x_new), alone)


def test_sets_of_a_pool_hold_the_right_label_as_often_as_asked(rows, pools):
    for n_classes, (_, _, x_new, y_new) in rows.items():
        model = pools[n_classes]
        held = model.predict_set(x_new, 0.9)[np.arange(len(y_new)), y_new].mean()
        assert 0.86 < held and len(model.left_out_probability_)
        assert model.predict_set(x_new, 0.99).sum() >= model.predict_set(x_new, 0.8).sum()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_of_classes_multiply_the_odds_of_a_pool(n_classes, rows, pools):
    x, y, x_new, _ = rows[n_classes]
    weighted = PooledClassifier(class_weight={k: 1.0 + k for k in range(n_classes)}).fit(x, y)
    plain = pools[n_classes].predict_proba(x_new)
    expected = plain * (1.0 + np.arange(n_classes))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weighted.predict_proba(x_new), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="predict_set needs rows in memory"):
        weighted.predict_set(x_new)
    without = PooledClassifier(class_weight={0: 0.0, 1: 1.0, 2: 1.0}).fit(x, y) if n_classes == 3 else weighted
    assert without.classes_.tolist() == ([1, 2] if n_classes == 3 else [0, 1])


def test_parts_see_text_and_gaps_as_the_kernel_does():
    rng = np.random.default_rng(0)
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 200), "b": rng.normal(size=200)})
    frame.loc[::7, "b"] = np.nan
    y = np.where(frame["a"] == "x", "yes", "no")
    model = PooledClassifier().fit(frame, y)
    assert model.score(frame, y) > 0.95 and model.model_.boosted.n_columns == model.columns_.n_encoded


def test_a_class_with_one_row_is_kept(rows):
    x, y, x_new, _ = rows[2]
    labels = y.copy()
    labels[5] = 7
    model = PooledClassifier().fit(x, labels)
    assert model.classes_.tolist() == [0, 1, 7] and np.isfinite(model.predict_log_proba(x_new)).all()


# --- numbers


def test_a_stacked_mean_is_better_where_targets_jump():
    rng = np.random.default_rng(0)
    x, y = targets(300, rng)
    x_new, y_new = targets(600, rng)
    model = PooledRegressor().fit(x, y)

    def error(own):
        return np.sqrt(np.mean((own.predict(x_new) - y_new) ** 2))

    assert error(model) < 0.95 * error(DirectRegressor().fit(x, y))
    assert 0 < model.weights_["boosted trees"][0] <= 1 and "boosted trees" in model.fit_seconds_
    found = model.left_out_rmse_
    assert found["pool"][0] <= min(found["kernel"][0], found["boosted trees"][0])
    lower, upper = model.predict_interval(x_new)
    assert np.mean((lower <= y_new) & (y_new <= upper)) > 0.8
    assert np.shape(model.sample_y(x_new[:3], 4)) == (3, 4)


def test_a_transformed_target_keeps_its_distribution():
    rng = np.random.default_rng(0)
    x, y = targets(150, rng)
    model = PooledRegressor(target_transform="log").fit(x, np.exp(y))
    alone = DirectRegressor(target_transform="log").fit(x, np.exp(y))
    assert not model.model_.moves
    np.testing.assert_array_equal(model.predict_interval(x[:9]), alone.predict_interval(x[:9]))
    mean, std = model.predict(x[:9], return_std=True)
    weight = model.weights_["boosted trees"]
    trees = model.model_.trees_at(model.encode_rows(x[:9]))[:, 0]
    np.testing.assert_allclose(mean, (1 - weight) * alone.predict(x[:9]) + weight * trees)
    np.testing.assert_array_equal(std, alone.predict(x[:9], return_std=True)[1])


def test_a_scale_that_was_chosen_keeps_its_gain():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (120, 2))
    y = np.exp(2 * x[:, 0] + 0.4 * rng.standard_normal(120))
    options = {"features": Nystroem(max_search_rows=60), "target_transform": "auto", "noise": "constant"}
    units = PooledRegressor(trees=False, **options).fit(x, y).model_.units
    alone = DirectRegressor(**options).fit(x, y).model_.units
    assert units.active is not None and str(units.transform) == str(alone.transform)
    np.testing.assert_allclose([units.gain, units.spread], [alone.gain, alone.spread], rtol=1e-3)


def test_several_outputs_have_weights_of_their_own():
    rng = np.random.default_rng(0)
    x, y = targets(150, rng)
    model = PooledRegressor().fit(x, np.stack([y, x[:, 1]], axis=1))
    assert model.predict(x).shape == (150, 2) and model.weights_["kernel"].shape == (2,)
    assert len(model.summary().splitlines()) > 4


# --- parts that fail or must be refused


@pytest.mark.parametrize("kind", [PooledClassifier, PooledRegressor])
def test_rows_without_weight_are_as_if_left_out(kind):
    rng = np.random.default_rng(3)
    x, y = targets(160, rng)
    y, weight = (y > np.median(y)).astype(float) if kind is PooledClassifier else y, (np.arange(160) % 4 > 0) * 1.0
    model, other = (kind(n_basis_functions=30) for _ in range(2))
    model.fit(x, y, weight)
    other.fit(x[weight > 0], y[weight > 0])
    np.testing.assert_allclose(model.predict(x), other.predict(x), rtol=1e-6)


@pytest.mark.parametrize("kind", [PooledClassifier, PooledRegressor])
def test_an_interrupted_pool_is_its_kernel_model(kind, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pooled, "boosted", interrupted)
    x, y = targets(120, np.random.default_rng(0))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = kind(features=Nystroem(length_scale=1.0)).fit(x, (y > 1).astype(int))
    assert model.interrupted_
    assert np.isfinite(model.predict(x)).all()
