"""`pydirect demo`: intervals on real data, beside those of other models, and whether they hold where it matters.

The data come with scikit-learn: ten measurements of the cell nuclei of 569 biopsies, and how uncertain the area is that
was measured. Large nuclei vary much more than small ones. Models whose intervals are equally wide everywhere hold too
often for small nuclei and too seldom for large ones; quantiles that are fitted one by one are too close to each other.
One table shows what the output looks like; it does not decide which model is better elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import pydirect
from pydirect._validation import FloatArray
from pydirect.cli.main import LEVEL
from pydirect.metrics import coverage, interval_score
from pydirect.persistence.container import atomic_open

TARGET, SIZE = "area error", "mean area"
N_INPUTS = 10
N_FOLDS = 5
RUNNING = 101  # rows of like size among which the picture counts
HEADER = ("", f"{LEVEL:.0%} intervals hold", "small nuclei", "large nuclei", "mean width", "interval score", "seconds")


class Boosting:
    """Gradient boosting of scikit-learn with the quantile loss: one model for each end of the intervals."""

    def __init__(self) -> None:
        ends = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
        self.models = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0) for q in ends]

    def fit(self, X: FloatArray, y: FloatArray) -> None:
        """Fit both models."""
        for model in self.models:
            model.fit(X, y)

    def predict_interval(self, X: FloatArray, level: float) -> FloatArray:
        """Return both ends, (2, n_rows), in order."""
        return np.sort([model.predict(X) for model in self.models], axis=0)


# Ends of the intervals of all rows, (2, n_rows), predicted without the fold of the row, and the seconds of a fit.
Result = tuple[FloatArray, float]


def run(args: argparse.Namespace) -> None:
    """Fit, compare and, if asked to, draw."""
    data = load_breast_cancer()
    names = list(data.feature_names)
    X, y, size = data.data[:, :N_INPUTS], data.data[:, names.index(TARGET)], data.data[:, names.index(SIZE)]
    print(f"Predicting {TARGET!r} of {len(y)} biopsies from {N_INPUTS} other measurements, in {N_FOLDS} folds.\n")
    results = {name: _cross_validated(name, model, X, y) for name, model in _models().items()}
    print("\n".join(_table(results, y, size)))
    print(f"\nIntervals of {LEVEL:.0%} should hold for {LEVEL:.0%} of all rows, of small nuclei, and of large ones.")
    print("The interval score is the width plus a penalty for every miss: less is better. Fits are on one thread.")
    if args.plot is not None:
        _draw(results, y, size, args.plot)
        print(f"Written {args.plot}")


def _models() -> dict[str, Any]:
    kernel = ConstantKernel() * RBF(3.0, (0.1, 1e3)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    return {
        "pydirect": pydirect.DirectRegressor(n_threads=1),
        "gradient boosting, quantiles": Boosting(),
        "Gaussian process, RBF": make_pipeline(StandardScaler(), process),
        "BayesianRidge": make_pipeline(StandardScaler(), BayesianRidge()),
    }


def _cross_validated(name: str, model: Any, X: FloatArray, y: FloatArray) -> Result:
    print(f"Fitting {name} ...", end="", file=sys.stderr, flush=True)
    ends, seconds, folds = np.empty((2, len(y))), 0.0, np.random.default_rng(0).permutation(len(y)) % N_FOLDS
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # the Gaussian process warns where its search stops at a bound
        for fold in range(N_FOLDS):
            test = folds == fold
            begin = time.perf_counter()
            model.fit(X[~test], y[~test])
            seconds += (time.perf_counter() - begin) / N_FOLDS
            if getattr(model, "interrupted_", False):
                raise KeyboardInterrupt
            ends[:, test] = pydirect.predict_interval(model, X[test], LEVEL)
    print(f" {N_FOLDS * seconds:.1f} s", file=sys.stderr, flush=True)
    return ends, seconds


def _table(results: dict[str, Result], y: FloatArray, size: FloatArray) -> list[str]:
    low, high = np.quantile(size, [1 / 3, 2 / 3])
    parts = (np.full(len(y), True), size <= low, size >= high)
    rows: list[tuple[str, ...]] = [HEADER]
    for name, ((lower, upper), seconds) in results.items():
        held = (f"{coverage(y[part], lower[part], upper[part]):.1%}" for part in parts)
        score = interval_score(y, lower, upper, LEVEL)
        rows.append((name, *held, f"{np.mean(upper - lower):.1f}", f"{score:.1f}", f"{seconds:.2f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def _draw(results: dict[str, Result], y: FloatArray, size: FloatArray, path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    from pydirect.plotting import PredictionIntervalDisplay
    from pydirect.plotting.common import INK, SERIES, finish

    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    name, ((lower, upper), _) = next(iter(results.items()))
    feature = f"{SIZE}, {name}", size
    intervals = PredictionIntervalDisplay(y, 0.5 * (lower + upper), lower, upper, level=LEVEL, feature=feature)
    intervals.plot(left, kind="feature", target_name=TARGET, max_points=250)
    order, mean = np.argsort(size, kind="stable"), np.full(RUNNING, 1 / RUNNING)
    for (name, ((lower, upper), _)), color in zip(results.items(), SERIES, strict=False):
        inside = ((lower <= y) & (y <= upper))[order]
        running, at = (np.convolve(values, mean, mode="valid") for values in (inside, size[order]))
        right.plot(at, running, color=color, lw=1.8, label=name)
    right.axhline(LEVEL, color=INK, lw=1, ls=":")
    right.set(xlabel=SIZE, ylabel=f"{LEVEL:.0%} intervals that hold, of {RUNNING} neighbours", ylim=(0.55, 1.02))
    right.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    finish(right, "above")
    with atomic_open(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=110)
