"""Six fixed inference problems: bounds reached, time against one factorisation, error on held-out points.

Problems and targets come from ``reference_problems.json`` in the data folder (PYDIRECT_DATA, else ../shared/data beside
the checkout). One thread. Bounds are without the constant -(n/2) log 2 pi, errors on standardised targets.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy.linalg import lapack  # noqa: E402

from pydirect import (  # noqa: E402
    GaussianPrior,
    GaussianStatistics,
    PredictiveDistribution,
    collect_statistics,
    evenly_spaced_levels,
    fit_mean_field,
)
from pydirect.features import FourierFeatures  # noqa: E402
from pydirect.optimize.quadratic import OPTIMIZERS  # noqa: E402

N_FREQUENCIES = 1000
LEVELS = evenly_spaced_levels(15, 3.0)
# A, c and yᵀy must agree with the file to this relative difference: summation order is all that may differ.
AGREEMENT = 1e-9
TARGETS = ("reference", "start_pipeline", "best")


def data_folder() -> Path | None:
    """Folder of shared data, or None where there is none."""
    given = os.environ.get("PYDIRECT_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"
    return folder if (folder / "reference_problems.json").is_file() else None


@dataclass(frozen=True)
class Problem:
    """One problem, its statistics as they are collected, and the points held out."""

    name: str
    features: FourierFeatures
    statistics: GaussianStatistics
    x_test: np.ndarray
    y_test: np.ndarray
    noise_levels: np.ndarray
    noise: float

    @property
    def constant(self) -> float:
        """What bounds here leave out."""
        return -0.5 * self.statistics.n_samples * np.log(2 * np.pi)


def build(name: str, entry: dict[str, Any], folder: Path) -> Problem:
    """Fold 0, standardised, through the features that the file describes."""
    data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
    x, y, test = data["X"], data["y"], data["test_mask"][:, 0]
    x = (x - x[~test].mean(axis=0)) / x[~test].std(axis=0)
    y = (y - y[~test].mean()) / y[~test].std()
    lengthscales = np.array(entry["lengthscales"])
    frequencies = np.random.default_rng(1).standard_normal((x.shape[1], N_FREQUENCIES)) / lengthscales[:, None]
    features = FourierFeatures(frequencies, np.full(N_FREQUENCIES, np.sqrt(entry["sf2"] / N_FREQUENCIES)))
    statistics = collect_statistics(features, x[~test], np.ascontiguousarray(y[~test, None]), n_threads=1)
    noise = entry["sn2"]
    return Problem(name, features, statistics, x[test], y[test], noise * np.logspace(-1, 1, 15), noise)


def check(problem: Problem, entry: dict[str, Any]) -> float:
    """Return the largest relative difference between the statistics and what the file says of them."""
    s = problem.statistics
    found = {
        "n_train": s.n_samples,
        "yty": s.yty[0],
        "trace_A": s.A.trace(),
        "norm_A": np.linalg.norm(s.A),
        "norm_c": np.linalg.norm(s.c),
    }
    worst = max(abs(value / entry[key] - 1) for key, value in found.items())
    if worst > AGREEMENT:
        raise SystemExit(
            f"{problem.name}: the problem is not the one that the file describes, {found} differ by {worst:g}"
        )
    return float(worst)


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def in_turns(repeats: int, *calls: Callable[[], float]) -> list[float]:
    """Medians of the seconds that the calls return, taken in turns so that all see the same machine."""
    for call in calls:
        call()
    return [float(m) for m in np.median([[call() for call in calls] for _ in range(repeats)], axis=0)]


def one_cholesky(a: np.ndarray) -> float:
    """Seconds of a single-precision factorisation of A + I."""
    matrix = np.asfortranarray(a + np.eye(len(a)), dtype=np.float32)
    return seconds(lambda: lapack.spotrf(matrix, lower=1, overwrite_a=1))


def fit_raw(problem: Problem, optimizer: str) -> Any:
    """Posterior on the file's levels, prior and noise grid; what a noise grid's edge warns of is known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_mean_field(
            problem.statistics,
            LEVELS,
            GaussianPrior().log_mass(LEVELS),
            problem.noise_levels,
            optimizer=optimizer,
            n_threads=1,
        )


def test_scores(problem: Problem, posterior: Any) -> dict[str, float]:
    """RMSE, NLPD of the exact predictive mixture and coverage of its 90 % intervals on the held-out points."""
    phi = problem.features.transform(problem.x_test, np.float64, 1)
    mean, spread = phi @ posterior.mean, phi**2 @ posterior.variance
    predicted = PredictiveDistribution(posterior.noise.q, mean[:, None], spread[:, None] + posterior.noise.levels)
    lower, upper = predicted.interval(0.9)
    return {
        "rmse": float(np.sqrt(np.mean((problem.y_test - mean) ** 2))),
        "nlpd": float(-predicted.log_density(problem.y_test).mean()),
        "coverage_90": float(((lower <= problem.y_test) & (problem.y_test <= upper)).mean()),
    }


def compare(bound: float, entry: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """Differences to the file's bounds, and whether they are met."""
    targets = dict(
        zip(TARGETS, (entry["reference"]["elbo"], entry["start_pipeline_elbo"], entry["best_elbo"]), strict=True)
    )
    return {
        "elbo": bound,
        "above": {name: bound - target for name, target in targets.items()},
        "met": {name: bool(bound >= target - tolerance * abs(target)) for name, target in targets.items()},
    }


def measure_raw(problem: Problem, entry: dict[str, Any], optimizer: str, options: Any) -> dict[str, Any]:
    """Bound, time as a multiple of one factorisation, and scores of one optimiser."""
    posterior = fit_raw(problem, optimizer)
    repeats = options.repeats if optimizer != "lbfgs" else 1
    fit, unit = in_turns(
        repeats, lambda: seconds(lambda: fit_raw(problem, optimizer)), lambda: one_cholesky(problem.statistics.A)
    )
    return {
        **compare(posterior.elbo - problem.constant, entry, options.tolerance),
        "converged": posterior.converged,
        "seconds": fit,
        "cholesky_seconds": unit,
        "multiple": fit / unit,
        **test_scores(problem, posterior),
    }


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def show_raw(figures: dict[str, Any]) -> None:
    print("ELBO, nats above the file's values, met (x) or not (-) in the same order")
    print(
        f"{'problem':<10}{'optimizer':<20}{'ELBO':>12}{'reference':>12}{'start':>10}{'best':>10}  met"
        f"{'seconds':>9}{'x spotrf':>9}{'RMSE':>7}{'NLPD':>8}{'cover':>7}"
    )
    for name, problem in figures.items():
        for optimizer, f in problem["raw"].items():
            met = "".join("x" if f["met"][target] else "-" for target in TARGETS)
            reference, start, best = (f["above"][target] for target in TARGETS)
            print(
                f"{name:<10}{optimizer:<20}{f['elbo']:>12.4f}{reference:>+12.4f}{start:>+10.4f}{best:>+10.4f}  {met}"
                f"{f['seconds']:>9.4f}{f['multiple']:>9.2f}{f['rmse']:>7.3f}{f['nlpd']:>8.3f}{f['coverage_90']:>7.2f}"
            )


def summarise(figures: dict[str, Any], optimizers: list[str]) -> dict[str, Any]:
    """Geometric means of the multiples, and how many problems meet each bound."""
    raw = {o: [p["raw"][o] for p in figures.values()] for o in optimizers}
    return {
        "multiple_of_cholesky": {o: geometric_mean([f["multiple"] for f in raw[o]]) for o in optimizers},
        "met": {o: {t: sum(f["met"][t] for f in raw[o]) for t in TARGETS} for o in optimizers},
    }


def show_summary(summary: dict[str, Any], n_problems: int) -> None:
    print("\ngeometric means and bounds met")
    for optimizer, multiple in summary["multiple_of_cholesky"].items():
        met = ", ".join(f"{target} {count}/{n_problems}" for target, count in summary["met"][optimizer].items())
        print(f"  {optimizer:<20}{multiple:>7.2f} x spotrf    {met}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="names; all six by default")
    parser.add_argument("--all", action="store_true", help="every optimiser, the published L-BFGS among them")
    parser.add_argument("--repeats", type=int, default=5, help="timed repetitions, medians count (default 5)")
    parser.add_argument("--tolerance", type=float, default=5e-4, help="fraction by which a bound may be missed (5e-4)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures there")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    folder = data_folder()
    if folder is None:
        print("skipped: no reference_problems.json (set PYDIRECT_DATA to the folder that holds it)")
        return 0
    entries = json.loads((folder / "reference_problems.json").read_text())["problems"]
    names = options.problems or list(entries)
    if unknown := [name for name in names if name not in entries]:
        raise SystemExit(f"unknown problem {', '.join(unknown)}; there are {', '.join(entries)}")
    optimizers = list(OPTIMIZERS) if options.all else ["pipeline"]

    figures: dict[str, Any] = {}
    for name in names:
        print(f"{name} ...", end=" ", flush=True, file=sys.stderr)
        problem = build(name, entries[name], folder)
        figures[name] = {
            "difference_to_file": check(problem, entries[name]),
            "raw": {o: measure_raw(problem, entries[name], o, options) for o in optimizers},
        }
    print(file=sys.stderr)
    worst = max(p["difference_to_file"] for p in figures.values())
    print(f"statistics agree with the file to {worst:.1e} (relative)\n")
    show_raw(figures)
    summary = summarise(figures, optimizers)
    show_summary(summary, len(figures))
    if options.json:
        options.json.write_text(json.dumps({"problems": figures, "summary": summary}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
