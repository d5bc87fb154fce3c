"""Many models at once beside one after the other.

    python bench/scripts/many.py fit [--models 32] [--weights 2000]
    python bench/scripts/many.py estimators [--models 32] [--weights 2000] [--samples 5000]
    python bench/scripts/many.py groups [--groups 500] [--rows 200]
    python bench/scripts/many.py search [protein.npz] [--weights 2000] [--folds 10] [--grid-fits 2]

``fit``: inference from given statistics in the decorrelated basis, one factorisation beside one per model.
``estimators``: end to end, `fit_many` beside ``fit`` one by one, extrapolated from three. ``groups``: `fit_groups`
beside a loop over the default estimator, extrapolated from ten groups, and the log density of held-out rows.
``search``: ten-fold cross-validation of a 5 × 5 grid, `DirectSearchCV` beside GridSearchCV over the same estimator,
extrapolated from its first fits; the file holds arrays X and y, without one the data are synthetic. All on one thread.
Seconds are of the processor, which a busy machine changes less than the clock's.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.kernel_approximation import RBFSampler  # noqa: E402
from sklearn.model_selection import KFold, ParameterGrid  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.common import make_data, make_features  # noqa: E402

from pydirect import (  # noqa: E402
    DirectRegressor,
    DirectSearchCV,
    Gaussian,
    Nystroem,
    collect_statistics,
    fit_gaussian,
    fit_groups,
    fit_many,
)
from pydirect.linear import maximise_evidence  # noqa: E402
from pydirect.statistics import decorrelate  # noqa: E402


def seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def make_targets(n_rows: int, n_models: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and smooth targets of different directions with noise of standard deviation 0.3, standardised."""
    x, _ = make_data(n_rows)
    rng = np.random.default_rng(5)
    f = np.sin(x @ rng.standard_normal((x.shape[1], n_models)) / 2) + 0.3 * x @ rng.standard_normal(
        (x.shape[1], n_models)
    )
    y = f / f.std(axis=0) + 0.3 * rng.standard_normal(f.shape)
    return x, (y - y.mean(axis=0)) / y.std(axis=0)


def report(name: str, together: float, apart: float, extra: str = "") -> None:
    print(f"{name:42s} together {together:8.3f} s   one by one {apart:8.3f} s   {apart / together:6.2f} times{extra}")


def compare_inference(n_models: int, n_weights: int) -> None:
    x, y = make_targets(2 * n_weights, n_models)
    statistics = collect_statistics(make_features(n_weights), x, y, n_threads=1)

    def rotated_fit(rotated: Any, k: int) -> None:
        target = rotated.target(k)
        noise, scale = maximise_evidence(target, 0.1)
        fit_gaussian(target.scaled(scale), noise)

    def shared() -> None:
        rotated = decorrelate(statistics)
        for k in range(n_models):
            rotated_fit(rotated, k)

    one = seconds(lambda: rotated_fit(decorrelate(statistics), 0))
    report(f"Gaussian weights, {n_models} targets", seconds(shared), n_models * one, " (one fit times their number)")


def compare_estimators(n_models: int, n_weights: int, n_rows: int) -> None:
    """Targets, and noise variances, with every posterior; kernels are given, or learned."""
    x, y = make_targets(n_rows, n_models)
    targets, noises = list(y.T), np.geomspace(0.01, 1.0, n_models).tolist()
    options: dict[str, Any] = {"n_basis_functions": n_weights, "n_threads": 1}
    given = options | {"features": Nystroem(length_scale=3.0)}
    cases = {
        "gaussian": given,
        "gaussian, without local": given | {"local": False},
        "sequential": given | {"posterior": "sequential"},
        "mean field": given | {"posterior": "mean_field"},
        "gaussian, learned kernels": options,
    }
    for name, case in cases.items():
        kinds: dict[str, tuple[list[DirectRegressor], list[np.ndarray]]] = {
            "targets": ([DirectRegressor(**case) for _ in targets], targets),
            "noises": ([DirectRegressor(**case, noise=noise) for noise in noises], [y[:, 0]] * n_models),
        }
        for kind, (models, own) in kinds.items():
            chosen = (0, n_models // 2, n_models - 1)
            apart = [seconds(lambda k=k, m=models, own=own: clone(m[k]).fit(x, own[k])) for k in chosen]
            together = seconds(lambda m=models, own=own: fit_many(m, x, own))
            report(f"{name}, {n_models} {kind}", together, n_models * float(np.mean(apart)))


def make_groups(n_groups: int, n_rows: int, n_new: int = 100) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Inputs, targets and labels of rows to fit and of new rows: a common function, and deviations of half its size."""
    rng = np.random.default_rng(0)
    directions, phases = rng.standard_normal((6, 40)), rng.uniform(0, 2 * np.pi, 40)
    common, own, offsets = rng.standard_normal(40), rng.standard_normal((n_groups, 40)), rng.standard_normal(n_groups)

    def draw(size: int) -> tuple[np.ndarray, ...]:
        group = np.repeat(np.arange(n_groups), size)
        x = rng.standard_normal((len(group), 6))
        waves = np.sin(x @ directions / 2 + phases) / np.sqrt(20)
        y = waves @ common + 0.5 * np.einsum("ij,ij->i", waves, own[group]) + 0.5 * offsets[group]
        return x, y + 0.5 * rng.standard_normal(len(x)), group

    return draw(n_rows), draw(n_new)


def compare_groups(n_groups: int, n_rows: int) -> None:
    rows, (x, y, group) = make_groups(n_groups, n_rows)
    model = DirectRegressor(n_threads=1)
    fitted: list[Any] = []
    together = seconds(lambda: fitted.append(fit_groups(model, *rows)))
    density = fitted[0].log_predictive_density(x, y, group).mean()
    apart, densities = [], []
    for k in range(min(n_groups, 10)):
        own, new = rows[2] == k, group == k
        apart.append(seconds(lambda own=own: model.fit(rows[0][own], rows[1][own])))
        densities.append(model.log_predictive_density(x[new], y[new]).mean())
    extra = f", log density {density:.3f} and {np.mean(densities):.3f} (10 groups)"
    report(f"{n_groups} groups of {n_rows} rows", together, n_groups * float(np.mean(apart)), extra)


def compare_search(x: np.ndarray, y: np.ndarray, n_weights: int, n_folds: int, n_grid_fits: int) -> None:
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    features = RBFSampler(gamma=0.5 / x.shape[1], n_components=n_weights, random_state=0)
    model = DirectRegressor(features, n_threads=1)
    variance = float(y.var())
    grid = {
        "noise": (variance * np.geomspace(0.1, 1.0, 5)).tolist(),
        "posterior": [Gaussian(n) for n in (5, 7, 9, 11, 15)],
    }
    cv = KFold(n_folds, shuffle=True, random_state=0)
    search = DirectSearchCV(model, grid, "neg_root_mean_squared_error", cv)
    ours = seconds(lambda: search.fit(x, y))
    splits, candidates = list(cv.split(x)), list(ParameterGrid(grid))
    apart, worst = [], 0.0
    for k in range(n_grid_fits):
        candidate, (train, test) = candidates[-1 - k], splits[k % n_folds]
        fitted = clone(model).set_params(**candidate)
        scores: list[float] = []

        def fit_and_score(fitted: Any = fitted, train: Any = train, test: Any = test, scores: Any = scores) -> None:
            fitted.fit(x[train], y[train])
            scores.append(-float(np.sqrt(np.mean((fitted.predict(x[test]) - y[test]) ** 2))))

        apart.append(seconds(fit_and_score))
        found = search.cv_results_[f"split{k % n_folds}_test_score"][len(candidates) - 1 - k]
        worst = max(worst, abs(found / scores[0] - 1))
    n_fits = len(candidates) * n_folds + 1
    report(
        f"{n_folds}-fold search of {len(candidates)}",
        ours,
        n_fits * float(np.mean(apart)),
        f" ({n_grid_fits} fits of "
        f"{n_fits} measured), scores equal to {worst:.1e}, best {search.best_params_}, RMSE {-search.best_score_:.4f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("fit", "estimators", "groups", "search"))
    parser.add_argument("data", nargs="?", help="file with arrays X and y, for search")
    parser.add_argument("--models", type=int, default=32)
    parser.add_argument("--weights", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=5000, help="rows, for estimators")
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--grid-fits", type=int, default=2)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.part == "fit":
        compare_inference(args.models, args.weights)
    elif args.part == "estimators":
        compare_estimators(args.models, args.weights, args.samples)
    elif args.part == "groups":
        compare_groups(args.groups, args.rows)
    else:
        if args.data:
            with np.load(args.data) as file:
                x, y = file["X"], file["y"]
        else:
            x, y = make_data(20_000)
        compare_search(x, np.ravel(y), args.weights, args.folds, args.grid_fits)


if __name__ == "__main__":
    main()
