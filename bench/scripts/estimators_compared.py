"""The package's regressors beside each other where the noise varies from row to row, and where it does not.

    python bench/scripts/estimators_compared.py [--rows 1000] [--seeds 2] [--problems jump1,lin5] [--json out.json]

Five synthetic problems whose noise varies, two whose noise is constant, and two sets of scikit-learn, a quarter of
which is held out: diabetes, and wine, whose first column is predicted from the others. Everyone has its defaults, and
one thread.

Columns: RMSE and mean negative log predictive density (nats per row) of held-out rows, seconds of the fit.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from sklearn.datasets import load_diabetes, load_wine  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

from pydirect import DirectRegressor, DVIRegressor, MonteCarloBNNRegressor, QuadraticBNNRegressor  # noqa: E402

N_TEST = 2000
Function = Callable[[np.ndarray], np.ndarray]
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# Columns, uniform in −1 … 1; mean; deviation of the noise.
PROBLEMS: dict[str, tuple[int, Function, Function]] = {
    "jump1": (1, lambda x: np.sin(3 * x[:, 0]), lambda x: 0.05 + 0.3 * (x[:, 0] > 0)),
    "wave2": (2, lambda x: np.cos(4 * x[:, 0]) + x[:, 1], lambda x: np.exp(-2 + 1.5 * np.sin(5 * x[:, 1]))),
    "lin5": (5, lambda x: x @ [1.0, -1.0, 0.5, 0.0, 0.0], lambda x: np.exp(-1.5 + 1.5 * x[:, 3])),
    "mean8": (8, lambda x: np.exp(1 + x[:, :3].sum(1) / 2), lambda x: 0.15 * np.exp(1 + x[:, :3].sum(1) / 2)),
    "product10": (
        10,
        lambda x: np.sin(np.pi * x[:, 0] * x[:, 1]) + 2 * x[:, 2] ** 2 + x[:, 3],
        lambda x: np.exp(-1.5 + 2 * x[:, 4] * x[:, 5]),
    ),
    "constant2": (2, lambda x: np.cos(4 * x[:, 0]) + x[:, 1], lambda x: np.full(len(x), 0.3)),
    "constant10": (
        10,
        lambda x: np.sin(np.pi * x[:, 0] * x[:, 1]) + 2 * x[:, 2] ** 2 + x[:, 3],
        lambda x: np.full(len(x), 0.3),
    ),
}
MODELS: dict[str, Callable[[], Any]] = {
    "DirectRegressor": DirectRegressor,
    "noise='varying'": lambda: DirectRegressor(noise="varying"),
    "noise='constant'": lambda: DirectRegressor(noise="constant"),
    "DVIRegressor": DVIRegressor,
    "MonteCarloBNN": MonteCarloBNNRegressor,
    "QuadraticBNN": QuadraticBNNRegressor,
}


def synthetic(name: str, n: int, seed: int) -> Data:
    """Return training rows and `N_TEST` others: X, X, y, y."""
    d, mean, deviation = PROBLEMS[name]
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n + N_TEST, d))
    y = mean(x) + deviation(x) * rng.standard_normal(len(x))
    return x[:n], x[n:], y[:n], y[n:]


def data_of(name: str, n: int, seed: int) -> Data:
    """Return the rows of a problem, or of one of scikit-learn's data sets."""
    if name in PROBLEMS:
        return synthetic(name, n, seed)
    wine = load_wine().data
    x, y = load_diabetes(return_X_y=True) if name == "diabetes" else (wine[:, 1:], wine[:, 0])
    return tuple(train_test_split(x, y, random_state=seed))


def best(name: str, x: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log density of the true distribution."""
    _, mean, deviation = PROBLEMS[name]
    s = deviation(x)
    return float(np.mean(0.5 * ((y - mean(x)) / s) ** 2 + np.log(s)) + 0.5 * np.log(2 * np.pi))


def measure(make: Callable[[], Any], data: Data) -> tuple[float, float, float]:
    """Return RMSE, NLPD and seconds."""
    x, x_test, y, y_test = data
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(x, y)
    seconds = time.perf_counter() - begin
    found = model.predict_distribution(x_test)
    rmse = np.sqrt(np.mean((found.mean - y_test) ** 2))
    return float(rmse), -float(found.log_density(y_test).mean()), seconds


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default=",".join([*PROBLEMS, "diabetes", "wine"]))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    models = arguments.models.split(",")
    results: dict[str, dict[str, list[float]]] = {}
    print("problem      truth" + "".join(f"{name:>26s}" for name in models))
    for problem in arguments.problems.split(","):
        each = {name: [] for name in models}
        truth = []
        for seed in range(arguments.seeds):  # interleaved, so that all meet the same load
            data = data_of(problem, arguments.rows, seed)
            truth.append(best(problem, data[1], data[3]) if problem in PROBLEMS else np.nan)
            for name in models:
                each[name].append(measure(MODELS[name], data))
        results[problem] = {name: np.mean(runs, axis=0).tolist() for name, runs in each.items()}
        line = "".join(f"{r[0]:10.4g} {r[1]:7.3f} {r[2]:5.1f} s" for r in results[problem].values())
        print(f"{problem:10s} {np.mean(truth):7.3f}{line}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"columns": ["rmse", "nlpd", "seconds"], "results": results}, indent=1))


if __name__ == "__main__":
    main()
