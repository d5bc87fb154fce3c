"""Default fits of simulated tables, from 250 to 6000 rows: errors, densities, coverage, seconds, beside earlier ones.

    python bench/scripts/default_fits.py [table ...] [--seeds 0 1] [--save fits.json] [--against earlier.json]

For every table and seed `DirectRegressor()` on the leading rows, judged on the others: root mean square error and mean
negative log density in standard deviations of the targets, share of 90 % intervals that hold, seconds of the processor
and evaluations of the kernel's search. To compare two states of the package, save with one and name the file with the
other. All on one thread. Without names, all tables.
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

import numpy as np  # noqa: E402
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402

N_TEST, LEVEL = 2000, 0.9
Generator = np.random.Generator
Table = tuple[int, Callable[[Generator, int], tuple[np.ndarray, np.ndarray]]]  # rows of the fit; X and y of n rows


def friedman(make: Callable[..., tuple[np.ndarray, np.ndarray]], noise: float) -> Callable[..., tuple]:
    """Return one of Friedman's tables with noise in standard deviations of y."""

    def table(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = make(n, random_state=int(rng.integers(2**31)))
        return X, y + noise * y.std() * rng.standard_normal(n)

    return table


def of_normal(d: int, f: Callable[[np.ndarray], np.ndarray], noise: float) -> Callable[..., tuple]:
    """Return a function of d standard normal columns, with noise."""

    def table(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.standard_normal((n, d))
        return X, f(X) + noise * rng.standard_normal(n)

    return table


def of_uniform(d: int, reach: float, f: Callable[[np.ndarray], np.ndarray], noise: float) -> Callable[..., tuple]:
    """Return a function of d columns that are uniform within ±reach, with noise."""

    def table(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(-reach, reach, (n, d))
        return X, f(X) + noise * rng.standard_normal(n)

    return table


def ridges(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sines along eight directions of eight columns."""
    X, directions = rng.uniform(-1, 1, (n, 8)), rng.standard_normal((8, 8))
    return X, np.sin(1.5 * X @ directions + np.arange(8)).sum(axis=1) + 0.15 * rng.standard_normal(n)


def charges(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Positive targets with multiplicative noise; integers and flags among the columns."""
    age, mass = rng.integers(18, 65, n), 30 + 6 * rng.standard_normal(n)
    children, smokes, region = rng.integers(0, 5, n), rng.random(n) > 0.8, rng.random(n) > 0.5
    X = np.column_stack([age, mass, children, smokes, region]).astype(float)
    return X, np.exp(8 + 0.03 * age + smokes * (1 + 0.03 * mass) + 0.3 * rng.standard_normal(n))


def places(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A rough function of two coordinates beside linear effects."""
    place, z = rng.uniform(0, 10, (n, 2)), rng.standard_normal((n, 4))
    rough = np.cos(2 * place @ rng.standard_normal((2, 200)) + rng.uniform(0, 6, 200)).sum(axis=1) / 10
    return np.hstack([place, z]), 0.7 * z[:, 0] + 0.5 * rough + 0.35 * rng.standard_normal(n)


def varying(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise whose deviation follows a column."""
    X = rng.standard_normal((n, 5))
    return X, np.sin(X[:, 0]) + np.exp(0.7 * X[:, 1] - 1) * rng.standard_normal(n)


def codes(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rules over columns of four values."""
    X = rng.integers(0, 4, (n, 8)).astype(float)
    rules = 2.0 * (X[:, 0] == X[:, 1]) + (X[:, 2] > 1) * (X[:, 3] < 2)
    return X, rules + 0.4 * rng.standard_normal(n)


def countries(rng: Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A line of years for each of a hundred names."""
    level, slope = rng.standard_normal((2, 100))
    country, year = rng.integers(100, size=n), rng.integers(12, size=n)
    X = np.array([(f"country {k}", t) for k, t in zip(country, year, strict=True)], dtype=object)
    return X, level[country] + 0.1 * slope[country] * (year - 5.5) + 0.05 * rng.standard_normal(n)


TABLES: dict[str, Table] = {
    "friedman1": (800, friedman(make_friedman1, 0.1)),
    "friedman2": (1500, friedman(make_friedman2, 0.1)),
    "friedman3": (3000, friedman(make_friedman3, 0.1)),
    "noisy friedman1": (250, friedman(make_friedman1, 0.6)),
    "linear": (1000, of_normal(12, lambda X: X @ np.cos(np.arange(12)), 1.0)),
    "nearly nothing": (4000, of_normal(10, lambda X: 0.3 * X[:, 0], 1.0)),
    "product": (2000, of_normal(12, lambda X: X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]), 0.3)),
    "steps": (3000, of_uniform(4, 1, lambda X: 2.0 * (X[:, 0] > 0.2) + (X[:, 1] > -0.3) * (X[:, 2] > 0), 0.2)),
    "additive": (4000, of_uniform(6, 2, lambda X: np.sin(3 * X).sum(axis=1), 0.5)),
    "pairs": (
        700,
        of_uniform(6, 2, lambda X: np.sin(2 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) * np.sin(X[:, 3]), 0.3),
    ),
    "ridges": (2500, ridges),
    "many ridges": (5000, ridges),
    "charges": (1300, charges),
    "places": (4000, places),
    "varying noise": (6000, varying),
    "codes": (1800, codes),
    "countries": (840, countries),
}
COLUMNS = ("rmse", "nlpd", "coverage", "seconds", "evaluations")


def measure(name: str, seed: int) -> dict[str, float]:
    """Fit the leading rows of a table and judge the others."""
    n, table = TABLES[name]
    X, y = table(np.random.default_rng(seed), n + N_TEST)
    unit = float(y[:n].std())
    begin = time.process_time()
    model = DirectRegressor(random_state=0).fit(X[:n], y[:n])
    seconds = time.process_time() - begin
    X, y = X[n:], y[n:]
    lower, upper = model.predict_interval(X, LEVEL)
    return {
        "rmse": float(np.sqrt(np.mean((model.predict(X) - y) ** 2))) / unit,
        "nlpd": float(-np.mean(model.log_predictive_density(X, y)) - np.log(unit)),
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
        "seconds": seconds,
        "evaluations": model.search_.n_evaluations,
    }


def line(name: str, now: dict[str, float], before: dict[str, float] | None) -> str:
    """Return a line of the table, with what was before in brackets."""
    cells = []
    for column in COLUMNS:
        style = {"seconds": ".2f", "evaluations": ".0f"}.get(column, ".3f")
        cells.append(f"{now[column]:{style}}" + ("" if before is None else f" ({before[column]:{style}})"))
    return f"{name:20s}" + "".join(f"{cell:>18s}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help=", ".join(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    unknown = set(args.tables) - set(TABLES)
    if unknown:
        parser.error(f"unknown tables: {', '.join(sorted(unknown))}")
    earlier = {} if args.against is None else json.loads(args.against.read_text())
    found = {}
    print(f"{'':20s}" + "".join(f"{column:>18s}" for column in COLUMNS))
    for name in args.tables or TABLES:
        for seed in args.seeds:
            key = f"{name} {seed}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[key] = measure(name, seed)
            print(line(key, found[key], earlier.get(key)), flush=True)
    shared = [(found[key], earlier[key]) for key in found if key in earlier]
    if shared:
        nlpd = np.mean([now["nlpd"] - before["nlpd"] for now, before in shared])
        ratios = {c: np.exp(np.mean([np.log(now[c] / then[c]) for now, then in shared])) for c in ("rmse", "seconds")}
        print(
            f"mean change of nlpd {nlpd:+.4f}, ratio of rmse {ratios['rmse']:.3f}, of seconds {ratios['seconds']:.2f}"
        )
    if args.save is not None:
        args.save.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
