"""Effects of categories on targets, labels and counts, learned beside a function of the other columns."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import pydirect
from pydirect import Columns, DirectClassifier, DirectCountRegressor, Nystroem, PooledClassifier
from pydirect.estimators import direct_latent, effects, left_out
from pydirect.estimators.effects import better_fit, effects_on_latents, forget_own, intercepts
from pydirect.features import LinearFeatures
from pydirect.logistic import LabelledRows
from pydirect.tables.columns import TableWarning
from pydirect.tables.table import Text

pd = pytest.importorskip("pandas")
RNG = np.random.default_rng(5)
N_TRAIN, N, N_SHOPS = 400, 1000, 80
SHOP = np.r_[np.arange(N_SHOPS), RNG.integers(0, N_SHOPS, N - N_SHOPS)]
EFFECTS = 3.0 * RNG.standard_normal((N_SHOPS, 3))
X = RNG.standard_normal((N, 2))
SMALL = {"features": Nystroem(max_search_rows=80), "n_basis_functions": 60}


def frame_of(rows, names="shop {}"):
    return pd.DataFrame({"a": X[rows, 0], "b": X[rows, 1], "shop": [names.format(k) for k in SHOP[rows]]})


TRAIN, TEST = np.arange(N_TRAIN), np.arange(N_TRAIN, N)
LABELS = (RNG.logistic(size=N) < EFFECTS[SHOP, 0] + X[:, 0]).astype(int)


@pytest.fixture(scope="module")
def classifier():
    return DirectClassifier(**SMALL).fit(frame_of(TRAIN), LABELS[TRAIN])


def log_loss(model, y, rows=TEST):
    return -np.log(model.predict_proba(frame_of(rows))[np.arange(len(rows)), np.searchsorted(model.classes_, y)]).mean()


def test_intercepts_left_out_are_those_of_the_other_rows():
    rng, noise, ratio = np.random.default_rng(2), 0.7, 1.3
    y, weight, group, same = rng.normal(size=20), rng.uniform(1, 2, 20), np.arange(20) % 3, np.r_[:19, 16]
    groups, rows = intercepts(y, weight, group, same, noise, ratio)

    def moments(used):
        precision = (weight[used].sum() + ratio) / noise
        return weight[used] @ y[used] / noise / precision, 1 / precision

    np.testing.assert_allclose(groups, [moments(group == k) for k in range(4)], rtol=1e-10)
    np.testing.assert_allclose(rows, [moments((group == g) & (same != s)) for g, s in zip(group, same, strict=True)])


def test_effects_on_logits_solve_the_mixed_model():
    """At the end of Newton's steps, f and effects are a joint optimum of the penalised likelihood."""
    rng, n_groups = np.random.default_rng(3), 40
    group = np.r_[np.arange(n_groups), rng.integers(0, n_groups, 2000)]
    x, effects = rng.standard_normal((len(group), 1)), 1.5 * rng.standard_normal(n_groups)
    t = np.where(rng.logistic(size=len(group)) < 2.0 * x[:, 0] + effects[group] - 0.5, 1.0, -1.0)
    raw = LabelledRows(LinearFeatures(1), x, t[:, None], np.ones(len(group)), np.zeros(1))
    text = Text([f"g{k}" for k in range(n_groups)], group)
    [(found, others, often)] = effects_on_latents(raw, {2: text}, np.arange(len(group)))
    mean, variance = found.moments[:n_groups].T
    assert found.categories == tuple(text.values) and found.moments.shape == (n_groups + 1, 2)
    error = mean - mean.mean() - effects + effects.mean()
    assert np.corrcoef(mean, effects)[0, 1] > 0.95 and 0.5 < np.mean(error**2 / variance) < 2
    assert found.moments[-1, 0] == 0 and 1.0 < found.moments[-1, 1] < 4.5
    assert others.shape == (len(group), 2) and (others[:, 1] > variance[group]).all()
    assert often == set(np.array(text.values)[np.bincount(group) >= 50])


def test_effects_at_rows_of_small_groups_are_of_the_other_labels_alone():
    rng, n, ratio, noise, unit = np.random.default_rng(4), 12, 0.4, 5.0, 4.0
    group, same, weight = np.r_[np.repeat(range(4), 3)[:-1], 4], np.r_[:n], rng.uniform(1, 2, n)
    same[1] = 0  # a repeated row, which is left out with the first
    fits = [SimpleNamespace(noise=noise, effects=SimpleNamespace(ratio=np.array([ratio])))]
    labels, f = rng.choice([-1.0, 1.0], (n, 1)), rng.standard_normal((n, 1))
    raw = LabelledRows(LinearFeatures(1), np.zeros((n, 1)), labels, weight, f)
    found = np.column_stack([rng.standard_normal(n), np.ones(n)])
    forget_own(raw, fits, unit, group, same, found)
    for i in range(n):
        flipped, again = labels.copy(), np.column_stack([rng.standard_normal(n), np.ones(n)])
        flipped[same == same[i]] *= -1
        forget_own(replace(raw, t=flipped), fits, unit, group, same, again)
        np.testing.assert_allclose(again[i], found[i], rtol=5e-3, atol=5e-3)
        rows = (group == group[i]) & (same != same[i])
        terms = raw.model.terms(labels[rows], f[rows] + found[i, 0], np.full(rows.sum(), found[i, 1]))
        assert unit * weight[rows] @ terms.residual[:, 0] == pytest.approx(ratio * found[i, 0], abs=0.01)
        assert noise / (unit * weight[rows] @ terms.precision + ratio) == pytest.approx(found[i, 1], rel=0.01)


def test_left_out_labels_are_as_likely_as_new_ones():
    """Groups of two rows: what is left out of effects, and their variances, are those of new rows."""
    rng, n, n_shops = np.random.default_rng(0), 2500, 250
    shop, odds = rng.integers(0, n_shops, n), 3.0 * rng.standard_normal(n_shops)
    frame = pd.DataFrame({"a": rng.standard_normal(n), "shop": [f"shop {k}" for k in shop]})
    labels = (rng.logistic(size=n) < odds[shop] + frame["a"]).to_numpy().astype(int)
    model = DirectClassifier(**SMALL).fit(frame[:500], labels[:500])
    assert model.columns_.effects
    loss = -np.log(model.predict_proba(frame[500:])[np.arange(n - 500), labels[500:]]).mean()
    assert -np.log(model.left_out_probability_).mean() == pytest.approx(loss, abs=0.06)


def test_effects_tell_of_labels_in_known_and_new_categories(classifier, tmp_path):
    plain = DirectClassifier(**SMALL, columns=Columns(effects=False)).fit(frame_of(TRAIN), LABELS[TRAIN])
    assert classifier.columns_.effects and not plain.columns_.effects
    assert log_loss(classifier, LABELS[TEST]) < log_loss(plain, LABELS[TEST])
    known, new = (classifier.predict_logit(frame_of(TEST, names), return_std=True) for names in ("shop {}", "new {}"))
    assert new[0].std() < known[0].std() and (new[1] > known[1]).all()
    assert "Effects of categories: shop (80)." in str(classifier.summary())
    with pytest.raises(ValueError, match="effects of categories"):
        classifier.quantizable()
    classifier.save(tmp_path / "model.npz")
    again = pydirect.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_proba(frame_of(TEST)), classifier.predict_proba(frame_of(TEST)))


def test_categories_written_otherwise_are_told_of_effects_too(classifier):
    with pytest.warns(TableWarning, match="column 'shop' holds 'SHOP 3' where the fit had 'shop 3'"):
        classifier.predict(frame_of(TRAIN[3:4], "SHOP {}"))


def test_pools_have_effects_in_their_kernel_model(classifier):
    pool = PooledClassifier(**SMALL, trees=False).fit(frame_of(TRAIN), LABELS[TRAIN])
    np.testing.assert_array_equal(pool.predict_proba(frame_of(TEST)), classifier.predict_proba(frame_of(TEST)))
    trees = PooledClassifier(**SMALL).fit(frame_of(TRAIN), LABELS[TRAIN])
    assert trees.columns_.effects and log_loss(trees, LABELS[TEST]) < log_loss(pool, LABELS[TEST]) + 0.05


def test_several_classes_have_effects_of_their_own_whatever_their_names():
    odds = EFFECTS[SHOP] + X[:, :1] * [1.0, -1.0, 0.0] + [-2.0, 2.0, 0.0]  # classes by frequency: 1, 2, 0
    labels = np.argmax(odds + RNG.gumbel(size=odds.shape), axis=1)
    model = DirectClassifier(**SMALL).fit(frame_of(TRAIN), labels[TRAIN])
    [own] = model.columns_.effects
    assert own.moments.shape == (N_SHOPS + 1, 4)
    known = EFFECTS - EFFECTS.mean(axis=1, keepdims=True)
    shops = [int(name.split()[1]) for name in own.categories]
    for k in range(3):
        assert np.corrcoef(own.moments[:-1, k], known[shops, k])[0, 1] > 0.6
    names = np.array(["z", "a", "m"])
    renamed = DirectClassifier(**SMALL).fit(frame_of(TRAIN), names[labels[TRAIN]])
    p, q = model.predict_proba(frame_of(TEST)), renamed.predict_proba(frame_of(TEST))
    np.testing.assert_allclose(q[:, np.searchsorted(renamed.classes_, names)], p, rtol=1e-6)
    draws = model.sample_proba(frame_of(TEST[:50]), 400, random_state=0)
    unsharpened = p[:50] ** (1 / model.sharpness_)
    np.testing.assert_allclose(draws.mean(axis=2), unsharpened / unsharpened.sum(axis=1, keepdims=True), atol=0.1)


def test_draws_of_discrete_weights_have_effects(classifier):
    model = DirectClassifier(**SMALL, posterior="sequential").fit(frame_of(TRAIN), LABELS[TRAIN])
    assert model.columns_.effects
    p, q = (own.predict_proba(frame_of(TEST))[:, 1] for own in (model, classifier))
    np.testing.assert_allclose(p, q, atol=0.1)
    draws = model.sample_proba(frame_of(TEST), 64, random_state=0)[:, 1]
    assert abs(draws.mean(axis=1) - p).mean() < 0.05


@pytest.mark.parametrize(
    ("estimator", "place", "stage", "call"),
    [
        (DirectClassifier, left_out, "best_amplitude", 1),
        (DirectClassifier, effects, "effects_on_latents", 1),
        (DirectClassifier, left_out, "fit_basis", 3),
        (DirectCountRegressor, direct_latent, "fit_basis", 3),
    ],
)
def test_interruption_leaves_the_fit_without_effects(monkeypatch, estimator, place, stage, call):
    """Ctrl-C ends what follows of the fit, and the whole model before effects is left, flagged."""
    calls, first = [], getattr(place, stage)

    def interrupted(*args, **more):
        calls.append(stage)
        if len(calls) == call:
            raise KeyboardInterrupt
        return first(*args, **more)

    monkeypatch.setattr(place, stage, interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = estimator(**SMALL).fit(frame_of(TRAIN), LABELS[TRAIN])
    assert model.interrupted_ and not model.converged_ and not model.columns_.effects and len(calls) == call
    assert np.isfinite(model.predict(frame_of(TEST))).all()


def test_class_weights_move_odds_beside_effects(classifier):
    moved = DirectClassifier(**SMALL, class_weight={0: 1.0, 1: 3.0}).fit(frame_of(TRAIN), LABELS[TRAIN])
    gain = moved.decision_function(frame_of(TEST)) - classifier.decision_function(frame_of(TEST))
    np.testing.assert_allclose(gain, np.log(3.0), rtol=1e-6)


def test_effects_tell_of_counts():
    rng = np.random.default_rng(1)
    counts = rng.poisson(np.exp(0.5 * EFFECTS[SHOP, 0] + 0.5 * X[:, 0]))
    fits = [DirectCountRegressor(**SMALL, columns=Columns(effects=some)) for some in (True, False)]
    model, plain = (own.fit(frame_of(TRAIN), counts[TRAIN], exposure=2.0) for own in fits)
    assert model.columns_.effects and not plain.columns_.effects
    scores = [own.log_predictive_probability(frame_of(TEST), counts[TEST], exposure=2.0).mean() for own in fits]
    assert scores[0] > scores[1]


def test_the_first_fit_stays_where_effects_have_no_bounds():
    def fails():
        raise np.linalg.LinAlgError

    assert better_fit("first", [], fails, len) == "first" and better_fit("first", [], lambda: "b", len) == "b"


def test_no_effects_are_tried_where_labels_do_not_differ_between_categories():
    model = DirectClassifier(**SMALL)
    labels = np.random.default_rng(8).permutation(LABELS[TRAIN])
    assert not model.fit(frame_of(TRAIN), labels).columns_.effects
