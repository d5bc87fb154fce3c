"""The classifier as users call it: labels of any kind, weights, uncertainty, files, unusual data."""

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import pydirect
from pydirect import DirectClassifier, Nystroem, PooledClassifier
from pydirect.logistic.pool import sharpness_of
from pydirect.metrics import expected_calibration_error, reliability_curve

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((90, 3)), RNG.standard_normal((11, 3)) * 1.5
LOGIT = 2 * X[:, 0] + np.sin(2 * X[:, 1])
Y = np.where(LOGIT + RNG.logistic(size=90) > 0, "yes", "no")
THREE = np.digitize(LOGIT, [-1.0, 1.0])
KERNEL = Nystroem(max_search_rows=60)


def fit(y=Y, **parameters):
    return DirectClassifier(**{"features": KERNEL, "n_basis_functions": 30} | parameters).fit(X, y)


# Predictions


def test_uncertain_predictions_are_nearer_to_one_half():
    model = fit()
    assert (np.abs(model.decision_function(NEW)) < np.abs(model.predict_logit(NEW)) + 1e-9).all()


def test_logits_of_several_classes_add_up_to_none():
    model = fit(THREE)
    np.testing.assert_allclose((model.predict_logit(NEW) - model.intercept_).sum(axis=1), 0.0, atol=1e-9)


def test_it_is_as_good_as_logistic_regression_and_calibrated():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3000, 5))
    y = x @ [1.5, -1.0, 0.5, 0.0, 0.0] + 0.5 + rng.logistic(size=3000) > 0
    model = DirectClassifier("linear").fit(x[:500], y[:500])
    probabilities = model.predict_proba(x[500:])
    reference = LogisticRegression().fit(x[:500], y[:500]).predict_proba(x[500:])
    assert log_loss(y[500:], probabilities) < 1.02 * log_loss(y[500:], reference)
    ours, theirs = (expected_calibration_error(y[500:], p[:, 1]) for p in (probabilities, reference))
    assert ours < theirs + 0.005
    predicted, observed, count = reliability_curve(y[500:], probabilities[:, 1])
    assert count.sum() == 2500 and (np.abs(predicted - observed) < 5 * np.sqrt(0.25 / count) + 0.05).all()


# Labels and weights


@pytest.mark.parametrize(
    "labels", [["a", "b"], np.array(["x", "yy"], dtype=object), [False, True], [-1, 7], [0.0, 1.0]], ids=str
)
def test_labels_of_any_kind_come_back(labels, tmp_path):
    labels = np.asarray(labels)
    y = labels[(Y == "yes").astype(int)]
    model = fit(y, features="linear")
    assert model.predict(NEW).dtype == y.dtype
    np.testing.assert_array_equal(model.predict(X) == y, fit(features="linear").predict(X) == Y)
    model.save(tmp_path / "m")
    loaded = pydirect.load(tmp_path / "m")
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="y must have at least two classes, got one class"):
        fit(np.full(90, "a"))
    with pytest.raises(ValueError, match="at least two classes"):
        DirectClassifier().fit(X, Y, sample_weight=(Y == "yes").astype(float))


def test_balanced_weights_multiply_the_odds():
    rare = np.flatnonzero(Y == "yes")[:9]
    rows = np.concatenate([np.flatnonzero(Y == "no")[:36], rare])
    x, y = X[rows], Y[rows]
    balanced = DirectClassifier("linear", class_weight="balanced").fit(x, y)
    given = DirectClassifier("linear", class_weight={"yes": 45 / 18, "no": 45 / 72}).fit(x, y)
    np.testing.assert_allclose(balanced.predict_proba(NEW), given.predict_proba(NEW), rtol=1e-12)
    plain, weighted = (DirectClassifier("linear", class_weight=w).fit(x, y) for w in (None, {"yes": 4}))
    np.testing.assert_allclose(weighted.predict_logit(NEW), plain.predict_logit(NEW) + np.log(4.0), rtol=1e-9)
    np.testing.assert_allclose(weighted.decision_function(NEW), plain.decision_function(NEW) + np.log(4.0), rtol=1e-9)
    assert plain.predict_proba(x)[:, 1].mean() < balanced.predict_proba(x)[:, 1].mean()
    with pytest.raises(
        ValueError, match=r"class_weight must have classes of y, \['no', 'yes'\], got \['u'\]: a dict is"
    ):
        DirectClassifier("linear", class_weight={"u": 2}).fit(x, y)


@pytest.mark.parametrize("posterior", ["gaussian", "sequential"])
def test_factors_of_several_classes_multiply_their_predictive_odds(posterior, tmp_path):
    factors = {0: 1.0, 1: 3.0, 2: 0.5}
    plain, weighted = (fit(THREE, features="linear", posterior=posterior, class_weight=w) for w in (None, factors))
    p = plain.predict_proba(NEW) * list(factors.values())
    np.testing.assert_allclose(weighted.predict_proba(NEW), p / p.sum(axis=1, keepdims=True), rtol=1e-9)
    weighted.save(tmp_path / "m")
    assert pydirect.load(tmp_path / "m").predict_proba(NEW).tobytes() == weighted.predict_proba(NEW).tobytes()


def test_weights_of_classes_are_repetitions_under_the_published_bounds():
    rare = np.flatnonzero(Y == "yes")[:9]
    rows = np.concatenate([np.flatnonzero(Y == "no")[:36], rare])
    repeated = np.concatenate([rows[:36], np.repeat(rare, 4)])
    options = {"features": "linear", "bound": "jaakkola"}
    four = DirectClassifier(**options).fit(X[repeated], Y[repeated])
    weighted = DirectClassifier(**options, class_weight={"yes": 4}).fit(X[rows], Y[rows])
    np.testing.assert_allclose(four.predict_proba(NEW), weighted.predict_proba(NEW), rtol=1e-9)


@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
def test_sets_hold_the_right_label_as_often_as_asked(y):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2000, 3))
    z = 2 * x[:, 0] + np.sin(2 * x[:, 1]) + rng.logistic(size=2000)
    labels = (z > 0).astype(int) if y is Y else np.digitize(z, [-1.0, 1.0])
    model = DirectClassifier("linear").fit(x[:600], labels[:600])
    for coverage in (0.8, 0.95):
        sets = model.predict_set(x[600:], coverage)
        hit = sets[np.arange(1400), labels[600:]].mean()
        assert coverage - 0.05 < hit and (hit < coverage + 0.05 or hit < model.score(x[600:], labels[600:]) + 0.01)
        assert sets.any(axis=1).all()
    assert model.predict_set(x[600:], 0.99).sum() > model.predict_set(x[600:], 0.8).sum()
    for options in ({"bound": "jaakkola"}, {"class_weight": "balanced"}):
        with pytest.raises(ValueError, match="predict_set needs rows in memory"):
            DirectClassifier("linear", **options).fit(x[:100], labels[:100]).predict_set(x[:5])
    with pytest.raises(ValueError, match=r"coverage must be above 0\.0 and below 1\.0"):
        model.predict_set(x, 1.0)


def test_rare_classes_keep_their_rate():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2000, 4)), rng.random(2000) < 0.02
    p = DirectClassifier("linear").fit(x, y).predict_proba(x)[:, 1]
    assert p.mean() == pytest.approx(y.mean(), rel=0.15) and p.max() < 0.2


@pytest.mark.parametrize("case", ["constant column", "all columns constant", "two rows", "separable"])
def test_unusual_data_give_sane_models(case):
    x, y = {
        "constant column": (np.c_[X, np.ones(90)], Y),
        "all columns constant": (np.ones((90, 2)), Y),
        "two rows": (X[:2], np.array([0, 1])),
        "separable": (X, X[:, 0] > 0),
    }[case]
    for features in (Nystroem(max_search_rows=50), "linear", "polynomial"):
        model = DirectClassifier(features, n_basis_functions=20).fit(x, y)
        p = model.predict_proba(x)
        assert np.isfinite(model.predict_log_proba(x)).all() and np.isfinite(model.elbo_) and (p > 0).all()
        if case == "all columns constant":
            np.testing.assert_allclose(p[:, 1], np.mean(Y == "yes"), atol=0.02)


# Fitting


@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
def test_the_softmax_has_the_higher_bound_and_likelihood(y):
    softmax, published = (fit(y, features="linear", bound=bound) for bound in ("auto", "jaakkola"))
    assert softmax.elbo_ > published.elbo_
    index = np.searchsorted(softmax.classes_, y)
    own, theirs = (log_loss(index, model.predict_proba(X)) for model in (softmax, published))
    assert own < theirs + 0.01


@pytest.mark.parametrize(
    "options", [{"features": "linear"}, {}, {"features": "fourier", "posterior": "sequential"}], ids=str
)
def test_classes_may_come_in_any_order(options):
    renamed = np.array([2, 0, 1])[THREE]
    one, other = fit(THREE, **options), fit(renamed, **options)
    np.testing.assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW)[:, [2, 0, 1]], atol=1e-9)


def test_a_few_gross_inputs_are_taken_by_their_normal_scores():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    y = (x[:, 0] + x[:, 1] ** 2 + 0.3 * rng.logistic(size=300) > 0.5).astype(int)
    gross = x[:200].copy()
    gross[0, 0] = 1e9
    plain, spoiled = (DirectClassifier().fit(rows, y[:200]) for rows in (x[:200], gross))
    assert plain.features_.input_map.scored.size == 0 and spoiled.features_.input_map.scored.tolist() == [0]
    assert spoiled.score(x[200:], y[200:]) > plain.score(x[200:], y[200:]) - 0.05


@pytest.mark.slow
def test_basis_functions_are_added_while_left_out_labels_become_likelier():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (1500, 2))
    checkers = np.sin(4 * x).prod(axis=1) > 0
    options = {"features": Nystroem(max_search_rows=300), "n_basis_functions": 400}
    assert DirectClassifier(**options).fit(x, checkers).features_.n_weights >= 384
    assert DirectClassifier(**options).fit(x, x[:, 0] > 0).features_.n_weights < 400


def test_classes_without_weight_are_left_out_however_the_weight_is_given():
    by_class = fit(THREE, features="linear", class_weight={0: 0.0, 1: 1.0, 2: 1.0})
    by_row = DirectClassifier("linear").fit(X, THREE, sample_weight=(THREE > 0).astype(float))
    np.testing.assert_array_equal(by_class.classes_, [1, 2])
    np.testing.assert_array_equal(by_class.predict_proba(NEW), by_row.predict_proba(NEW))


@pytest.mark.parametrize("kind", [DirectClassifier, PooledClassifier])
def test_every_column_of_labels_has_the_model_of_its_own_fit(kind, tmp_path):
    labels = np.column_stack([Y, THREE.astype(str)])
    model = kind(KERNEL, 30).fit(X, labels)
    alone = [kind(KERNEL, 30).fit(X, column) for column in labels.T]
    model.save(tmp_path / "model")
    for several in (model, pydirect.load(tmp_path / "model")):
        for name in ("predict_proba", "predict_set", "predict_log_proba", "predict_or_reject"):
            for found, one in zip(getattr(several, name)(NEW), alone, strict=True):
                np.testing.assert_array_equal(found, getattr(one, name)(NEW))
        np.testing.assert_array_equal(several.predict(NEW), np.column_stack([one.predict(NEW) for one in alone]))
    assert [own.tolist() for own in model.classes_] == [own.classes_.tolist() for own in alone]
    assert [own.features_.n_weights for own in model.estimators_] == [own.features_.n_weights for own in alone]
    assert model.elbo_ == pytest.approx(sum(own.elbo_ for own in alone))
    assert str(model.summary()) == "\n".join(str(own.summary()) for own in alone)
    if kind is PooledClassifier:
        with pytest.raises(AttributeError, match="this PooledClassifier has no coef_"):
            alone[0].coef_  # noqa: B018
    for name in ("features_", "coef_", "posterior_", "elbo_trace_"):
        with pytest.raises(AttributeError, match=f"several columns of labels has no {name}: its estimators_ have"):
            getattr(model, name)


@pytest.mark.parametrize("names", [["a", "b"], [0, 1]])
def test_columns_of_labels_keep_types_of_their_own(names):
    own = pd.Series(Y, dtype=object), pd.Series(THREE % 2, dtype=np.int16)
    labels = pd.concat(own, axis=1).set_axis(names, axis=1)
    model = DirectClassifier("linear").fit(X, labels)
    assert [classes.tolist() for classes in model.classes_] == [["no", "yes"], [0, 1]]
    assert model.classes_[1].dtype == (np.int16 if names == ["a", "b"] else np.int64)
    alone = [DirectClassifier("linear").fit(X, column).predict(NEW).tolist() for column in own]
    assert model.predict(NEW).T.tolist() == alone
    labels.iloc[3, 0] = 3
    with pytest.raises(TypeError, match=r"y must hold labels .* of one type, got int and str"):
        model.fit(X, labels)


def test_labels_of_several_types_are_refused():
    labels = np.array(["one", 2] * 30, dtype=object)
    with pytest.raises(TypeError, match=r"y must hold labels .* of one type, got int and str"):
        DirectClassifier("linear").fit(X[:60], labels)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@pytest.mark.parametrize("n_classes", [20, 29, 30, 31])
def test_classes_may_have_one_row_each(n_classes):
    x = np.random.default_rng(0).uniform(-2, 2, (n_classes, 3))
    with np.errstate(divide="raise"):
        probability = DirectClassifier().fit(x, np.arange(n_classes)).predict_proba(x)
    assert probability.shape == (n_classes, n_classes)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)


def test_probabilities_are_sharpened_where_left_out_labels_are_surely_likelier(tmp_path):
    rng = np.random.default_rng(0)
    x, new = rng.uniform(-2, 2, (400, 2)), rng.uniform(-2, 2, (400, 2))
    squares, of_new = ((np.floor(own).sum(axis=1) % 2).astype(int) for own in (x, new))
    model = DirectClassifier().fit(x, squares)
    assert model.sharpness_ > 1
    assert "(sharpness_)" in model.summary()
    plain = copy.copy(model)
    plain.model_ = dataclasses.replace(model.model_, sharpness=1.0)
    np.testing.assert_allclose(model.decision_function(new), model.sharpness_ * plain.decision_function(new))
    assert log_loss(of_new, model.predict_proba(new)) < log_loss(of_new, plain.predict_proba(new))
    model.save(tmp_path / "model")
    assert pydirect.load(tmp_path / "model").sharpness_ == model.sharpness_
    assert DirectClassifier().fit(x, rng.integers(0, 2, 400)).sharpness_ <= 1


def test_labels_that_contradict_all_neighbours_leave_a_model_that_can_be_saved(tmp_path):
    cells = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    model = DirectClassifier().fit(cells, cells.sum(axis=1).astype(int) % 2)
    assert 0 < model.sharpness_ <= 1
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(pydirect.load(tmp_path / "model").predict_proba(cells), model.predict_proba(cells))


def test_a_power_of_probabilities_counts_what_it_costs_where_labels_are_confidently_wrong():
    log_odds = np.where(np.arange(400) < 395, 2.2, -14.0)
    log_p = np.stack([-np.logaddexp(0.0, log_odds), -np.logaddexp(0.0, -log_odds)], axis=1)
    power = sharpness_of(log_p, np.ones(400, dtype=np.intp), np.ones(400))
    gain = log_softmax(power * log_p, axis=1)[:, 1] - log_p[:, 1]
    assert power < 1.2 and gain.mean() >= 0
