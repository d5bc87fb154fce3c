"""Seconds of the stages of a default fit, what of them is serial, and what more threads would make of it.

    python bench/scripts/stages.py [--rows 2000 8000 36000] [--threads 1 2 16 64]

A fit on one thread is watched call by call. Serial is what runs neither in the package's compiled code, which takes any
number of threads, nor in tasks that go on side by side; seconds on n threads are those of Amdahl's law with perfect
shares, tasks limited by their number. Watching makes calls of Python slower: serial shares are upper bounds.
y = sin(x0 x1) + cos(x2 + x3) + x4²/2 + .1 e of eight standard normal columns.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from types import FrameType
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402

from pydirect import DirectRegressor, _core  # noqa: E402
from pydirect.features import race, search  # noqa: E402

# Functions whose calls are stages, the innermost counting; everything else is "rest".
STAGES = {
    "search_kernel": "search: exact evidence",
    "search_nearest": "search: nearest rows",
    "pair_start": "search: starts of pairs",
    "try_axes": "search: parts of axes",
    "Referee.__call__": "search: evidence of all rows",
    "spread_landmarks": "landmarks",
    "collect": "sums over rows",
    "diagonalise": "eigenvectors",
    "fit_weights": "weights",
    "_left_out": "whether landmarks are enough",
    "choose_noise": "noise",
    "fit_local": "local process",
}


class Watch:
    """Processor seconds of each stage: serial, in compiled code on any number of threads, in tasks by their number."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[float, float]] = {}  # by the number of threads that can take part
        self.inside: list[tuple[str, int]] = [("rest", 1)]
        self.compiled, self.last = False, time.process_time()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        (stage, n_tasks), spent = self.inside[-1], time.process_time() - self.last
        of_stage, width = self.seconds.setdefault(stage, {}), float("inf") if self.compiled else n_tasks
        of_stage[width] = of_stage.get(width, 0.0) + spent
        name = frame.f_code.co_qualname
        self.compiled = event == "c_call" and (argument.__module__ or "").startswith(_core.__name__)
        if event == "call":
            tasks = frame.f_locals["n_workers"] if name == "for_each" else 1
            self.inside.append((STAGES.get(name, stage), max(tasks, n_tasks)))
        elif event == "return" and len(self.inside) > 1:
            self.inside.pop()
        self.last = time.process_time()


def seconds_on(n_threads: int, parts: dict[float, float]) -> float:
    return sum(spent / min(n_threads, width) for width, spent in parts.items())


def problem(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 8))
    y = np.sin(x[:, 0] * x[:, 1]) + np.cos(x[:, 2] + x[:, 3]) + x[:, 4] ** 2 / 2 + 0.1 * rng.standard_normal(n)
    return x, y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 8_000, 36_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 16, 64])
    args = parser.parse_args()
    DirectRegressor().fit(*problem(50))
    # Tasks side by side are counted as such, but run one after another, so that each can be watched.
    for module in (race, search):
        module.workers_for = lambda objective, runs: len(runs) if objective.n_rows >= race.ROWS_FOR_THREADS else 1
        module.for_each = for_each = lambda task, items, n_workers, stop: [task(item) for item in items]
        for_each.__code__ = for_each.__code__.replace(co_qualname="for_each")
    for n in args.rows:
        given, watch = problem(n), Watch()
        sys.setprofile(watch)
        DirectRegressor().fit(*given)
        sys.setprofile(None)
        whole: dict[float, float] = {}
        print(f"{n} rows", *(f"{k} threads".rjust(11) for k in args.threads), "    serial")
        for stage, parts in [*watch.seconds.items(), ("whole fit", whole)]:
            for width, spent in parts.items():
                whole[width] = whole.get(width, 0.0) + (spent if parts is not whole else 0.0)
            total = sum(parts.values())
            times = (f"{seconds_on(k, parts):11.3f}" for k in args.threads)
            print(f"  {stage:30s}", *times, f"{parts.get(1, 0.0) / total:9.0%}")


if __name__ == "__main__":
    main()
