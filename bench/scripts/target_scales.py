"""Whether choosing the target's scale pays: simulated families, and tables whose targets are positive or bounded.

For each problem: the scale chosen most often and how often any is, and, of the default over ``target_transform=None``,
the mean and worst gain in log density per held-out row, ratios of RMSE, CRPS and interval score (90 %), coverage, and
the ratio of processor seconds.

    python bench/scripts/target_scales.py simulated --rows 200 --seeds 5
    PYDIRECT_DATA=data python bench/scripts/target_scales.py tables --folds 7 8 9
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from pydirect import DirectRegressor
from pydirect.metrics import crps, interval_score, nlpd

N_HELD_OUT = 1000
# Targets of the sets are centred, and some are logarithms: how they were positive.
TABLES = {
    "concrete": lambda y: y + 35.818,
    "housing": lambda y: y + 22.533,
    "energy": lambda y: y + 22.307,
    "autompg": lambda y: y + 23.446,
    "breastcancer": lambda y: y + 46.938,
    "autos": lambda y: 1e4 * np.exp(y),
    "machine": lambda y: 60.0 * np.exp(y),
    "yacht": lambda y: np.exp(y + 1.0),
    "servo": lambda y: np.exp(y),
    "forest": lambda y: np.maximum(np.expm1(y + 1.111), 0.0),
    "solar": lambda y: y + 0.3,
    "stock": lambda y: y,
    "wine": lambda y: y,
    "fertility": lambda y: y,
}


def simulated(n, seed):
    """Yield name, rows and targets."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5))
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    e = rng.standard_normal(n)
    yield "additive, mean 10", x, 10 + f + 0.3 * e
    yield "additive, mean 4", x, 4 + f + 0.3 * e
    yield "additive, skew f", x, 4 + np.exp(0.7 * x[:, 0]) + 0.5 * e
    yield "additive, t", x, np.abs(20 + f + 0.3 * rng.standard_t(3, n))
    yield "additive, varying", x, 12 + f + 0.3 * np.exp(0.8 * x[:, 3]) * e.clip(-4, 4)
    yield "percent 10", x, np.exp(3 + f + 0.1 * e)
    yield "percent 30", x, np.exp(3 + f + 0.3 * e)
    yield "percent 100", x, np.exp(3 + f + e)
    yield "gamma 2", x, rng.gamma(2, np.exp(f) / 2)
    yield "Poisson 50", x, rng.poisson(np.exp(4 + 0.3 * f)).astype(float)
    yield "square", x, (6 + f + 0.5 * e) ** 2
    yield "fraction", x, 1 / (1 + np.exp(-2 * f - 0.5 * e))
    yield "heavy, signed", x, np.sinh(2 * (f + 0.3 * e))
    yield "half zeros", x, np.maximum(np.exp(f + 0.3 * e) - 1, 0)
    yield "one to six", x, np.clip(np.round(3.5 + 1.5 * (f + 0.5 * e)), 1, 6)


def tables(names, folds):
    """Yield name, rows, targets and the mask of held-out rows."""
    for name in names:
        data = np.load(Path(os.environ["PYDIRECT_DATA"]) / "uci" / f"{name}.npz")
        for fold in folds:
            yield name, data["X"], TABLES[name](data["y"]), data["test_mask"][:, fold]


def compare(x, y, test, n_basis_functions):
    """Return the scale's name, and what the default gains over y itself."""
    scores = []
    for choice in (None, "auto"):
        begin = time.process_time()
        model = DirectRegressor(n_basis_functions=n_basis_functions, target_transform=choice).fit(x[~test], y[~test])
        seconds = time.process_time() - begin
        predicted, lower, upper = model.predict_distribution(x[test]), *model.predict_interval(x[test])
        mean = model.predict(x[test])
        scores.append(
            [
                nlpd(y[test], predicted),
                np.sqrt(np.mean((mean - y[test]) ** 2)),
                crps(y[test], predicted),
                interval_score(y[test], lower, upper, level=0.9),
                np.mean((lower <= y[test]) & (y[test] <= upper)),
                seconds,
            ]
        )
        beyond = mean.max() > y[~test].max() + 2 * np.ptp(y[~test])
        assert np.isfinite(model.predict_quantiles(x[test], 0.995)).all() and not beyond
    plain, own = map(np.array, scores)
    chosen = "y" if model.target_transform_ is None else model.target_transform_.names[0]
    return chosen, plain[0] - own[0], *(own[1:4] / plain[1:4]), own[4], own[5] / plain[5]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["simulated", "tables"])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--functions", type=int, default=300)
    args = parser.parse_args()
    if args.what == "tables":
        problems = tables(args.only or TABLES, args.folds)
    else:
        held = np.arange(args.rows + N_HELD_OUT) >= args.rows
        every = (each for seed in range(args.seeds) for each in simulated(args.rows + N_HELD_OUT, seed))
        problems = ((*each, held) for each in every if not args.only or each[0] in args.only)
    found = defaultdict(list)
    for name, *problem in problems:
        found[name].append(compare(*problem, args.functions))
    print(f"{'':18s} chosen         log density: mean  worst    RMSE  worst   CRPS  score  coverage  seconds")
    for name, results in found.items():
        names = Counter(result[0] for result in results)
        gain, rmse, score, interval, coverage, seconds = np.array([result[1:] for result in results]).T
        print(
            f"{name:18s} {names.most_common(1)[0][0]:6s} {1 - names['y'] / len(results):6.2f}  "
            f"{gain.mean():15.3f} {gain.min():7.3f}  {np.exp(np.log(rmse).mean()):6.3f} {rmse.max():6.3f} "
            f"{np.exp(np.log(score).mean()):6.3f} {np.exp(np.log(interval).mean()):6.3f}  {coverage.mean():8.3f}  "
            f"{np.exp(np.log(seconds).mean()):7.2f}"
        )


if __name__ == "__main__":
    main()
