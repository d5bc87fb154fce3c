"""What users wait for, each beside the machine's limit in the same run, and beside another version of the package.

    python bench/scripts/limits.py [--json out.json]
    python bench/scripts/limits.py --against OTHER/src       two versions, paired: turn by turn, medians of five turns
    python bench/scripts/limits.py --items one_mean,10000_means

2000 landmarks and 8 columns. Models with ``noise="constant"``, no local process and given length-scales, except
`default_fit` and `groups`, which are as they come, and `statistics`, whose kernel is learned. Limits are measured each
turn by whichever version is at work, with NumPy's BLAS and LAPACK: symmetric rank-k update of as many rows, k(x, Z)α by
one product and exponentials, a product of one row with a triangle of float32, one of all rows with a square of float32
(sgemm), the tridiagonal form (sytrd) and Cholesky (potrf) of a square of the same size. `many_*` and `groups` are
beside single fits times their number. One thread unless OMP_NUM_THREADS says otherwise; seconds are of the wall, with
`--processor` of the processor, which a busy machine changes less.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

TURNS, ROWS, LANDMARKS, COLUMNS = 5, 36_000, 2_000, 8
MODELS, MODEL_WEIGHTS = 32, 1_000
GROUPS, GROUP_ROWS, GROUPS_ALONE = 500, 200, 10
THREADS = int(os.environ["OMP_NUM_THREADS"])
Call = Callable[[], Any]


@cache
def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal columns, a smooth function and noise of standard deviation 0.3."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, COLUMNS))
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + np.cos(x[:, 3] + x[:, 4])
    return x, f + 0.3 * rng.standard_normal(n)


def regressor(**options: Any) -> Any:
    """Return the model of most items."""
    from pydirect import DirectRegressor, Nystroem

    given = {"noise": "constant", "local": False, "features": Nystroem(length_scale=3.0), "n_threads": THREADS}
    return DirectRegressor(**given | options)


@cache
def fitted() -> Any:
    """A model of 4000 rows, which has deviations at once."""
    model = regressor(n_basis_functions=LANDMARKS).fit(*rows(4_000))
    model.predict(rows(ROWS)[0][:10], return_std=True)
    return model


@cache
def classifier() -> Any:
    """A default classifier of 2000 rows and three classes."""
    from pydirect import DirectClassifier

    x, y = rows(2_000)
    return DirectClassifier(n_threads=THREADS).fit(x, np.digitize(y, np.quantile(y, [0.33, 0.66])))


@cache
def positive(n: int) -> np.ndarray:
    """Return a well-conditioned covariance."""
    a = np.random.default_rng(0).standard_normal((n, n))
    return np.asfortranarray(a @ a.T + n * np.eye(n))


def repeated(call: Call, times: int) -> Call:
    """Return a call that is `times` calls."""

    def many() -> None:
        for _ in range(times):
            call()

    return many


# --- limits


def rank_k_update(n_rows: int, n_weights: int) -> Call:
    """Sum of products of blocks in double precision."""
    block = np.random.default_rng(0).standard_normal((2_000, n_weights))
    return repeated(lambda: block.T @ block, n_rows // len(block))


def bare_mean(n_rows: int) -> Call:
    """k(x, Z)α of a squared exponential: one product, one exponential an entry, one product."""
    z = np.random.default_rng(0).standard_normal((COLUMNS + 1, LANDMARKS)) / 3.0
    x, alpha = np.ones((min(n_rows, 500), COLUMNS + 1)), np.ones(LANDMARKS)
    return repeated(lambda: np.exp(x @ z) @ alpha, max(n_rows // 500, 1))


def kernel_alone(n_rows: int) -> Call:
    """The package's own kernel functions, and nothing else."""
    features, x = fitted().features_, rows(ROWS)[0][:n_rows]
    inputs = features.inputs(x)
    blocks = [inputs[begin : begin + 500] for begin in range(0, n_rows, 500)]
    return lambda: [features.map.functions(block) for block in blocks]


def triangle_of_one_row() -> Call:
    """Product of a row with a triangle of float32."""
    from scipy.linalg.blas import strmv

    triangle, row = np.asfortranarray(np.triu(positive(LANDMARKS)).astype(np.float32)), np.ones(LANDMARKS, np.float32)
    return lambda: strmv(triangle, row)


def sgemm(n_rows: int, n_weights: int = LANDMARKS) -> Call:
    """Product of all rows with a square of float32."""
    phi, square = np.ones((n_rows, n_weights), np.float32), np.ones((n_weights, n_weights), np.float32)
    return lambda: phi @ square


def sytrd() -> Call:
    """Tridiagonal form."""
    from scipy.linalg.lapack import dsytrd, dsytrd_lwork

    a, size = positive(LANDMARKS), int(dsytrd_lwork(LANDMARKS, lower=1)[0])
    return lambda: dsytrd(a, lower=1, lwork=size)


def potrf() -> Call:
    """Cholesky factor."""
    from scipy.linalg.lapack import dpotrf

    return lambda: dpotrf(positive(LANDMARKS), lower=1)


# --- items: what is measured, how often a turn, its limits and what it is times a limit


@cache
def learned_features() -> Any:
    """Return features of a model of all rows, whose kernel is learned."""
    return regressor(n_basis_functions=LANDMARKS, features="nystroem").fit(*rows(ROWS)).features_


def collected(features: Any, n_rows: int) -> Any:
    """Return sums over rows."""
    from pydirect import collect_statistics

    x, y = rows(n_rows)
    return collect_statistics(features.map, features.inputs(x), y[:, None], n_threads=THREADS)


def statistics() -> Call:
    features = learned_features()
    return lambda: collected(features, ROWS).A


def inference(vectors: bool) -> Call:
    """From sums to a posterior, noise and prior variance by evidence; with eigenvectors or without."""
    from pydirect import fit_gaussian
    from pydirect.linear import maximise_evidence
    from pydirect.statistics import decorrelate

    sums = collected(fitted().features_, 4_000)
    sums.form_gram()

    def infer() -> Any:
        target = decorrelate(sums).target(0)
        noise, scale = maximise_evidence(target, 0.1)
        posterior = fit_gaussian(target.scaled(scale), noise)
        return posterior.vectors if vectors else posterior

    return infer


def default_fit() -> Call:
    from pydirect import DirectRegressor

    return lambda: DirectRegressor(n_threads=THREADS).fit(*rows(ROWS))


def many(posterior: str, together: bool, noises: bool) -> Call:
    """32 targets of one table, or 32 noise variances of one target: at once, or one of them alone."""
    from pydirect import fit_many

    x, _ = rows(4_000)
    y = x @ np.random.default_rng(1).standard_normal((COLUMNS, MODELS)) + rows(4_000)[1][:, None]
    levels = np.geomspace(0.05, 0.5, MODELS) if noises else ["constant"] * MODELS
    targets = [y[:, 0 if noises else k] for k in range(MODELS)]

    def model(k: int) -> Any:
        noise = float(levels[k]) if noises else "constant"
        return regressor(n_basis_functions=MODEL_WEIGHTS, posterior=posterior, noise=noise)

    if together:
        return lambda: fit_many([model(k) for k in range(MODELS)], x, targets)
    return lambda: model(MODELS // 2).fit(x, targets[MODELS // 2])


def groups(together: bool) -> Call:
    """500 groups of 200 rows at once, or ten of them in a loop."""
    import pydirect

    if not hasattr(pydirect, "fit_groups"):
        raise NotImplementedError("this version has no fit_groups")
    x, y = rows(GROUPS * GROUP_ROWS)
    label = np.repeat(np.arange(GROUPS), GROUP_ROWS)
    if together:
        return lambda: pydirect.fit_groups(pydirect.DirectRegressor(n_threads=THREADS), x, y, label)

    def alone() -> None:
        for k in range(GROUPS_ALONE):
            pydirect.DirectRegressor(n_threads=THREADS).fit(x[label == k], y[label == k])

    return alone


def predicting(method: str, n: int, model: Callable[[], Any] = fitted, **options: Any) -> Call:
    x = np.ascontiguousarray(rows(ROWS)[0][:n])
    own = model()
    call = getattr(own, method)
    call(x[:1], **options)
    return lambda: call(x, **options)


def classifier_functions(n: int) -> Call:
    features, x = classifier().features_, rows(ROWS)[0][:n]
    return lambda: features.transform(x)


DEVIATION = {"return_std": True}
ITEMS: dict[str, tuple[Callable[[], Call], int, dict[str, tuple[Callable[[], Call], float]]]] = {
    # name: what is measured, calls a turn, limits with factors
    "statistics": (statistics, 1, {"rank-k update": (lambda: rank_k_update(ROWS, LANDMARKS), 1)}),
    "one_mean": (lambda: predicting("predict", 1), 200, {"bare k(x, Z)α": (lambda: bare_mean(1), 1)}),
    "one_deviation": (
        lambda: predicting("predict", 1, **DEVIATION),
        200,
        {"triangle": (triangle_of_one_row, 1), "bare k(x, Z)α": (lambda: bare_mean(1), 1)},
    ),
    "one_interval": (lambda: predicting("predict_interval", 1), 100, {"triangle": (triangle_of_one_row, 1)}),
    "4000_means": (
        lambda: predicting("predict", 4_000),
        3,
        {"kernel alone": (lambda: kernel_alone(4_000), 1), "bare k(x, Z)α": (lambda: bare_mean(4_000), 1)},
    ),
    "10000_means": (
        lambda: predicting("predict", 10_000),
        1,
        {"kernel alone": (lambda: kernel_alone(10_000), 1), "bare k(x, Z)α": (lambda: bare_mean(10_000), 1)},
    ),
    "10000_deviations": (
        lambda: predicting("predict", 10_000, **DEVIATION),
        1,
        {"sgemm": (lambda: sgemm(10_000), 1), "kernel alone": (lambda: kernel_alone(10_000), 1)},
    ),
    "10000_intervals": (lambda: predicting("predict_interval", 10_000), 1, {"sgemm": (lambda: sgemm(10_000), 1)}),
    "inference": (lambda: inference(False), 1, {"tridiagonal form": (sytrd, 1), "Cholesky": (potrf, 1)}),
    "inference_with_vectors": (lambda: inference(True), 1, {"tridiagonal form": (sytrd, 1)}),
    "default_fit": (default_fit, 1, {"rank-k update": (lambda: rank_k_update(ROWS, LANDMARKS), 1)}),
    "many_sequential": (
        lambda: many("sequential", True, False),
        1,
        {"32 single fits": (lambda: many("sequential", False, False), MODELS)},
    ),
    "many_gaussian": (
        lambda: many("gaussian", True, False),
        1,
        {"32 single fits": (lambda: many("gaussian", False, False), MODELS)},
    ),
    "many_noises": (
        lambda: many("gaussian", True, True),
        1,
        {"32 single fits": (lambda: many("gaussian", False, True), MODELS)},
    ),
    "groups": (lambda: groups(True), 1, {"500 single fits": (lambda: groups(False), GROUPS / GROUPS_ALONE)}),
    "one_probability": (
        lambda: predicting("predict_proba", 1, classifier),
        100,
        {"basis functions": (lambda: classifier_functions(1), 1)},
    ),
    "10000_probabilities": (
        lambda: predicting("predict_proba", 10_000, classifier),
        1,
        {"basis functions": (lambda: classifier_functions(10_000), 1)},
    ),
}


# --- turns


@cache
def calls(name: str) -> list[tuple[str, Call, float]]:
    """Build the calls of an item: its own first, with what their seconds are multiplied by."""
    own, _, limits = ITEMS[name]
    return [("", own(), 1.0), *((limit, make(), factor) for limit, (make, factor) in limits.items())]


def turn(name: str, clock: Callable[[], float]) -> dict[str, Any]:
    """Measure an item and its limits once: median seconds of the calls of a turn."""
    repeats, found = ITEMS[name][1], {}
    try:
        todo = calls(name)
    except (NotImplementedError, ImportError, AttributeError, TypeError) as error:
        return {"failed": str(error)}
    for limit, call, factor in todo:
        seconds = []
        for _ in range(repeats):
            begin = clock()
            call()
            seconds.append(clock() - begin)
        found[limit] = factor * float(np.median(seconds))
    return found


def work(clock: Callable[[], float]) -> None:
    """Measure the items that standard input names, a line each."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        print(json.dumps(turn(line.strip(), clock)), flush=True)


class Version:
    """A process that measures one version of the package."""

    def __init__(self, source: str | None, processor: bool) -> None:
        own = os.environ | ({"PYTHONPATH": source} if source else {})
        command = [sys.executable, __file__, "--work", *["--processor"] * processor]
        self.process = subprocess.Popen(command, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.turns: list[dict[str, Any]] = []

    def measure(self, name: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        self.turns.append(json.loads(self.process.stdout.readline()))

    def medians(self) -> dict[str, Any]:
        """Return the medians of the turns since the last call."""
        turns, self.turns = self.turns, []
        return turns[0] if "failed" in turns[0] else {k: float(np.median([t[k] for t in turns])) for k in turns[0]}


def shown(seconds: float) -> str:
    return f"{1e3 * seconds:9.3f} ms" if seconds < 1.0 else f"{seconds:9.2f} s "


def report(name: str, found: list[dict[str, Any]]) -> str:
    """Return an item in words: the version, the other one if there is one, and limits of the version's turns."""
    cells = [f"{name:24}"]
    cells += [f"{r['failed'][:36]:>36}" if "failed" in r else shown(r[""]) for r in reversed(found)]
    now = found[0]
    if len(found) == 2 and not any("failed" in r for r in found):
        cells.append(f"{now[''] / found[1]['']:6.2f} of before")
    if "failed" not in now:
        cells += [f"{now[''] / t:6.2f} × {limit} ({shown(t).strip()})" for limit, t in now.items() if limit]
    return "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", default=",".join(ITEMS), help="comma-separated: %(default)s")
    parser.add_argument("--against", help="PYTHONPATH of another version, shown first")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--processor", action="store_true", help="seconds of the processor")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(time.process_time if options.processor else time.perf_counter)
        return
    sources = [None, options.against] if options.against else [None]
    versions = [Version(source, options.processor) for source in sources]
    table = {}
    for name in options.items.split(","):
        for _ in range(options.turns):
            for version in versions:
                version.measure(name)
        table[name] = [version.medians() for version in versions]
        print(report(name, table[name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
