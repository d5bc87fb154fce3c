"""Networks with quadratic activations on UCI sets, beside what they have to beat.

    python bench/paper/bnn.py [--sets yacht,energy] [--folds 10] [--json out.json]

A network of one hidden layer is a quadratic polynomial of its inputs, of two layers a polynomial of degree four. The
honest baselines are therefore ridge regression on the inputs ("linear") and on their squares and products
("quadratic"), penalties by efficient leave-one-out, whose residuals also give the predictive deviation;
`DirectRegressor` with its defaults stands beside them. The paper's ten folds, one thread.

Within a fold the test rows are not looked at: the architecture is the one with the best log density on a held-out fifth
of the training rows, and is then fitted to all of them; starts are chosen by the ELBO. Columns: mean test RMSE, its
ratio to quadratic ridge's, NLPD a row (nats, user's units), coverage of central 90 % intervals, median seconds a fit.
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


def chosen_network(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], PredictiveDistribution]:
    """The architecture with the best log density on held-out training rows, fitted to all training rows."""
    x_fit, x_held, y_fit, y_held = train_test_split(x, y, test_size=0.2, random_state=0)
    held_out = [nlpd(y_held, network(sizes)(x_fit, y_fit)(x_held)) for sizes in ARCHITECTURES]
    return network(ARCHITECTURES[int(np.argmin(held_out))])(x, y)


METHODS: dict[str, Fit] = {
    "linear": ridge(1),
    "quadratic": ridge(2),
    "DirectRegressor": direct,
    **{f"network {'-'.join(map(str, sizes))}": network(sizes) for sizes in ARCHITECTURES},
    "network, chosen": chosen_network,
}


def run_fold(fit: Fit, x: np.ndarray, y: np.ndarray, test: np.ndarray) -> list[float]:
    """RMSE, NLPD, coverage and seconds on one fold."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict = fit(x[~test], y[~test])
    seconds = time.perf_counter() - begin
    predicted = predict(x[test])
    rmse = float(np.sqrt(np.mean((predicted.mean - y[test]) ** 2)))
    return [rmse, nlpd(y[test], predicted), coverage(y[test], *predicted.interval(0.9)), seconds]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--methods", help="comma-separated; all by default", default=";".join(METHODS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = data_directory()
    results: dict[str, dict[str, list[list[float]]]] = {}
    for name in arguments.sets.split(","):
        data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
        x, y, tests = data["X"], data["y"], data["test_mask"].T[: arguments.folds]
        print(f"\n{name}: {len(y)} rows, {x.shape[1]} inputs\n{'':18s}    rmse  /quad.    nlpd  cov.  seconds")
        results[name] = {}
        for method in arguments.methods.split(";"):
            folds = [run_fold(METHODS[method], x, y, test) for test in tests]
            results[name][method] = folds
            rmse, density, inside, _ = np.mean(folds, axis=0)
            baseline = np.mean(results[name].get("quadratic", [[np.nan] * 4]), axis=0)[0]
            seconds = np.median(folds, axis=0)[3]
            print(
                f"{method:18s} {rmse:7.4g} {rmse / baseline:7.3f} {density:7.3f} {inside:5.2f} {seconds:8.2f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
