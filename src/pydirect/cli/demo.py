"""`pydirect demo`: regression with uncertainty on real data, beside scikit-learn's Bayesian models.

The data come with scikit-learn: from ten measurements of the cell nuclei of 569 biopsies it predicts the worst
smoothness, whose noise is about equally large everywhere, as all four models assume. One small table and one split show
what the output looks like; they do not decide which model is better.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.predictive.gaussian_mixture import PredictiveDistribution

TARGET = "worst smoothness"
N_INPUTS = 10
TEST_FRACTION = 0.3
LEVEL = 0.9
DISCRETE_FEATURES = 500
CONTINUOUS, DISCRETE = "pydirect", "pydirect, 4-bit weights"


@dataclass(frozen=True)
class _Split:
    train: FloatArray
    y_train: FloatArray
    test: FloatArray
    y_test: FloatArray


@dataclass(frozen=True)
class _Result:
    """A fitted model and its predictions of the test rows."""

    name: str
    model: Any
    seconds: float
    predicted: PredictiveDistribution


def run(args: argparse.Namespace) -> int:
    """Fit, compare, save and draw."""
    output_dir, quiet, seed = args.output_dir, args.quiet, args.seed
    if not output_dir.is_dir():
        raise NotADirectoryError(f"{output_dir}: expected an existing directory")
    split = _load(seed)
    if not quiet:
        print(
            f"Predicting {TARGET!r} of {len(split.y_train) + len(split.y_test)} biopsies from {N_INPUTS} other "
            f"measurements: {len(split.y_train)} rows to fit, {len(split.y_test)} to test.\n"
        )
    results = [_fit(name, model, split, quiet) for name, model in _models(seed)]
    print("\n".join(_table(results, split.y_test)))
    _explain(results, split, quiet)
    _save(results, output_dir)
    _draw(results, split, output_dir)
    return 0


def _load(seed: int) -> _Split:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    y = data.data[:, list(data.feature_names).index(TARGET)]
    x = data.data[:, :N_INPUTS]
    order = np.random.default_rng(seed).permutation(len(y))
    n_test = round(TEST_FRACTION * len(y))
    test, train = order[:n_test], order[n_test:]
    return _Split(x[train], y[train], x[test], y[test])


def _models(seed: int) -> list[tuple[str, Any]]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from pydirect import DirectRegressor

    kernel = ConstantKernel() * RBF(3.0, (0.1, 1e3)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    return [
        (CONTINUOUS, DirectRegressor(n_threads=1, random_state=seed)),
        (
            DISCRETE,
            DirectRegressor(
                posterior="sequential", n_basis_functions=DISCRETE_FEATURES, n_threads=1, random_state=seed
            ),
        ),
        ("BayesianRidge", make_pipeline(StandardScaler(), BayesianRidge())),
        ("Gaussian process, RBF", make_pipeline(StandardScaler(), process)),
    ]


def _fit(name: str, model: Any, split: _Split, quiet: bool) -> _Result:
    from sklearn.exceptions import ConvergenceWarning

    if not quiet:
        print(f"Fitting {name} ...", end="", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    # One thread for all: otherwise ours would use more, and the matrices are small.
    with warnings.catch_warnings(record=True) as caught, single_blas_thread():
        warnings.simplefilter("always")
        model.fit(split.train, split.y_train)
    seconds = time.perf_counter() - begin
    if getattr(model, "interrupted_", False):
        raise KeyboardInterrupt
    if not quiet:
        stopped = any(issubclass(w.category, ConvergenceWarning) for w in caught)
        print(f" {seconds:.2f} s{', stopped before it converged' if stopped else ''}", file=sys.stderr, flush=True)
    return _Result(name, model, seconds, _predict(model, split.test))


def _predict(model: Any, x: FloatArray) -> PredictiveDistribution:
    if hasattr(model, "predict_distribution"):
        distribution: PredictiveDistribution = model.predict_distribution(x)
        return distribution
    mean, std = model.predict(x, return_std=True)
    return PredictiveDistribution.gaussian(mean, std**2)


def _table(results: Sequence[_Result], y: FloatArray) -> list[str]:
    from pydirect.metrics import coverage, nlpd

    header = ("", "test RMSE", "NLPD", f"{LEVEL:.0%} interval holds", "fit seconds")
    rows = [
        (
            r.name,
            f"{np.sqrt(np.mean((y - r.predicted.mean) ** 2)):.4f}",
            f"{nlpd(y, r.predicted):.3f}",
            f"{coverage(y, *r.predicted.interval(LEVEL)):.1%}",
            f"{r.seconds:.2f}",
        )
        for r in results
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in (header, *rows)
    ]


def _explain(results: Sequence[_Result], split: _Split, quiet: bool) -> None:
    discrete = next(r.model for r in results if r.name == DISCRETE)
    weights = discrete.posterior_.weights
    if not quiet:
        print(
            "\nRMSE is the error of the mean (the target's standard deviation is "
            f"{split.y_test.std():.4f}). NLPD, the negative log predictive\ndensity, judges mean and uncertainty "
            "together: lower is better, also below zero. Seconds are on one thread, and include\n"
            "finding the kernel's length-scales."
        )
    print(
        f"\nOne draw of the 4-bit weights: {weights.n_weights} weights on {weights.n_levels} levels, 4 bits "
        f"each, make {(weights.n_weights + 1) // 2} bytes;\n{discrete.sparsity_:.1%} of the weights are expected to "
        "be exactly zero."
    )
    print(textwrap.fill(discrete.posterior_.summary(), 118))


def _save(results: Sequence[_Result], output_dir: Path) -> None:
    print()
    for result, name in zip(results, ("demo.pydirect", "demo-4-bit.pydirect"), strict=False):
        path = output_dir / name
        result.model.save(path, metadata={"demo": {"target": TARGET}})
        print(f"Written {path}, {path.stat().st_size} bytes ({result.name}: the whole posterior)")


def _draw(results: Sequence[_Result], split: _Split, output_dir: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print('No picture: it requires matplotlib. Install it with: pip install "pydirect[plot]"')
        return
    from pydirect.metrics import pit
    from pydirect.persistence.container import atomic_open
    from pydirect.plotting import CalibrationDisplay, PredictionIntervalDisplay, SequentialDisplay

    figure = Figure(figsize=(13.0, 9.0), layout="constrained")
    axes = figure.subplot_mosaic([["intervals", "calibration"], ["draws", "levels"]])
    best, discrete, *_ = results
    PredictionIntervalDisplay.from_predictions(
        split.y_test, best.predicted, level=LEVEL, ax=axes["intervals"], target_name=TARGET
    )
    axes["intervals"].set_xlabel(f"test row, in order of prediction ({best.name})")
    axes["intervals"].margins(x=0.01)
    for result in results:
        CalibrationDisplay(pit(split.y_test, result.predicted), name=result.name).plot(ax=axes["calibration"])
    axes["calibration"].set_title("Intervals of every level, on the test rows", loc="left")
    SequentialDisplay.from_estimator(discrete.model, ax=[axes["draws"], axes["levels"]])
    path = output_dir / "demo.png"
    with atomic_open(path) as file:
        figure.savefig(file, format="png", dpi=110)
    print(f"Written {path}")
