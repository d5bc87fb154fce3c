"""`DirectSampler` for Optuna beside TPE, random search and Optuna's sampler of Gaussian processes.

    python bench/scripts/optimisers.py regret [--seeds 20] [--trials 60] [--samplers direct tpe random gp]
    python bench/scripts/optimisers.py seconds [--sizes 10 100 1000 10000] [--samplers direct tpe random gp]

``regret``: median over the seeds of the distance from the optimum, at the trial that a user of ``study.best_trial``
would take, and seconds of the processor until half of the seeds were within the last column's distance. ``seconds`` per
suggestion after so many trials of Hartmann's function: the median of some, and the mean with rebuilt models included.
Problems: Branin (2 numbers), Hartmann (6), Hartmann with noise of standard deviation 0.2, and ``mixed``, three forms of
Branin chosen by a category with its second number rounded. Samplers have their defaults, ``gp-exact`` also
``deterministic_objective=True``; ``gp`` needs torch. Regret is written to a file run by run, and goes on from there.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import draws  # noqa: E402
import numpy as np  # noqa: E402
import optuna  # noqa: E402

from pydirect.adapters import DirectSampler  # noqa: E402

Objective = Callable[[optuna.Trial], float]
SAMPLERS: dict[str, Callable[[int], Any]] = {
    "direct": lambda seed: DirectSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "gp-exact": lambda seed: optuna.samplers.GPSampler(seed=seed, deterministic_objective=True),
}
# Most trials for which seconds are measured: the next size would take hours or gigabytes.
LARGEST = {"gp": 1000, "gp-exact": 1000}


def branin(x: float, y: float) -> float:
    """Branin's function above its minimum."""
    return -0.39788735772973816 - float(draws.branin(np.array([[(x + 5) / 15, y / 15]]))[0])


def hartmann(u: np.ndarray) -> float:
    """Hartmann's function of six numbers above its minimum."""
    return 3.3223680114155147 - float(draws.hartmann6(u[None])[0])


def branin_of(trial: optuna.Trial) -> float:
    return branin(trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15))


def hartmann_of(trial: optuna.Trial) -> float:
    return hartmann(np.array([trial.suggest_float(f"x{j}", 0, 1) for j in range(6)]))


def mixed_of(trial: optuna.Trial) -> float:
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_int("y", 0, 15)
    kind = trial.suggest_categorical("kind", ["plain", "turned", "raised"])
    return mixed(kind, x, y) - LEAST_MIXED


def mixed(kind: str, x: float, y: int) -> float:
    return {"plain": branin(x, y) + 1, "turned": branin(5 - x, 15 - y), "raised": 2 * branin(x, 15 - y) + 3}[kind]


LEAST_MIXED = 0.03444859551954  # of "turned", by bounded minimisation for every y
# Objective, deviation of its noise, and the distance of the table's last column.
PROBLEMS: dict[str, tuple[Objective, float, float]] = {
    "branin": (branin_of, 0.0, 0.01),
    "hartmann": (hartmann_of, 0.0, 0.1),
    "noisy": (hartmann_of, 0.2, 0.5),
    "mixed": (mixed_of, 0.0, 0.1),
}


def one_run(problem: str, sampler: str, seed: int, n_trials: int) -> dict[str, list[float]]:
    """Regret of the trial that is best so far by what was observed, and seconds until then, for each trial."""
    objective, noise, _ = PROBLEMS[problem]
    rng = np.random.default_rng([seed, 1])
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed))
    observed, exact, regret, seconds = [], [], [], []
    begin = time.process_time()
    for _ in range(n_trials):
        trial = study.ask()
        exact.append(objective(trial))
        observed.append(exact[-1] + noise * rng.standard_normal())
        study.tell(trial, observed[-1])
        regret.append(exact[int(np.argmin(observed))])
        seconds.append(time.process_time() - begin)
    return {"regret": regret, "seconds": seconds}


def regrets(options: argparse.Namespace) -> None:
    done = json.loads(options.file.read_text()) if options.file.exists() else {}
    for seed in range(options.seeds):
        for problem in options.problems:
            for sampler in options.samplers:
                key = f"{problem}/{sampler}/{seed}/{options.trials}"
                if key not in done:
                    done[key] = one_run(problem, sampler, seed, options.trials)
                    options.file.write_text(json.dumps(done))
    steps = [n for n in (20, 40, 60, 100, 200) if n <= options.trials]
    for problem in options.problems:
        near = PROBLEMS[problem][2]
        print(f"\n{problem:12s} seeds" + "".join(f"  {n:>5d} trials" for n in steps) + f"   s/trial   s to {near:g}")
        for sampler in options.samplers:
            runs = [
                run
                for seed in range(options.seeds)
                if (run := done.get(f"{problem}/{sampler}/{seed}/{options.trials}")) is not None
            ]
            regret = np.maximum(np.array([run["regret"] for run in runs]), 1e-12)
            seconds = np.array([run["seconds"] for run in runs])
            within = regret <= near
            reached = np.where(within.any(axis=1), seconds[np.arange(len(runs)), within.argmax(axis=1)], np.inf)
            columns = "".join(f"  {np.median(regret[:, n - 1]):12.2g}" for n in steps)
            per_trial = np.median(seconds[:, -1]) / options.trials
            print(f"  {sampler:10s} {len(runs):5d}{columns}  {per_trial:8.3f}  {np.median(reached):8.2f}", flush=True)


def seconds(options: argparse.Namespace) -> None:
    print("seconds of the processor per suggestion, median (mean)")
    print(f"{'trials':>10s}" + "".join(f"{n:>18d}" for n in options.sizes))
    distributions = {f"x{j}": optuna.distributions.FloatDistribution(0, 1) for j in range(6)}
    for sampler in options.samplers:
        cells = []
        for size in options.sizes:
            if size > LARGEST.get(sampler, size):
                cells.append(f"{'—':>18s}")
                continue
            rows = np.random.default_rng(0).random((size, 6))
            study = optuna.create_study(sampler=SAMPLERS[sampler](0))
            trials = [
                optuna.trial.create_trial(
                    params={f"x{j}": row[j] for j in range(6)}, distributions=distributions, value=hartmann(row)
                )
                for row in rows
            ]
            study.add_trials(trials)
            spent = []
            for _ in range(options.suggestions if size < 1000 or sampler not in LARGEST else 2):
                begin = time.process_time()
                trial = study.ask()
                value = hartmann_of(trial)
                spent.append(time.process_time() - begin)
                study.tell(trial, value)
            cells.append(f"{np.median(spent):9.4f} ({np.mean(spent):.4f})".rjust(18))
        print(f"{sampler:>10s}" + "".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("regret", "seconds"))
    parser.add_argument("--samplers", nargs="+", default=["direct", "tpe", "random", "gp"], choices=tuple(SAMPLERS))
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=tuple(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--suggestions", type=int, default=20, help="suggestions whose seconds are measured")
    parser.add_argument("--file", type=Path, default=Path("optimisers.json"), help="where regrets are kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    {"regret": regrets, "seconds": seconds}[options.what](options)


if __name__ == "__main__":
    main()
