"""Table 1 of Evans & Nair (2018), re-run: 23 UCI sets, the paper's folds, beside the paper's columns.

    python bench/paper/table1.py [--sets yacht,housing] [--folds 10] [--bases default,sequential] [--json out.json]

Bases also known: nystroem, the sequential posterior on the default's features; mean_field, independent weights,
mean_field_grid with its noise inferred together with them, and published by L-BFGS; mixture and mixture_nystroem, with
five posterior components on random and on Nyström features (Gaussian weights need none); and reparam, the paper's
REPARAM mean-field: Gaussian weights on the same random features, noise and prior variance as mean_field, by Adam on
reparameterised gradients from batches of 100 rows and 10 samples, 1000 steps, from 3000 rows on 10,000 (appendix E,
which leaves step sizes open).

One thread. Every choice inside a fold (hyperparameters, noise, scale) sees its training rows only. Columns: mean test
RMSE over folds and its ratio to the paper's DIRECT mean-field, DIRECT 5-mixture SGD, best column and REPARAM, NLPD per
test row (user's units, nats), coverage of central 90 % intervals, expected zeros in a posterior sample, and median
seconds per fold for features (hyperparameters included), statistics and inference, that of reparam in processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from pydirect import DirectRegressor, GaussianStatistics, MeanField, PredictiveDistribution  # noqa: E402
from pydirect.baselines import GaussianRegression, Reparameterization, fit_stochastic  # noqa: E402
from pydirect.metrics import coverage  # noqa: E402

BASES: dict[str, dict[str, Any]] = {
    "default": {},  # Nyström features, Gaussian weights
    "fourier": {"features": "fourier"},  # the paper's number of random features, Gaussian weights
    "sequential": {"posterior": "sequential"},  # the same features, weights of four bits, drawn one after another
    "nystroem": {"posterior": "sequential", "features": "nystroem"},  # the same on the default's features
    "mean_field": {"posterior": "mean_field"},
    # Five posterior components on the paper's random features, and on Nyström features:
    "mixture": {"posterior": MeanField(n_components=5)},
    "mixture_nystroem": {"posterior": MeanField(n_components=5), "features": "nystroem"},
    # The noise inferred with the weights, for comparison:
    "mean_field_grid": {"posterior": "mean_field", "noise": "grid"},
    # The published method:
    "published": {"posterior": MeanField(optimizer="lbfgs"), "noise": "grid"},
}
REPARAM = "reparam"
BATCH_SIZE, N_SAMPLES, STEP = 100, 10, 0.1
COLUMNS = ("rmse", "nlpd", "crps", "coverage", "zeros", "features", "statistics", "inference", "total")


def data_directory() -> Path:
    """Folder with uci/*.npz and paper_results.json."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("PYDIRECT_DATA", default))
    if not (folder / "paper_results.json").exists():
        sys.exit(f"no data: {folder} must hold paper_results.json and uci/; see Data in bench/paper/README.md")
    return folder


def paper_rows(folder: Path) -> dict[str, tuple[float, ...]]:
    """RMSE of the paper's DIRECT mean-field, DIRECT 5-mixture SGD, best column and REPARAM, by file name."""
    table = json.loads((folder / "paper_results.json").read_text())["direct_neurips2018"]["table1"]
    rows = {}
    for row in table:
        columns = [v["rmse_mean"] for v in row.values() if isinstance(v, dict) and v.get("rmse_mean") is not None]
        if row["file"]:
            ours = (row[name]["rmse_mean"] for name in ("direct_mean_field", "direct_5mixture_sgd"))
            rows[row["file"]] = (*ours, min(columns), row["reparam_mean_field"]["rmse_mean"])
    return rows


def run_fold(x: np.ndarray, y: np.ndarray, test: np.ndarray, options: dict) -> list[float]:
    """Fit on a training fold and score on its test rows."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DirectRegressor(**options).fit(x[~test], y[~test])
    total = time.perf_counter() - begin
    seconds = [model.fit_seconds_[stage] for stage in ("features", "statistics", "inference")]
    return [*scores(model.predict_distribution(x[test]), y[test]), model.sparsity_, *seconds, total]


def scores(predicted: PredictiveDistribution, y: np.ndarray) -> tuple[float, float, float, float]:
    """RMSE, NLPD, CRPS and coverage of central 90 % intervals."""
    rmse = float(np.sqrt(np.mean((predicted.mean - y) ** 2)))
    nlpd = -float(predicted.log_density(y).mean())
    return rmse, nlpd, float(predicted.crps(y).mean()), coverage(y, *predicted.interval(0.9))


def run_reparam_fold(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> list[float]:
    """The same for REPARAM: features, noise and prior variance are those of mean field."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean_field = DirectRegressor(posterior="mean_field", max_iter=1).fit(x[~test], y[~test])
    features = mean_field.features_
    phi, scale = features.transform(np.ascontiguousarray(x[~test])), mean_field.y_scale_[0]
    targets = (y[~test] - mean_field.y_mean_[0]) / scale
    model = GaussianRegression.of(
        GaussianStatistics.from_arrays(phi, targets),
        mean_field.prior_scale_[0] ** 2,
        np.atleast_1d(mean_field.posteriors_[0].noise.variance),
    )
    fit = fit_stochastic(
        model,
        Reparameterization(N_SAMPLES),
        rows=(phi, targets),
        batch_size=min(BATCH_SIZE, len(phi)),
        n_steps=1000 if len(y) < 3000 else 10_000,
        step=STEP,
        n_checks=10,
    )
    mean, variance = fit.posterior.latent_moments(features.transform(np.ascontiguousarray(x[test])))
    predicted = PredictiveDistribution.gaussian(mean, variance + fit.posterior.noise.variance)
    seconds = [mean_field.fit_seconds_["features"], mean_field.fit_seconds_["statistics"], float(fit.seconds[-1])]
    return [*scores(predicted.affine(scale, mean_field.y_mean_[0]), y[test]), 0.0, *seconds, sum(seconds)]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", help="comma-separated file names; all by default")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--bases", default="default,fourier,sequential")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = data_directory()
    paper = paper_rows(folder)
    sets = arguments.sets.split(",") if arguments.sets else list(paper)
    results: dict[str, dict[str, list[list[float]]]] = {}
    for basis in arguments.bases.split(","):
        print(f"\n{basis}: {BASES.get(basis, 'Gaussian weights') or 'DirectRegressor()'}")
        print(
            "set                rmse /mean-f.  /mixt.   /best /repar.    nlpd    crps  cov. zeros"
            "  feat.  stat. infer.  total"
        )
        results[basis] = {}
        for name in sets:
            data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
            tests = data["test_mask"].T[: arguments.folds]
            rows = data["X"], data["y"]
            folds = [
                run_reparam_fold(*rows, test) if basis == REPARAM else run_fold(*rows, test, BASES[basis])
                for test in tests
            ]
            results[basis][name] = folds
            r = dict(zip(COLUMNS, np.mean(folds, axis=0), strict=True))
            seconds = np.median(folds, axis=0)[5:]
            ratios = [r["rmse"] / p for p in paper[name]]
            print(f"{name:13s} {r['rmse']:9.4g} {ratios[0]:8.3f} {ratios[1]:7.3f} {ratios[2]:7.3f}", end="")
            print(f" {ratios[3]:7.3f} {r['nlpd']:7.3f} {r['crps']:7.4g}", end="")
            print(f" {r['coverage']:5.2f} {r['zeros']:5.2f} " + " ".join(f"{s:6.2f}" for s in seconds), flush=True)
        _summary(results[basis], paper)
    if arguments.json:
        arguments.json.write_text(json.dumps({"columns": COLUMNS, "results": results}, indent=1))


def _summary(results: dict[str, list[list[float]]], paper: dict[str, tuple[float, ...]]) -> None:
    means = {name: np.mean(folds, axis=0) for name, folds in results.items()}
    ratios = np.array([[means[n][0] / p for p in paper[n]] for n in results])
    covered = np.array([0.85 <= means[n][3] <= 0.95 for n in results])
    medians = np.array([np.median(folds, axis=0) for folds in results.values()])
    n = len(results)
    print(f"at most 2 % above the paper's DIRECT mean-field: {(ratios[:, 0] <= 1.02).sum()} of {n}", end="; ")
    print(f"below it: {(ratios[:, 0] < 1).sum()}; not above its 5-mixture SGD: {(ratios[:, 1] <= 1).sum()}", end="; ")
    print(f"at most 2 % above its best column: {(ratios[:, 2] <= 1.02).sum()}")
    print(f"90 % coverage within 0.85-0.95: {covered.sum()}; median of the sets' fit seconds", end=" ")
    print(f"{np.median(medians[:, 8]):.2f}, largest inference seconds {medians[:, 7].max():.2f}")


if __name__ == "__main__":
    main()
