"""Missing numbers: what `missing=` does, beside means and means with indicators.

    PYDIRECT_DATA=... python bench/paper/tables.py [--sets concrete,energy] [--folds 2] [--features 500]

From every column of numbers of a UCI set, entries are removed from training and test rows alike: 20 % at random, or
60 % of the values above the 70th percentile. One thread. Columns: mean over folds of test RMSE and NLPD per row (user's
units, nats), the number of indicator columns, and seconds of a fit and its predictions.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from table1 import data_directory  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402

SETS = ("concrete", "energy", "autompg", "housing")
REMOVALS = ("random", "large")


def with_gaps(x: np.ndarray, how: str, rng: np.random.Generator) -> np.ndarray:
    """Return X with entries removed, from columns of more than two values."""
    x = x.copy()
    for column in x.T:
        if len(np.unique(column)) > 2:
            chosen = rng.random(len(column))
            gone = chosen < 0.2 if how == "random" else (column > np.quantile(column, 0.7)) & (chosen < 0.6)
            column[gone] = np.nan
    return x


def contenders(n_basis_functions: int) -> dict[str, Callable[[], object]]:
    """Return what is compared: functions that make an estimator, by name."""

    def model(**parameters: str) -> DirectRegressor:
        return DirectRegressor(n_basis_functions=n_basis_functions, **parameters)

    return {
        "mean": lambda: make_pipeline(SimpleImputer(), model()),
        "mean + indicators": lambda: make_pipeline(SimpleImputer(add_indicator=True), model()),
        'missing="auto"': model,
        'missing="indicator"': lambda: model(missing="indicator"),
    }


def scored(estimator: object, x: np.ndarray, y: np.ndarray, test: np.ndarray) -> list[float]:
    """Fit to the training rows; return RMSE, NLPD, indicators and seconds of the test rows."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x[~test], y[~test])
    rows, model = x[test], estimator
    if hasattr(estimator, "steps"):
        rows, model = estimator[:-1].transform(rows), estimator[-1]
    predicted = model.predict_distribution(rows)
    rmse = float(np.sqrt(np.mean((predicted.mean - y[test]) ** 2)))
    indicators = model.columns_.n_encoded - x.shape[1]
    return [rmse, -float(predicted.log_density(y[test]).mean()), indicators, time.perf_counter() - begin]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--features", type=int, default=500)
    arguments = parser.parse_args()
    relative: dict[str, list[np.ndarray]] = {}
    print(f"{'set':10}{'removed':9}{'missing numbers':22}{'rmse':>9}{'nlpd':>9}{'ind.':>6}{'s':>7}")
    for name in arguments.sets.split(","):
        with np.load(data_directory() / "uci" / f"{name}.npz") as data:
            x, y, folds = data["X"], data["y"].ravel(), data["test_mask"].astype(bool).T
        for how in REMOVALS:
            gappy = with_gaps(x, how, np.random.default_rng(0))
            results: dict[str, list[list[float]]] = {}
            for test in folds[: arguments.folds]:
                for label, make in contenders(arguments.features).items():
                    results.setdefault(label, []).append(scored(make(), gappy, y, test))
            first = np.mean(results["mean"], axis=0)
            for label, rows in results.items():
                mean = np.mean(rows, axis=0)
                relative.setdefault(label, []).append(np.array([np.log(mean[0] / first[0]), mean[1] - first[1]]))
                numbers = f"{mean[0]:9.3f}{mean[1]:9.3f}{mean[2]:6.1f}{mean[3]:7.1f}"
                print(f"{name:10}{how:9}{label:22}{numbers}", flush=True)
    print("\nagainst the mean: RMSE and NLPD")
    for label, rows in relative.items():
        ratio, difference = np.mean(rows, axis=0)
        print(f"{label:22} x {np.exp(ratio):.3f}  {difference:+.3f}")


if __name__ == "__main__":
    main()
