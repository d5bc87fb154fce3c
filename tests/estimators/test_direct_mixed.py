"""`DirectMixedRegressor`: what it finds of groups, predicts for known and new ones, and refuses."""

import numpy as np
import pandas as pd
import pytest

from pydirect import DirectMixedRegressor, load
from pydirect.fitted.predictor import factor_of_few_rows

RNG = np.random.default_rng(0)
X, GROUP = RNG.uniform(-2, 2, (600, 2)), RNG.integers(0, 60, 600)
INTERCEPT, SLOPE = RNG.normal(size=160), 0.5 * RNG.normal(size=160)
SMALL = {"n_basis_functions": 60}


def targets(x, group, rng):
    f = np.sin(2 * x[:, 0]) + INTERCEPT[group] + SLOPE[group] * x[:, 1]
    return 5 + 3 * (f + 0.3 * rng.standard_normal(len(x)))


Y = targets(X, GROUP, RNG)


@pytest.fixture(scope="module")
def model():
    return DirectMixedRegressor(slopes=[1], **SMALL).fit(X, Y, GROUP)


def test_variances_and_effects_are_found(model):
    expected = [9 * INTERCEPT[:60].var(), 9 * SLOPE[:60].var()]
    np.testing.assert_allclose(model.group_variance_, expected, rtol=0.35)
    assert model.noise_variance_ == pytest.approx(0.81, rel=0.2)
    assert model.intraclass_correlation_ == pytest.approx(expected[0] / (expected[0] + 0.81), rel=0.1)
    effects = model.random_effects_
    assert effects["group"].tolist() == list(range(60))
    error = (effects["mean"][:, 0] - 3 * INTERCEPT[:60]) / effects["std"][:, 0]
    assert np.sqrt(np.mean(error**2)) < 1.3
    assert "Random effects of 60 groups" in model.summary()


def test_intervals_hold_for_known_and_new_groups(model):
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (4000, 2))
    for group in (rng.integers(0, 60, 4000), rng.integers(60, 160, 4000)):
        y = targets(x, group, rng)
        lower, upper = model.predict_interval(x, group)
        assert 0.84 < np.mean((lower < y) & (y < upper)) < 0.96
    mean, std = model.predict(x, group, return_std=True)
    np.testing.assert_array_equal(model.predict(x, "marginal", return_std=True), (mean, std))
    assert model.score(X, Y, GROUP) > 0.9


def test_names_of_groups_and_columns(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    names = np.array([f"shop {k}" for k in range(60)], dtype=object)[GROUP]
    named = DirectMixedRegressor("linear", slopes=["b"]).fit(frame, Y, names)
    plain = DirectMixedRegressor("linear", slopes=[1]).fit(X, Y, np.argsort(np.argsort(np.unique(names)))[GROUP])
    assert named.group_variance_ == pytest.approx(plain.group_variance_, rel=1e-6)
    named.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(frame, names), named.predict(frame, names))
    assert again.random_effects_["group"].tolist() == named.random_effects_["group"].tolist()
    with pytest.raises(TypeError, match="groups must be text, as in fit"):
        named.predict(frame, GROUP)


def test_nonlinear_functions_of_columns_that_are_constant_within_groups_are_found():
    rng = np.random.default_rng(2)
    group, x = np.repeat(np.arange(150), 8), rng.uniform(-2, 2, (1200, 2))
    x[:, 0] = rng.uniform(-2, 2, 150)[group]

    def f(x):
        return np.sin(3 * x[:, 0]) + np.sin(2 * x[:, 1])

    y = f(x) + 0.2 * rng.standard_normal(150)[group] + 0.3 * rng.standard_normal(1200)
    model = DirectMixedRegressor(**SMALL).fit(x, y, group)
    new = rng.uniform(-2, 2, (300, 2))
    assert 0.02 < model.group_variance_[0] < 0.08
    assert np.sqrt(np.mean((model.predict(new, "marginal") - f(new)) ** 2)) < 0.25


@pytest.mark.parametrize(("unit", "shift"), [(1e5, 0.0), (1e-5, 0.0), (1.0, 2000.0)])
def test_units_and_origins_of_slopes_do_not_matter(unit, shift):
    plain = DirectMixedRegressor("linear", slopes=1).fit(X, Y, GROUP)
    other = np.column_stack([X[:, 0], unit * X[:, 1] + shift])
    model = DirectMixedRegressor("linear", slopes=[np.int64(1)]).fit(other, Y, GROUP)
    np.testing.assert_allclose(model.group_variance_ * [1, unit**2], plain.group_variance_, rtol=0.01)
    for name in ("mean", "std"):
        found, expected = model.random_effects_[name] * [1, unit], plain.random_effects_[name]
        np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.01)
    for groups in (GROUP, "marginal"):
        np.testing.assert_allclose(
            model.predict(other, groups, return_std=True),
            plain.predict(X, groups, return_std=True),
            rtol=0.01,
            atol=0.01,
        )


def test_groups_of_objects_are_numbers():
    linear = DirectMixedRegressor(features="linear")
    expected = linear.fit(X, Y, GROUP).predict(X[:5], GROUP[:5])
    for groups in (GROUP.astype(object), pd.Series(GROUP, dtype="Int64")):
        np.testing.assert_array_equal(linear.fit(X, Y, groups).predict(X[:5], groups[:5]), expected)
    with pytest.raises(TypeError, match="numbers, or text in every row"):
        linear.fit(X, Y, np.array([1, "a"] * 300, dtype=object))


def test_intervals_of_few_rows_are_wider():
    few = DirectMixedRegressor().fit(X[:6], Y[:6], GROUP[:6] % 2)
    plain = few.model_.predict(X[:3], np.zeros(3, dtype=np.intp))[1]
    np.testing.assert_allclose(few.predict(X[:3], [0] * 3, return_std=True)[1], factor_of_few_rows(6) * plain)


def test_effects_left_out_are_those_of_the_other_rows():
    rng = np.random.default_rng(2)
    model = DirectMixedRegressor("linear").fit(X[:20], Y[:20], GROUP[:20] % 3).model_
    y, weight, group, same = rng.normal(size=20), rng.uniform(1, 2, 20), np.arange(20) % 3, np.r_[:19, 16]
    groups, rows = model.effects_left_out(y, weight, group, same)

    def moments(used):
        precision = weight[used].sum() / model.noise + model.effects.ratio[0] / model.noise
        return weight[used] @ y[used] / model.noise / precision, 1 / precision

    np.testing.assert_allclose(groups, [moments(group == k) for k in range(4)], rtol=1e-10)
    np.testing.assert_allclose(rows, [moments((group == g) & (same != s)) for g, s in zip(group, same, strict=True)])


def test_what_cannot_be_groups_is_refused():
    model = DirectMixedRegressor("linear").fit(X, Y, GROUP)
    with pytest.raises(TypeError, match="groups"):
        model.predict(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.predict(X, GROUP[:-1])
    row = int((GROUP == 0).argmax())
    for groups in (np.where(GROUP > 0, GROUP, np.nan), np.where(GROUP > 0, "shop", None)):
        with pytest.raises(ValueError, match=f"groups must have no missing values, got (nan|None) in row {row}:"):
            model.fit(X, Y, groups)
    with pytest.raises(ValueError, match="a label for every row"):
        model.fit(X, Y, X)
    for groups in ("marginal", None):
        with pytest.raises(TypeError, match=r"fit needs groups, .* of shape \(n_rows,\), got "):
            model.fit(X, Y, groups)
    for slopes, named in (("c", "'c'"), ([0, 0], "0"), ([0, np.int64(0)], "0"), (2, "2"), (-1, "-1"), (0.0, "0.0")):
        with pytest.raises(ValueError, match=f"slopes must be different columns of numbers of X, got .*{named}"):
            DirectMixedRegressor("linear", slopes=slopes).fit(X, Y, GROUP)
