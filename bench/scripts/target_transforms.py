"""Whether `target_transform="auto"` pays: positive targets with multiplicative and with additive noise, few rows.

For each group of problems and number of rows: how often a transform is chosen, and its mean, worst and best gain in log
density per held-out row over no transform, with the ratios of RMSE and CRPS.

    python bench/scripts/target_transforms.py --rows 50 100 300 --seeds 4
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from scipy.special import ndtr

from pydirect import DirectRegressor
from pydirect.metrics import crps, nlpd

N_HELD_OUT = 1000


def problems(n, rng):
    """Yield group, name, rows and targets."""
    x = rng.standard_normal((n, 5))
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    noise = rng.standard_normal(n)
    yield "multiplicative", "lognormal, 50 %", x, np.exp(3 + f + 0.5 * noise)
    yield "multiplicative", "lognormal, 10 %", x, np.exp(3 + 0.3 * f + 0.1 * noise)
    yield "multiplicative", "gamma, shape 2", x, rng.gamma(2, np.exp(f) / 2)
    yield "multiplicative", "gamma, shape 20", x, rng.gamma(20, np.exp(0.5 * f) / 20)
    yield "multiplicative", "Poisson, mean 2", x, rng.poisson(np.exp(0.5 + 0.5 * f)).astype(float)
    yield "multiplicative", "Poisson, mean 50", x, rng.poisson(np.exp(4 + 0.3 * f)).astype(float)
    yield "multiplicative", "Weibull", x, np.exp(f) * rng.weibull(1.5, n)
    yield "multiplicative", "exponential", x, np.exp(f) * rng.exponential(1, n)
    yield "multiplicative", "square of a Gaussian", x, (6 + f + 0.5 * noise) ** 2
    yield "additive", "mean 10", x, 10 + f + 0.3 * noise
    yield "additive", "mean 5", x, 5 + f + 0.3 * noise
    yield "additive", "skew function", x, 4 + np.exp(0.7 * x[:, 0]) + 0.5 * noise
    yield "additive", "uniform", x, np.clip(1 + ndtr(f) + 0.2 * (rng.random(n) - 0.5), 0.01, None)
    yield "additive", "Student t", x, 20 + f + 0.3 * rng.standard_t(3, n).clip(-30, 30)


def compare(x, y, n, n_basis_functions):
    """Return the names chosen, the gain in log density per row, and the log ratios of RMSE and CRPS."""
    scores = []
    for name in (None, "auto"):
        model = DirectRegressor(n_basis_functions=n_basis_functions, target_transform=name).fit(x[:n], y[:n])
        predicted = model.predict_distribution(x[n:])
        error = np.sqrt(np.mean((model.predict(x[n:]) - y[n:]) ** 2))
        scores.append((-nlpd(y[n:], predicted), np.log(error), np.log(crps(y[n:], predicted))))
    return str(model.target_transform_), *np.subtract(scores[1], scores[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[50, 100, 300])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--each", action="store_true", help="print every problem")
    args = parser.parse_args()
    print("rows  group           chosen  log density: mean  worst   best   RMSE  worst   CRPS  worst")
    for n in args.rows:
        found = defaultdict(list)
        for seed in range(args.seeds):
            for group, name, x, y in problems(n + N_HELD_OUT, np.random.default_rng(seed)):
                chosen, *gains = compare(x, y, n, args.features)
                found[group].append((chosen != "y", *gains))
                if args.each:
                    print(f"{n:5d} {seed} {name:22s} {chosen:16s}", *(f"{gain:+.3f}" for gain in gains), flush=True)
        for group, rows in found.items():
            chosen, density, error, score = np.array(rows, dtype=float).T
            print(
                f"{n:4d}  {group:14s}  {chosen.mean():6.2f}  {density.mean():17.3f} {density.min():6.3f} "
                f"{density.max():6.3f}  {np.exp(error.mean()):5.3f} {np.exp(error.max()):6.3f}  "
                f"{np.exp(score.mean()):5.3f} {np.exp(score.max()):6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
