"""Censored, survival, rounded and ordinal targets: coverage and scores beside lifelines, scikit-survival, statsmodels.

python bench/scripts/likelihoods.py survival    # simulated, 10 to 70 % censored, beside Cox models
python bench/scripts/likelihoods.py tables      # public tables of scikit-survival, five-fold cross-validation
python bench/scripts/likelihoods.py rounded     # log scores of rounded targets
python bench/scripts/likelihoods.py ordinal     # five levels in 1000 rows, beside softmax and OrderedModel
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy import stats
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold

from pydirect import (
    DirectCensoredRegressor,
    DirectClassifier,
    DirectOrdinalClassifier,
    DirectRegressor,
    DirectSurvivalRegressor,
)
from pydirect.metrics import concordance_index, integrated_brier_score

COEFFICIENTS = np.array([0.8, -0.5, 0.3, 0.0])


def structured(time, event):
    return np.array(list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)])


def survival() -> None:
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    for name, noise in (("normal", stats.norm), ("extreme", stats.gumbel_l)):
        for share in (0.1, 0.4, 0.7):
            found = []
            for seed in range(5):
                rng = np.random.default_rng(seed)
                x, new = rng.standard_normal((2, 500, 4))
                log_time = 1 + x @ COEFFICIENTS + 0.6 * noise.rvs(size=500, random_state=rng)
                end = rng.standard_normal(500)
                end += np.quantile(log_time - end, 1 - share)
                time, event = np.exp(np.minimum(log_time, end)), log_time <= end
                model = DirectSurvivalRegressor(likelihood=name).fit(x, time, event=event)
                mean, std = model.predict_latent(new)
                f = 1 + new @ COEFFICIENTS
                linear = DirectSurvivalRegressor("linear", likelihood=name).fit(x, time, event=event)
                at, spread = linear.predict_latent(np.vstack([np.zeros(4), np.eye(4)]))
                deviation = (np.diff(at[[0, 1]])[0] - COEFFICIENTS[0]) / spread[1]
                cox = CoxPHSurvivalAnalysis().fit(x, structured(time, event))
                fresh = f + 0.6 * noise.rvs(size=500, random_state=rng)
                own, other = (concordance_index(fresh, np.ones(500, bool), p) for p in (mean, -cox.predict(new)))
                found.append([np.mean(np.abs(mean - f) < 1.645 * std), own, other, deviation, model.likelihood_.scale])
            held, own, other, deviation, scale = np.mean(found, axis=0)
            print(
                f"{name}, {share:.0%} censored: 90 % intervals of f {held:.3f}, concordance {own:.3f} (Cox {other:.3f})"
                f", first coefficient {deviation:+.2f} deviations off, σ {scale:.3f} (0.6)"
            )


def tables() -> None:
    import pandas as pd
    from sksurv import datasets
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    for name in ("veterans_lung_cancer", "gbsg2", "whas500"):
        frame, y = getattr(datasets, f"load_{name}")()
        x = pd.get_dummies(frame, dtype=float).to_numpy(dtype=float)
        event, time = (np.asarray(y[field]) for field in y.dtype.names)
        time = np.maximum(time.astype(float), 0.5)
        scores: dict[str, list[list[float]]] = {}
        for train, test in KFold(5, shuffle=True, random_state=0).split(x):
            at, known = np.quantile(time[test][event[test]], np.linspace(0.1, 0.8, 15)), structured(time, event)
            for own in ("normal", "extreme"):
                model = DirectSurvivalRegressor(likelihood=own, n_basis_functions=100).fit(x[train], known[train])
                found = model.predict(x[test]), model.predict_survival(x[test], at)
                scores.setdefault(own, []).append(scored(known[test], *found, at))
            for peer in (CoxPHSurvivalAnalysis(0.1), RandomSurvivalForest(200, min_samples_leaf=10, random_state=0)):
                steps = peer.fit(x[train], known[train]).predict_survival_function(x[test])
                found = -peer.predict(x[test]), np.stack([step(np.clip(at, *step.x[[0, -1]])) for step in steps])
                scores.setdefault(type(peer).__name__, []).append(scored(known[test], *found, at))
        for model, found in scores.items():
            concordance, brier = np.mean(found, axis=0)
            print(f"{name:22} {model:24} concordance {concordance:.3f}, integrated Brier score {brier:.4f}")


def scored(known, predicted, curves, at) -> list[float]:
    time, event = known["time"], known["event"]
    return [concordance_index(time, event, predicted), integrated_brier_score(time, event, curves, at)]


def rounded() -> None:
    for sigma in (0.3, 0.6):
        gains = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            x = rng.uniform(-3, 3, (800, 1))
            y = np.round(2 * np.sin(x[:, 0]) + sigma * rng.standard_normal(800))
            limits, train, test = np.column_stack([y - 0.5, y + 0.5]), slice(0, 400), slice(400, None)
            own = DirectCensoredRegressor().fit(x[train], limits[train]).log_predictive_density(x[test], limits[test])
            plain = DirectRegressor(target_transform=None).fit(x[train], y[train])
            distribution = plain.predict_distribution(x[test])
            mass = distribution.cdf(y[test] + 0.5) - distribution.cdf(y[test] - 0.5)
            ends = (y[test, None] + [-0.5, 0.5] - 2 * np.sin(x[test])) / sigma
            best = np.log(np.diff(stats.norm.cdf(ends)))
            gains.append([own.mean(), np.log(np.maximum(mass, 1e-300)).mean(), best.mean()])
        print(f"σ {sigma}: log score {np.mean(gains, axis=0).round(4)} of intervals, of values, of the truth")


def ordinal() -> None:
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    losses = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((3000, 8))
        f = np.sin(1.5 * x[:, 0]) + x[:, 1] - 0.5 * x[:, 2] ** 2 + 0.5 * x[:, 3]
        y = np.digitize(f + 0.8 * rng.standard_normal(3000), [-2.5, -1.2, 0.2, 1.6])
        train, test = slice(0, 1000), slice(1000, None)
        own = DirectOrdinalClassifier().fit(x[train], y[train]).predict_proba(x[test])
        softmax = DirectClassifier().fit(x[train], y[train]).predict_proba(x[test])
        linear = OrderedModel(y[train], x[train], distr="probit").fit(disp=False, method="bfgs")
        peer = np.asarray(linear.predict(x[test]))
        losses.append([log_loss(y[test], p, labels=np.arange(5)) for p in (own, softmax, peer)])
    print("log loss:", dict(zip(("ordinal", "softmax", "OrderedModel"), np.mean(losses, axis=0).round(4), strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"survival": survival, "tables": tables, "rounded": rounded, "ordinal": ordinal}
    parser.add_argument("parts", nargs="+", choices=parts)
    warnings.simplefilter("ignore")
    for part in parser.parse_args().parts:
        parts[part]()
