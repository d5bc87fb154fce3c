"""Classification: accuracy, log loss, calibration and time, beside scikit-learn's logistic regression.

Four real data sets that come with scikit-learn, five folds, and two synthetic ones of 100,000 rows with 20,000 held
out. With ``--models fourier`` the posteriors of the raw basis beside the decorrelated one, on equal features. The
reference is `LogisticRegression` as it comes, on the same basis functions (``same ...``) and on standardised
columns (``columns``). On linear features both bounds are fitted, and the final value of each is printed, in nats per
row: both are lower bounds of the log-probability of the training labels. One thread.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy.special import expit  # noqa: E402
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.model_selection import StratifiedKFold  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from pydirect import DirectClassifier  # noqa: E402
from pydirect.metrics import expected_calibration_error  # noqa: E402

REAL = {"breast_cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris, "digits": load_digits}
SYNTHETIC = ("linear", "curved")
COLUMNS = ("accuracy", "log_loss", "calibration_error", "seconds", "bound", "inference", "zeros")
MODELS = {
    "nystroem": {"features": "nystroem"},
    "linear": {"features": "linear"},
    "linear, exponential": {"features": "linear", "bound": "exponential"},
    "fourier": {"features": "fourier"},
    "fourier, sequential": {"features": "fourier", "basis": "raw"},
    "fourier, mean field": {"features": "fourier", "basis": "raw", "posterior": "mean_field"},
}


def synthetic(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Ten normal columns; the logit is linear in them, or has curved parts and an interaction."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 10))
    z = x @ np.linspace(1.5, -1.5, 10)
    if name == "curved":
        z = 2 * np.sin(2 * x[:, 0]) + 1.5 * x[:, 1] * x[:, 2] + x[:, 3] ** 2 - 1 + x[:, 4]
    return x, (rng.random(n) < expit(z)).astype(int)


def splits(name: str, n_folds: int, n: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Training and held-out X and y."""
    if name in REAL:
        x, y = REAL[name](return_X_y=True)
        for train, test in list(StratifiedKFold(5, shuffle=True, random_state=0).split(x, y))[:n_folds]:
            yield x[train], y[train], x[test], y[test]
    else:
        x, y = synthetic(name, n + n // 5)
        yield x[:n], y[:n], x[n:], y[n:]


def scores(
    y: np.ndarray,
    p: np.ndarray,
    seconds: float,
    bound: float = np.nan,
    inference: float = np.nan,
    zeros: float = np.nan,
) -> list[float]:
    """Accuracy, log loss, expected calibration error of the predicted class, seconds to fit, the ELBO per row.

    Then the seconds of inference alone and the share of weights that are zero in a draw.
    """
    right = p.argmax(axis=1) == y
    error = expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0))
    return [right.mean(), log_loss(y, p), error, seconds, bound, inference, zeros]


def fitted(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    """Fit and return the seconds."""
    begin = time.perf_counter()
    model.fit(x, y)
    return time.perf_counter() - begin


def measure(name: str, labels: list[str], n_basis_functions: int, n_folds: int, n: int) -> dict[str, list[float]]:
    """Scores of every model, averaged over folds."""
    found: dict[str, list[list[float]]] = {}
    for x, y, x_test, y_test in splits(name, n_folds, n):
        for label in labels:
            model = DirectClassifier(**MODELS[label], n_basis_functions=n_basis_functions, n_threads=1)
            seconds = fitted(model, x, y)
            inference = model.fit_seconds_["inference"], model.sparsity_
            row = scores(y_test, model.predict_proba(x_test), seconds, model.elbo_ / len(y), *inference)
            found.setdefault(f"pydirect {label}", []).append(row)
            if model.bound == "exponential" or model.basis == "raw":
                continue
            phi, phi_test = (np.vstack([model._features_of(a)[1] for a in np.array_split(b, 20)]) for b in (x, x_test))
            reference = LogisticRegression(max_iter=1000)
            seconds = fitted(reference, phi, y)
            found.setdefault(f"scikit-learn, same {label}", []).append(
                scores(y_test, reference.predict_proba(phi_test), seconds)
            )
        columns = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        seconds = fitted(columns, x, y)
        found.setdefault("scikit-learn, columns", []).append(scores(y_test, columns.predict_proba(x_test), seconds))
    return {label: np.mean(values, axis=0).tolist() for label, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*REAL, *SYNTHETIC], help="data sets (default: all)")
    parser.add_argument("--models", default="", help="only those whose names begin so (default: all)")
    parser.add_argument(
        "--n-basis-functions", type=int, default=300, help="landmarks or Fourier features (default: 300)"
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100_000, help="of the synthetic sets")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for name in arguments.names:
        labels = [label for label in MODELS if label.startswith(arguments.models)]
        results[name] = measure(name, labels, arguments.n_basis_functions, arguments.folds, arguments.rows)
        print(f"\n{name:32s}" + "".join(f"{c:>19s}" for c in COLUMNS))
        for label, values in results[name].items():
            print(f"{label:32s}" + "".join(f"{v:19.4f}" for v in values), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
