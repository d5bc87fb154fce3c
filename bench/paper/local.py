"""Local process of `DirectRegressor`: what it gains, that it stays off without detail, what it costs.

    python bench/paper/local.py [--problems elevators,protein,airfoil,noise20,lin30,prod32]

One thread; the first fold of UCI sets; problems with a number are synthetic: x ~ N(0, I), 8192 rows, noise of a fifth
of the function's spread. For each problem: RMSE and NLPD without and with 32 neighbours forced, what "auto" decides and
whether it then predicts the same bits as without, and seconds of processor time: of fits, and of 1000 predictions with
standard deviations. The second table has milliseconds of a query for 32 of 40,000 neighbours.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from sklearn.neighbors import NearestNeighbors  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402
from pydirect.noise import local as neighbours  # noqa: E402

DATA = Path(os.environ.get("PYDIRECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "uci"
N_FEATURES = {"protein": 1000, "elevators": 1000, "prod32": 1000}  # 500 for the others
SYNTHETIC: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "noise20": (20, lambda x: np.zeros(len(x))),
    "lin30": (30, lambda x: x[:, :10] @ np.linspace(-1, 1, 10)),
    "prod32": (32, lambda x: np.sin(2 * x[:, 3] * x[:, 7]) + x[:, 11] * x[:, 20]),
}


def rows_of(name: str) -> tuple[np.ndarray, ...]:
    """Training rows and targets, test rows and targets."""
    if name in SYNTHETIC:
        d, function = SYNTHETIC[name]
        rng = np.random.default_rng(0)
        x = rng.standard_normal((9192, d))
        f = function(x)
        y = f + (0.2 * f.std() or 1.0) * rng.standard_normal(len(x))
        return x[:8192], y[:8192], x[8192:], y[8192:]
    data = np.load(DATA / f"{name}.npz")
    test = data["test_mask"][:, 0]
    return data["X"][~test], data["y"][~test], data["X"][test], data["y"][test]


def report(name: str) -> None:
    """Print one row of the first table."""
    x, y, new, target = rows_of(name)
    line, models, predictions = f"{name:10s} {len(x):6d}", {}, {}
    for local in (False, 32, "auto"):
        begin = time.process_time()
        models[local] = model = DirectRegressor(n_basis_functions=N_FEATURES.get(name, 500), local=local).fit(x, y)
        fitted = time.process_time()
        model.predict(new[:1000], return_std=True)
        predicted = time.process_time()
        mean, _ = predictions[local] = model.predict(new, return_std=True)
        rmse, nlpd = np.sqrt(np.mean((mean - target) ** 2)), -model.log_predictive_density(new, target).mean()
        line += f" | {rmse:.4g} {nlpd:.3f} {fitted - begin:.2f} {(predicted - fitted) * 1000 / min(len(new), 1000):.2f}"
    same = all(np.array_equal(a, b) for a, b in zip(predictions[False], predictions["auto"], strict=True))
    decision = "off" if models["auto"].local_ is None else "on"
    print(f"{line} | {decision}{', same bits' if same else ''}, gain {models[32].local_.gain[0]:.3f}", flush=True)


def report_neighbours() -> None:
    """Print the second table."""
    print("\ncolumns | tree, scikit-learn's tree, all distances, scikit-learn's, taken (ms a query)")
    rng, limit = np.random.default_rng(0), neighbours.MOST_TREE_DIMENSIONS
    for d in (2, 4, 6, 10, 30, 100):
        rows, queries = (rng.standard_normal((n, d)).astype(np.float32) for n in (40_000, 500))
        searches: list[Callable[[], object]] = []
        for most in (np.inf, 0.0):
            neighbours.MOST_TREE_DIMENSIONS, found = most, neighbours.Neighbours(rows)
            found.prepare()
            reference = NearestNeighbors(n_neighbors=32, algorithm="brute" if most == 0 else "kd_tree").fit(rows)
            searches += [partial(found.nearest, queries, 32), partial(reference.kneighbors, queries)]
        neighbours.MOST_TREE_DIMENSIONS = limit
        seconds = []
        for search in searches:
            begin = time.process_time()
            search()
            seconds.append(time.process_time() - begin)
        tree = neighbours.Neighbours(rows)._tree is not None
        print(
            f"{d:4d} | {' '.join(f'{1000 * s / 500:.3f}' for s in seconds)} | {'tree' if tree else 'all'}", flush=True
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="elevators,protein,airfoil,noise20,lin30,prod32")
    print("problem      rows | without: RMSE, NLPD, seconds of the fit, of 1000 predictions | 32 | auto | decision")
    for name in parser.parse_args().problems.split(","):
        report(name)
    report_neighbours()


if __name__ == "__main__":
    main()
