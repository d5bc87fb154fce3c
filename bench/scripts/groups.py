"""`DirectMixedRegressor` beside statsmodels' MixedLM, and as an encoding of categories beside boosted trees.

python bench/scripts/groups.py seconds       # 10^3 to 10^5 groups of 10 rows, 200 basis functions
python bench/scripts/groups.py sleepstudy    # variances and effects of a small table, of both
python bench/scripts/groups.py crossed       # seconds and variances of two factors, of both
python bench/scripts/groups.py categories    # 5000 levels in 20,000 rows
python bench/scripts/groups.py labels        # log losses and seconds with labels that depend on many categories
"""

from __future__ import annotations

import argparse
import importlib.util
import time

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, TargetEncoder

from pydirect import Columns, DirectClassifier, DirectMixedRegressor, DirectRegressor
from pydirect.linear import GroupSums, fit_random_effects
from pydirect.linear.fit import InitialHyperparameters
from pydirect.statistics.gaussian import IdentityFeatures


def mixed_lm(y, x, group):
    """Return statsmodels' fit of a random intercept, and its processor seconds."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    begin = time.process_time()
    return MixedLM(y, np.column_stack([np.ones(len(y)), x]), groups=group).fit(reml=True), time.process_time() - begin


def seconds() -> None:
    rng = np.random.default_rng(0)
    for n_groups in (1_000, 10_000, 100_000):
        n = 10 * n_groups
        phi, group = rng.standard_normal((n, 200)), np.repeat(np.arange(n_groups), 10)
        y = phi[:, 0] + rng.standard_normal(n_groups)[group] + rng.standard_normal(n)
        begin = time.process_time()
        sums = GroupSums.collect(IdentityFeatures(200), phi, y, np.ones((n, 1)), group, n_groups)
        middle = time.process_time()
        _, _, effects, _ = fit_random_effects(sums, InitialHyperparameters(0.1))
        end = time.process_time()
        print(f"{n_groups} groups: sums {middle - begin:.2f} s, fit {end - middle:.2f} s, σ²/t {effects.ratio[0]:.3f}")
        if n_groups <= 1_000 and importlib.util.find_spec("statsmodels"):
            found, spent = mixed_lm(y, phi, group)
            print(f"   MixedLM {spent:.2f} s, σ²/t {found.scale / found.cov_re[0, 0]:.3f}")


def sleepstudy() -> None:
    rng = np.random.default_rng(1)
    group, days = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    y = 250 + 10.5 * days + 37 * rng.standard_normal(18)[group] + 31 * rng.standard_normal(180)
    model = DirectMixedRegressor("linear").fit(days[:, None], y, group)
    slope = np.diff(model.predict([[0.0], [1.0]], "marginal"))[0]
    found, _ = mixed_lm(y, days[:, None], group)
    print(f"variances {model.group_variance_[0]:.1f}, {model.noise_variance_:.1f}, slope {slope:.3f}")
    print(f"MixedLM   {found.cov_re[0, 0]:.1f}, {found.scale:.1f}, slope {found.params[1]:.3f}")
    effects = np.array([np.asarray(found.random_effects[k])[0] for k in range(18)])
    print(f"largest difference of effects {np.abs(model.random_effects_['mean'][:, 0] - effects).max():.3f}")


def crossed() -> None:
    for n, sizes in ((1_000, (50, 20)), (4_000, (200, 100)), (20_000, (1_000, 200)), (20_000, (5_000, 2_000))):
        rng = np.random.default_rng(3)
        x, groups = rng.standard_normal((n, 3)), np.column_stack([rng.integers(0, size, n) for size in sizes])
        y = x[:, 0] + rng.standard_normal(n)
        for deviation, size, group in zip((1.0, 0.5), sizes, groups.T, strict=True):
            y += deviation * rng.standard_normal(size)[group]
        for features in ("linear", "auto"):
            begin = time.process_time()
            model = DirectMixedRegressor(features).fit(x, y, groups)
            spent, variances = time.process_time() - begin, (*model.group_variance_, model.noise_variance_)
            print(f"{n} rows, {sizes} groups, {features}: {spent:.2f} s, variances", *np.round(variances, 3))
        if n <= 4_000 and importlib.util.find_spec("statsmodels"):
            from statsmodels.regression.mixed_linear_model import MixedLM

            table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y, first=groups[:, 0], second=groups[:, 1])
            begin, one = time.process_time(), np.ones(n)
            vc = {"first": "0 + C(first)", "second": "0 + C(second)"}
            found = MixedLM.from_formula("y ~ a + b + c", table, groups=one, re_formula="0", vc_formula=vc).fit()
            variances = *found.vcomp, found.scale
            print(f"   MixedLM {time.process_time() - begin:.2f} s, variances", *np.round(variances, 3))


def categories() -> None:
    rng = np.random.default_rng(2)
    n, n_levels = 20_000, 5_000
    level, x = rng.integers(0, n_levels, n), rng.uniform(-2, 2, (n, 3))
    truth = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + rng.standard_normal(n_levels)[level]
    y, train, test = truth + 0.5 * rng.standard_normal(n), slice(0, 16_000), slice(16_000, None)

    def report(name: str, predicted, begin: float) -> None:
        error = np.sqrt(np.mean((predicted - truth[test]) ** 2))
        print(f"{name:32} RMSE of the truth {error:.3f}, {time.process_time() - begin:.1f} s")

    begin = time.process_time()
    model = DirectMixedRegressor().fit(x[train], y[train], level[train])
    report("DirectMixedRegressor", model.predict(x[test], level[test]), begin)
    lower, upper = model.predict_interval(x[test], level[test])
    print(f"   90 % intervals hold {np.mean((lower < y[test]) & (y[test] < upper)):.3f}")
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(level=np.char.add("level ", level.astype(str)))
    for name, pools in (("DirectRegressor", False), ("DirectRegressor, rare levels pooled", True)):
        begin = time.process_time()
        model = DirectRegressor()
        rows = Columns() if pools else FunctionTransformer()
        model.fit(rows.fit_transform(table[train]), y[train])
        report(name, model.predict(rows.transform(table[test])), begin)
        lower, upper = model.predict_interval(rows.transform(table[test]))
        print(f"   90 % intervals hold {np.mean((lower < y[test]) & (y[test] < upper)):.3f}")
    begin = time.process_time()
    encoder = OneHotEncoder(handle_unknown="ignore").fit(level[:, None])
    squares = [np.column_stack([x, x**2, np.sin(2 * x)])]
    from scipy.sparse import csr_matrix, hstack

    wide = hstack([csr_matrix(squares[0]), encoder.transform(level[:, None])]).tocsr()
    ridge = RidgeCV(np.logspace(-2, 2, 5)).fit(wide[:16_000], y[train])
    report("ridge on one column per level", ridge.predict(wide[16_000:]), begin)
    begin = time.process_time()
    target = TargetEncoder(target_type="continuous", random_state=0)
    coded = target.fit_transform(level[train, None], y[train])
    model = DirectRegressor(n_basis_functions=300).fit(np.hstack([x[train], coded]), y[train])
    report(
        "DirectRegressor, target encoding",
        model.predict(np.hstack([x[test], target.transform(level[test, None])])),
        begin,
    )
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        begin = time.process_time()
        both = np.column_stack([x, level])
        trees = LGBMRegressor(n_estimators=400, learning_rate=0.05, verbose=-1, n_jobs=1)
        trees.fit(both[train], y[train], categorical_feature=[3])
        report("LightGBM", trees.predict(both[test]), begin)
    if importlib.util.find_spec("catboost"):
        from catboost import CatBoostRegressor, Pool

        begin = time.process_time()
        rows = [[*row, str(k)] for row, k in zip(x.tolist(), level.tolist(), strict=True)]
        trees = CatBoostRegressor(verbose=False, thread_count=1, allow_writing_files=False)
        trees.fit(Pool(rows[train], y[train], cat_features=[3]))
        report("CatBoost", trees.predict(Pool(rows[test], cat_features=[3])), begin)


def labels() -> None:
    for n_shops, n, n_classes, sd in (
        (60, 600, 2, 1.0),
        (400, 3000, 2, 1.5),
        (3000, 6000, 2, 1.5),
        (200, 2000, 4, 1.0),
    ):
        rng = np.random.default_rng(n_shops)
        effects, share = sd * rng.standard_normal((n_shops, n_classes)), rng.dirichlet(np.ones(n_shops))

        def rows_of(n: int, rng=rng, effects=effects, share=share):
            shop, x = rng.choice(len(share), n, p=share), rng.standard_normal((n, 4))
            odds = effects[shop]
            odds[:, 0] += np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
            p = np.exp(odds - odds.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
            return pd.DataFrame(x, columns=list("abcd")).assign(shop=[f"shop {k}" for k in shop]), y, p

        (frame, y, _), (new, y_new, p_new) = rows_of(n), rows_of(4000)
        print(f"{n_shops} categories, {n} rows, {n_classes} classes: log loss of the truth {loss(p_new, y_new):.4f}")
        for name, columns in (("effects", Columns()), ("0 and 1", Columns(effects=False))):
            begin = time.process_time()
            model = DirectClassifier(columns=columns).fit(frame, y)
            spent = time.process_time() - begin
            kept = "" if model.columns_.effects or not columns.effects else ", not chosen"
            print(f"   {name:9} {loss(model.predict_proba(new), y_new):.4f} {spent:5.1f} s{kept}")
        if importlib.util.find_spec("catboost"):
            from catboost import CatBoostClassifier

            begin = time.process_time()
            model = CatBoostClassifier(verbose=0, cat_features=["shop"], thread_count=1).fit(frame, y)
            spent = time.process_time() - begin
            print(f"   CatBoost  {loss(model.predict_proba(new), y_new):.4f} {spent:5.1f} s")


def loss(p, y) -> float:
    return -float(np.log(np.maximum(p[np.arange(len(y)), y], 1e-15)).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (seconds, sleepstudy, crossed, categories, labels)}
    parser.add_argument("parts", nargs="+", choices=parts)
    for part in parser.parse_args().parts:
        parts[part]()
