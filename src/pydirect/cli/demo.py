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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pydirect._validation import FloatArray
from pydirect.cli.common import check_output

TARGET, SIZE = "area error", "mean area"
N_INPUTS = 10
LEVEL = 0.9
N_FOLDS = 5
RUNNING = 101  # rows of like size among which the picture counts
HEADER = ("", f"{LEVEL:.0%} intervals hold", "small nuclei", "large nuclei", "mean width", "interval score", "seconds")


class Boosting:
    """Gradient boosting of scikit-learn with the quantile loss: one model for each end of the intervals."""

    def __init__(self, seed: int) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor

        ends = (0.5 - LEVEL / 2, 0.5 + LEVEL / 2)
        self.models = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=seed) for q in ends]

    def fit(self, X: FloatArray, y: FloatArray) -> None:
        """Fit both models."""
        for model in self.models:
            model.fit(X, y)

    def predict_interval(self, X: FloatArray, level: float) -> FloatArray:
        """Return both ends, (2, n_rows), in order."""
        return np.sort([model.predict(X) for model in self.models], axis=0)


class Result(NamedTuple):
    """Ends of the intervals of all rows, (n_rows,), predicted without the fold of the row, and the seconds of a fit."""

    name: str
    lower: FloatArray
    upper: FloatArray
    seconds: float


def run(args: argparse.Namespace) -> int:
    """Fit, compare and, if asked to, draw."""
    from sklearn.datasets import load_breast_cancer

    if args.plot is not None:
        from pydirect.cli.fit import check_picture

        check_output(args.plot)
        check_picture(args.plot)
    data = load_breast_cancer()
    names = list(data.feature_names)
    X, y, size = data.data[:, :N_INPUTS], data.data[:, names.index(TARGET)], data.data[:, names.index(SIZE)]
    if not args.quiet:
        print(
            f"Predicting {TARGET!r} of {len(y)} biopsies from {N_INPUTS} other measurements. Every row is predicted by "
            f"models\nthat have not seen it ({N_FOLDS} folds).\n"
        )
    folds = np.random.default_rng(args.seed).permutation(len(y)) % N_FOLDS
    results = [_cross_validated(name, model, X, y, folds, args.quiet) for name, model in _models(args.seed).items()]
    print("\n".join(_table(results, y, size)))
    if not args.quiet:
        print(
            f"\nIntervals of {LEVEL:.0%} should hold for {LEVEL:.0%} of all rows, and of the thirds with the "
            "smallest and the largest nuclei.\nThe interval score is the width plus a penalty for every miss: "
            "less is better. Seconds are those of a fit on one thread."
        )
    if args.plot is not None:
        _draw(results, y, size, args.plot)
    return 0


def _models(seed: int) -> dict[str, Any]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from pydirect import DirectRegressor

    kernel = ConstantKernel() * RBF(3.0, (0.1, 1e3)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    return {
        "pydirect": DirectRegressor(n_threads=1, random_state=seed),
        "gradient boosting, quantiles": Boosting(seed),
        "Gaussian process, RBF": make_pipeline(StandardScaler(), process),
        "BayesianRidge": make_pipeline(StandardScaler(), BayesianRidge()),
    }


def _cross_validated(
    name: str, model: Any, X: FloatArray, y: FloatArray, folds: NDArray[np.intp], quiet: bool
) -> Result:
    from pydirect import predict_interval

    if not quiet:
        print(f"Fitting {name} ...", end="", file=sys.stderr, flush=True)
    ends, seconds = np.empty((2, len(y))), 0.0
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # the Gaussian process warns where its search stops at a bound
        for fold in range(N_FOLDS):
            test = folds == fold
            begin = time.perf_counter()
            model.fit(X[~test], y[~test])
            seconds += (time.perf_counter() - begin) / N_FOLDS
            if getattr(model, "interrupted_", False):
                raise KeyboardInterrupt
            ends[:, test] = predict_interval(model, X[test], LEVEL)
    if not quiet:
        print(f" {N_FOLDS * seconds:.1f} s", file=sys.stderr, flush=True)
    return Result(name, ends[0], ends[1], seconds)


def _table(results: list[Result], y: FloatArray, size: FloatArray) -> list[str]:
    from pydirect.metrics import coverage, interval_score

    low, high = np.quantile(size, [1 / 3, 2 / 3])
    parts = (np.full(len(y), True), size <= low, size >= high)
    rows = [
        (
            result.name,
            *(f"{coverage(y[part], result.lower[part], result.upper[part]):.1%}" for part in parts),
            f"{np.mean(result.upper - result.lower):.1f}",
            f"{interval_score(y, result.lower, result.upper, LEVEL):.1f}",
            f"{result.seconds:.2f}",
        )
        for result in results
    ]
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in (HEADER, *rows)
    ]


def _draw(results: list[Result], y: FloatArray, size: FloatArray, path: Any) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    from pydirect.persistence.container import atomic_open
    from pydirect.plotting import PredictionIntervalDisplay
    from pydirect.plotting.common import INK, SERIES, finish

    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    ours = results[0]
    ends = (ours.lower, ours.upper)
    PredictionIntervalDisplay(y, np.mean(ends, axis=0), *ends, LEVEL, (f"{SIZE}, {ours.name}", size)).plot(
        left, kind="feature", target_name=TARGET, max_points=250
    )
    order = np.argsort(size, kind="stable")
    for result, color in zip(results, SERIES, strict=False):
        inside = ((result.lower <= y) & (y <= result.upper))[order]
        running = np.convolve(inside, np.full(RUNNING, 1 / RUNNING), mode="valid")
        at = np.convolve(size[order], np.full(RUNNING, 1 / RUNNING), mode="valid")
        right.plot(at, running, color=color, lw=1.8, label=result.name)
    right.axhline(LEVEL, color=INK, lw=1, ls=":")
    right.set(xlabel=SIZE, ylabel=f"{LEVEL:.0%} intervals that hold, of {RUNNING} neighbours", ylim=(0.55, 1.02))
    right.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    finish(right, "above")
    with atomic_open(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=110)
    print(f"Written {path}")
