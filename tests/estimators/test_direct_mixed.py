"""`DirectMixedRegressor`: what it finds of groups, predicts for known and new ones, and refuses."""

import numpy as np
import pandas as pd
import pytest

from pydirect import DirectMixedRegressor, load
from pydirect.estimators import direct_mixed
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
    with pytest.raises(TypeError, match="groups must be text in column 0, as in fit, got numbers"):
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
    with pytest.raises(TypeError, match="numbers, or text in every row, got int and str"):
        linear.fit(X, Y, np.array([1, "a"] * 300, dtype=object))


def test_intervals_of_few_rows_are_wider():
    few = DirectMixedRegressor().fit(X[:6], Y[:6], GROUP[:6] % 2)
    plain = few.model_.predict(X[:3], np.zeros(3, dtype=np.intp))[1]
    np.testing.assert_allclose(few.predict(X[:3], [0] * 3, return_std=True)[1], factor_of_few_rows(6) * plain)


SHOP, DAY = GROUP, RNG.integers(0, 12, 600)
Z = Y + 2 * RNG.normal(size=12)[DAY]


@pytest.fixture(scope="module")
def crossed():
    return DirectMixedRegressor("linear", slopes=[1]).fit(X, Z, [SHOP, DAY])


def test_effects_of_several_factors_are_those_of_the_dense_system(crossed, tmp_path):
    shop, slope, day, noise = [*crossed.group_variance_, crossed.noise_variance_]
    means = X.mean(axis=0)
    t = float(crossed.model_.latent.prior_scale[0]) ** 2 * crossed.model_.scale**2

    def covariances(x, group, x2, group2):
        phi, phi2 = (crossed.model_.latent.phi(own)[1] for own in (x, x2))
        same = group[:, None] == group2[None]
        slopes = np.outer(x[:, 1] - means[1], x2[:, 1] - means[1])
        return t * phi @ phi2.T + same[..., 0] * (shop + slope * slopes) + day * same[..., 1]

    group, x, rows = np.column_stack([SHOP, DAY]), crossed.encode_rows(X), crossed.encode_rows(X[:4])
    new = np.array([[0, 1], [99, 1], [3, 99], [99, 99]])
    precision, one = np.linalg.inv(covariances(x, group, x, group) + noise * np.eye(600)), np.ones(600)
    mass, cross = one @ precision @ one, covariances(rows, new, x, group)
    beta = one @ precision @ Z / mass
    gain = 1 - cross @ precision @ one
    variance = np.diag(covariances(rows, new, rows, new) - cross @ precision @ cross.T) + gain**2 / mass + noise
    mean, std = crossed.predict(X[:4], new, return_std=True)
    np.testing.assert_allclose(mean, beta + cross @ precision @ (Z - beta), rtol=1e-8)
    np.testing.assert_allclose(std**2, variance, rtol=1e-8)
    np.testing.assert_array_equal(crossed.predict(X[:4], np.full((4, 2), 99)), crossed.predict(X[:4], "marginal"))

    effects = crossed.random_effects_[1]
    member = (DAY == np.arange(12)[:, None]) * day
    np.testing.assert_allclose(effects["mean"][:, 0], member @ precision @ (Z - beta), rtol=1e-8)
    left = day - np.einsum("ij,jk,ik->i", member, precision, member) + (member @ precision @ one) ** 2 / mass
    np.testing.assert_allclose(effects["std"][:, 0] ** 2, left, rtol=1e-8)
    assert crossed.random_effects_[0]["mean"].shape == (60, 2)
    np.testing.assert_allclose(crossed.intraclass_correlation_, np.array([shop, day]) / (shop + day + noise))
    assert "Random effects of 60 and 12 groups: deviations" in crossed.summary()
    crossed.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X[:4], new, return_std=True), (mean, std))


def test_factors_are_found_by_their_names():
    frame = pd.DataFrame({"day": DAY.astype(float), "shop": [f"shop {k}" for k in SHOP]})
    model = DirectMixedRegressor("linear").fit(X, Z, frame)
    assert list(model.random_effects_) == ["shop", "day"]  # with most groups first
    assert model.random_effects_["day"]["group"].tolist() == list(range(12))
    expected = model.predict(X, frame)
    np.testing.assert_array_equal(model.predict(X, frame[["shop", "day"]]), expected)
    other = DirectMixedRegressor("linear").fit(X, Z, frame.to_numpy())  # of objects
    np.testing.assert_allclose(other.predict(X, [DAY, frame["shop"]]), expected, rtol=1e-6)
    assert list(other.random_effects_) == [1, 0]
    alone = DirectMixedRegressor("linear").fit(X, Z, frame["shop"])
    np.testing.assert_array_equal(alone.predict(X, frame[["shop"]]), alone.predict(X, frame["shop"].to_numpy()))
    for groups in (frame.rename(columns={"day": "date"}), frame["shop"], frame.to_numpy()):
        with pytest.raises(ValueError, match=r"groups must be of the factors \['shop', 'day'\], as in fit, got \["):
            model.predict(X, groups)
    with pytest.raises(ValueError, match="groups must have no missing values, got nan in row 3:"):
        model.fit(X, Z, frame.assign(day=np.where(np.arange(600) == 3, np.nan, DAY)))


def test_factors_that_add_nothing_change_little():
    alone = DirectMixedRegressor("linear").fit(X, Z, SHOP)
    for other in (SHOP, np.zeros(600), SHOP // 60):
        model = DirectMixedRegressor("linear").fit(X, Z, np.column_stack([SHOP, other]))
        assert model.group_variance_.sum() == pytest.approx(alone.group_variance_[0], rel=0.02)
        both = np.column_stack([SHOP, other])[:50]
        np.testing.assert_allclose(
            model.predict(X[:50], both, return_std=True), alone.predict(X[:50], SHOP[:50], return_std=True), rtol=0.01
        )


def test_factors_of_too_many_groups_are_refused(monkeypatch):
    monkeypatch.setattr(direct_mixed, "MOST_LEVELS", 20)
    DirectMixedRegressor("linear").fit(X, Z, [DAY, SHOP])
    with pytest.raises(ValueError, match="at most 20 in all factors but 0, the largest, got 60"):
        DirectMixedRegressor("linear").fit(X, Z, [SHOP, SHOP])
    with pytest.raises(ValueError, match="at most 20 in all factors but 0, which has slopes, got 60"):
        DirectMixedRegressor("linear", slopes=1).fit(X, Z, [DAY, SHOP])


def test_variances_of_crossed_factors_are_those_of_statsmodels():
    models = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    frame = pd.DataFrame({"y": Z[:300], "x": X[:300, 0], "shop": SHOP[:300] // 5, "day": DAY[:300]})
    vc = {"shop": "0 + C(shop)", "day": "0 + C(day)"}
    one = np.ones(300)
    found = models.MixedLM.from_formula("y ~ x", frame, groups=one, re_formula="0", vc_formula=vc).fit(reml=True)
    model = DirectMixedRegressor("linear").fit(frame[["x"]], frame["y"], frame[["shop", "day"]])
    expected = dict(zip(found.model.exog_vc.names, found.vcomp, strict=True))
    np.testing.assert_allclose(model.group_variance_, [expected[name] for name in model.random_effects_], rtol=0.02)
    assert model.noise_variance_ == pytest.approx(found.scale, rel=0.02)


def test_what_cannot_be_groups_is_refused():
    model = DirectMixedRegressor("linear").fit(X, Y, GROUP)
    with pytest.raises(TypeError, match="groups"):
        model.predict(X)
    with pytest.raises(ValueError, match="groups must have 600 labels in each column, one for every row of X, got 599"):
        model.predict(X, GROUP[:-1])
    for rows in (np.column_stack([GROUP, GROUP]).tolist(), np.stack([GROUP, GROUP])):
        with pytest.raises(ValueError, match="got 2 in one of 600 columns"):
            model.fit(X, Y, rows)
    with pytest.raises(ValueError, match=r"columns of different names, got \['a', 'a'\]"):
        model.fit(X, Y, pd.DataFrame(np.column_stack([GROUP, GROUP]), columns=["a", "a"]))
    with pytest.raises(ValueError, match="a label for every row, got 'Marginal'"):
        model.predict(X, "Marginal")
    row = int((GROUP == 0).argmax())
    for groups in (np.where(GROUP > 0, GROUP, np.nan), np.where(GROUP > 0, "shop", None)):
        with pytest.raises(ValueError, match=f"groups must have no missing values, got (nan|None) in row {row}:"):
            model.fit(X, Y, groups)
    with pytest.raises(ValueError, match="a label for every row"):
        model.fit(X, Y, X[:, :, None])
    for groups in ("marginal", None, X[:, :0]):
        with pytest.raises(TypeError, match=r"fit needs groups, labels of shape \(n_rows,\) or .* got "):
            model.fit(X, Y, groups)
    for slopes, named in (("c", "'c'"), ([0, 0], "0"), ([0, np.int64(0)], "0"), (2, "2"), (-1, "-1"), (0.0, "0.0")):
        with pytest.raises(ValueError, match=f"slopes must be different columns of numbers of X, got .*{named}"):
            DirectMixedRegressor("linear", slopes=slopes).fit(X, Y, GROUP)
