"""Networks with quadratic activations on UCI sets, beside what they have to beat.

    python bench/paper/bnn.py [--sets yacht,energy] [--folds 10] [--json out.json]

A network of one hidden layer is a quadratic polynomial of its inputs, of two layers a polynomial of degree four. The
honest baselines are therefore ridge regression on the inputs ("linear") and on their squares and products
("quadratic"), penalties by efficient leave-one-out, whose residuals also give the predictive deviation;
`DirectRegressor` with its defaults stands beside them. The paper's ten folds, one thread.

Within a fold the test rows are not looked at: the architecture is the one with the best log density on a held-out fifth
of the training rows, and is then fitted to all of them; starts are chosen by the ELBO. Columns: mean test RMSE, its
ratio to quadratic ridge's, NLPD per row (nats, user's units), coverage of central 90 % intervals, median seconds per
fit.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from sklearn.linear_model import RidgeCV  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import PolynomialFeatures, StandardScaler  # noqa: E402
from table1 import data_directory  # noqa: E402

from pydirect import DirectRegressor, PredictiveDistribution, QuadraticBNNRegressor  # noqa: E402
from pydirect.metrics import coverage, nlpd  # noqa: E402

SETS = ("yacht", "energy", "concrete", "airfoil")
ARCHITECTURES = ((20,), (8, 8), (16, 8), (32, 16))
PENALTIES = np.logspace(-5, 4, 37)

Fit = Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], PredictiveDistribution]]


def ridge(degree: int) -> Fit:
    """Ridge regression on polynomials, Gaussian with the deviation of the leave-one-out residuals."""

    def fit(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], PredictiveDistribution]:
        features = make_pipeline(
            StandardScaler(), PolynomialFeatures(degree, include_bias=False), StandardScaler()
        ).fit(x)
        model = RidgeCV(PENALTIES).fit(features.transform(x), y)
        variance = np.array([[-model.best_score_]])  # mean squared leave-one-out residual
        return lambda rows: PredictiveDistribution(
            np.ones(1), model.predict(features.transform(rows))[:, None], variance
        )

    return fit


def direct(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], PredictiveDistribution]:
    """`DirectRegressor` as it comes."""
    return DirectRegressor().fit(x, y).predict_distribution


def network(sizes: tuple[int, ...]) -> Fit:
    """One architecture."""
    return lambda x, y: QuadraticBNNRegressor(hidden_layer_sizes=sizes).fit(x, y).predict_distribution


BASELINES: dict[str, Fit] = {"linear": ridge(1), "quadratic": ridge(2), "DirectRegressor": direct}
NETWORKS: dict[str, Fit] = {"-".join(map(str, sizes)): network(sizes) for sizes in ARCHITECTURES}
CHOSEN = "chosen network"


def scores(predicted: PredictiveDistribution, y: np.ndarray, seconds: float) -> list[float]:
    """RMSE, NLPD, coverage and seconds."""
    rmse = float(np.sqrt(np.mean((predicted.mean - y) ** 2)))
    return [rmse, nlpd(y, predicted), coverage(y, *predicted.interval(0.9)), seconds]


def run_fold(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> dict[str, list[float]]:
    """Scores of every method on one fold."""
    results, held_out, seconds_of_choice = {}, {}, 0.0
    x_train, y_train = x[~test], y[~test]
    x_fit, x_held, y_fit, y_held = train_test_split(x_train, y_train, test_size=0.2, random_state=0)
    for method, fit in {**BASELINES, **NETWORKS}.items():
        begin = time.perf_counter()
        predict = fit(x_train, y_train)
        results[method] = scores(predict(x[test]), y[test], time.perf_counter() - begin)
        if method in NETWORKS:
            held_out[method] = nlpd(y_held, fit(x_fit, y_fit)(x_held))
            seconds_of_choice += time.perf_counter() - begin
    results[CHOSEN] = [*results[min(held_out, key=lambda name: held_out[name])][:3], seconds_of_choice]
    return results


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = data_directory()
    warnings.simplefilter("ignore")
    results: dict[str, list[dict[str, list[float]]]] = {}
    for name in arguments.sets.split(","):
        data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
        x, y, tests = data["X"], data["y"], data["test_mask"].T[: arguments.folds]
        results[name] = [run_fold(x, y, test) for test in tests]
        print(f"\n{name}: {len(y)} rows, {x.shape[1]} inputs\n{'':16s}    rmse  /quad.    nlpd  cov.  seconds")
        baseline = np.mean([fold["quadratic"][0] for fold in results[name]])
        for method in results[name][0]:
            table = np.array([fold[method] for fold in results[name]])
            rmse, density, inside, _ = table.mean(axis=0)
            seconds = np.median(table[:, 3])
            row = f"{method:16s} {rmse:7.4g} {rmse / baseline:7.3f} {density:7.3f} {inside:5.2f} {seconds:8.2f}"
            print(row, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
