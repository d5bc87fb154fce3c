"""Exact leave-one-out predictions and intervals of the jackknife+ on UCI sets.

    python bench/paper/leave_one_out.py [--sets yacht,energy] [--folds 3] [--json out.json]

First, predictions of rows without themselves against refits without them, as many as `--refits`, with integer weights,
at the fit's features, noise and prior variance: the largest errors of residuals in predictive standard deviations, of
variances relatively, and of the sum of the leverages as the effective number of weights. What is left is rounding of
the sums over rows, magnified by the largest ratio of signal to noise, λt/σ².

Then intervals of level 0.9 of the posterior and of the studentised jackknife+: their coverage of test rows and the
ratio of their mean interval scores; and the mean log density of training rows without themselves beside that of test
rows. One thread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from scipy.linalg import cho_factor, cho_solve  # noqa: E402

from pydirect import DirectRegressor, GaussianStatistics  # noqa: E402
from pydirect.explain import LeftOutRows  # noqa: E402
from pydirect.linear import GaussianPosterior, leave_one_out  # noqa: E402
from pydirect.metrics import coverage, interval_score  # noqa: E402
from pydirect.statistics import decorrelate  # noqa: E402

EXACT = ("yacht", "energy", "concrete")
SETS = ("yacht", "autos", "servo", "machine", "fertility", "autompg", "forest", "housing", "stock", "energy")
SETS += ("breastcancer", "concrete", "solar")
LEVEL = 0.9


def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, targets, and which rows each fold tests, (n_folds, n_rows)."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("PYDIRECT_DATA", default)) / "uci" / f"{name}.npz"
    if not path.exists():
        sys.exit(f"no data: {path}; set PYDIRECT_DATA")
    with np.load(path) as file:
        x, y, test = file["X"], np.ravel(file["y"]), file["test_mask"].astype(bool)
    return x, y, test if test.shape[1] == len(x) else test.T


def fit(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> DirectRegressor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DirectRegressor(noise="constant", local=False).fit(x, y, weight)


def exactness(x: np.ndarray, y: np.ndarray, n_refits: int) -> dict[str, float]:
    """Largest relative errors of predictions of rows without themselves, by solving without them."""
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 4, len(x)).astype(float)
    model = fit(x, y, weight)
    phi = model.features_.transform(x)
    targets = (y - model.y_mean_) / model.y_scale_
    noise, prior = 1 / model.posterior_.noise.precision, float(model.prior_scale_[0] ** 2)
    rotated = decorrelate(GaussianStatistics.from_arrays(phi, targets, weight))
    posterior = GaussianPosterior.of(rotated, np.array([1 / noise]), np.array([prior]))
    found = leave_one_out(targets[:, None], *posterior.moments(phi), weight[:, None] / noise, np.array([noise]))

    # Refits as processes on rows, refined in extended precision: sums over rows square the condition of little noise.
    covariance = prior * phi @ phi.T + np.diag(noise / weight)
    residuals, variances = [], []
    for i in rng.choice(len(x), n_refits, replace=False):
        rest = np.arange(len(x)) != i
        across = covariance[rest, i]
        solution = solved(covariance[np.ix_(rest, rest)], np.stack([targets[rest], across], axis=1))
        mean, explained = across @ solution
        variance = prior * phi[i] @ phi[i] - explained + noise
        spread = np.sqrt(float(variance))
        residuals.append(abs(float(found.residuals[i, 0] - (targets[i] - mean))) / spread)
        variances.append(abs(float(found.variances[i, 0] / variance - 1)))
    gram = (phi.T * weight) @ phi
    expected = np.trace(cho_solve(cho_factor(gram + noise / prior * np.eye(len(gram))), gram))
    return {
        "signal_to_noise": float(rotated.eigenvalues.max() * prior / noise),
        "residuals": max(residuals),
        "variances": max(variances),
        "effective": abs(float(found.n_effective[0] / expected - 1)),
    }


def solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a positive definite system, refined in extended precision."""
    factor, exact = cho_factor(matrix), matrix.astype(np.longdouble)
    solution = np.zeros(right.shape, dtype=np.longdouble)
    for _ in range(4):
        solution += cho_solve(factor, (right - exact @ solution).astype(np.float64))
    return solution


def fold(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> dict[str, float]:
    model = fit(x[~test], y[~test])
    row: dict[str, float] = {}
    left_out = LeftOutRows(model, x[~test], y[~test])
    for name, predicting in (("posterior", model), ("jackknife", left_out)):
        bounds = predicting.predict_interval(x[test], LEVEL)
        row[f"{name}_coverage"] = coverage(y[test], *bounds)
        row[f"{name}_score"] = interval_score(y[test], *bounds, LEVEL)
    row["left_out"] = float(np.mean(left_out.log_density))
    row["test"] = float(np.mean(model.log_predictive_density(x[test], y[test])))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--refits", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    results: dict[str, dict] = {"exactness": {}, "intervals": {}}
    print("largest errors, of rows left out     λt/σ²  residual/sd  variance  effective weights")
    for name in EXACT:
        x, y, _ = load(name)
        errors = results["exactness"][name] = exactness(x, y, options.refits)
        print(f"{name:34s}" + "".join(f" {value:9.0e}" for value in errors.values()))

    print("\nset            coverage  jackknife+  score ratio  log density left out    test")
    for name in options.sets.split(","):
        x, y, masks = load(name)
        folds = [fold(x, y, test) for test in masks[: options.folds]]
        results["intervals"][name] = folds
        mean = {key: float(np.mean([row[key] for row in folds])) for key in folds[0]}
        ratio = mean["jackknife_score"] / mean["posterior_score"]
        print(
            f"{name:14s} {mean['posterior_coverage']:8.3f} {mean['jackknife_coverage']:11.3f} {ratio:12.3f} "
            f"{mean['left_out']:21.3f} {mean['test']:7.3f}",
            flush=True,
        )
    sets = results["intervals"].values()
    for name in ("posterior", "jackknife"):
        covered = np.array([np.mean([row[f"{name}_coverage"] for row in folds]) for folds in sets])
        error = np.abs(covered - LEVEL).mean()
        print(f"{name}: mean coverage {covered.mean():.3f}, mean absolute error of a set's coverage {error:.3f}")
    ratios = [np.log(row["jackknife_score"] / row["posterior_score"]) for folds in sets for row in folds]
    print(
        f"interval score of the jackknife+ in units of the posterior's, geometric mean: {np.exp(np.mean(ratios)):.3f}"
    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
